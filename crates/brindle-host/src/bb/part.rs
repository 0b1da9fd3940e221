//! A host's part of a buffer: its targets in the slices of the host's bricks.
//!
//! | host | who carries an order out |
//! |---|---|
//! | the orchestrator's own | the orchestrator, in its work directory of the buffer |
//! | another one with bricks | its agent ([`super::node::agent`]), in a directory of its state |
//!
//! Orchestrator and agent carry out the same orders with this code, and every order can be repeated. [`crate::cluster`] writes each process
//! down before it is started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brindle_objects::space::{Space, WITHHELD};
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::bb::{NodeSlicesResp, SliceOrder, SliceTarget, SlicesServed};

use super::actions::{BRICK_DIR, make_private_dir, reap, remove_tree};
use super::node::hub::Refused;
use super::{FS, brick, make_dir};
use crate::cluster::image::{self, Kind};
use crate::cluster::{Cluster, Event, Image, On, Reach, Server, Wanted};
use crate::{Host, loops, mounts, text};

/// Smallest image with XFS, which has as many inodes as it has room for.
const XFS_FROM_BYTES: u64 = 512 << 20;
/// Bytes that ext4 on an image takes for itself, beside a part of the slice.
const EXT4_EXTRA_BYTES: u64 = 14 << 20;
/// Bytes that XFS takes for itself: its log has 64 MiB.
const XFS_EXTRA_BYTES: u64 = 96 << 20;
/// The part of the slice: one of so many.
const IMAGE_EXTRA_PART: u64 = 24;
/// Room beside the usable bytes of a slice, which an OST keeps back: 1/20 up to 16 MiB, 1/64, and its own tables. First the divisor of the slice, then
/// bytes.
const USABLE_EXTRA_PART: u64 = 16;
const USABLE_EXTRA_BYTES: u64 = 4 << 20;
/// Most targets in an order: the MGT, the MDT, and the OSTs of the largest buffer.
const TARGETS_MAX: usize = 64;
/// Most bricks in an order.
const BRICKS_MAX: usize = 64;
/// File with the keys of hosts that the servers refuse.
pub(super) const REFUSED: &str = "refused";

/// A host's part of a buffer.
pub struct Part<'a> {
    /// The present process.
    pub host: &'a Host,
    /// Serial number of the buffer.
    pub serial: u64,
    /// Directory of its state and logs.
    pub dir: PathBuf,
    /// The mark of the bricks.
    pub store: &'a str,
    /// The identity of the host, where its servers are for other hosts.
    pub identity: Option<&'a Path>,
    /// Whether another host is the orchestrator: then bricks without a mark are disks that are not mounted, and the keys of refused hosts
    /// come with the orders.
    pub is_remote: bool,
}

