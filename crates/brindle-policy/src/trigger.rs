//! Triggers: when a policy runs, and how much it is to do.

use std::collections::BTreeMap;

use brindle_types::units::{format_bytes, round_down};

use crate::entry::Names;
use crate::lex::Pos;

/// The usage that a trigger watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// The clock.
    Periodic,
    /// The whole file system.
    Global,
    /// Each OST.
    Ost,
    /// Each of these pools.
    Pool(Vec<String>),
    /// Each of these users.
    User(Vec<String>),
    /// Each of these groups.
    Group(Vec<String>),
}

/// A watermark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// Percent of the bytes.
    Pct(f64),
    /// Bytes.
    Bytes(u64),
    /// Entries.
    Count(u64),
    /// Percent of the entries.
    CountPct(f64),
}

/// A trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Where it stands.
    pub pos: Pos,
    /// The usage that is watched.
    pub on: On,
    /// Above this the policy runs; `None` for a periodic one.
    pub high: Option<Level>,
    /// A run ends at this low watermark.
    pub low: Option<Level>,
    /// How often it is looked at, in seconds.
    pub interval_secs: u64,
    /// Most actions of a run.
    pub count_max: Option<u64>,
    /// Most bytes of a run.
    pub bytes_max: Option<u64>,
    /// Pause after a run that did something, in seconds.
    pub post_wait_secs: Option<u64>,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Entries in use.
    pub used_count: u64,
    /// Entries in all.
    pub total_count: u64,
}

/// How full everything is that triggers look at.
#[derive(Clone, Debug, Default)]
pub struct Usages {
    /// The file system.
    pub global: Usage,
    /// OSTs that answer.
    pub osts: BTreeMap<u16, Usage>,
    /// OSTs of pools.
    pub pools: BTreeMap<String, Vec<u16>>,
    /// Users that triggers name.
    pub users: BTreeMap<u32, Usage>,
    /// Groups that triggers name.
    pub groups: BTreeMap<u32, Usage>,
}

/// Which entries count towards a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// All.
    All,
    /// Files with a stripe on one of these OSTs; only the bytes there count.
    Osts(Vec<u16>),
    /// A user's.
    User(u32),
    /// A group's.
    Group(u32),
}

/// The goal of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which entries count.
    pub within: Within,
    /// Bytes to free; `None` for no such target.
    pub free_bytes: Option<u64>,
    /// Entries to remove.
    pub free_count: Option<u64>,
    /// Most actions of the run, by the trigger.
    pub count_max: Option<u64>,
    /// Most bytes of the run, by the trigger.
    pub bytes_max: Option<u64>,
    /// Why it runs, for people.
    pub why: String,
}

impl Target {
    /// Everything that the rules say.
    pub fn all(why: impl Into<String>) -> Target {
        Target {
            within: Within::All,
            free_bytes: None,
            free_count: None,
            count_max: None,
            bytes_max: None,
            why: why.into(),
        }
    }
}

fn share(total: u64, percent: f64) -> u64 {
    round_down(total as f64 * percent / 100.0)
}

impl Trigger {
    /// The goals of runs that are due now; none while the usage is below the high watermark.
    pub fn targets(&self, usages: &Usages, names: &dyn Names) -> Vec<Target> {
        let over = |of: String, within: Within, usage: Usage| self.target(&of, within, usage);
        match &self.on {
            On::Periodic => {
                let all = Target::all("its time has come");
                vec![Target { count_max: self.count_max, bytes_max: self.bytes_max, ..all }]
            }
            On::Global => {
                over("the file system".to_owned(), Within::All, usages.global).into_iter().collect()
            }
            On::Ost => {
                let each = usages.osts.iter();
                each.filter_map(|(ost, usage)| over(format!("OST {ost}"), Within::Osts(vec![*ost]), *usage))
                    .collect()
            }
            On::Pool(pools) => {
                let each = pools.iter().filter_map(|name| Some((name, usages.pools.get(name)?)));
                each.filter_map(|(name, osts)| {
                    let sum = osts.iter().filter_map(|ost| usages.osts.get(ost)).fold(Usage::default(), add);
                    over(format!("the pool {name}"), Within::Osts(osts.clone()), sum)
                })
                .collect()
            }
            On::User(users) => {
                let each = users.iter().filter_map(|name| Some((name, names.uid(name)?)));
                each.filter_map(|(name, uid)| {
                    over(
                        format!("the user {name}"),
                        Within::User(uid),
                        of_owner(usages, usages.users.get(&uid)?),
                    )
                })
                .collect()
            }
            On::Group(groups) => {
                let each = groups.iter().filter_map(|name| Some((name, names.gid(name)?)));
                each.filter_map(|(name, gid)| {
                    over(
                        format!("the group {name}"),
                        Within::Group(gid),
                        of_owner(usages, usages.groups.get(&gid)?),
                    )
                })
                .collect()
            }
        }
    }

