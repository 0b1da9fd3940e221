//! The mark of a brick: which orchestrator it belongs to.
//!
//! The serial numbers of buffers begin at 1 in the state of each orchestrator, and a buffer is made from scratch: two orchestrators over one
//! brick would erase each other's buffers. So `BRICK/brindle-bb/owner` holds the identity of the state ([`super::store::Store::id`]). It is
//! written when the brick is added, and compared before anything is made in the brick or removed from it.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use brindle_bb::Pool;
use brindle_bb::pool::{self, Brick, GRANULE_DEFAULT_BYTES};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};

use super::actions::{BRICK_DIR, make_private_dir};
use super::orchestrator::Orchestrator;
use super::protocol::Reply;

/// File with the mark, in the directory of each brick.
const MARK: &str = "owner";
/// Beginning of the name of a mark that is being written.
const NEW_MARK: &str = ".owner-";

impl Orchestrator<'_> {
    /// Marks the bricks of a pool that an earlier release has added.
    pub(super) fn mark_bricks(&self, pool: &Pool) {
        for (name, brick) in &pool.bricks {
            let claimed = self.store.id().and_then(|id| claim(Path::new(&brick.dir), &id, true));
            if let Err(fault) = claimed {
                tracing::warn!(%fault, brick = name, "no new buffers can be made in a brick");
            }
        }
    }

    /// Adds a brick to a pool.
    pub(super) fn add_brick(&self, pool: &str, name: &str, dir: &str, bytes: u64) -> Result<Reply> {
        let path = Path::new(dir);
        let refused = |why: String| {
            Fault::new(Code::BadArgument)
                .what("cannot add the brick")
                .subject(dir.to_owned())
                .why(why)
                .data("nothing was changed")
        };
        if !path.is_absolute() || !path.is_dir() {
            return Err(refused("it is no directory on this host, by its absolute path".to_owned()));
        }
        let stat = rustix::fs::statvfs(path).map_err(|e| refused(e.to_string()))?;
        let room = stat.f_bavail.saturating_mul(stat.f_frsize);
        if room < bytes {
            return Err(refused(format!(
                "its file system has {} free, {} are promised",
                format_bytes(room),
                format_bytes(bytes)
            )));
        }
        if pool::is_name(pool) {
            self.store.make_pool(&Pool::new(pool, GRANULE_DEFAULT_BYTES))?;
        }
        let brick = Brick { dir: dir.to_owned(), bytes };
        let mut with_it = self.store.pool(pool)?;
        let is_listed = with_it.bricks.get(name) == Some(&brick);
        with_it.add_brick(name, brick.clone())?;
        claim(path, &self.store.id()?, is_listed)?;
        self.store.change_pool(pool, |pool| pool.add_brick(name, brick.clone()))?;
        Ok(Reply::Done(format!("brick {name} of pool {pool}: {} in {dir}", format_bytes(bytes))))
    }
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
    // Another orchestrator may have been faster.
    match owner(&dir)? {
        Some(owner) if owner != id => Err(foreign(brick, &of_another(&owner))),
        _ => Ok(()),
    }
}

/// Whether a brick has the mark of another state: then nothing in it is of this one.
pub(super) fn is_foreign(brick: &Path, id: &str) -> Result<bool> {
    Ok(owner(&brick.join(BRICK_DIR))?.is_some_and(|owner| owner != id))
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
    use std::path::PathBuf;
    use std::time::Duration;

    use brindle_bb::Slice;

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
        let both = Brick { dir: brick.display().to_string(), bytes: 32 << 20 };
        second.store.change_pool("default", |pool| pool.add_brick("b0", both.clone())).unwrap();
        let create = Create {
            name: "p".to_owned(),
            uid: 1,
            gid: 1,
            pool: "default".to_owned(),
            bytes: 16 << 20,
            group: None,
        };
        let slice = Slice { serial: 1, brick: "b0".to_owned(), bytes: 16 << 20, image_bytes: None };
        let (buffer, pool) = (create.row(1, vec![slice]), second.store.pool("default").unwrap());
        assert_eq!(second.actions.make(&buffer, &pool).unwrap_err().code, Code::ForeignTarget);
        second.actions.destroy(&buffer, &pool).unwrap();
        assert!(kept.exists());
        first.actions.destroy(&buffer, &pool).unwrap();
        assert!(!kept.exists());
    }
}
