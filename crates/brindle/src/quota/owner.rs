//! Owners, sizes and times as users write them, for `lfs quota`, `lfs setquota` and `brindle quota`.

use brindle_types::units::{KIB, parse_seconds, size_unit, whole};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use winnow::Parser;
use winnow::combinator::{alt, eof};

use brindle_host::users;

/// Owner whose usage is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Kind of owner.
    pub kind: QuotaOwner,
    /// Number.
    pub id: u32,
    /// Name as it was given, or the number's name.
    pub name: String,
}

impl Owner {
    /// A user, group or project by name or number.
    pub fn named(kind: QuotaOwner, text: &str) -> Result<Owner> {
        let id = match kind {
            QuotaOwner::User => number(text, "user", users::uid_of)?,
            QuotaOwner::Group => number(text, "group", users::gid_of)?,
            QuotaOwner::Project => project(text).map_err(|why| {
                Fault::new(Code::BadArgument)
                    .what("there is no")
                    .subject(format!("project '{text}'"))
                    .why(why)
                    .next("give a number")
            })?,
        };
        Ok(Owner { kind, id, name: text.to_owned() })
    }

    /// Owner with a number; a number without a name is shown as it is.
    pub fn by_id(kind: QuotaOwner, id: u32) -> Owner {
        let name = match kind {
            QuotaOwner::User => users::user_name(id).ok().flatten(),
            QuotaOwner::Group => users::group_name(id).ok().flatten(),
            QuotaOwner::Project => None,
        };
        Owner { kind, id, name: name.unwrap_or_else(|| id.to_string()) }
    }

    /// User that runs this command, and its group.
    pub fn own() -> Vec<Owner> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        vec![Owner::by_id(QuotaOwner::User, uid), Owner::by_id(QuotaOwner::Group, gid)]
    }
}

/// The number of a project: decimal, or hexadecimal with `0x`.
pub fn project(text: &str) -> std::result::Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.ok().filter(|id| *id != u32::MAX).ok_or_else(|| format!("'{text}' is no number of a project"))
}

fn number(text: &str, what: &'static str, look_up: fn(&str) -> std::io::Result<Option<u32>>) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let unknown = || Fault::new(Code::BadArgument).what("there is no").subject(format!("{what} '{text}'"));
    match look_up(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(unknown().next("give the number, if this host does not know the name")),
        Err(e) => Err(Fault::io(Code::BadArgument, "cannot look up", format!("{what} '{text}'"), &e)
            .next("give the number")),
    }
}

/// Seconds, or weeks, days, hours, minutes and seconds (`1w2d`, `30m`).
pub fn parse_grace(text: &str) -> std::result::Result<u32, String> {
    let wrong = |_| format!("'{text}' is no time: say 7d, 1w12h, or seconds as a number");
    let seconds = parse_seconds(text).map_err(wrong)?;
    u32::try_from(seconds).map_err(|_| format!("'{text}' is more than can be stored"))
}

/// Units of time, longest first.
const UNITS: [(char, u64); 5] = [('w', 7 * 86_400), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A time as Lustre writes it: `6d23h59m`, `0s`.
pub fn period(secs: u64) -> String {
    let (mut text, mut left) = (String::new(), secs);
    for (letter, unit) in UNITS {
        if left >= unit {
            text.push_str(&format!("{}{letter}", left / unit));
            left %= unit;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// KiB, or bytes in a unit.
pub fn parse_space(text: &str) -> std::result::Result<u64, String> {
    let mut size = (whole, alt((size_unit, eof.value(KIB))));
    let (number, unit): (u64, u64) =
        size.parse(text).map_err(|wrong| match text.split_at(wrong.offset()) {
            ("", _) => format!("'{text}' is no size: say 500g, or KiB as a number"),
            (_, unit) => format!("'{unit}' is no unit: k, m, g, t or p"),
        })?;
    let bytes = number.checked_mul(unit);
    bytes.filter(|bytes| *bytes <= 1 << 62).ok_or_else(|| format!("'{text}' is more than can be stored"))
}

/// KiB, rounded up; or with a unit and four digits, as `%5.4g` has them.
pub fn space(bytes: u64, human: bool) -> String {
    let kib = bytes.div_ceil(1024);
    if !human {
        return kib.to_string();
    }
    let (shift, letter) = match kib {
        0..0x400 => return format!("{kib}k"),
        0x400..0x10_0000 => (10, 'M'),
        0x10_0000..0x4000_0000 => (20, 'G'),
        0x4000_0000..0x100_0000_0000 => (30, 'T'),
        _ => (40, 'P'),
    };
    let value = kib as f64 / (1_u64 << shift) as f64;
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let digits = if decimals > 0 { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits:>5}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kib_or_have_a_unit() {
        assert_eq!(parse_space("0"), Ok(0));
        assert_eq!(parse_space("4"), Ok(4096));
        assert_eq!(parse_space("1G"), Ok(1 << 30));
        assert_eq!(parse_space("2t"), Ok(2 << 40));
        assert_eq!(parse_space("g").expect_err("refused"), "'g' is no size: say 500g, or KiB as a number");
        assert_eq!(parse_space("1x").expect_err("refused"), "'x' is no unit: k, m, g, t or p");
        assert_eq!(parse_space("99999p").expect_err("refused"), "'99999p' is more than can be stored");
        assert!(parse_space("-1").is_err() && parse_space("").is_err());
    }

    #[test]
    fn space_has_four_digits_and_a_unit() {
        let human = |bytes| space(bytes, true);
        assert_eq!(human(0), "0k");
        assert_eq!(human(1), "1k");
        assert_eq!(human(1 << 20), "    1M");
        assert_eq!(human(3 << 19), "  1.5M");
        assert_eq!(human(1_000_000 << 10), "976.6M");
        assert_eq!(human(5 << 40), "    5T");
        assert_eq!(human(1 << 50), "    1P");
        assert_eq!(space(1025, false), "2");
    }

    #[test]
    fn times_are_seconds_or_have_units() {
        assert_eq!(parse_grace("604800"), Ok(604_800));
        assert_eq!(parse_grace("1w"), Ok(604_800));
        assert_eq!(parse_grace("1d2h3m4s"), Ok(93_784));
        assert_eq!(
            parse_grace("7 days").expect_err("refused"),
            "'7 days' is no time: say 7d, 1w12h, or seconds as a number"
        );
        assert!(parse_grace("").is_err() && parse_grace("d").is_err() && parse_grace("1d2").is_err());
        assert_eq!(parse_grace("9999999w").expect_err("refused"), "'9999999w' is more than can be stored");
        assert_eq!(period(604_800), "1w");
        assert_eq!(period(604_799), "6d23h59m59s");
        assert_eq!(period(3_600), "1h");
        assert_eq!(period(0), "0s");
    }

    #[test]
    fn projects_are_numbers() {
        assert_eq!(project("1000"), Ok(1000));
        assert_eq!(project("0x10"), Ok(16));
        assert!(project("4294967295").is_err(), "that means none");
        assert!(project("physics").is_err() && project("-1").is_err());
    }

    #[test]
    fn names_are_looked_up_and_numbers_taken() {
        assert_eq!(number("0", "user", users::uid_of), Ok(0));
        assert_eq!(number("root", "user", users::uid_of), Ok(0));
        assert_eq!(
            number("no such user here", "user", users::uid_of).expect_err("refused").to_string(),
            "there is no user 'no such user here'\
             \n  next: give the number, if this host does not know the name\
             \n  code: E1001 (brindle explain E1001)"
        );
    }
}
