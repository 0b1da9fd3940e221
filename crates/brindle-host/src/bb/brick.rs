//! The mark of a brick: which orchestrator it belongs to.
//!
//! The serial numbers of buffers begin at 1 in the state of each orchestrator, and a buffer is made from scratch: two orchestrators over
//! one brick would erase each other's buffers. `BRICK/brindle-bb/owner` therefore holds the identity of the state
//! ([`super::store::Store::id`]). The mark is written when the brick is added, and compared before anything is made in the brick or removed
//! from it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use brindle_bb::pool::{self, Brick, GRANULE_DEFAULT_BYTES};
use brindle_bb::{Buffer, Phase, Pool, Slice};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::SliceOrder;

use super::actions::{BRICK_DIR, make_private_dir};
use super::orchestrator::{Orchestrator, short};
use super::protocol::Reply;
use crate::text;

/// File with the mark, in the directory of each brick.
const MARK: &str = "owner";
/// Beginning of the name of a mark that is being written.
const NEW_MARK: &str = ".owner-";

impl Orchestrator<'_> {
    /// Marks the bricks of a pool that were added before bricks had marks, and hold something. An empty one may be a disk that is not mounted.
    pub(super) fn mark_bricks(&self, pool: &Pool) {
        for (name, brick) in pool.bricks.iter().filter(|(_, brick)| brick.node.is_none()) {
            let path = Path::new(&brick.dir);
            let claimed = has_content(&path.join(BRICK_DIR)).and_then(|holds| match holds {
                true => self.store.id().and_then(|id| claim(path, &id, true)),
                false => Ok(()),
            });
            if let Err(fault) = claimed {
                tracing::warn!(%fault, brick = name, "no new buffers can be made in a brick");
            }
        }
    }

    /// Adds a brick to a pool. The agent of another host marks a brick there.
    pub(super) fn add_brick(&self, pool: &str, name: &str, wanted: &Brick) -> Result<Reply> {
        let _bricks = self.bricks.lock();
        // A directory has a single name, also if it was given with a slash at its end. On this host a link to it gets the same name, too.
        let dir: PathBuf = Path::new(&wanted.dir).components().collect();
        let node = self.node_of_brick(wanted)?;
        let dir = if node.is_none() { dir.canonicalize().unwrap_or(dir) } else { dir };
        let brick = Brick { node, dir: text(&dir)?, ..wanted.clone() };
        if pool::is_name(pool) {
            self.store.make_pool(&Pool::new(pool, GRANULE_DEFAULT_BYTES))?;
        }
        let mut with_it = self.store.pool(pool)?;
        let is_listed = with_it.bricks.get(name) == Some(&brick);
        with_it.add_brick(name, brick.clone())?;
        let Brick { dir, bytes, node } = &brick;
        match node {
            None => {
                let path = Path::new(dir);
                refuse_other_path(path)?;
                refuse_small(path, *bytes)?;
                claim(path, &self.store.id()?, is_listed)?;
            }
            Some(node) => {
                // Slices and the number first: buffers that are made meanwhile have slices before they have a row, or are beyond the number.
                let pools = self.store.pools()?;
                let below = pools.iter().map(|pool| pool.next_serial).max().unwrap_or(1);
                let mut kept: BTreeSet<u64> =
                    pools.iter().flat_map(|pool| &pool.slices).map(|slice| slice.serial).collect();
                for (_, buffer) in self.store.buffers()? {
                    match buffer.phase {
                        Phase::Destroying => kept.remove(&buffer.serial),
                        _ => kept.insert(buffer.serial),
                    };
                }
                let kept = kept.into_iter().collect();
                let bytes = if is_listed { 0 } else { *bytes };
                self.actions
                    .order_brick(node, SliceOrder::Claim { brick: dir.clone(), bytes, kept, below })?;
            }
        }
        self.store.change_pool(pool, |pool| pool.add_brick(name, brick.clone()))?;
        let on = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        Ok(Reply::Done(format!("brick {name} of pool {pool}: {} in {dir}{on}", format_bytes(*bytes))))
    }

    /// The host of a brick: `None` for the orchestrator's own.
    fn node_of_brick(&self, brick: &Brick) -> Result<Option<String>> {
        let Some(node) = brick.node.clone().filter(|node| *node != crate::name()) else { return Ok(None) };
        let refused = |why: &str| {
            Fault::new(Code::NoSuchNode)
                .what("cannot add a brick on node")
                .subject(node.clone())
                .why(why.to_owned())
                .data("nothing was changed")
        };
        if self.config.nodes_dir.is_some() {
            return Err(refused("the nodes of brindle dev slurm are all on this machine"));
        }
        if self.store.node(&node)?.is_none() {
            return Err(refused("no agent of such a node has ever registered")
                .next(format!("start it there: brindle bb agent {}", self.agents_connect_to())));
        }
        Ok(Some(node))
    }

    /// Serial numbers of the buffers that have a slice of a brick.
    fn serials_on(&self, pool: &str, brick: &str) -> Result<Vec<u64>> {
        let buffers = self.store.buffers()?.into_iter().map(|(_, buffer)| buffer);
        let has = |b: &Buffer| b.pool == pool && b.slices.iter().any(|slice| slice.brick == brick);
        Ok(buffers.filter(has).map(|b| b.serial).collect())
    }

    /// Keeps new slices out of a brick, or lets them in again.
    pub(super) fn drain_brick(&self, pool: &str, name: &str, is_draining: bool) -> Result<Reply> {
        let _bricks = self.bricks.lock();
        self.store.change_pool(pool, |pool| pool.drain_brick(name, is_draining))?;
        let left = self.serials_on(pool, name)?.len();
        let buffers = if left == 1 { "buffer has" } else { "buffers have" };
        Ok(Reply::Done(match (is_draining, left) {
            (false, _) => format!("brick {name} of pool {pool} gets new buffers again"),
            (true, 0) => format!("brick {name} of pool {pool} is empty: brindle bb brick remove {name}"),
            (true, _) => {
                format!(
                    "brick {name} of pool {pool} gets no new buffers; {left} {buffers} a part of it still"
                )
            }
        }))
    }

    /// Removes a brick from its pool. `lost`: an administrator says that its disk is gone, so nobody has to confirm that slices of buffers
    /// which are being destroyed are gone.
    pub(super) fn remove_brick(&self, pool: &str, name: &str, lost: bool) -> Result<Reply> {
        let refused = |why: String, next: String| {
            Fault::new(Code::BadArgument)
                .what("cannot remove the brick")
                .subject(name.to_owned())
                .why(why)
                .data("nothing was changed")
                .next(next)
        };
        let _bricks = self.bricks.lock();
        let on_it = self.serials_on(pool, name)?;
        for (_, buffer) in self.store.buffers()?.into_iter().filter(|(_, b)| on_it.contains(&b.serial)) {
            let (token, serial, state) = (&buffer.token, buffer.serial, buffer.phase.word());
            let why = format!("a part of the buffer {token}.{serial} lies on it, which is {state}");
            match (buffer.phase, lost) {
                (Phase::Destroying, true) => {}
                (Phase::Destroying, false) => {
                    return Err(refused(
                        why,
                        "wait for its host; or, if its disk is lost: add --lost".to_owned(),
                    ));
                }
                _ => return Err(refused(why, format!("brindle bb destroy --yes {token}.{serial}"))),
            }
        }
        let brick = self.store.change_pool(pool, |pool| {
            let has_other = |slice: &Slice| slice.brick == name && !on_it.contains(&slice.serial);
            if pool.slices.iter().any(has_other) {
                return Err(refused(
                    "a buffer has got a slice of it at this moment".to_owned(),
                    "try again".to_owned(),
                ));
            }
            pool.remove_brick(name)
        })?;
        tracing::warn!(audit = true, pool, name, lost, "a brick is removed");
        self.look_after_bricks();
        let release = || match &brick.node {
            None => release(Path::new(&brick.dir), &self.store.id()?),
            Some(node) => {
                self.actions.order_brick(node, SliceOrder::Release { brick: brick.dir.clone() }).map(drop)
            }
        };
        // The brick is no part of the pool any more, whatever becomes of its mark.
        let left = if lost { None } else { release().err() };
        Ok(Reply::Done(match left {
            None => format!("brick {name} is no part of pool {pool} any more"),
            Some(fault) => {
                format!("brick {name} is no part of pool {pool} any more; its mark stays: {}", short(&fault))
            }
        }))
    }
}

