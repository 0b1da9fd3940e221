//! Read-ahead of the kernel on a mount: a setting of the mount's backing device, which the kernel keeps as
//! long as the mount exists.

use brindle_types::units::{parse_bytes, round_down};
use brindle_types::{Code, Fault, Result};

/// Most that can be set.
const MAX_BYTES: u64 = 1 << 30;
/// The kernel counts in this unit.
const KIB: u64 = 1 << 10;

fn path(minor: u32) -> String {
    format!("/sys/class/bdi/0:{minor}/read_ahead_kb")
}

/// Value in MiB, with decimals where it is not a whole number.
pub fn get(minor: u32) -> Result<String> {
    let path = path(minor);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot read", path.clone(), &e))?;
    let kib: u64 = text.trim().parse().map_err(|_| {
        Fault::new(Code::CommandFailed)
            .what("cannot understand")
            .subject(path)
            .why(format!("it holds '{}'", text.trim()))
    })?;
    Ok(mib(kib))
}

fn mib(kib: u64) -> String {
    let text = format!("{:.3}", kib as f64 / 1024.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes of a value: a number of MiB, or a size with its unit.
pub fn parse(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("'{text}' is neither a number of MiB nor a size such as 512K");
    let bytes = match text.parse::<f64>() {
        Ok(mib) if mib.is_finite() && mib >= 0.0 => round_down(mib * (KIB * KIB) as f64),
        Ok(_) => return Err(wrong()),
        Err(_) => parse_bytes(text).map_err(|_| wrong())?,
    };
    if bytes > MAX_BYTES { Err(format!("at most {} MiB", MAX_BYTES >> 20)) } else { Ok(bytes) }
}

/// Sets it; only root may.
pub fn set(minor: u32, text: &str) -> Result<()> {
    let bytes = parse(text).map_err(|why| Fault::new(Code::BadArgument).why(why))?;
    let path = path(minor);
    std::fs::write(&path, format!("{}", bytes.div_ceil(KIB))).map_err(|e| {
        let code = match e.kind() {
            std::io::ErrorKind::PermissionDenied => Code::NeedsRoot,
            std::io::ErrorKind::ReadOnlyFilesystem => Code::NotWritable,
            _ => Code::CommandFailed,
        };
        Fault::io(code, "cannot change", path.clone(), &e).data("nothing was changed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_mib() {
        assert_eq!((mib(128), mib(65536), mib(0)), ("0.125".to_owned(), "64".to_owned(), "0".to_owned()));
        assert_eq!(parse("64"), Ok(64 << 20));
        assert_eq!(parse("0.5"), Ok(512 << 10));
        assert_eq!(parse("512K"), Ok(512 << 10));
        for wrong in ["", "-1", "NaN", "inf", "much", "2048", "1T"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
