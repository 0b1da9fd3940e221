//! Sizes and times as people write and read them: the grammar of their numbers and units (note 052).

use winnow::Parser;
use winnow::ascii::{Caseless, alpha1, digit1, space0};
use winnow::combinator::{alt, eof, opt, preceded, repeat, terminated};
use winnow::token::{any, take_while};

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Prints a size with one decimal and an IEC unit: `1.5 GiB`; exact bytes below 1 KiB.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "";
    for u in UNITS {
        value /= 1024.0;
        unit = u;
        if value < 1023.95 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

/// Letters of the units of sizes, in the order of their powers of 1024.
const SIZE_LETTERS: &str = "kmgtpe";

/// Names of the units of time, and their seconds. A month has no fixed length, so it is no unit.
const TIME_UNITS: [(&[&str], u64); 6] = [
    (&["s", "sec", "second", "seconds"], 1),
    (&["m", "min", "minute", "minutes"], 60),
    (&["h", "hour", "hours"], 3600),
    (&["d", "day", "days"], 86_400),
    (&["w", "week", "weeks"], 7 * 86_400),
    (&["y", "year", "years"], 365 * 86_400),
];

/// Most numbers with a unit in one time: each unit once.
const TIME_PARTS_MAX: usize = TIME_UNITS.len();

/// Grammar of a whole number: digits alone.
pub fn whole(input: &mut &str) -> winnow::Result<u64> {
    digit1.parse_to().parse_next(input)
}

/// Grammar of a unit of sizes, as bytes: `k`, `KB`, `MiB`, `b`.
pub fn size_unit(input: &mut &str) -> winnow::Result<u64> {
    let letter = any.verify_map(|c: char| SIZE_LETTERS.find(c.to_ascii_lowercase()));
    let powers = terminated(letter, opt((opt(Caseless("i")), Caseless("b"))));
    alt((powers.map(|at| KIB << (10 * at)), Caseless("b").value(1))).parse_next(input)
}

/// Grammar of a unit of time, as seconds: `s`, `min`, `Days`.
pub fn time_unit(input: &mut &str) -> winnow::Result<u64> {
    let named = |word: &str| {
        let unit =
            TIME_UNITS.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(word)));
        unit.map(|(_, seconds)| *seconds)
    };
    alpha1.verify_map(named).parse_next(input)
}

/// Parses `4096`, `64K`, `1.5GiB`, `2T`: a number and an optional unit, all units powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let number = take_while(1.., |c: char| c.is_ascii_digit() || c == '.');
    let unit = preceded(space0, alt((size_unit, eof.value(1))));
    let mut size = (number, unit).verify_map(|(number, unit)| bytes_of(number, unit));
    let wrong = |_| format!("'{text}' is not a size such as 1048576, 64K or 1.5GiB");
    size.parse(text.trim()).map_err(wrong)
}

fn bytes_of(number: &str, unit: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    (bytes < u64::MAX as f64).then_some(round_down(bytes))
}

/// Whole part of a number: 0 for what is below 0 or no number, `u64::MAX` for what is above it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "this is the place that rounds")]
pub fn round_down(number: f64) -> u64 {
    number as u64
}

/// Parses a time in seconds: a number with a unit, or several of them: `90s`, `30min`, `7d`, `1w12h`.
pub fn parse_duration_s(text: &str) -> Result<u64, String> {
    let part = (whole, time_unit).verify_map(|(number, unit): (u64, u64)| number.checked_mul(unit));
    let mut sum = repeat(1..=TIME_PARTS_MAX, part).verify_fold(|| 0u64, |sum, part| sum.checked_add(part));
    let wrong = |_| format!("'{text}' is not a time such as 90s, 30min, 24h, 7d or 1w12h");
    sum.parse(text).map_err(wrong)
}

/// Parses a time as [`parse_duration_s`] does; a number without a unit is seconds.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    whole.parse(text).or_else(|_| parse_duration_s(text))
}

/// Parses a short time, as microseconds: `250us`, `10ms`, `2s`.
pub fn parse_micros(text: &str) -> Result<u64, String> {
    let unit = alt((Caseless("us").value(1), Caseless("ms").value(1_000), Caseless("s").value(1_000_000)));
    let mut time = (whole, unit).verify_map(|(number, unit): (u64, u64)| number.checked_mul(unit));
    time.parse(text).map_err(|_| format!("'{text}' is not a time such as 250us, 10ms or 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 * GIB / 2));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(format_bytes(3 * GIB / 2), "1.5 GiB");
        assert_eq!(format_bytes(1023), "1023 B");
        assert!(parse_bytes("12 parsecs").is_err());
        assert!(parse_bytes("99999999E").is_err());
    }

    #[test]
    fn sizes_have_one_number_and_one_unit() {
        for (text, bytes) in
            [("0", 0), ("7b", 7), ("2 kb", 2 << 10), ("3MIB", 3 << 20), (".5k", 512), (" 1e ", 1 << 60)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
        for text in
            ["", "k", "1ib", "1kk", "1k2", "1.2.3", "-1", "+1", "16E", "1e3", "18446744073709551616", "."]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rounding_stays_within_the_numbers_that_there_are() {
        assert_eq!([2.9, -1.0, f64::NAN, f64::INFINITY].map(round_down), [2, 0, 0, u64::MAX]);
    }

    #[test]
    fn times_are_sums_of_numbers_with_units() {
        for (text, seconds) in
            [("0s", 0), ("90s", 90), ("30min", 1800), ("5M", 300), ("2hours", 7200), ("7d", 604_800)]
        {
            assert_eq!((parse_duration_s(text), parse_seconds(text)), (Ok(seconds), Ok(seconds)), "{text}");
        }
        assert_eq!(
            parse_duration_s("1y1w2d3h4m5s"),
            Ok(31_536_000 + 604_800 + 2 * 86_400 + 3 * 3600 + 4 * 60 + 5)
        );
        assert_eq!(parse_seconds("604800"), Ok(604_800));
        let wrong = [
            "",
            "d",
            "-1h",
            "1.5h",
            "24 h",
            "1d2",
            "5xs",
            "99999999999999999999s",
            "999999999999999999d",
            "1s1s1s1s1s1s1s",
        ];
        for text in wrong {
            assert!(parse_duration_s(text).is_err() && parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_duration_s("24").is_err(), "a number alone may be meant in any unit");
    }

    #[test]
    fn short_times_have_one_number_and_one_unit() {
        for (text, micros) in [("250us", 250), ("10ms", 10_000), ("2s", 2_000_000), ("0MS", 0)] {
            assert_eq!(parse_micros(text), Ok(micros), "{text}");
        }
        for text in
            ["", "10", "ms", "1.5ms", "10 ms", "10m", "1s5ms", "99999999999999999999s", "99999999999999999s"]
        {
            assert!(parse_micros(text).is_err(), "{text}");
        }
    }
}
