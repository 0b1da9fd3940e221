//! `brindle fs rebalance`: files move from OSTs that are fuller than the others to those that are emptier, while programs
//! use them.
//!
//! How full each OST should be is known from the start ([`surplus`]); files are moved off the fuller ones until as many bytes
//! are copied. Where they go is the MDT's choice, by room. Only files whose bytes lie in single stripes are moved: one that is
//! spread over several OSTs is in nobody's way for long, and new ones are placed by room.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brindle_types::units::format_bytes;
use brindle_types::{Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scan::{Range, Term, Test};
use serde::Serialize;

use super::ask::Asker;
use super::fs_df::{Space, Spaces, spaces};
use super::moving::{self, Mover};
use super::place::{PlaceArgs, one};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use crate::stripe::migrate::Plan;

/// Percentage points by which an OST may be fuller than all together, unless told otherwise.
const SPREAD_DEFAULT_PERCENT: u8 = 5;
/// Times that the OSTs are looked at again.
const ROUNDS_MAX: usize = 4;
/// How long the space of moved files may take to be free on their old OSTs.
const FREED_LIMIT: Duration = Duration::from_secs(30);
/// Pause between two looks at that.
const FREED_LOOK: Duration = Duration::from_millis(200);

/// Arguments of `brindle fs rebalance`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  brindle fs rebalance /mnt/b --dry-run\n  \
                        brindle fs rebalance /mnt/b --bandwidth 100MiB\n\n\
                        Programs may use the files meanwhile. It can be interrupted and given again at any time. Files that are \
                        spread over several OSTs stay where they are.")]
pub struct Args {
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = crate::completion::live::mount_points())]
    mount: PathBuf,
    /// Percentage points by which an OST may be fuller than all together
    #[arg(long, value_name = "PERCENT", default_value_t = SPREAD_DEFAULT_PERCENT, value_parser = clap::value_parser!(u8).range(1..=50))]
    spread: u8,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Only say what would be moved
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
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

#[derive(Serialize)]
struct View {
    fs: String,
    /// Whether no OST is fuller than it may be.
    balanced: bool,
    files: u64,
    copied_bytes: u64,
    failed: u64,
    targets: Vec<TargetView>,
}

#[derive(Serialize)]
struct TargetView {
    name: String,
    used_percent_before: u64,
    used_percent: u64,
    surplus_bytes: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&PlaceArgs { path: Some(args.mount.clone()), mgs: Vec::new(), dir: None })?;
    let mut mover = Mover::new(&args.mount, args.bandwidth)?;
    let progress = !args.output.json() && std::io::stderr().is_terminal();
    let before = spaces(&place)?;
    let mut now = osts(&before);
    let first: Vec<Ost> = now.clone();
    for _ in 0..ROUNDS_MAX {
        let fuller = surplus(&now, args.spread);
        if args.dry_run || fuller.is_empty() {
            break;
        }
        mover.done.failed = 0;
        let moved = round(&mut mover, &fuller, progress)?;
        until_freed(&before.map)?;
        now = osts(&spaces(&place)?);
        if moved == 0 {
            break;
        }
    }
    let left = surplus(&now, args.spread);
    report(args, &before.map, &first, &now, &left, &mover.done)?;
    Ok(if args.dry_run || left.is_empty() { Done::Ok } else { Done::Partly })
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
fn round(mover: &mut Mover, fuller: &[Surplus], progress: bool) -> Result<u64> {
    let avoid: Vec<u16> = fuller.iter().map(|over| over.index).collect();
    let all: u64 = fuller.iter().map(|over| over.bytes).sum();
    let plan = Plan { policy: None, avoid, progress: false };
    let (mut moved, begun) = (0, Instant::now());
    for over in fuller {
        let mut left = over.bytes;
        let single = Test::StripeCount(Range { min: 1, max: 1 });
        let on_it = vec![Term::Test(Test::Ost(vec![over.index])), Term::Test(single), Term::And];
        let mut files = mover.files(on_it)?;
        // The largest first: fewer files, and less to ask for each byte.
        files.sort_by_key(|file| (std::cmp::Reverse(file.allocated_bytes), file.ino));
        for file in files {
            if left == 0 {
                break;
            }
            if file.allocated_bytes > left {
                continue;
            }
            let copied = mover.move_file(&file, &plan)?;
            left = left.saturating_sub(copied);
            moved += copied;
            if progress {
                show(moved, all, begun);
            }
        }
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    Ok(moved)
}

fn show(moved: u64, all: u64, begun: Instant) {
    let rate = moved as f64 / begun.elapsed().as_secs_f64().max(0.001);
    let left = all.saturating_sub(moved) as f64 / rate.max(1.0);
    let (done, all, rate) = (format_bytes(moved), format_bytes(all), format_bytes(rate as u64));
    eprint!("\r\x1b[K{done} of about {all}, {rate}/s, {left:.0} s left");
    // A line that cannot be shown is no reason to stop.
    let _ = std::io::stderr().flush();
}

/// Waits until the old places of what was moved are free, so that the next look sees how full the OSTs are.
fn until_freed(map: &Map) -> Result<()> {
    let since = Instant::now();
    while queued(map)? > 0 && since.elapsed() < FREED_LIMIT {
        std::thread::sleep(FREED_LOOK);
    }
    Ok(())
}

/// Objects that MDTs still have destroyed.
fn queued(map: &Map) -> Result<u64> {
    runtime()?.block_on(async {
        let asker = Asker::new();
        let mut sum = 0;
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
            let info = asker.info(map, entry).await?;
            sum += info.counters.iter().find(|(name, _)| name == "objects_to_destroy").map_or(0, |(_, n)| *n);
        }
        Ok(sum)
    })
}

