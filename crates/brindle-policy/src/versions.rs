//! Versions of checkpoints: the newest ones stay in the fast tier, and an older one may go to the archive as soon as a newer one is begun.
//!
//! A class has a pattern such as `ckpt.{n}`: the number in the path is the version, the text before it is the series. A version may be one
//! file (`/run/ckpt.0007.h5`) or a directory of files (`/run/ckpt.0007/rank3`).

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::Result;

use crate::lex::Token;

/// Most series that are remembered; files of others are kept.
pub const SERIES_MAX: usize = 100_000;
/// Most versions that a class keeps.
pub const KEEP_MAX: u64 = 1000;

/// How versions are told apart, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Number of newest versions that stay.
    pub keep: u64,
    before: String,
    behind: String,
}

impl Versions {
    /// Reads a pattern.
    pub fn new(keep: u64, pattern: &Token) -> Result<Versions> {
        let wrong = |why: String| pattern.pos.wrong(why);
        if keep > KEEP_MAX {
            return Err(wrong(format!("at most {KEEP_MAX} versions are kept")));
        }
        match pattern.text.split_once("{n}") {
            Some((before, behind)) if !before.is_empty() && !behind.contains("{n}") => {
                Ok(Versions { keep, before: before.to_owned(), behind: behind.to_owned() })
            }
            _ => Err(wrong(format!(
                "'{}' is no pattern of versions: text, then {{n}}, such as \"ckpt.{{n}}\"",
                pattern.text
            ))),
        }
    }

    /// Series and version of a path; `None` if it has none.
    pub fn of<'a>(&self, path: &'a str) -> Option<(&'a str, u64)> {
        path.match_indices(&self.before).find_map(|(at, before)| {
            let start = at + before.len();
            let rest = &path[start..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let version = rest[..digits].parse().ok()?;
            rest[digits..].starts_with(&self.behind).then_some((&path[..start], version))
        })
    }
}

/// The versions that one class has seen.
#[derive(Clone, Debug)]
pub struct Seen {
    versions: Versions,
    newest: BTreeMap<String, BTreeSet<u64>>,
    is_whole: bool,
}

impl Seen {
    /// State before any version was seen.
    pub fn new(versions: Versions) -> Seen {
        Seen { versions, newest: BTreeMap::new(), is_whole: true }
    }

    /// Takes in a file of the class.
    pub fn add(&mut self, path: &str) {
        let Some((series, version)) = self.versions.of(path) else { return };
        if self.newest.len() >= SERIES_MAX && !self.newest.contains_key(series) {
            self.is_whole = false;
            return;
        }
        let newest = self.newest.entry(series.to_owned()).or_default();
        newest.insert(version);
        if newest.len() as u64 > self.versions.keep.max(1) {
            newest.pop_first();
        }
    }

    /// Whether a file is one of the newest versions, which are kept. Unknown counts as kept.
    pub fn is_kept(&self, path: &str) -> bool {
        let Some((series, version)) = self.versions.of(path) else { return false };
        match self.newest.get(series) {
            Some(newest) => self.versions.keep > 0 && newest.contains(&version),
            None => !self.is_whole,
        }
    }

    /// Whether a newer version of a file exists; `None` where that is not known.
    pub fn is_superseded(&self, path: &str) -> Option<bool> {
        let Some((series, version)) = self.versions.of(path) else { return Some(false) };
        match self.newest.get(series) {
            Some(newest) => Some(newest.last().is_some_and(|newest| *newest > version)),
            None => (self.is_whole).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::words_of;

    fn seen(keep: u64, pattern: &str) -> Seen {
        let words = words_of(&format!("\"{pattern}\"")).unwrap();
        Seen::new(Versions::new(keep, &words[0]).unwrap())
    }

    #[test]
    fn the_newest_of_each_series_are_kept() {
        let mut seen = seen(2, "ckpt.{n}");
        let of = |version: u32, rank: u32| format!("/run/ckpt.{version:04}/rank{rank}");
        for version in [3, 1, 10, 2] {
            (0..2).for_each(|rank| seen.add(&of(version, rank)));
        }
        seen.add("/other/ckpt.1.h5");
        let kept = |version| seen.is_kept(&of(version, 1));
        assert_eq!([kept(1), kept(2), kept(3), kept(10)], [false, false, true, true]);
        assert!(seen.is_kept("/other/ckpt.1.h5") && !seen.is_kept("/run/notes"));
        assert_eq!(seen.is_superseded(&of(3, 0)), Some(true));
        assert_eq!(seen.is_superseded(&of(10, 0)), Some(false));
    }

    #[test]
    fn a_pattern_may_have_an_end() {
        let seen = seen(1, "step{n}.h5");
        assert_eq!(seen.versions.of("/a/step12.h5"), Some(("/a/step", 12)));
        assert_eq!(seen.versions.of("/step1/step12.h5"), Some(("/step1/step", 12)));
        assert_eq!(seen.versions.of("/a/step12.txt"), None);
        assert_eq!(seen.versions.of("/a/step.h5"), None);
        let words = words_of("\"none\" \"{n}x\"").unwrap();
        assert!(Versions::new(1, &words[0]).is_err() && Versions::new(1, &words[1]).is_err());
    }
}
