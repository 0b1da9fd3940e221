//! Messages of the MGS about nodemaps whose hosts have other numbers for users and groups than the file system (design note 038).
//!
//! A release without mappings must not trust such hosts: for that release their nodemap has the tree [`CLOSED_SUBTREE`], which does not
//! exist.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::nodemap::{Nodemap, NodemapChange, NodemapList};
use crate::form::{Form, FormatLevel};
use crate::{first_form, message};

/// Most ranges of users, and of groups, of one nodemap.
pub const RANGES_MAX: usize = 256;
/// The tree of a mapped nodemap for releases that know of no mapping: there is none of this name, so the hosts see nothing.
pub const CLOSED_SUBTREE: &str = "/.this-nodemap-needs-newer-servers";
/// No user and no group: POSIX has it for "leave it as it is".
const NO_ID: u32 = u32::MAX;

/// Numbers of a host in a row, and what they are in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdRange {
    /// First number at the host.
    pub host: u32,
    /// First number in the file system.
    pub fs: u32,
    /// Number of ids in the range.
    pub count: u32,
}

impl IdRange {
    /// The last number of a row that begins with `first`; `None` where there are not that many numbers, or none at all.
    fn last(self, first: u32) -> Option<u32> {
        first.checked_add(self.count.checked_sub(1)?).filter(|last| *last != NO_ID)
    }

    /// Last number at the host, and last number in the file system; `None` of a range that cannot be.
    pub fn lasts(self) -> Option<(u32, u32)> {
        self.last(self.host).zip(self.last(self.fs))
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}:{}", self.host, self.fs),
            count => write!(f, "{}-{}:{}", self.host, self.host.saturating_add(count.max(1) - 1), self.fs),
        }
    }
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> Result<IdRange, String> {
        let wrong = || {
            format!(
                "'{text}' is no mapping: 1000:5000 is one number of the host and its number in the file system, \
                 1000-1999:5000 a row of them"
            )
        };
        let number = |part: &str| part.parse::<u32>().map_err(|_| wrong());
        let (host, fs) = text.split_once(':').ok_or_else(wrong)?;
        let (first, last) = host.split_once('-').unwrap_or((host, host));
        let (first, last, fs) = (number(first)?, number(last)?, number(fs)?);
        let count = last.checked_sub(first).and_then(|more| more.checked_add(1)).ok_or_else(wrong)?;
        let range = IdRange { host: first, fs, count };
        range.lasts().map(|_| range).ok_or_else(wrong)
    }
}

/// Numbers of the users and groups of hosts, and what they are in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// Ranges of users; none: they have the same numbers.
    pub uids: Vec<IdRange>,
    /// Ranges of groups; none: they have the same numbers.
    pub gids: Vec<IdRange>,
    /// Whether those without a number in the file system are refused; otherwise they are nobody.
    pub deny_unknown: bool,
}

impl IdMap {
    /// Whether numbers are mapped.
    pub fn maps(&self) -> bool {
        !self.uids.is_empty() || !self.gids.is_empty()
    }
}

/// The mapping of a nodemap, as it is stored beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapRow {
    /// Name of the nodemap.
    pub nodemap: String,
    /// The tree that its hosts see: in the nodemap itself stands [`CLOSED_SUBTREE`].
    pub subtree: String,
    /// The mapping.
    pub ids: IdMap,
}
first_form!(1 => IdMapRow);

/// A nodemap with its mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedNodemap {
    /// The nodemap.
    pub nodemap: Nodemap,
    /// The mapping.
    pub ids: IdMap,
}

impl From<Nodemap> for MappedNodemap {
    fn from(nodemap: Nodemap) -> MappedNodemap {
        MappedNodemap { nodemap, ids: IdMap::default() }
    }
}

/// All nodemaps with their mappings, as a server keeps them in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedNodemapList {
    /// Nodemaps by name.
    pub nodemaps: Vec<MappedNodemap>,
}

impl Form for MappedNodemapList {
    const VERSION: u8 = 2;
    const LEVEL: FormatLevel = FormatLevel::FIRST;
    type Previous = NodemapList;

    fn from_previous(previous: NodemapList) -> MappedNodemapList {
        MappedNodemapList { nodemaps: previous.nodemaps.into_iter().map(MappedNodemap::from).collect() }
    }

    fn to_previous(&self) -> Option<NodemapList> {
        let is_plain = self.nodemaps.iter().all(|mapped| mapped.ids == IdMap::default());
        let nodemaps = || self.nodemaps.iter().map(|mapped| mapped.nodemap.clone()).collect();
        is_plain.then(|| NodemapList { nodemaps: nodemaps() })
    }
}

/// A server asks for the nodemaps with their mappings; answered when they are newer than `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMappedNodemapsReq {
    /// Version that the server has; 0 for none.
    pub known_version: u64,
    /// Longest wait for newer nodemaps, in milliseconds.
    pub wait_ms: u32,
}

/// The nodemaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMappedNodemapsResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// All nodemaps; `None` where the server's version is the newest.
    pub nodemaps: Option<Vec<MappedNodemap>>,
}
message!(WatchMappedNodemapsReq => WatchMappedNodemapsResp, WatchMappedNodemaps);

/// Asks for all nodemaps with their mappings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListMappedNodemapsReq {}

/// All nodemaps, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListMappedNodemapsResp {
    /// The nodemaps.
    pub nodemaps: Vec<MappedNodemap>,
}
message!(ListMappedNodemapsReq => ListMappedNodemapsResp, ListMappedNodemaps);

/// A change of a mapping; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapEdit {
    /// Ranges of users that are added.
    pub add_uids: Vec<IdRange>,
    /// Ranges of users that are taken out, as they were added.
    pub remove_uids: Vec<IdRange>,
    /// Ranges of groups that are added.
    pub add_gids: Vec<IdRange>,
    /// Ranges of groups that are taken out, as they were added.
    pub remove_gids: Vec<IdRange>,
    /// Whether users and groups without a number in the file system are refused.
    pub deny_unknown: Option<bool>,
}

/// Changes a nodemap and its mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMappedNodemapReq {
    /// Name of the nodemap.
    pub name: String,
    /// The change of the nodemap.
    pub change: NodemapChange,
    /// The change of its mapping.
    pub ids: IdMapEdit,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The nodemap as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMappedNodemapResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The nodemap; `None` of one that was removed.
    pub nodemap: Option<MappedNodemap>,
}
message!(ChangeMappedNodemapReq => ChangeMappedNodemapResp, ChangeMappedNodemap);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_shown() {
        for (text, host, fs, count) in
            [("1000:5000", 1000, 5000, 1), ("1000-1999:5000", 1000, 5000, 1000), ("0-0:0", 0, 0, 1)]
        {
            assert_eq!(text.parse(), Ok(IdRange { host, fs, count }), "{text}");
        }
        assert_eq!(IdRange { host: 7, fs: 9, count: 3 }.to_string(), "7-9:9");
        assert_eq!(IdRange { host: 7, fs: 9, count: 1 }.to_string(), "7:9");
        for wrong in
            ["", "1", "1:", ":1", "2-1:5", "1-2-3:5", "a:b", "4294967295:1", "1-2:4294967294", "-1:5"]
        {
            assert!(wrong.parse::<IdRange>().is_err(), "{wrong}");
        }
    }
}