fn percent(ost: &Ost) -> u64 {
    (u128::from(ost.used_bytes) * 100 / u128::from(ost.total_bytes.max(1))) as u64
}

fn report(
    args: &Args,
    map: &Map,
    first: &[Ost],
    now: &[Ost],
    left: &[Surplus],
    done: &moving::Done,
) -> Result<()> {
    let target = |ost: &Ost| TargetView {
        name: map.fs.target(TargetId::ost(ost.index)),
        used_percent_before: first.iter().find(|f| f.index == ost.index).map_or(0, percent),
        used_percent: percent(ost),
        surplus_bytes: left.iter().find(|over| over.index == ost.index).map_or(0, |over| over.bytes),
    };
    let view = View {
        fs: map.fs.to_string(),
        balanced: left.is_empty(),
        files: done.files,
        copied_bytes: done.copied_bytes,
        failed: done.failed,
        targets: now.iter().map(target).collect(),
    };
    if args.output.json() {
        return print_json("brindle.fs.rebalance", 1, &view);
    }
    let row = |t: &TargetView| {
        let over = if t.surplus_bytes > 0 { format_bytes(t.surplus_bytes) } else { "-".to_owned() };
        vec![t.name.clone(), format!("{}%", t.used_percent_before), format!("{}%", t.used_percent), over]
    };
    println!(
        "{}",
        table(&["TARGET", "USED BEFORE", "USED", "TOO MUCH"], view.targets.iter().map(row).collect())
    );
    println!("{}", describe(&view, args.dry_run, args.spread));
    Ok(())
}

fn describe(view: &View, dry_run: bool, spread: u8) -> String {
    let moved = format!("{} files moved, {}", view.files, format_bytes(view.copied_bytes));
    match (view.balanced, dry_run) {
        (true, _) if view.files == 0 => {
            format!("balanced: no OST is more than {spread} percentage points fuller than all together")
        }
        (true, _) => format!("balanced: {moved}"),
        (false, true) => {
            "nothing was moved; without --dry-run that is what would leave those OSTs".to_owned()
        }
        (false, false) if view.failed > 0 => {
            format!("{moved}; {} files could not be moved; the same command tries again", view.failed)
        }
        (false, false) => format!(
            "{moved}; what is left there are files over several OSTs, and files too large to move without making others the fuller ones"
        ),
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