fn not_added(path: &Path, why: String) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot add the brick")
        .subject(path.display().to_string())
        .why(why)
        .data("nothing was changed")
}

/// Refuses what is no directory, and another name of one: the kernel tells mounts and devices by their real paths, and a disk with two names would
/// be counted twice.
pub(super) fn refuse_other_path(path: &Path) -> Result<()> {
    if !path.is_absolute() || !path.is_dir() {
        return Err(not_added(path, "it is no directory on that host, by its absolute path".to_owned()));
    }
    match path.canonicalize() {
        Ok(real) if real == path => Ok(()),
        Ok(real) => Err(not_added(path, format!("it is a link to {}", real.display()))
            .next(format!("give that path: {}", real.display()))),
        Err(e) => Err(not_added(path, e.to_string())),
    }
}

/// Refuses what has not so much free.
pub(super) fn refuse_small(path: &Path, bytes: u64) -> Result<()> {
    let refused = |why: String| not_added(path, why);
    let stat = rustix::fs::statvfs(path).map_err(|e| refused(e.to_string()))?;
    let room = stat.f_bavail.saturating_mul(stat.f_frsize);
    if room < bytes {
        return Err(refused(format!(
            "its file system has {} free, {} are promised",
            format_bytes(room),
            format_bytes(bytes)
        )));
    }
    Ok(())
}

