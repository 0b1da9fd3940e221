//! The arithmetic of striping: unit `n` of a component lies in stripe `n % count`, at unit `n / count` of its object.
//! Offsets are those of the file; units are counted from the origin of the component.

use std::ops::Range;

use brindle_types::layout::{
    Component, FILE_SIZE_MAX_BYTES, STRIPE_COUNT_MAX, STRIPE_SIZE_MAX_BYTES, STRIPE_SIZE_UNIT_BYTES,
};
use brindle_types::{Code, Fault, Stripe};

/// Place of one byte of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytePosition {
    /// Stripe within the component.
    pub stripe: u32,
    /// Byte within that stripe's object.
    pub object_offset: u64,
}

/// A run of bytes that is contiguous both in the file and in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeExtent {
    /// Stripe of the object.
    pub stripe: Stripe,
    /// OST that holds the object.
    pub ost: u16,
    /// First byte within the object.
    pub object_offset: u64,
    /// First byte within the file.
    pub file_offset: u64,
    /// Length in bytes, never 0.
    pub len_bytes: u64,
}

/// All bytes of a file range that lie in one object: contiguous in the object, in pieces in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRange {
    /// Stripe of the object.
    pub stripe: Stripe,
    /// OST that holds the object.
    pub ost: u16,
    /// First byte within the object.
    pub object_offset: u64,
    /// Length in bytes, never 0.
    pub len_bytes: u64,
}

impl ObjectRange {
    /// The range in pieces that are contiguous in the file too, in order.
    pub fn pieces<'a>(&self, c: &'a Component) -> impl Iterator<Item = StripeExtent> + 'a {
        let (size, count) = geometry(c);
        let ObjectRange { stripe, ost, mut object_offset, len_bytes } = *self;
        let end = object_offset.saturating_add(len_bytes);
        std::iter::from_fn(move || {
            let file_offset = file_offset(c, stripe.index, object_offset).filter(|_| object_offset < end)?;
            // A single stripe is contiguous in the file from end to end.
            let unit_end = if count == 1 { end } else { (object_offset / size + 1).saturating_mul(size) };
            let len_bytes = unit_end.min(end) - object_offset;
            let piece = StripeExtent { stripe, ost, object_offset, file_offset, len_bytes };
            object_offset += len_bytes;
            Some(piece)
        })
    }
}

/// Stripe size and count; both are above 0 in every component that passed [`check`].
fn geometry(c: &Component) -> (u64, u64) {
    assert!(c.stripe_size_bytes > 0 && !c.osts.is_empty(), "component was not checked");
    (u64::from(c.stripe_size_bytes).max(1), (c.osts.len() as u64).max(1))
}

/// Whether a component that came from outside is possible; everything else here relies on it.
pub fn check(c: &Component) -> Result<(), Fault> {
    let size = c.stripe_size_bytes;
    if size == 0 || !size.is_multiple_of(STRIPE_SIZE_UNIT_BYTES) || size > STRIPE_SIZE_MAX_BYTES {
        return Err(Fault::new(Code::BadStripe).why(format!("a stripe size of {size} bytes")));
    }
    if c.osts.len() > STRIPE_COUNT_MAX as usize {
        return Err(Fault::new(Code::BadStripe).why(format!("{} stripes", c.osts.len())));
    }
    Ok(())
}

/// Index of the stripe that holds a unit of the component.
fn stripe_of(unit: u64, count: u64) -> u32 {
    u32::try_from(unit % count).expect("a component has less than 2^32 stripes")
}

/// Place of byte `offset` of the file, which must lie in the component.
pub fn locate(c: &Component, offset: u64) -> BytePosition {
    let (size, count) = geometry(c);
    let offset = offset.saturating_sub(c.origin);
    let unit = offset / size;
    BytePosition { stripe: stripe_of(unit, count), object_offset: unit / count * size + offset % size }
}

/// The byte of the file that byte `object_offset` of a stripe's object is, if the component reached so far; `None`
/// beyond what 64 bits express.
pub fn file_offset(c: &Component, stripe: u32, object_offset: u64) -> Option<u64> {
    let (size, count) = geometry(c);
    let unit = (object_offset / size).checked_mul(count)?.checked_add(u64::from(stripe))?;
    unit.checked_mul(size)?.checked_add(object_offset % size)?.checked_add(c.origin)
}

