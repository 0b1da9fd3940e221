//! Sizes as people write and read them.

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

/// Parses `4096`, `64K`, `1.5GiB`, `2T`: a number and an optional unit, all units powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 1048576, 64K or 1.5GiB");
    let t = text.trim();
    let split = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * (1u64 << shift) as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
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
}