/// Marks a brick as that of the state with this identity, durably. Refuses one of another state, and one with files that nobody has
/// marked, unless it `is_listed` in this state: then an earlier release has made them.
pub(super) fn claim(brick: &Path, id: &str, is_listed: bool) -> Result<()> {
    let dir = brick.join(BRICK_DIR);
    if !brick.is_dir() {
        return Err(Fault::new(Code::NotWritable)
            .what("cannot use the brick")
            .subject(brick.display().to_string())
            .why("it is no directory")
            .next("mount its disk"));
    }
    match owner(&dir)? {
        Some(owner) if owner == id => return Ok(()),
        Some(owner) => return Err(foreign(brick, &of_another(&owner))),
        None if !is_listed && has_content(&dir)? => {
            return Err(foreign(brick, "it holds files, and no mark that says whose they are"));
        }
        None => {}
    }
    make_private_dir(&dir)?;
    write_mark(brick, &dir, id).map_err(|e| cannot("cannot mark the brick", brick, &e))?;
    // A second orchestrator may have marked the brick first.
    match owner(&dir)? {
        Some(owner) if owner != id => Err(foreign(brick, &of_another(&owner))),
        _ => Ok(()),
    }
}

/// Whether a brick has the mark of another state: then nothing in it is of this one.
pub(super) fn is_foreign(brick: &Path, id: &str) -> Result<bool> {
    Ok(owner(&brick.join(BRICK_DIR))?.is_some_and(|owner| owner != id))
}

/// Refuses a brick without the mark of this state: its disk is not mounted, or somebody has emptied it.
pub(super) fn refuse_unmarked(brick: &Path, id: &str) -> Result<()> {
    match owner(&brick.join(BRICK_DIR))? {
        Some(owner) if owner == id => Ok(()),
        Some(owner) => Err(foreign(brick, &of_another(&owner))),
        None => Err(Fault::new(Code::NotATarget)
            .what("cannot use the brick")
            .subject(brick.display().to_string())
            .why("the mark of its orchestrator is not there")
            .data("nothing was changed")
            .next("mount its disk; or, if that is lost: brindle bb brick remove --lost")),
    }
}