/// Length of a stripe's object in a file of `file_size_bytes` without holes, as far as this component needs it.
pub(crate) fn object_len(c: &Component, stripe: u32, file_size_bytes: u64) -> u64 {
    if file_size_bytes <= c.start { 0 } else { object_offset(c, stripe, file_size_bytes) }
}

/// First byte of a stripe's object that lies at or after a byte of the file; one of the component's, or its end.
pub fn object_offset(c: &Component, stripe: u32, file_offset: u64) -> u64 {
    let (size, count) = geometry(c);
    let here = file_offset.clamp(c.start, c.end) - c.origin;
    let units = here / size;
    let (rows, last) = (units / count, units % count);
    let stripe = u64::from(stripe);
    let tail = match stripe.cmp(&last) {
        std::cmp::Ordering::Less => size,
        std::cmp::Ordering::Equal => here % size,
        std::cmp::Ordering::Greater => 0,
    };
    rows * size + tail
}

/// Size of the file as far as one object tells about this component: the end of its last byte there. At most the largest
/// file.
pub(crate) fn file_size_from(c: &Component, stripe: u32, object_len_bytes: u64) -> u64 {
    let Some(last) = object_len_bytes.checked_sub(1) else { return 0 };
    let end = file_offset(c, stripe, last).map_or(u64::MAX, |at| at.saturating_add(1));
    if end <= c.start { 0 } else { end.min(c.end).min(FILE_SIZE_MAX_BYTES) }
}

/// The range of a component in pieces that are contiguous in file and object, in order of the file. With one stripe the
/// whole range is one piece.
pub fn extents(c: &Component, range: Range<u64>) -> Vec<StripeExtent> {
    let (size, count) = geometry(c);
    let mut out = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let unit_end = match count {
            1 => range.end,
            _ => (((at - c.origin) / size + 1).saturating_mul(size)).saturating_add(c.origin).min(range.end),
        };
        let BytePosition { stripe, object_offset } = locate(c, at);
        let ost = c.osts[stripe as usize];
        let stripe = Stripe { generation: c.generation, index: stripe };
        out.push(StripeExtent { stripe, ost, object_offset, file_offset: at, len_bytes: unit_end - at });
        at = unit_end;
    }
    out
}

/// The range of a component as one range for each object it touches, in order of the file's first touch.
pub fn object_ranges(c: &Component, range: Range<u64>) -> Vec<ObjectRange> {
    stripes_touched(c, range.clone())
        .map(|stripe| {
            let start = object_offset(c, stripe, range.start);
            let end = object_offset(c, stripe, range.end);
            let ost = c.osts[stripe as usize];
            let stripe = Stripe { generation: c.generation, index: stripe };
            ObjectRange { stripe, ost, object_offset: start, len_bytes: end - start }
        })
        .collect()
}

