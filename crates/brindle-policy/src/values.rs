//! Values as Robinhood writes them. Units of sizes are powers of 1024.

use brindle_types::units::{parse_seconds, size_unit, whole};
use winnow::Parser;
use winnow::combinator::{alt, eof};
use winnow::error::ContextError;
use winnow::token::one_of;

/// A duration in seconds: `5min`, `3600`, `1d`.
pub fn duration(text: &str) -> Result<u64, String> {
    let wrong = |_| format!("'{text}' is no duration: a whole number and s, min, h, d, w or y, such as 5min");
    parse_seconds(text).map_err(wrong)
}

/// A size in bytes: `10GB`, `4k`, `1024`.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong =
        |_| format!("'{text}' is no size: a whole number and KB, MB, GB, TB, PB or EB (powers of 1024)");
    let unit = alt((size_unit, eof.value(1)));
    (whole, unit).verify_map(|(n, unit): (u64, u64)| n.checked_mul(unit)).parse(text).map_err(wrong)
}

/// A percentage, 0 to 100: `66%` or `66`.
pub fn percent(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no percentage from 0 to 100");
    let n: f64 = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| wrong())?;
    if (0.0..=100.0).contains(&n) { Ok(n) } else { Err(wrong()) }
}

/// A boolean.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "enabled" | "enable" | "1" => Ok(true),
        "no" | "false" | "off" | "disabled" | "disable" | "0" => Ok(false),
        _ => Err(format!("'{text}' is neither yes nor no")),
    }
}

/// A whole number, also of thousands (`10k`) or millions (`2M`).
pub fn count(text: &str) -> Result<u64, String> {
    let factor =
        alt::<_, _, ContextError, _>((one_of(['k', 'K']).value(1_000), 'M'.value(1_000_000), eof.value(1)));
    let (n, factor): (u64, u64) =
        (whole, factor).parse(text).map_err(|_| format!("'{text}' is no whole number"))?;
    n.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

/// A duration as short as it can be written.
pub fn duration_text(secs: u64) -> String {
    let units = [("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60)];
    let whole = units.iter().find(|(_, unit)| secs >= *unit && secs.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{secs}s"), |(name, unit)| format!("{}{name}", secs / unit))
}

/// A size as short as it can be written.
pub fn size_text(bytes: u64) -> String {
    let units = [("EB", 60), ("PB", 50), ("TB", 40), ("GB", 30), ("MB", 20), ("KB", 10)];
    let whole = units.iter().find(|(_, bits)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    whole.map_or_else(|| bytes.to_string(), |(name, bits)| format!("{}{name}", bytes >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_robinhoods() {
        assert_eq!(
            [duration("5min"), duration("90"), duration("1d"), duration("2week")],
            [Ok(300), Ok(90), Ok(86_400), Ok(1_209_600)]
        );
        assert_eq!(
            [size("1GB"), size("4k"), size("10"), size("2TB"), size("3MiB")],
            [Ok(1 << 30), Ok(4096), Ok(10), Ok(2 << 40), Ok(3 << 20)]
        );
        assert_eq!(percent("66%"), Ok(66.0));
        assert_eq!((boolean("Enabled"), boolean("off")), (Ok(true), Ok(false)));
        assert_eq!(count("10k"), Ok(10_000));
        for bad in ["", "min", "5 min", "-1", "5xs", "99999999999999999999", "9999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(size("1XB").is_err() && size("99999PB").is_err() && percent("101%").is_err());
        assert!(percent("NaN").is_err() && boolean("maybe").is_err());
    }

    #[test]
    fn texts_mean_what_they_were_made_of() {
        for secs in [0, 1, 59, 60, 90, 3600, 86_400, 604_800, 31_536_000] {
            assert_eq!(duration(&duration_text(secs)), Ok(secs));
        }
        for bytes in [0, 1, 1023, 1024, 1536, 1 << 30, 3 << 40] {
            assert_eq!(size(&size_text(bytes)), Ok(bytes));
        }
    }
}