    fn target(&self, of: &str, within: Within, usage: Usage) -> Option<Target> {
        let (high, low) = (self.high?, self.low?);
        let at = |level: Level| match level {
            Level::Pct(percent) => (usage.used_bytes, share(usage.total_bytes, percent), false),
            Level::Bytes(bytes) => (usage.used_bytes, bytes, false),
            Level::CountPct(percent) => (usage.used_count, share(usage.total_count, percent), true),
            Level::Count(count) => (usage.used_count, count, true),
        };
        let (used, mark, is_count) = at(high);
        if used <= mark || mark == 0 && usage.total_bytes == 0 && usage.total_count == 0 {
            return None;
        }
        let down_to = at(low).1;
        let text = |n: u64| if is_count { format!("{n} entries") } else { format_bytes(n) };
        let free = used.saturating_sub(down_to);
        Some(Target {
            within,
            free_bytes: (!is_count).then_some(free),
            free_count: is_count.then_some(free),
            count_max: self.count_max,
            bytes_max: self.bytes_max,
            why: format!("{of} has {}, above {}; down to {}", text(used), text(mark), text(down_to)),
        })
    }
}

fn add(a: Usage, b: &Usage) -> Usage {
    Usage {
        used_bytes: a.used_bytes.saturating_add(b.used_bytes),
        total_bytes: a.total_bytes.saturating_add(b.total_bytes),
        used_count: a.used_count.saturating_add(b.used_count),
        total_count: a.total_count.saturating_add(b.total_count),
    }
}

/// An owner's percentages are those of the file system.
fn of_owner(usages: &Usages, usage: &Usage) -> Usage {
    Usage { total_bytes: usages.global.total_bytes, total_count: usages.global.total_count, ..*usage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::NoNames;

    fn trigger(on: On, high: Level, low: Level) -> Trigger {
        Trigger {
            pos: Pos { file: "t".into(), line: 1, column: 1 },
            on,
            high: Some(high),
            low: Some(low),
            interval_secs: 300,
            count_max: None,
            bytes_max: None,
            post_wait_secs: None,
        }
    }

    fn usage(used_bytes: u64) -> Usage {
        Usage { used_bytes, total_bytes: 1000, used_count: used_bytes / 10, total_count: 100 }
    }

    #[test]
    fn above_high_down_to_low() {
        let mut usages = Usages { global: usage(660), ..Usages::default() };
        let seed = trigger(On::Global, Level::Pct(66.0), Level::Pct(33.0));
        assert_eq!(seed.targets(&usages, &NoNames), []);
        usages.global = usage(661);
        assert_eq!(seed.targets(&usages, &NoNames)[0].free_bytes, Some(331));
        let count = trigger(On::Global, Level::Count(60), Level::CountPct(10.0));
        assert_eq!(count.targets(&usages, &NoNames)[0].free_count, Some(56));
    }

    #[test]
    fn each_ost_pool_and_user_for_itself() {
        let usages = Usages {
            osts: BTreeMap::from([(0, usage(100)), (1, usage(900)), (2, usage(800))]),
            pools: BTreeMap::from([("fast".to_owned(), vec![1, 2])]),
            users: BTreeMap::from([(5, Usage { total_bytes: 0, ..usage(500) })]),
            global: usage(10),
            ..Usages::default()
        };
        let osts = trigger(On::Ost, Level::Pct(80.0), Level::Pct(70.0)).targets(&usages, &NoNames);
        assert_eq!((osts.len(), &osts[0].within, osts[0].free_bytes), (1, &Within::Osts(vec![1]), Some(200)));
        let pool = trigger(On::Pool(vec!["fast".into()]), Level::Pct(80.0), Level::Bytes(1000));
        assert_eq!(pool.targets(&usages, &NoNames)[0].free_bytes, Some(700));
        let user = trigger(On::User(vec!["5".into(), "6".into()]), Level::Bytes(400), Level::Bytes(300));
        let targets = user.targets(&usages, &NoNames);
        assert_eq!(
            (targets.len(), &targets[0].within, targets[0].free_bytes),
            (1, &Within::User(5), Some(200))
        );
    }
}