impl Part<'_> {
    /// Carries an order out.
    pub fn carry_out(&self, order: &SliceOrder) -> Result<NodeSlicesResp> {
        check(order)?;
        match order {
            SliceOrder::Claim { brick, bytes, kept, below } => self
                .claim(Path::new(brick), *bytes, |serial| serial >= *below || kept.contains(&serial))
                .map(answer),
            SliceOrder::Release { brick } => brick::release(Path::new(brick), self.store).map(answer),
            SliceOrder::Serve(served) => self.serve(served),
            SliceOrder::Hold { targets, trims } => self.hold(targets, *trims),
            SliceOrder::Free(targets) => {
                Ok(NodeSlicesResp { mgs: None, free_bytes: self.free_bytes(targets)? })
            }
            SliceOrder::Destroy { bricks } => self.destroy(bricks).map(answer),
        }
    }

    /// Does something with the processes of the part.
    pub fn on<T>(&self, work: impl FnOnce(&On) -> Result<T>) -> Result<T> {
        let serial = self.serial;
        let tell = |event: Event| match event {
            Event::Warning(fault) => tracing::warn!(%fault, serial, "of a buffer"),
            event => tracing::debug!(?event, serial, "of a buffer"),
        };
        work(&On { host: self.host, dir: self.dir.clone(), tell: &tell })
    }

    /// Makes a directory a brick of the orchestrator. Slices that no buffer has are left from a time when the brick was taken for lost.
    fn claim(&self, brick: &Path, bytes: u64, stays: impl Fn(u64) -> bool) -> Result<()> {
        brick::refuse_other_path(brick)?;
        let was_ours = brick::refuse_unmarked(brick, self.store).is_ok();
        brick::claim(brick, self.store, false)?;
        let parts = self.dir.parent().unwrap_or(&self.dir);
        // A part whose disk was replaced has no slice any more, and processes that would be started again for ever.
        let mut serials: BTreeSet<u64> = brick::serials_in(brick)?.into_iter().collect();
        serials.extend(numbers_in(parts)?);
        for serial in serials.into_iter().filter(|serial| !stays(*serial)) {
            tracing::warn!(serial, brick = %brick.display(), "no buffer has this part: it is removed");
            let part = Part { serial, dir: parts.join(serial.to_string()), ..*self };
            part.destroy(&[text(brick)?])?;
        }
        // The room counts without what was left of dead buffers.
        brick::refuse_small(brick, bytes).or_else(|fault| match was_ours {
            true => Err(fault),
            false => brick::release(brick, self.store).and(Err(fault)),
        })
    }

    /// Sees to it that targets run.
    fn serve(&self, served: &SlicesServed) -> Result<NodeSlicesResp> {
        for target in &served.targets {
            self.refuse_foreign(Path::new(&target.brick))?;
        }
        if let Some(parent) = self.dir.parent() {
            make_private_dir(parent)?;
        }
        make_dir(&self.dir)?;
        let refused = self.dir.join(REFUSED);
        if self.is_remote {
            self.refuse_keys(&refused, &served.refused)?;
        }
        let fs = FS.parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
        let before = Cluster::load(&self.dir).ok();
        if let Some(before) = &before {
            reap(before);
        }
        let (address, identity) = (served.address.clone(), self.identity.map(Path::to_owned));
        let reach = match self.is_remote {
            true => identity.map(|identity| Reach { address, identity, refused }),
            // As when the buffer was made: all its mounts know its servers at these addresses.
            false => before.and_then(|before| before.reach),
        };
        let servers = served.targets.iter().map(|target| self.server(target, served)).collect();
        let wanted = Wanted { fs, servers, mgs: served.mgs.clone(), reach, missing: served.missing };
        let cluster = self.on(|on| on.serve(wanted))?;
        let serves_mgs = cluster.servers.iter().any(|server| server.target == TargetId::MGT);
        Ok(NodeSlicesResp { mgs: cluster.mgs().filter(|_| serves_mgs), free_bytes: Vec::new() })
    }

    /// Has the servers refuse the hosts of these keys, and no others. The servers start anew with the list.
    fn refuse_keys(&self, file: &Path, keys: &[String]) -> Result<()> {
        let mut refused = Refused::open(file)?;
        if refused.keys() == keys && file.exists() {
            return Ok(());
        }
        // Ended first: a list that is on disk is one that every running server has.
        if self.dir.join("state.json").exists() {
            let before = Cluster::load(&self.dir)?;
            self.on(|on| on.down(false))?;
            reap(&before);
        }
        refused.replace(keys)
    }

    /// A brick of this orchestrator holds what its orders are about.
    fn refuse_foreign(&self, brick: &Path) -> Result<()> {
        brick::refuse_unmarked(brick, self.store)
    }

    /// A server of the part, before it runs.
    fn server(&self, target: &SliceTarget, served: &SlicesServed) -> Server {
        let name = name_of(target.target);
        let slice = slice_dir(&target.brick, self.serial);
        let is_ost = target.target.role == Role::Ost;
        Server {
            dir: slice.join(&name),
            log: self.dir.join("log").join(format!("{name}.log")),
            target: target.target,
            port: 0,
            metrics_port: 0,
            room_wait_s: if target.target.role == Role::Mdt { served.room_wait_s } else { 0 },
            lock_memory: served.lock_memory,
            image: is_ost.then(|| image_of(&slice, &name, target.image_bytes)),
            host: None,
            run: None,
            name,
        }
    }

    /// Directories of OSTs, which are mounted.
    fn ost_dirs(&self, targets: &[SliceTarget]) -> Result<Vec<PathBuf>> {
        let cluster = Cluster::load(&self.dir)?;
        let of = |target: &SliceTarget| {
            let found = cluster.servers.iter().find(|server| server.target == target.target);
            let mounted = found.filter(|server| mounts::find(&server.dir).is_some());
            mounted.map(|server| server.dir.clone()).ok_or_else(|| {
                let name = name_of(target.target);
                Fault::new(Code::TargetDown).what("a target of the buffer does not run:").subject(name)
            })
        };
        targets.iter().map(of).collect()
    }

    /// Keeps each OST from using more than its slice. `trims`: what was written there and removed is given back to the disk before: it is
    /// another buffer's then.
    fn hold(&self, targets: &[SliceTarget], trims: bool) -> Result<NodeSlicesResp> {
        let dirs = self.ost_dirs(targets)?;
        if trims {
            dirs.iter().try_for_each(|dir| image::trim(dir))?;
        }
        dirs.iter().zip(targets).try_for_each(|(dir, target)| self.withhold(dir, target))?;
        Ok(NodeSlicesResp { mgs: None, free_bytes: self.free_bytes(targets)? })
    }

    fn withhold(&self, dir: &Path, target: &SliceTarget) -> Result<()> {
        let disk = &self.host.seams().disk;
        let file = text(&dir.join(WITHHELD))?;
        let cannot =
            |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot keep room in", file.clone(), e);
        let all = disk.space(&text(dir)?).map_err(|e| cannot(&e))?.total_bytes;
        let bytes =
            if target.bytes == target.image_bytes { 0 } else { all.saturating_sub(usable(target.bytes)) };
        // No file, or one that a crash has left shorter than its blocks: both are made right.
        if bytes == 0 && disk.stat(&file).is_err() {
            return Ok(());
        }
        disk.keep_room(&file, bytes).map_err(|e| match e.kind() {
            std::io::ErrorKind::StorageFull => Fault::new(Code::BufferTooFull)
                .what("cannot make smaller:")
                .subject(file.clone())
                .why("files were written meanwhile"),
            _ => cannot(&e),
        })?;
        // The pool gives the room to others now: no power cut may give it back.
        let synced = std::fs::File::open(&file).and_then(|file| file.sync_all());
        let synced = synced.and_then(|()| std::fs::File::open(dir)).and_then(|dir| dir.sync_all());
        synced.map_err(|e| cannot(&e))
    }

    /// Free bytes in the slice of each OST.
    fn free_bytes(&self, targets: &[SliceTarget]) -> Result<Vec<u64>> {
        let dirs = self.ost_dirs(targets)?;
        let free = |(dir, target): (&PathBuf, &SliceTarget)| {
            let used = Space::new(self.host.seams().disk.clone(), &text(dir)?)?.used_bytes()?;
            Ok(target.bytes.saturating_sub(used))
        };
        dirs.iter().zip(targets).map(free).collect()
    }

    /// Ends everything of the part and removes it. On return these bricks hold nothing of the buffer.
    pub fn destroy(&self, bricks: &[String]) -> Result<()> {
        match Cluster::load(&self.dir) {
            Ok(cluster) => {
                self.on(|on| on.down(false))?;
                reap(&cluster);
            }
            Err(fault) if fault.code == Code::NoSuchCluster && !self.dir.join("state.json").exists() => {}
            Err(fault) => return Err(fault),
        }
        for brick in bricks {
            let dir = slice_dir(brick, self.serial);
            if brick::is_foreign(Path::new(brick), self.store)? {
                tracing::warn!(dir = %dir.display(), "left alone: the brick belongs to another orchestrator");
                continue;
            }
            self.refuse_foreign(Path::new(brick))?;
            // A process that was killed before it mounted an image has left its loop device.
            loops::detach_below(&dir)?;
            remove_tree(&dir)?;
        }
        // Last, because it says where everything else is.
        remove_tree(&self.dir)
    }
}

