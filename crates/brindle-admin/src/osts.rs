//! OSTs as people name them.

use brindle_types::{Code, Fault, FsName, Result};
use winnow::ascii::{digit1, hex_digit1};
use winnow::combinator::{alt, cut_err, delimited, opt, preceded, separated};
use winnow::error::{ContextError, ModalResult, ParseError, StrContext, StrContextValue};
use winnow::token::take;
use winnow::{ModalParser, Parser};

/// Most OSTs in one list.
const LIST_MAX: usize = 2000;

/// OSTs as people name them: indices and ranges of them, names, or Lustre's `scratch-OST[0-a/2]`, whose numbers are
/// hexadecimal like those in names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstList {
    /// The file system that is named with them.
    fs: Option<FsName>,
    /// Indices, as given.
    osts: Vec<u16>,
}

impl std::str::FromStr for OstList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<OstList, String> {
        let Some((before, behind)) = text.split_once("OST") else {
            return Ok(OstList { fs: None, osts: ost_list(text)? });
        };
        let wrong = |why: &str| format!("'{text}' is not OST000a, scratch-OST000a or OST[0-a/2]: {why}");
        let fs = match before.strip_suffix('-') {
            Some(fs) => Some(fs.parse::<FsName>()?),
            None if before.is_empty() => None,
            None => return Err(wrong("a '-' stands between the file system and OST")),
        };
        let behind = behind.strip_suffix("_UUID").unwrap_or(behind);
        let mut list = alt((
            delimited('[', items(hexadecimal), cut_err(']'.context(expected("there is no ']'")))),
            take(4usize).and_then(hexadecimal).map(|ost| vec![ost]),
        ))
        .context(expected("an index has four digits"));
        let mut osts = list.parse(behind).map_err(|e| wrong(&reason(&e)))?;
        osts.sort_unstable();
        osts.dedup();
        Ok(OstList { fs, osts })
    }
}

/// Grammar of one index.
type Number<'a> = fn(&mut &'a str) -> ModalResult<u16>;

fn decimal(input: &mut &str) -> ModalResult<u16> {
    digit1.parse_to().context(expected("an index is a number up to 65535")).parse_next(input)
}

fn hexadecimal(input: &mut &str) -> ModalResult<u16> {
    let number = hex_digit1.verify_map(|digits| u16::from_str_radix(digits, 16).ok());
    number.context(expected("an index is a hexadecimal number up to ffff")).parse_next(input)
}

/// Grammar of indices and ranges, with commas between them: `1,2-4,0-10/2`.
fn items<'a>(number: Number<'a>) -> impl ModalParser<&'a str, Vec<u16>, ContextError> {
    let step = digit1.parse_to::<usize>().context(expected("a step is a number"));
    let range = (number, opt(preceded('-', cut_err(number))), opt(preceded('/', cut_err(step))));
    let range = range.verify_map(|(first, last, step)| {
        let (last, step) = (last.unwrap_or(first), step.unwrap_or(1));
        (first <= last && step > 0).then(|| (first..=last).step_by(step))
    });
    let all = separated(1.., cut_err(range.context(expected("a range goes upwards"))), ',');
    let bounded = all.verify_map(|ranges: Vec<_>| {
        let osts: Vec<u16> = ranges.into_iter().flatten().take(LIST_MAX + 1).collect();
        (osts.len() <= LIST_MAX).then_some(osts)
    });
    cut_err(bounded.context(expected("a list has at most 2000 OSTs")))
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

/// The innermost rule that the text breaks.
fn reason(wrong: &ParseError<&str, ContextError>) -> String {
    let why = wrong.inner().context().find_map(|context| match context {
        StrContext::Expected(rule) => Some(rule.to_string()),
        _ => None,
    });
    why.unwrap_or_else(|| format!("'{}' is left over", &wrong.input()[wrong.offset()..]))
}

/// The indices of lists; refuses those that name another file system.
pub fn indices(lists: &[OstList], fs: &FsName) -> Result<Vec<u16>> {
    if let Some(other) = lists.iter().filter_map(|list| list.fs.as_ref()).find(|named| *named != fs) {
        return Err(Fault::new(Code::UnknownTarget)
            .what("no such OST in")
            .subject(fs.to_string())
            .why(format!("an OST of {other} is named; those of {fs} are {fs}-OST0000 and so on"))
            .data("nothing was changed"));
    }
    let mut osts: Vec<u16> = lists.iter().flat_map(|list| list.osts.iter().copied()).collect();
    osts.sort_unstable();
    osts.dedup();
    Ok(osts)
}

/// `1,2-4,7`.
pub fn ost_list(text: &str) -> std::result::Result<Vec<u16>, String> {
    items(decimal)
        .parse(text)
        .map_err(|e| format!("'{text}' is not a list of OSTs such as 1,2-4,7: {}", reason(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osts(text: &str) -> Vec<u16> {
        text.parse::<OstList>().expect("good").osts
    }

    #[test]
    fn a_list_of_osts_is_bounded_in_every_form() {
        assert_eq!(osts("0-1999").len(), LIST_MAX);
        for wrong in ["0-2000", "0-1999,5", "OST[0-ffff]", "OST[0-7cf,7cf]", "OST[0-ffff,0-ffff,0-ffff]"] {
            let why = wrong.parse::<OstList>().expect_err(wrong);
            assert!(why.contains("at most 2000 OSTs"), "{why}");
        }
    }

    #[test]
    fn osts_are_named_as_in_brindle_and_as_in_lustre() {
        assert_eq!(osts("0-3,7"), [0, 1, 2, 3, 7]);
        assert_eq!(osts("OST000a"), [10]);
        assert_eq!(osts("OST[0-a/2]"), [0, 2, 4, 6, 8, 10]);
        assert_eq!(osts("scratch-OST[0,4-5]_UUID"), [0, 4, 5]);
        let named: OstList = "scratch-OST0001_UUID".parse().expect("good");
        assert_eq!(named.fs.as_ref().map(FsName::as_str), Some("scratch"));
        for wrong in ["", "OST", "OST1", "OST[1", "OST[5-1]", "OST[0-5/0]", "OST[x]", "xOST0001", "a b"] {
            assert!(wrong.parse::<OstList>().is_err(), "{wrong}");
        }
        let why = |text: &str| text.parse::<OstList>().expect_err(text);
        let form = "is not OST000a, scratch-OST000a or OST[0-a/2]";
        assert_eq!(why("OST[5-1]"), format!("'OST[5-1]' {form}: a range goes upwards"));
        assert_eq!(why("OST[0-5/x]"), format!("'OST[0-5/x]' {form}: a step is a number"));
        assert_eq!(why("OST[1"), format!("'OST[1' {form}: there is no ']'"));
        assert_eq!(
            why("OST[0-g]"),
            format!("'OST[0-g]' {form}: an index is a hexadecimal number up to ffff")
        );
        assert_eq!(why("OST1"), format!("'OST1' {form}: an index has four digits"));
        assert_eq!(
            why("1,x"),
            "'1,x' is not a list of OSTs such as 1,2-4,7: an index is a number up to 65535"
        );
        assert_eq!(why("1,2x"), "'1,2x' is not a list of OSTs such as 1,2-4,7: 'x' is left over");
        let fs: FsName = "other".parse().expect("good");
        assert_eq!(indices(&[named], &fs).expect_err("of another").code, Code::UnknownTarget);
    }
}
