//! Conversions between integers that `From` does not have and that lose nothing, and cuts that are meant.
//!
//! Numbers from outside (wire, disk, user, kernel) are checked with `try_from` where they come in. The functions here are for numbers whose range
//! is known: a length in memory, an offset that was compared with one, the low bits of a hash.

use std::time::Duration;

// Servers and clients are programs of 64 bits: a u64 counts everything that a usize counts, and the other way round.
const _: () = assert!(usize::BITS == 64, "Brindle is built for 64 bits only");

/// Length or index in memory of a 64-bit number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a usize has 64 bits")]
pub const fn to_usize(n: u64) -> usize {
    n as usize
}

/// Number of 64 bits of a length or an index.
#[inline]
pub const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// Index in memory of a 32-bit number.
#[inline]
pub const fn index(n: u32) -> usize {
    n as usize
}

/// Length as 32 bits. Panics if the caller's bound does not hold.
#[inline]
pub fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a length that its bound keeps below 2^32")
}

/// Length as 16 bits. Panics if the caller's bound does not hold.
#[inline]
pub fn len_u16(len: usize) -> u16 {
    u16::try_from(len).expect("a length that its bound keeps below 2^16")
}

/// Number as 32 bits. Panics if the caller's bound does not hold.
#[inline]
pub fn bounded_u32(n: u64) -> u32 {
    u32::try_from(n).expect("a number that its bound keeps below 2^32")
}

/// The lower 32 bits.
#[inline]
pub const fn low_u32(n: u64) -> u32 {
    (n & 0xffff_ffff) as u32
}

/// The lower 16 bits.
#[inline]
pub const fn low_u16(n: u64) -> u16 {
    (n & 0xffff) as u16
}

/// The lowest 8 bits.
#[inline]
pub const fn low_u8(n: u64) -> u8 {
    (n & 0xff) as u8
}

/// A count as a signed number; counts above `i64::MAX` become that.
#[inline]
pub fn to_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A signed number as a count; numbers below 0 become 0.
#[inline]
pub fn from_i64(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// Nanoseconds of a duration; those of more than 584 years become `u64::MAX`.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds of a duration.
#[inline]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds of a duration.
#[inline]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_fit_stay_what_they_are() {
        assert_eq!((to_usize(u64::MAX), to_u64(usize::MAX)), (usize::MAX, u64::MAX));
        assert_eq!(
            (index(u32::MAX), len_u32(0xffff_ffff), len_u16(0xffff)),
            (0xffff_ffff, u32::MAX, u16::MAX)
        );
        assert_eq!((to_i64(5), from_i64(5), bounded_u32(0xffff_ffff)), (5, 5, u32::MAX));
    }

    #[test]
    fn numbers_that_do_not_fit_stop_at_the_bound_or_are_cut_to_their_low_bits() {
        assert_eq!((to_i64(u64::MAX), from_i64(i64::MIN)), (i64::MAX, 0));
        let bits = 0x1234_5678_9abc_def0;
        assert_eq!((low_u32(bits), low_u16(bits), low_u8(bits)), (0x9abc_def0, 0xdef0, 0xf0));
        assert_eq!(
            (nanos(Duration::MAX), micros(Duration::MAX), millis(Duration::MAX)),
            (u64::MAX, u64::MAX, u64::MAX)
        );
    }

    #[test]
    #[should_panic(expected = "below 2^32")]
    fn a_length_above_its_bound_is_a_mistake_of_the_caller() {
        len_u32(1 << 32);
    }
}