/// Names in a directory that are numbers; none where it is not there.
fn numbers_in(dir: &Path) -> Result<Vec<u64>> {
    let cannot = |e| Fault::io(Code::NotWritable, "cannot look into", dir.display().to_string(), &e);
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot)?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry.map_err(cannot)?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn answer((): ()) -> NodeSlicesResp {
    NodeSlicesResp::default()
}

/// Name of the process of a target.
pub(super) fn name_of(target: TargetId) -> String {
    match target.role {
        Role::Mgt => "mgs".to_owned(),
        Role::Mdt => format!("mdt{}", target.index),
        Role::Ost => format!("ost{}", target.index),
    }
}

/// The directory of a buffer in a brick.
fn slice_dir(brick: &str, serial: u64) -> PathBuf {
    Path::new(brick).join(BRICK_DIR).join(serial.to_string())
}

/// The image of an OST.
fn image_of(slice: &Path, name: &str, bytes: u64) -> Image {
    let is_large = bytes >= XFS_FROM_BYTES;
    let (kind, extra) = if is_large { (Kind::Xfs, XFS_EXTRA_BYTES) } else { (Kind::Ext4, EXT4_EXTRA_BYTES) };
    let size_bytes = bytes.saturating_add(bytes / IMAGE_EXTRA_PART).saturating_add(extra);
    Image { file: slice.join(format!("{name}.img")), kind, size_bytes }
}

