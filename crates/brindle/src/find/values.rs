//! Values of predicates: numbers with a sign, sizes, ages, lists. Every refusal says what is possible.

use brindle_types::FileType;
use brindle_types::units::{size_unit, time_unit, whole};
use brindle_wire::mds::scan::{LayoutKind, PermMatch, Range, Stamp, Test};
use winnow::Parser;
use winnow::ascii::{Caseless, oct_digit1};
use winnow::combinator::{alt, empty, eof};
use winnow::error::ContextError;

/// Objection to a value.
pub type Wrong = String;

/// Seconds of a day.
pub const DAY_S: u64 = 86_400;

/// Comparison of a number: `+N`, `N`, `-N`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// More than the number.
    More,
    /// The number.
    Equal,
    /// Less than the number.
    Less,
}

/// Grammar of a number with a sign.
pub fn signed(input: &mut &str) -> winnow::Result<(Sign, u64)> {
    let sign = alt(('+'.value(Sign::More), '-'.value(Sign::Less), empty.value(Sign::Equal)));
    (sign, whole).parse_next(input)
}

/// Grammar of a number with a sign and a unit.
fn measured<'a, U>(unit: U) -> impl Parser<&'a str, ((Sign, u64), u64), ContextError>
where
    U: Parser<&'a str, u64, ContextError>,
{
    (signed, unit)
}

/// Empty range.
const NONE: Range = Range { min: 1, max: 0 };

/// The numbers that are more than `n`, equal to it or less.
pub fn range((sign, n): (Sign, u64)) -> Range {
    match sign {
        Sign::Equal => Range { min: n, max: n },
        Sign::More => n.checked_add(1).map_or(NONE, |min| Range { min, max: u64::MAX }),
        Sign::Less => n.checked_sub(1).map_or(NONE, |max| Range { min: 0, max }),
    }
}

/// `+N`, `N`, `-N`.
pub fn count(text: &str) -> Result<Range, Wrong> {
    let wrong = |_| "it is not a number such as 4, +4 (more) or -4 (less)".to_owned();
    signed.parse(text).map(range).map_err(wrong)
}

/// Number as [`count`] reads it; -1 stands for all OSTs, which a file asks for before it has any.
pub fn stripe_count(text: &str) -> Result<Range, Wrong> {
    if text == "-1" { Ok(Range { min: u64::MAX, max: u64::MAX }) } else { count(text) }
}

/// `+N[ckMGTPE]` and the like: sizes are rounded up to whole units before they are compared.
pub fn size(text: &str) -> Result<Range, Wrong> {
    let wrong = |_| {
        "it is not a size such as 1048576, +64k, -1G (b: 512 bytes; k, M, G, T, P, E: powers of 1024)"
            .to_owned()
    };
    let unit = alt((Caseless("c").value(1), Caseless("b").value(512), size_unit, eof.value(1)));
    let ((sign, n), unit) = measured(unit).parse(text).map_err(wrong)?;
    let end = n.checked_mul(unit).ok_or("it is larger than any file")?;
    Ok(match (sign, n) {
        (Sign::More, _) => end.checked_add(1).map_or(NONE, |min| Range { min, max: u64::MAX }),
        (Sign::Less, 0) => NONE,
        (Sign::Less, _) => Range { min: 0, max: end - unit },
        (Sign::Equal, 0) => Range { min: 0, max: 0 },
        (Sign::Equal, _) => Range { min: end - unit + 1, max: end },
    })
}

/// `-mtime`: whole units of age, days where none is named; the rest of a unit is ignored, as in find.
pub fn age(of: Stamp, text: &str) -> Result<Test, Wrong> {
    let wrong = |_| "it is not an age such as 7 (days), +7, -12h (s, m, h, d, w, y)".to_owned();
    let ((sign, n), unit) = measured(alt((time_unit, eof.value(DAY_S)))).parse(text).map_err(wrong)?;
    let (from, to) = (n.saturating_mul(unit), n.saturating_add(1).saturating_mul(unit));
    let (at_least_secs, below_secs) = match sign {
        Sign::More => (Some(to), None),
        Sign::Equal => (Some(from), Some(to)),
        Sign::Less => (None, Some(from)),
    };
    Ok(Test::Age { of, at_least_secs, below_secs })
}

/// `-mmin`: minutes of age; N is the minute that ends with it, as in find.
pub fn minutes(of: Stamp, text: &str) -> Result<Test, Wrong> {
    let wrong = |_| "it is not a number of minutes such as 30, +30 (older) or -30 (younger)".to_owned();
    let (sign, n) = signed.parse(text).map_err(wrong)?;
    let (from, to) = (n.saturating_sub(1).saturating_mul(60), n.saturating_mul(60));
    let (at_least_secs, below_secs) = match sign {
        Sign::More => (Some(to), None),
        Sign::Equal => (Some(from), Some(to)),
        Sign::Less => (None, Some(to)),
    };
    Ok(Test::Age { of, at_least_secs, below_secs })
}

/// Letters of types.
pub fn kinds(text: &str) -> Result<Vec<FileType>, Wrong> {
    let kind = |letter: &str| {
        Ok(match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            "b" => FileType::BlockDevice,
            "c" => FileType::CharDevice,
            _ => return Err("types are f, d, l, p, s, b, c, or several with commas".to_owned()),
        })
    };
    text.split(',').map(kind).collect()
}

