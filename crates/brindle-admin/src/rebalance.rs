//! Moving files from OSTs that are fuller than the others to those that are emptier, while programs use them.
//!
//! The target fullness of each OST is computed at the start ([`surplus`]); files are moved off the fuller OSTs until as many
//! bytes are copied. The MDT chooses the new OSTs, by space. Only files whose bytes lie in single stripes are moved: a file
//! that is spread over several OSTs is no burden to any of them for long, and new files are placed by space.

use brindle_types::{Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scan::{Range, Term, Test};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::{Job, Progress};
use crate::migrate::Plan;
use crate::moving::{Mover, WholeMount, Work};
use crate::place::FsLocation;
use crate::servers::Servers;
use crate::space::{Space, Spaces};

/// Percentage points by which an OST may be fuller than all together, unless told otherwise.
pub const SPREAD_DEFAULT_PERCENT: u8 = 5;
/// Times that the OSTs are looked at again.
const ROUNDS_MAX: usize = 4;
/// Longest time until the old OSTs have freed the space of moved files.
const FREED_LIMIT_MS: u64 = 30_000;
/// Pause between two looks at that.
const FREED_LOOK_MS: u64 = 200;

/// Request to level the OSTs.
#[derive(Clone)]
pub struct Rebalance {
    /// The file system.
    pub place: FsLocation,
    /// A mount of all of it.
    pub whole: WholeMount,
    /// Percentage points by which an OST may be fuller than all together.
    pub spread_percent: u8,
    /// Most bytes a second.
    pub bandwidth_bytes: Option<u64>,
    /// Only say what would be moved.
    pub dry_run: bool,
}

/// Outcome of a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Rebalanced {
    /// The file system.
    pub fs: String,
    /// Whether no OST is fuller than it may be.
    pub balanced: bool,
    /// Files that were moved.
    pub files: u64,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Files that could not be moved.
    pub failed: u64,
    /// The OSTs that answer and are not drained.
    pub targets: Vec<RebalancedTarget>,
}
document!(Rebalanced, "brindle.fs.rebalance", 1);

/// An OST before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RebalancedTarget {
    /// Full name.
    pub name: String,
    /// Used space before, in percent.
    pub used_percent_before: u64,
    /// Used space now, in percent.
    pub used_percent: u64,
    /// Bytes by which it is fuller than it may be.
    pub surplus_bytes: u64,
}

/// Space of an OST that may give or take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ost {
    index: u16,
    used_bytes: u64,
    total_bytes: u64,
}

/// Surplus of an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Surplus {
    index: u16,
    bytes: u64,
}

impl Rebalance {
    /// Moves files until the OSTs are level, or nothing more can be moved.
    pub async fn run(self, servers: Servers, job: Job) -> Result<Rebalanced> {
        let mut mover = Mover::new(&job, &self.whole, self.bandwidth_bytes);
        let before = Spaces::of(&servers, &self.place).await?;
        let mut now = osts(&before);
        let first: Vec<Ost> = now.clone();
        for _ in 0..ROUNDS_MAX {
            let fuller = surplus(&now, self.spread_percent);
            if self.dry_run || fuller.is_empty() {
                break;
            }
            mover.work.failed = 0;
            let moved = round(&job, &mut mover, &fuller).await?;
            until_freed(&servers, &job, &before.map).await?;
            now = osts(&Spaces::of(&servers, &self.place).await?);
            if moved == 0 {
                break;
            }
        }
        let left = surplus(&now, self.spread_percent);
        Ok(report(&before.map, &first, &now, &left, &mover.work))
    }
}

/// OSTs that answer and that are not drained: those are emptied by another command.
fn osts(spaces: &Spaces) -> Vec<Ost> {
    let of = |(id, space): &(TargetId, Result<Space>)| {
        let space = space.as_ref().ok().filter(|_| id.role == Role::Ost)?;
        let stays = !spaces.map.draining.contains(&id.index) && space.total_bytes > 0;
        stays.then(|| Ost {
            index: id.index,
            used_bytes: space.total_bytes.saturating_sub(space.available_bytes),
            total_bytes: space.total_bytes,
        })
    };
    spaces.targets.iter().filter_map(of).collect()
}

/// Surplus of the OSTs that are fuller than all together, by more than the spread.
fn surplus(osts: &[Ost], spread_percent: u8) -> Vec<Surplus> {
    let sum = |of: fn(&Ost) -> u64| osts.iter().map(|ost| u128::from(of(ost))).sum::<u128>();
    let (used, total) = (sum(|o| o.used_bytes), sum(|o| o.total_bytes));
    let over = osts.iter().filter_map(|ost| {
        let fair = used * u128::from(ost.total_bytes) / total.max(1);
        let spread = u128::from(ost.total_bytes) * u128::from(spread_percent) / 100;
        let bytes = u128::from(ost.used_bytes).saturating_sub(fair);
        let bytes = u64::try_from(bytes).ok().filter(|_| bytes > spread)?;
        Some(Surplus { index: ost.index, bytes })
    });
    over.collect()
}