/// Bytes that a target needs for users to have those of its slice: it keeps some for itself.
fn usable(bytes: u64) -> u64 {
    bytes + bytes / USABLE_EXTRA_PART + USABLE_EXTRA_BYTES
}

/// Refuses orders that are too long, or lead to places that no brick is at.
fn check(order: &SliceOrder) -> Result<()> {
    let (bricks, targets): (Vec<&String>, usize) = match order {
        SliceOrder::Claim { brick, .. } | SliceOrder::Release { brick } => (vec![brick], 0),
        SliceOrder::Serve(SlicesServed { targets, .. })
        | SliceOrder::Hold { targets, .. }
        | SliceOrder::Free(targets) => (targets.iter().map(|t| &t.brick).collect(), targets.len()),
        SliceOrder::Destroy { bricks } => (bricks.iter().collect(), 0),
    };
    let refused = |subject: String, why: &'static str| {
        Fault::new(Code::BadArgument)
            .what("cannot carry out an order about bricks with")
            .subject(subject)
            .why(why)
            .data("nothing was changed")
    };
    if targets > TARGETS_MAX || bricks.len() > BRICKS_MAX {
        return Err(refused(format!("{targets} targets, {} bricks", bricks.len()), "these are too many"));
    }
    if let SliceOrder::Serve(served) = order
        && (served.address.is_empty() || served.address.starts_with('-'))
    {
        return Err(refused(served.address.escape_debug().to_string(), "it is no address"));
    }
    let is_plain = |brick: &String| {
        let path = Path::new(brick.as_str());
        path.is_absolute() && path.components().all(|c| !matches!(c, std::path::Component::ParentDir))
    };
    match bricks.into_iter().find(|brick| !is_plain(brick)) {
        Some(brick) => {
            Err(refused(brick.escape_debug().to_string(), "it is no absolute path of a directory"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_lead_elsewhere_or_are_too_long_are_refused() {
        let at = |brick: &str| SliceTarget {
            target: TargetId::ost(0),
            brick: brick.to_owned(),
            bytes: 1,
            image_bytes: 1,
        };
        check(&SliceOrder::Free(vec![at("/bricks/b0")])).unwrap();
        for wrong in ["", "bricks", "/bricks/../etc", ".."] {
            for order in [
                SliceOrder::Free(vec![at(wrong)]),
                SliceOrder::Destroy { bricks: vec![wrong.to_owned()] },
                SliceOrder::Claim { brick: wrong.to_owned(), bytes: 1, kept: Vec::new(), below: 1 },
                SliceOrder::Release { brick: wrong.to_owned() },
            ] {
                assert_eq!(check(&order).unwrap_err().code, Code::BadArgument, "{wrong}");
            }
        }
        let many = vec![at("/b"); TARGETS_MAX + 1];
        assert_eq!(
            check(&SliceOrder::Hold { targets: many, trims: true }).unwrap_err().code,
            Code::BadArgument
        );
    }
}