/// Grammar of permission bits and of how they are compared.
fn mode(input: &mut &str) -> winnow::Result<(PermMatch, u16)> {
    let how = alt(('-'.value(PermMatch::All), '/'.value(PermMatch::Any), empty.value(PermMatch::Exact)));
    let bits = oct_digit1.verify_map(|digits| u16::from_str_radix(digits, 8).ok());
    (how, bits.verify(|bits| *bits <= 0o7777)).parse_next(input)
}

/// `644` (exactly), `-644` (all of these), `/222` (any of these).
pub fn perm(text: &str) -> Result<Test, Wrong> {
    let wrong =
        |_| "it is not an octal mode such as 644, -200 (all of these bits) or /022 (any of these)".to_owned();
    let (how, bits) = mode.parse(text).map_err(wrong)?;
    Ok(Test::Perm { how, bits })
}

/// Indices of OSTs: `3`, `0,2`, `0x1f`, `scratch-OST001f_UUID`.
pub fn osts(text: &str) -> Result<Vec<u16>, Wrong> {
    let one = |word: &str| {
        let name = word.strip_suffix("_UUID").unwrap_or(word);
        let parsed = match (name.rsplit_once("OST"), name.strip_prefix("0x")) {
            (Some((_, hex)), _) | (None, Some(hex)) => u16::from_str_radix(hex, 16).ok(),
            (None, None) => name.parse().ok(),
        };
        parsed.ok_or_else(|| format!("'{word}' is no index of an OST, such as 3 or scratch-OST0003_UUID"))
    };
    text.split(',').map(one).collect()
}

/// Kinds of layout.
pub fn layouts(text: &str) -> Result<Vec<LayoutKind>, Wrong> {
    let one = |word: &str| match word {
        "raid0" => Ok(LayoutKind::Raid0),
        "mdt" => Ok(LayoutKind::Mdt),
        "composite" => Ok(LayoutKind::Composite),
        _ => Err(format!("'{word}' is no layout of this release: raid0, mdt, composite")),
    };
    text.split(',').map(one).collect()
}

/// A depth.
pub fn depth(text: &str) -> Result<u32, Wrong> {
    let n = whole.parse(text).map_err(|_| "it is not a number of levels: 0 is the starting point itself")?;
    Ok(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(min: u64, max: u64) -> Result<Range, Wrong> {
        Ok(Range { min, max })
    }

    #[test]
    fn sizes_are_rounded_up_to_their_unit() {
        assert_eq!(size("10"), between(10, 10));
        assert_eq!(size("+1M"), between((1 << 20) + 1, u64::MAX));
        assert_eq!(size("-2k"), between(0, 1024));
        assert_eq!(size("1k"), between(1, 1024));
        assert_eq!(size("3b"), between(1025, 1536));
        assert_eq!(size("0"), between(0, 0));
        assert_eq!(size("-0"), Ok(NONE));
        assert_eq!(size("+1c"), between(2, u64::MAX));
        for bad in ["", "k", "5Q", "1.5k", "16E", "++1", "1bb", "1 k", "+"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_signs() {
        assert_eq!(count("4"), between(4, 4));
        assert_eq!(count("+4"), between(5, u64::MAX));
        assert_eq!(count("-4"), between(0, 3));
        assert_eq!(count("-0"), Ok(NONE));
        assert_eq!(stripe_count("-1"), between(u64::MAX, u64::MAX));
        assert!(count("four").is_err());
    }

    #[test]
    fn ages_are_windows() {
        let age_of = |text: &str| match age(Stamp::Modify, text) {
            Ok(Test::Age { at_least_secs, below_secs, .. }) => (at_least_secs, below_secs),
            other => panic!("{other:?}"),
        };
        assert_eq!(age_of("1"), (Some(86_400), Some(172_800)));
        assert_eq!(age_of("+1"), (Some(172_800), None));
        assert_eq!(age_of("-1"), (None, Some(86_400)));
        assert_eq!(age_of("-12h"), (None, Some(43_200)));
        assert_eq!(age_of("2y"), (Some(2 * 365 * 86_400), Some(3 * 365 * 86_400)));
        assert!(age(Stamp::Modify, "7x").is_err() && age(Stamp::Modify, "1d2h").is_err());
        let minute = minutes(Stamp::Modify, "5");
        assert_eq!(
            minute,
            Ok(Test::Age { of: Stamp::Modify, at_least_secs: Some(240), below_secs: Some(300) })
        );
    }

    #[test]
    fn lists_and_modes() {
        assert_eq!(osts("3,0x1f,scratch-OST000a_UUID"), Ok(vec![3, 31, 10]));
        assert!(osts("3,x").is_err());
        assert_eq!(kinds("f,d"), Ok(vec![FileType::Regular, FileType::Directory]));
        assert!(kinds("D").is_err());
        assert_eq!(perm("-022"), Ok(Test::Perm { how: PermMatch::All, bits: 0o022 }));
        for bad in ["u=rwx", "", "8", "10000", "-+7", "77777777777777"] {
            assert!(perm(bad).is_err(), "{bad}");
        }
        assert!(layouts("released").is_err());
    }
}