/// Takes the mark of this state off a brick that holds nothing.
pub(super) fn release(brick: &Path, id: &str) -> Result<()> {
    let dir = brick.join(BRICK_DIR);
    match owner(&dir)? {
        None => return Ok(()),
        Some(owner) if owner != id => return Err(foreign(brick, &of_another(&owner))),
        Some(_) => {}
    }
    if let Some(serial) = serials_in(brick)?.first() {
        return Err(Fault::new(Code::TargetBusy)
            .what("cannot release the brick")
            .subject(brick.display().to_string())
            .why(format!("it holds a slice of buffer {serial}"))
            .data("nothing was changed"));
    }
    let cannot = |e: &std::io::Error| cannot("cannot take the mark off the brick", brick, e);
    std::fs::remove_file(dir.join(MARK)).map_err(|e| cannot(&e))?;
    // Files of somebody else stay.
    let _ = std::fs::remove_dir(&dir);
    Ok(())
}

/// Serial numbers of the buffers that a brick holds something of.
pub(super) fn serials_in(brick: &Path) -> Result<Vec<u64>> {
    let dir = brick.join(BRICK_DIR);
    let entries = match std::fs::read_dir(&dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| cannot("cannot look into the brick", &dir, &e))?,
    };
    let mut serials = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| cannot("cannot look into the brick", &dir, &e))?.file_name();
        serials.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    serials.sort_unstable();
    Ok(serials)
}

/// Writes the mark, unless there is one.
fn write_mark(brick: &Path, dir: &Path, id: &str) -> std::io::Result<()> {
    let new = dir.join(format!("{NEW_MARK}{id}"));
    let mut file = File::create(&new)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    let linked = match std::fs::hard_link(&new, dir.join(MARK)) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    };
    std::fs::remove_file(&new)?;
    linked?;
    [dir, brick].into_iter().try_for_each(|dir| File::open(dir)?.sync_all())
}