/// The stripes that hold bytes of the range, in order of first touch.
pub fn stripes_touched(c: &Component, range: Range<u64>) -> impl Iterator<Item = u32> + use<> {
    let (size, count) = geometry(c);
    let unit = |offset: u64| offset.saturating_sub(c.origin) / size;
    let first = unit(range.start);
    let touched = if range.end <= range.start { 0 } else { (unit(range.end - 1) - first + 1).min(count) };
    (0..touched).map(move |i| stripe_of(first % count + i, count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use brindle_types::layout::EOF;
    use brindle_types::{Pair, StripePolicy};
    use proptest::prelude::*;

    pub(crate) fn component(units: u32, count: u16) -> Component {
        Component {
            start: 0,
            end: EOF,
            origin: 0,
            generation: Pair { term: 1, counter: 9 },
            stripe_size_bytes: units * STRIPE_SIZE_UNIT_BYTES,
            asked: StripePolicy::default(),
            osts: (0..count).map(|i| i * 3 + 1).collect(),
            objects: Vec::new(),
        }
    }

    /// Components that begin anywhere, with objects that begin there or before, and reach as far as any offset below.
    fn components() -> impl Strategy<Value = Component> {
        let starts = prop_oneof![Just((0u64, 0u64)), (0u64..40, 0u64..40)];
        (prop_oneof![1u32..8, Just(16384)], prop_oneof![1u16..9, Just(2000)], starts).prop_map(
            |(units, count, (origin, gone))| Component {
                start: (origin + gone) * u64::from(STRIPE_SIZE_UNIT_BYTES),
                origin: origin * u64::from(STRIPE_SIZE_UNIT_BYTES),
                ..component(units, count)
            },
        )
    }

    /// Offsets at critical places: small ones, around 16 TiB, at the end of the largest file.
    fn offsets() -> impl Strategy<Value = u64> {
        const TIB: u64 = 1 << 40;
        prop_oneof![0u64..4_000_000, 15 * TIB..40 * TIB, FILE_SIZE_MAX_BYTES - 9_000_000..FILE_SIZE_MAX_BYTES]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn every_byte_has_one_place_and_comes_back(c in components(), offset in offsets()) {
            let offset = offset.max(c.start);
            let p = locate(&c, offset);
            prop_assert!((p.stripe as usize) < c.osts.len());
            prop_assert_eq!(file_offset(&c, p.stripe, p.object_offset), Some(offset));
            prop_assert_eq!(object_offset(&c, p.stripe, offset), p.object_offset);
            prop_assert_eq!(object_len(&c, p.stripe, offset + 1), p.object_offset + 1);
        }

        #[test]
        fn sizes_round_trip(c in components(), size in offsets()) {
            let mut total = 0u64;
            let mut largest = 0;
            let size = size.max(c.start + 1);
            for stripe in 0..c.osts.len() as u32 {
                let len = object_len(&c, stripe, size);
                total += len;
                largest = largest.max(file_size_from(&c, stripe, len));
            }
            prop_assert_eq!(total, size - c.origin);
            prop_assert_eq!(largest, size);
            let last = locate(&c, size - 1).stripe;
            prop_assert_eq!(file_size_from(&c, last, object_len(&c, last, size)), size);
            let short = Component { end: size - 1, ..c.clone() };
            if size > c.start + 1 {
                let its_own = object_len(&c, last, size) - 1;
                prop_assert_eq!(object_len(&short, last, size), its_own, "what is not its own");
            }
            prop_assert_eq!(object_len(&c, last, c.start / 2), 0, "a file that ends before it");
        }

        #[test]
        fn a_range_is_covered_exactly_once(c in components(), start in offsets(), len in 0u64..6_000_000) {
            let start = start.max(c.start);
            let range = start..start.saturating_add(len).min(FILE_SIZE_MAX_BYTES);
            let list = extents(&c, range.clone());
            let mut at = range.start;
            for e in &list {
                prop_assert_eq!(e.file_offset, at);
                prop_assert!(e.len_bytes > 0);
                let (first, last) = (locate(&c, at), locate(&c, at + e.len_bytes - 1));
                prop_assert_eq!(first, BytePosition { stripe: e.stripe.index, object_offset: e.object_offset });
                prop_assert_eq!(last.stripe, e.stripe.index);
                prop_assert_eq!(last.object_offset - first.object_offset, e.len_bytes - 1);
                prop_assert_eq!(e.ost, c.osts[e.stripe.index as usize]);
                at += e.len_bytes;
            }
            prop_assert_eq!(at, range.end.max(range.start));

            let mut joined: Vec<StripeExtent> =
                object_ranges(&c, range.clone()).iter().flat_map(|r| r.pieces(&c)).collect();
            joined.sort_by_key(|e| e.file_offset);
            prop_assert_eq!(joined, list);
            let mut stripes: Vec<u32> = stripes_touched(&c, range).collect();
            let n = stripes.len();
            stripes.sort_unstable();
            stripes.dedup();
            prop_assert_eq!(stripes.len(), n, "no stripe twice");
        }
    }

    #[test]
    fn the_largest_file_does_not_overflow() {
        let c = component(16384, 2000);
        let place = locate(&c, FILE_SIZE_MAX_BYTES - 1);
        assert_eq!(file_offset(&c, place.stripe, place.object_offset), Some(FILE_SIZE_MAX_BYTES - 1));
        assert_eq!(file_offset(&c, 1999, u64::MAX), None);
        assert_eq!(file_size_from(&c, 1999, u64::MAX), FILE_SIZE_MAX_BYTES);
        assert_eq!(object_ranges(&c, 0..u64::MAX).len(), 2000);
    }
}
