//! Numbers of users and groups of a host, and those that they have in the file system (design note 038). Pure.

use brindle_wire::mgs::id_map::{IdMap, IdRange};

/// Numbers of one kind: users, or groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    by_host: Vec<IdRange>,
    by_fs: Vec<IdRange>,
}

impl Numbers {
    /// Ranges that cannot be, and those that name root, are left out: nobody is root by a mapping, whatever a row says.
    fn new(ranges: &[IdRange]) -> Numbers {
        let is_sound = |range: &&IdRange| range.lasts().is_some() && range.host != 0 && range.fs != 0;
        let mut by_host: Vec<IdRange> = ranges.iter().filter(is_sound).copied().collect();
        let mut by_fs = by_host.clone();
        by_host.sort_by_key(|range| range.host);
        by_fs.sort_by_key(|range| range.fs);
        Numbers { by_host, by_fs }
    }

    /// A number of the host, in the file system; `None` if it has none there.
    pub fn to_fs(&self, id: u32) -> Option<u32> {
        translated(&self.by_host, id, |range| (range.host, range.fs))
    }

    /// A number of the file system, at the host; `None` if it has none there.
    pub fn to_host(&self, id: u32) -> Option<u32> {
        translated(&self.by_fs, id, |range| (range.fs, range.host))
    }
}

/// Looks a number up in ranges that are in order of their first side and do not overlap.
fn translated(ranges: &[IdRange], id: u32, sides: impl Fn(&IdRange) -> (u32, u32)) -> Option<u32> {
    let behind = ranges.partition_point(|range| sides(range).0 <= id);
    let range = ranges.get(behind.checked_sub(1)?)?;
    let (from, to) = sides(range);
    (id - from < range.count).then(|| to + (id - from))
}

/// Numbers of the users and groups of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    uids: Option<Numbers>,
    gids: Option<Numbers>,
    deny_unknown: bool,
}

/// Numbers of one kind, where they may be the same on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a>(Option<&'a Numbers>);

impl Side<'_> {
    /// A number of the host, in the file system; `None` if it has none there.
    pub fn to_fs(self, id: u32) -> Option<u32> {
        self.0.map_or(Some(id), |numbers| numbers.to_fs(id))
    }

    /// A number of the file system, at the host; `None` if it has none there.
    pub fn to_host(self, id: u32) -> Option<u32> {
        self.0.map_or(Some(id), |numbers| numbers.to_host(id))
    }
}

impl Ids {
    /// The numbers of a mapping.
    pub fn new(map: &IdMap) -> Ids {
        let numbers = |ranges: &[IdRange]| (!ranges.is_empty()).then(|| Numbers::new(ranges));
        Ids {
            uids: numbers(&map.uids),
            gids: numbers(&map.gids),
            deny_unknown: map.deny_unknown && map.maps(),
        }
    }

    /// Whether any numbers are others in the file system.
    pub fn maps(&self) -> bool {
        self.uids.is_some() || self.gids.is_some()
    }

    /// Whether users and groups without a number in the file system are refused.
    pub fn deny_unknown(&self) -> bool {
        self.deny_unknown
    }

    /// Users.
    pub fn uids(&self) -> Side<'_> {
        Side(self.uids.as_ref())
    }

    /// Groups.
    pub fn gids(&self) -> Side<'_> {
        Side(self.gids.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ends_of_ranges_count_and_nothing_beside_them() {
        let range = |host, fs, count| IdRange { host, fs, count };
        let numbers =
            Numbers::new(&[range(1000, 5000, 10), range(10, 5010, 1), range(0, 7, 1), range(7, 0, 1)]);
        assert_eq!([999, 1000, 1009, 1010].map(|id| numbers.to_fs(id)), [None, Some(5000), Some(5009), None]);
        assert_eq!(
            [4999, 5009, 5010, 5011].map(|id| numbers.to_host(id)),
            [None, Some(1009), Some(10), None]
        );
        assert_eq!(
            (numbers.to_fs(0), numbers.to_fs(7), numbers.to_host(0)),
            (None, None, None),
            "not root's"
        );
        let high =
            Numbers::new(&[range(u32::MAX - 2, u32::MAX - 1, 1), range(5, 5, 0), range(9, u32::MAX, 1)]);
        assert_eq!(
            (high.to_fs(u32::MAX - 2), high.to_fs(5), high.to_fs(9)),
            (Some(u32::MAX - 1), None, None)
        );
    }

    proptest! {
        #[test]
        fn a_number_goes_there_and_back(firsts in proptest::collection::vec(1u32..50, 1..8), id in 0u32..400) {
            // Ranges behind one another on one side, and in the opposite order on the other.
            let mut at = 1;
            let mut ranges: Vec<IdRange> = Vec::new();
            for count in &firsts {
                ranges.push(IdRange { host: at, fs: 1000 - at - count, count: *count });
                at += count;
            }
            let numbers = Numbers::new(&ranges);
            prop_assert_eq!(numbers.to_fs(id).is_some(), (1..at).contains(&id));
            if let Some(fs) = numbers.to_fs(id) {
                prop_assert_eq!(numbers.to_host(fs), Some(id));
            }
        }
    }
}
