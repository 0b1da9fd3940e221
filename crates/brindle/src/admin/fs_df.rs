//! Space of a file system, target by target: `brindle fs df`, and the numbers of `lfs df`.

use brindle_types::units::format_bytes;
use brindle_types::{Fault, Result, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::statfs::MdtStatfsReq;
use brindle_wire::oss::statfs::OstStatfsReq;
use serde::Serialize;

use super::ask::Asker;
use super::place::{Place, PlaceArgs, one};
use super::{fs_upgrade, rebalance};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// The verbs of `brindle fs`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the space of a file system, target by target
    Df(Args),
    /// Move files from fuller OSTs to emptier ones, while programs use them
    Rebalance(rebalance::Args),
    /// Write newer forms from now on, after all servers were upgraded
    Upgrade(fs_upgrade::Args),
}

/// Arguments of `brindle fs df`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Space of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes still free.
    pub inodes_free: u64,
    /// The device, so that targets on one are counted once.
    pub device_id: u64,
    /// Its disk returns errors.
    pub degraded: bool,
}

/// Every MDT and OST with its space, or why there is none.
pub struct Spaces {
    /// The map.
    pub map: Map,
    /// In the order of the map.
    pub targets: Vec<(TargetId, Result<Space>)>,
}

/// Asks every target.
pub fn spaces(place: &Place) -> Result<Spaces> {
    runtime()?.block_on(async {
        let asker = Asker::new();
        let map = asker.map(place).await?;
        let mut asking = Vec::new();
        for entry in map.targets.iter().filter(|t| t.id.role != Role::Mgt) {
            let (asker, entry, map) = (asker.clone(), entry.clone(), map.clone());
            asking.push((entry.id, tokio::spawn(async move { space(&asker, &entry, &map).await })));
        }
        let mut targets = Vec::new();
        for (id, task) in asking {
            let outcome = task.await.map_err(|e| Fault::new(brindle_types::Code::Bug).why(e.to_string()))?;
            targets.push((id, outcome));
        }
        Ok(Spaces { map, targets })
    })
}

/// Space of one target.
pub async fn space(asker: &Asker, entry: &TargetEntry, map: &Map) -> Result<Space> {
    if entry.id.role == Role::Mdt {
        let s = asker.ask(map, entry.id, &MdtStatfsReq {}).await?;
        return Ok(Space {
            total_bytes: s.total_bytes,
            available_bytes: s.available_bytes,
            inodes_used: s.inodes_used,
            inodes_free: s.inodes_free,
            device_id: s.device_id,
            degraded: false,
        });
    }
    let s = asker.ask(map, entry.id, &OstStatfsReq {}).await?;
    Ok(Space {
        total_bytes: s.total_bytes,
        available_bytes: s.available_bytes,
        inodes_used: s.total_inodes.saturating_sub(s.free_inodes),
        inodes_free: s.free_inodes,
        device_id: s.device_id,
        degraded: s.degraded,
    })
}

/// Space of the mount as df and df -i show it: bytes of the OSTs (each device once) and inodes of the MDTs.
pub fn summary(spaces: &Spaces) -> Space {
    let mut sum = Space::default();
    let mut devices = std::collections::BTreeSet::new();
    for (id, space) in &spaces.targets {
        let Ok(space) = space else { continue };
        if id.role == Role::Mdt {
            sum.inodes_used = sum.inodes_used.saturating_add(space.inodes_used);
            sum.inodes_free = sum.inodes_free.saturating_add(space.inodes_free);
        }
        if id.role != Role::Ost || !devices.insert(space.device_id) {
            continue;
        }
        sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
        sum.available_bytes = sum.available_bytes.saturating_add(space.available_bytes);
    }
    sum
}

#[derive(Serialize)]
struct View {
    fs: String,
    targets: Vec<TargetView>,
    total_bytes: u64,
    available_bytes: u64,
}

#[derive(Serialize)]
struct TargetView {
    name: String,
    answers: bool,
    total_bytes: u64,
    available_bytes: u64,
    inodes_used: u64,
    inodes_free: u64,
    device_id: u64,
    degraded: bool,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Df(args) => df(args),
        Command::Rebalance(args) => rebalance::run(args),
        Command::Upgrade(args) => fs_upgrade::run(args),
    }
}

fn df(args: &Args) -> Result<Done> {
    let spaces = spaces(&one(&args.place)?)?;
    let sum = summary(&spaces);
    let targets: Vec<TargetView> =
        spaces.targets.iter().map(|(id, s)| target_view(&spaces.map, *id, s)).collect();
    let all_answer = targets.iter().all(|t| t.answers);
    if args.output.json() {
        let fs = spaces.map.fs.to_string();
        let (total_bytes, available_bytes) = (sum.total_bytes, sum.available_bytes);
        print_json("brindle.fs.df", 1, &View { fs, targets, total_bytes, available_bytes })?;
    } else {
        let line = |name: String, total: u64, available: u64| {
            let used = total.saturating_sub(available);
            let percent = (used * 100).checked_div(total).map_or("-".to_owned(), |p| format!("{p}%"));
            vec![name, format_bytes(total), format_bytes(used), format_bytes(available), percent]
        };
        let mut rows = Vec::new();
        for t in targets {
            let dash = || "-".to_owned();
            rows.push(match t.answers {
                true => line(t.name, t.total_bytes, t.available_bytes),
                false => vec![format!("{} (no answer)", t.name), dash(), dash(), dash(), dash()],
            });
        }
        rows.push(line(
            format!("{} (OSTs, each device once)", spaces.map.fs),
            sum.total_bytes,
            sum.available_bytes,
        ));
        println!("{}", table(&["TARGET", "SIZE", "USED", "AVAILABLE", "USE%"], rows));
    }
    Ok(if all_answer { Done::Ok } else { Done::Partly })
}

fn target_view(map: &Map, id: TargetId, space: &Result<Space>) -> TargetView {
    let answers = space.is_ok();
    let s = space.as_ref().copied().unwrap_or_default();
    TargetView {
        name: map.fs.target(id),
        answers,
        total_bytes: s.total_bytes,
        available_bytes: s.available_bytes,
        inodes_used: s.inodes_used,
        inodes_free: s.inodes_free,
        device_id: s.device_id,
        degraded: s.degraded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disk_is_counted_once() {
        let map = Map::new("dev".parse().unwrap(), 1);
        let space = |device_id| Space {
            total_bytes: 100,
            available_bytes: 40,
            inodes_used: device_id,
            inodes_free: 1,
            device_id,
            degraded: false,
        };
        let down = Err(Fault::new(brindle_types::Code::TargetDown));
        let targets = vec![
            (TargetId::mdt(0), Ok(space(9))),
            (TargetId::ost(0), Ok(space(1))),
            (TargetId::ost(1), Ok(space(1))),
            (TargetId::ost(2), Ok(space(2))),
            (TargetId::ost(3), down),
        ];
        let sum = summary(&Spaces { map, targets });
        assert_eq!((sum.total_bytes, sum.available_bytes), (200, 80));
        assert_eq!((sum.inodes_used, sum.inodes_free), (9, 1));
    }
}
