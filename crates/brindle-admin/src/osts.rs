//! OSTs as people name them.

use brindle_types::{Code, Fault, FsName, Result};

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
        let hex = |t: &str| {
            u16::from_str_radix(t, 16).map_err(|_| wrong(&format!("'{t}' is no hexadecimal index")))
        };
        let Some(list) = behind.strip_prefix('[') else {
            return if behind.len() == 4 {
                Ok(OstList { fs, osts: vec![hex(behind)?] })
            } else {
                Err(wrong("an index has four digits"))
            };
        };
        let list = list.strip_suffix(']').ok_or_else(|| wrong("there is no ']'"))?;
        let mut osts = Vec::new();
        for item in list.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => {
                    (range, step.parse::<usize>().map_err(|_| wrong("a step is a number"))?)
                }
                None => (item, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (hex(first)?, hex(last)?);
            if step == 0 || last < first {
                return Err(wrong("a range goes upwards"));
            }
            osts.extend((first..=last).step_by(step));
        }
        osts.sort_unstable();
        osts.dedup();
        Ok(OstList { fs, osts })
    }
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
    let number = |t: &str| t.parse::<u16>().map_err(|_| format!("'{t}' is not the index of an OST"));
    let mut osts = Vec::new();
    for item in text.split(',') {
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(item)?, number(item)?),
        };
        if last < first || usize::from(last - first) + osts.len() >= LIST_MAX {
            return Err(format!("'{item}' is not a range of OSTs"));
        }
        osts.extend(first..=last);
    }
    Ok(osts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osts(text: &str) -> Vec<u16> {
        text.parse::<OstList>().expect("good").osts
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
        let fs: FsName = "other".parse().expect("good");
        assert_eq!(indices(&[named], &fs).expect_err("of another").code, Code::UnknownTarget);
    }
}