fn owner(dir: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(dir.join(MARK)) {
        Ok(owner) => Ok(Some(owner.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(cannot("cannot read the mark of the brick", dir, &e)),
    }
}

fn has_content(dir: &Path) -> Result<bool> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(|e| cannot("cannot look into the brick", dir, &e))?,
    };
    for entry in entries {
        let name = entry.map_err(|e| cannot("cannot look into the brick", dir, &e))?.file_name();
        if !name.to_str().is_some_and(|name| name.starts_with(NEW_MARK)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn cannot(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotWritable, what, path.display().to_string(), e)
}

fn of_another(owner: &str) -> String {
    format!("it belongs to the orchestrator of another state, {owner}")
}

fn foreign(brick: &Path, why: &str) -> Fault {
    let dir = brick.join(BRICK_DIR).display().to_string();
    Fault::new(Code::ForeignTarget)
        .what("will not use the brick")
        .subject(brick.display().to_string())
        .why(why.to_owned())
        .data("nothing in it was changed")
        .next(format!(
            "give another directory; or, where its buffers are of no use any more, destroy them by hand: rm -r {dir}"
        ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Host;
    use crate::bb::Config;
    use crate::bb::protocol::{Create, Request};

    fn config(dir: &Path) -> Config {
        Config {
            dir: dir.to_owned(),
            mount_root: PathBuf::from("/nowhere"),
            nodes_dir: None,
            keep_discarded: Duration::from_secs(1),
            network: None,
            slurm_uid: 0,
        }
    }

    #[test]
    fn a_brick_belongs_to_one_state() {
        let dir = tempfile::tempdir().unwrap();
        let brick = dir.path().join("brick");
        assert_eq!(claim(&brick, "aa", false).unwrap_err().code, Code::NotWritable);
        std::fs::create_dir(&brick).unwrap();
        claim(&brick, "aa", false).unwrap();
        std::fs::create_dir(brick.join("brindle-bb/1")).unwrap();
        claim(&brick, "aa", false).unwrap();
        for is_listed in [false, true] {
            let fault = claim(&brick, "bb", is_listed).unwrap_err();
            assert_eq!(fault.why, ["it belongs to the orchestrator of another state, aa"]);
        }
        assert!(is_foreign(&brick, "bb").unwrap() && !is_foreign(&brick, "aa").unwrap());
        // As an earlier release has left it.
        std::fs::remove_file(brick.join("brindle-bb/owner")).unwrap();
        let fault = claim(&brick, "bb", false).unwrap_err();
        assert_eq!(fault.why, ["it holds files, and no mark that says whose they are"]);
        claim(&brick, "aa", true).unwrap();
        assert_eq!(std::fs::read_to_string(brick.join("brindle-bb/owner")).unwrap(), "aa");
        assert_eq!(std::fs::read_dir(brick.join("brindle-bb")).unwrap().count(), 2);
    }

    #[test]
    fn of_two_orchestrators_one_gets_the_brick_and_the_other_erases_nothing_in_it() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let host = Host::new(&runtime).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let brick = dir.path().join("brick");
        std::fs::create_dir(&brick).unwrap();
        let add = Request::AddBrick {
            pool: "default".to_owned(),
            name: "b0".to_owned(),
            dir: brick.display().to_string(),
            bytes: 32 << 20,
            node: None,
        };
        let first = Orchestrator::open(&host, config(&dir.path().join("one"))).unwrap();
        first.answer(None, &add).unwrap();
        first.answer(None, &add).unwrap();
        let kept = brick.join("brindle-bb/1/kept");
        std::fs::create_dir(brick.join("brindle-bb/1")).unwrap();
        std::fs::write(&kept, "x").unwrap();
        let second = Orchestrator::open(&host, config(&dir.path().join("two"))).unwrap();
        assert_eq!(second.answer(None, &add).unwrap_err().code, Code::ForeignTarget);
        assert!(second.store.pool("default").unwrap().bricks.is_empty());
        // Also where the second one has the brick in its state, from an earlier release.
        let both = Brick { dir: brick.display().to_string(), bytes: 32 << 20, node: None };
        second.store.change_pool("default", |pool| pool.add_brick("b0", both.clone())).unwrap();
        let create = Create {
            name: "p".to_owned(),
            uid: 1,
            gid: 1,
            pool: "default".to_owned(),
            bytes: 16 << 20,
            group: None,
        };
        let slice =
            Slice { serial: 1, brick: "b0".to_owned(), bytes: 16 << 20, image_bytes: None, node: None };
        let (buffer, pool) = (create.row(1, vec![slice]), second.store.pool("default").unwrap());
        assert_eq!(second.actions.make(&buffer, &pool).unwrap_err().code, Code::ForeignTarget);
        second.actions.destroy(&buffer, &pool).unwrap();
        assert!(kept.exists());
        // The mark stays on a brick with slices; without its mark an empty brick may go to another orchestrator.
        assert_eq!(release(&brick, &first.store.id().unwrap()).unwrap_err().code, Code::TargetBusy);
        first.actions.destroy(&buffer, &pool).unwrap();
        assert!(!kept.exists());
        release(&brick, &second.store.id().unwrap()).unwrap_err();
        refuse_unmarked(&brick, &first.store.id().unwrap()).unwrap();
        let remove = Request::RemoveBrick { pool: "default".to_owned(), name: "b0".to_owned(), lost: false };
        first.answer(None, &remove).unwrap();
        assert!(first.store.pool("default").unwrap().bricks.is_empty());
        assert!(!brick.join("brindle-bb").exists());
        first.answer(None, &remove).unwrap_err();
    }
}
