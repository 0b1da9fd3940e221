//! `B|kind|id`: what users, groups and projects may use at most, and when the grace time of a soft limit ends.
//! `M|quota-settings`: the limits of owners without a row, and grace times.

use brindle_types::Result;
use brindle_types::attr::Time;
use brindle_wire::mds::quota::GRACE_DEFAULT_SECS;
use serde::{Deserialize, Serialize};

use super::row::{Form, FormatLevel};
use super::usage::{Kind, Usage};
use super::{Changes, Rows, for_each, keys, row};

const SETTINGS: &str = "quota-settings";

/// Limits of one owner; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Most inodes.
    pub inodes_max: u64,
    /// Most allocated bytes.
    pub bytes_max: u64,
    /// Most inodes for longer than the grace time.
    pub inodes_soft: u64,
    /// Most allocated bytes for longer than the grace time.
    pub bytes_soft: u64,
    /// End of the grace time of inodes, in seconds since 1970; `None` while no more than the soft limit is
    /// used.
    pub inodes_grace_end: Option<i64>,
    /// End of the grace time of bytes.
    pub bytes_grace_end: Option<i64>,
    /// The default limits count. In the row they are zeros.
    pub is_default: bool,
}

/// The form of release 0.1.0: hard limits.
#[derive(Serialize, Deserialize)]
pub struct FirstForm {
    inodes_max: u64,
    bytes_max: u64,
}
row::first_form!(FirstForm);

impl Form for Limit {
    const VERSION: u8 = row::FIRST_VERSION + 1;
    const LEVEL: FormatLevel = FormatLevel::PROJECTS;
    type Previous = FirstForm;

    fn from_previous(previous: FirstForm) -> Limit {
        let FirstForm { inodes_max, bytes_max } = previous;
        Limit { inodes_max, bytes_max, ..Limit::default() }
    }

    fn to_previous(&self) -> Option<FirstForm> {
        let Limit { inodes_max, bytes_max, .. } = *self;
        let is_hard_only = *self == Limit { inodes_max, bytes_max, ..Limit::default() };
        is_hard_only.then_some(FirstForm { inodes_max, bytes_max })
    }
}

/// The limits that count at one moment; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    /// Most inodes.
    pub inodes: u64,
    /// Most allocated bytes.
    pub bytes: u64,
}

impl Limit {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        [self.inodes_max, self.bytes_max, self.inodes_soft, self.bytes_soft] == [0; 4]
    }

    /// Whether bytes are limited, now or later.
    pub fn limits_bytes(&self) -> bool {
        self.bytes_max > 0 || self.bytes_soft > 0
    }

    /// Whether there is a soft limit.
    pub fn has_soft(&self) -> bool {
        self.inodes_soft > 0 || self.bytes_soft > 0
    }

    /// The limits that count now: a soft one when its grace time is over.
    pub fn enforced(&self, now: Time) -> Enforced {
        let is_over = |end: Option<i64>| end.is_some_and(|end| end <= now.secs);
        let of = |hard: u64, soft: u64, end| match (hard, soft, is_over(end)) {
            (_, 0, _) | (_, _, false) => hard,
            (0, soft, true) => soft,
            (hard, soft, true) => hard.min(soft),
        };
        Enforced {
            inodes: of(self.inodes_max, self.inodes_soft, self.inodes_grace_end),
            bytes: of(self.bytes_max, self.bytes_soft, self.bytes_grace_end),
        }
    }

    /// The limit with its grace times begun or ended, as usage is now.
    pub fn timed(self, used: Usage, settings: &KindSettings, now: Time) -> Limit {
        let end = |used: u64, soft: u64, end: Option<i64>, grace_secs: u32| {
            let is_over = soft > 0 && used > soft;
            is_over.then(|| end.unwrap_or(now.secs.saturating_add(grace_secs.into())))
        };
        let Limit { inodes_soft, bytes_soft, inodes_grace_end, bytes_grace_end, .. } = self;
        Limit {
            inodes_grace_end: end(used.inodes, inodes_soft, inodes_grace_end, settings.inodes_grace_secs),
            bytes_grace_end: end(used.bytes, bytes_soft, bytes_grace_end, settings.bytes_grace_secs),
            ..self
        }
    }
}

/// Settings for all owners of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindSettings {
    /// Limits of owners without limits of their own.
    pub limit: Limit,
    /// Grace time of inodes.
    pub inodes_grace_secs: u32,
    /// Grace time of bytes.
    pub bytes_grace_secs: u32,
}

impl Default for KindSettings {
    fn default() -> KindSettings {
        KindSettings {
            limit: Limit::default(),
            inodes_grace_secs: GRACE_DEFAULT_SECS,
            bytes_grace_secs: GRACE_DEFAULT_SECS,
        }
    }
}