/// Moves files off each of the fuller OSTs until its surplus is gone; bytes that were copied.
async fn round(job: &Job, mover: &mut Mover<'_>, fuller: &[Surplus]) -> Result<u64> {
    let avoid: Vec<u16> = fuller.iter().map(|over| over.index).collect();
    let total_bytes: u64 = fuller.iter().map(|over| over.bytes).sum();
    let plan = Plan { policy: None, avoid };
    let mut moved = 0;
    for over in fuller {
        let mut left = over.bytes;
        let single = Test::StripeCount(Range { min: 1, max: 1 });
        let on_it = vec![Term::Test(Test::Ost(vec![over.index])), Term::Test(single), Term::And];
        let mut files = mover.files(on_it).await?;
        // The largest first: fewer files, and less to ask for each byte.
        files.sort_by_key(|file| (std::cmp::Reverse(file.allocated_bytes), file.ino));
        for file in files {
            if left == 0 {
                break;
            }
            if file.allocated_bytes > left {
                continue;
            }
            let copied = mover.move_file(&file, &plan).await?;
            left = left.saturating_sub(copied);
            moved += copied;
            let subject = String::new();
            job.progress(Progress { subject, done_bytes: moved, total_bytes, copied_bytes: moved });
        }
    }
    Ok(moved)
}

/// Waits until the old places of what was moved are free, so that the next look sees how full the OSTs are.
async fn until_freed(servers: &Servers, job: &Job, map: &Map) -> Result<()> {
    let since = job.seams().now();
    while queued(servers, map).await? > 0 && job.seams().now().ms_since(since) < FREED_LIMIT_MS {
        job.pause_ms(FREED_LOOK_MS).await?;
    }
    Ok(())
}

/// Objects that MDTs still have destroyed.
async fn queued(servers: &Servers, map: &Map) -> Result<u64> {
    let mut sum = 0;
    for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
        let info = servers.info(map, entry).await?;
        sum += info.counters.iter().find(|(name, _)| name == "objects_to_destroy").map_or(0, |(_, n)| *n);
    }
    Ok(sum)
}

fn percent(ost: &Ost) -> u64 {
    let percent = u128::from(ost.used_bytes) * 100 / u128::from(ost.total_bytes.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

fn report(map: &Map, first: &[Ost], now: &[Ost], left: &[Surplus], work: &Work) -> Rebalanced {
    let target = |ost: &Ost| RebalancedTarget {
        name: map.fs.target(TargetId::ost(ost.index)),
        used_percent_before: first.iter().find(|f| f.index == ost.index).map_or(0, percent),
        used_percent: percent(ost),
        surplus_bytes: left.iter().find(|over| over.index == ost.index).map_or(0, |over| over.bytes),
    };
    Rebalanced {
        fs: map.fs.to_string(),
        balanced: left.is_empty(),
        files: work.files,
        copied_bytes: work.copied_bytes,
        failed: work.failed,
        targets: now.iter().map(target).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ost(index: u16, used_bytes: u64, total_bytes: u64) -> Ost {
        Ost { index, used_bytes, total_bytes }
    }

    #[test]
    fn who_is_fuller_than_all_together_gives_what_is_above() {
        // All together are at 50 %.
        let osts = [ost(0, 90, 100), ost(1, 10, 100), ost(2, 100, 200)];
        assert_eq!(surplus(&osts, 5), [Surplus { index: 0, bytes: 40 }]);
        assert_eq!(surplus(&[ost(0, 54, 100), ost(1, 46, 100)], 5), []);
        assert_eq!(surplus(&[ost(0, 56, 100), ost(1, 44, 100)], 5), [Surplus { index: 0, bytes: 6 }]);
        assert_eq!(surplus(&[ost(0, 56, 100)], 5), []);
        assert_eq!(surplus(&[], 5), []);
        let most = u64::MAX;
        assert_eq!(surplus(&[ost(0, most, most), ost(1, 0, most)], 5)[0].bytes, most / 2 + 1);
    }

    #[test]
    fn an_ost_that_tells_no_total_is_full_and_not_empty() {
        assert_eq!(percent(&ost(0, 50, 200)), 25);
        assert_eq!(percent(&ost(0, 1 << 62, 0)), u64::MAX);
    }

    #[test]
    fn what_was_given_away_makes_nobody_else_the_fuller_one() {
        // Random states: moving each surplus to the others leaves nobody above the spread.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let n = 2 + next(6) as u16;
            let osts: Vec<Ost> = (0..n)
                .map(|i| {
                    let total = 1_000 + next(100_000);
                    ost(i, next(total + 1), total)
                })
                .collect();
            let over = surplus(&osts, 5);
            let (used, total): (u64, u64) =
                (osts.iter().map(|o| o.used_bytes).sum(), osts.iter().map(|o| o.total_bytes).sum());
            for o in &over {
                let before = &osts[usize::from(o.index)];
                let after = before.used_bytes - o.bytes;
                assert!(after.abs_diff(used * before.total_bytes / total) <= 1, "{osts:?}");
            }
            let room: u64 = osts
                .iter()
                .filter(|o| over.iter().all(|s| s.index != o.index))
                .map(|o| o.total_bytes - o.used_bytes)
                .sum();
            assert!(over.iter().map(|s| s.bytes).sum::<u64>() <= room, "{osts:?}");
        }
    }
}