/// Settings of users, groups and projects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings([KindSettings; 3]);

impl Form for Settings {
    const VERSION: u8 = row::FIRST_VERSION;
    const LEVEL: FormatLevel = FormatLevel::PROJECTS;
    type Previous = brindle_wire::form::Oldest;

    fn from_previous(previous: Self::Previous) -> Settings {
        match previous {}
    }

    fn to_previous(&self) -> Option<Self::Previous> {
        None
    }
}

impl Settings {
    /// Settings of one kind of owner.
    pub fn of(&self, kind: Kind) -> &KindSettings {
        &self.0[kind as usize]
    }

    /// Settings with `settings` for one kind of owner.
    pub fn with(mut self, kind: Kind, settings: KindSettings) -> Settings {
        self.0[kind as usize] = settings;
        self
    }
}

/// Puts the limits of an owner; `None`: the default ones, whatever they are.
pub fn put(changes: &mut Changes<'_>, (kind, id): (Kind, u32), limit: Option<Limit>) {
    let key = keys::limit(kind as u8, id);
    match limit {
        None => changes.delete(key),
        Some(limit) => drop(changes.put_row(key, &limit)),
    }
}

/// Limits with a row.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<((Kind, u32), Limit)>> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for_each(rows, &[keys::LIMIT, kind as u8], |key, value| {
            let split = keys::split_owner(key);
            let (_, id) = split.ok_or_else(|| row::damaged("limit", key, "short key".into()))?;
            all.push(((kind, id), row::decode("limit", key, value)?));
            Ok(true)
        })?;
    }
    Ok(all)
}

/// The settings.
pub fn settings(rows: &(impl Rows + ?Sized)) -> Result<Settings> {
    let key = keys::meta(SETTINGS);
    let found = rows.row(&key)?.map(|value| row::decode("quota settings", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Stores the settings.
pub fn put_settings(changes: &mut Changes<'_>, settings: &Settings) {
    let key = keys::meta(SETTINGS);
    match *settings == Settings::default() {
        true => changes.delete(key),
        false => drop(changes.put_row(key, settings)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time { secs: 1000, nanos: 0 };
    const GRACE: KindSettings = KindSettings { limit: LIMIT, inodes_grace_secs: 60, bytes_grace_secs: 600 };
    const LIMIT: Limit = Limit {
        inodes_max: 20,
        bytes_max: 0,
        inodes_soft: 10,
        bytes_soft: 100,
        inodes_grace_end: None,
        bytes_grace_end: None,
        is_default: false,
    };

    fn at(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    #[test]
    fn a_soft_limit_counts_when_its_grace_time_is_over() {
        let below = LIMIT.timed(Usage { inodes: 10, bytes: 100 }, &GRACE, NOW);
        assert_eq!(below, LIMIT, "as much as is allowed");
        let over = LIMIT.timed(Usage { inodes: 11, bytes: 101 }, &GRACE, NOW);
        assert_eq!((over.inodes_grace_end, over.bytes_grace_end), (Some(1060), Some(1600)));
        let more = over.timed(Usage { inodes: 15, bytes: 500 }, &GRACE, at(1050));
        assert_eq!(more, over, "it does not begin anew");
        assert_eq!(over.enforced(at(1059)), Enforced { inodes: 20, bytes: 0 });
        assert_eq!(over.enforced(at(1060)), Enforced { inodes: 10, bytes: 0 });
        assert_eq!(over.enforced(at(1600)), Enforced { inodes: 10, bytes: 100 });
        let cured = over.timed(Usage { inodes: 10, bytes: 500 }, &GRACE, at(2000));
        assert_eq!((cured.inodes_grace_end, cured.bytes_grace_end), (None, Some(1600)));
        let hard_is_lower = Limit { inodes_max: 5, ..over };
        assert_eq!(hard_is_lower.enforced(at(1060)).inodes, 5);
    }

    #[test]
    fn hard_limits_are_written_as_the_first_release_reads_them() {
        let hard = Limit { inodes_max: 3, bytes_max: 1 << 30, ..Limit::default() };
        let old = row::encode(FormatLevel::FIRST, &hard).expect("fits");
        let first: FirstForm = row::decode("limit", b"k", &old).expect("its form");
        assert_eq!((first.inodes_max, first.bytes_max), (3, 1 << 30));
        assert_eq!(row::decode("limit", b"k", &old), Ok(hard));
        assert!(row::encode(FormatLevel::FIRST, &LIMIT).is_err(), "it has no soft limits");
        let new = row::encode(FormatLevel::NEWEST, &LIMIT).expect("fits");
        assert_eq!(row::decode("limit", b"k", &new), Ok(LIMIT));
        assert!(row::encode(FormatLevel::FIRST, &Settings::default()).is_err());
    }
}
