//! Names, sizes and groups that one client changes now and then and all others look at all the time. A client that looks after a change has
//! returned sees the change, also while servers are killed and clients find that out one after the other.
//!
//! Each client has a directory with one file. The client renames the file from `n7` to `n8`, or makes it a byte longer, or renames it and
//! gives the directory the next group right after that. The client notes each change before and after. Between the changes the others are
//! given leases, and look in their own caches.
//!
//! A byte that was written and not flushed may be lost with its writer, or its writer's session; the flush then reports the loss. A client
//! that misses such a byte is suspected until the flush has said that the byte was there.

use std::sync::Arc;

use brindle_client::WriteIn;
use brindle_client::namespace::create::CreateIn;
use brindle_client::namespace::rename::RenameIn;
use brindle_client::namespace::setattr::SetAttr;
use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;

/// Name of the directory above.
pub const DIR: &str = "stamps";
/// Longest pause between two changes; leases are given again a second after one.
const CHANGE_PAUSE_MS: u64 = 4_000;
/// Longest pause between two looks.
const LOOK_PAUSE_MS: u64 = 60;

/// Longest pause between a rename and the change of the group: meanwhile nobody is given the lease of the directory.
const REGROUP_PAUSE_MS: u64 = 100;

/// Suspects that are remembered.
const SUSPECTS_MAX: usize = 8;

/// Knowledge about one client's file.
#[derive(Clone, Debug, Default)]
struct Stamp {
    /// Number in its name: the last rename that has returned, and the last that has begun.
    name: u64,
    name_begun: u64,
    /// Group of its directory: the last change that has returned, and the last that has begun.
    group: u32,
    group_begun: u32,
    /// Least length of the file, unless its last write was lost.
    size_bytes: u64,
    /// Bytes that it has at least.
    flushed_bytes: u64,
    /// Counts writes.
    writes: u64,
    /// Observations of fewer bytes than the last write left.
    suspects: Vec<String>,
    ino: Option<Ino>,
}

/// All files; outlives the clients.
#[derive(Clone, Default)]
pub struct Stamps {
    stamps: Arc<Mutex<Vec<Stamp>>>,
}

fn file_name(number: u64) -> String {
    format!("n{number}")
}

const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };

impl Stamps {
    /// Makes the file of one more client.
    pub async fn make(&self, life: &Life, above: Ino) -> Result<(), Fault> {
        let (client, ctx) = (&life.client, &life.ctx);
        let number = self.stamps.lock().len();
        let dir = client.mkdir(ctx, above, format!("c{number}").as_bytes(), 0o755, 0).await?.ino;
        let name = file_name(0);
        let (name, access) = (name.as_bytes(), WRITE);
        let create = CreateIn { parent: dir, name, mode: 0o644, umask: 0, exclusive: true, access };
        let opened = client.create(ctx, create).await?.opened;
        client.close(opened.handle).await?;
        self.stamps.lock().push(Stamp { ino: Some(opened.attr.ino), ..Stamp::default() });
        Ok(())
    }

    /// Changes its own and looks at all until it is told to stop.
    pub async fn run(self, life: Life) {
        let mut dirs = Vec::new();
        let count = self.stamps.lock().len();
        for number in 0..count {
            dirs.push(life.find(&format!("{DIR}/c{number}")).await);
        }
        tokio::join!(self.change(&life, dirs[life.index]), self.look(&life, &dirs));
    }

    async fn change(&self, life: &Life, dir: Ino) {
        while !life.stopping() {
            life.pause(CHANGE_PAUSE_MS).await;
            let changed = match life.below(3) {
                0 => self.rename(life, dir).await,
                1 => self.regroup(life, dir).await,
                _ => self.lengthen(life).await,
            };
            if changed.is_err() {
                // A failed change may have happened: a look finds out.
                let _ = self.find_out(life, dir).await;
            }
        }
    }

    fn mine<T>(&self, life: &Life, look: impl FnOnce(&mut Stamp) -> T) -> T {
        look(&mut self.stamps.lock()[life.index])
    }

    async fn rename(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        let number = self.mine(life, |mine| {
            mine.name_begun = mine.name + 1;
            mine.name
        });
        let (from, to) = (file_name(number), file_name(number + 1));
        let rename = RenameIn {
            parent: dir,
            name: from.as_bytes(),
            new_parent: dir,
            new_name: to.as_bytes(),
            no_replace: false,
            exchange: false,
            whiteout: false,
        };
        life.note(format!("rename stamp {from} to {to}"), life.client.rename(&life.ctx, rename)).await?;
        self.mine(life, |mine| mine.name = number + 1);
        Ok(())
    }

    async fn regroup(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        self.rename(life, dir).await?;
        life.pause(REGROUP_PAUSE_MS).await;
        let group = self.mine(life, |mine| {
            mine.group_begun += 1;
            mine.group_begun
        });
        let set = SetAttr { gid: Some(group), ..SetAttr::default() };
        life.note(format!("stamp group {group}"), life.client.setattr(&life.ctx, dir, set)).await?;
        self.mine(life, |mine| mine.group = group);
        Ok(())
    }

    async fn lengthen(&self, life: &Life) -> Result<(), Fault> {
        let (ino, size_bytes) = self.mine(life, |mine| {
            mine.size_bytes = mine.flushed_bytes;
            mine.writes += 1;
            mine.suspects.clear();
            (mine.ino, mine.flushed_bytes)
        });
        let Some(ino) = ino else { return Ok(()) };
        let opening = life.client.open(&life.ctx, ino, WRITE, false);
        let opened = life.note("open stamp".into(), opening).await?;
        let write = WriteIn { offset: size_bytes, data: vec![7].into(), ..WriteIn::default() };
        let writing = life.client.write(&life.ctx, opened.handle, write);
        let written = life.note(format!("lengthen stamp to {}", size_bytes + 1), writing).await;
        if written.is_ok() {
            self.mine(life, |mine| mine.size_bytes = size_bytes + 1);
        }
        life.pause(LOOK_PAUSE_MS).await;
        let flushed = life.note("flush stamp".into(), life.client.flush(opened.handle, None)).await;
        life.note("close stamp".into(), life.client.close(opened.handle)).await?;
        written.and(flushed)?;
        let wrong = self.mine(life, |mine| {
            mine.flushed_bytes = size_bytes + 1;
            std::mem::take(&mut mine.suspects)
        });
        wrong.into_iter().for_each(|wrong| self.wrong(life, wrong));
        Ok(())
    }

    /// A power cut takes back states that were seen.
    fn wrong(&self, life: &Life, wrong: String) {
        if life.history.cuts().of("mdt0") == 0 {
            life.history.violation(wrong);
        }
    }

    async fn find_out(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        let (name, begun) = self.mine(life, |mine| (mine.name, mine.name_begun));
        if begun > name && life.client.lookup(dir, file_name(begun).as_bytes()).await.is_ok() {
            self.mine(life, |mine| mine.name = begun);
        }
        Ok(())
    }

    async fn look(&self, life: &Life, dirs: &[Ino]) {
        while !life.stopping() {
            life.pause(LOOK_PAUSE_MS).await;
            let number = life.below(dirs.len() as u64) as usize;
            let wrong = match life.below(4) {
                3 => self.look_at_group(life, dirs[number], number).await,
                0 => self.look_at_size(life, number).await,
                1 => self.look_at_old_name(life, dirs[number], number).await,
                _ => self.look_at_name(life, dirs[number], number).await,
            };
            if let Some(wrong) = wrong {
                self.wrong(life, format!("I2: c{} {wrong}, of c{number}", life.index));
            }
        }
    }

    async fn look_at_size(&self, life: &Life, number: usize) -> Option<String> {
        let before = self.stamps.lock()[number].clone();
        let size_bytes = life.client.getattr(before.ino?).await.ok()?.size_bytes;
        let wrong = |at_least| format!("saw {size_bytes} bytes after {at_least} had been written");
        if size_bytes < before.flushed_bytes {
            return Some(wrong(before.flushed_bytes));
        }
        let writer = &mut self.stamps.lock()[number];
        let is_last = writer.writes == before.writes && writer.suspects.len() < SUSPECTS_MAX;
        if size_bytes < before.size_bytes && is_last {
            if writer.flushed_bytes >= before.size_bytes {
                return Some(wrong(before.size_bytes));
            }
            let suspect = format!("I2: c{} {}, of c{number}", life.index, wrong(before.size_bytes));
            writer.suspects.push(suspect);
        }
        None
    }

    /// Checks the directory as the kernel does before it opens or makes an entry there.
    async fn look_at_group(&self, life: &Life, dir: Ino, number: usize) -> Option<String> {
        let group = self.stamps.lock()[number].group;
        let attr = match life.client.rights(dir) {
            Some(attr) => attr,
            None => {
                // Now its rights are known for the next look, if the lease of the directory above is held.
                life.client.lookup_path(&format!("{DIR}/c{number}")).await.ok()?;
                life.client.getattr(dir).await.ok()?
            }
        };
        (attr.gid < group).then(|| format!("saw group {} after {group} had been set", attr.gid))
    }

    async fn look_at_old_name(&self, life: &Life, dir: Ino, number: usize) -> Option<String> {
        let old = self.stamps.lock()[number].name.checked_sub(1)?;
        let found = life.client.lookup(dir, file_name(old).as_bytes()).await;
        found.is_ok().then(|| format!("found {} after it had been renamed", file_name(old)))
    }

    async fn look_at_name(&self, life: &Life, dir: Ino, number: usize) -> Option<String> {
        let name = self.stamps.lock()[number].name;
        let found = life.client.lookup(dir, file_name(name).as_bytes()).await;
        let missing = found.is_err_and(|fault| fault.code == Code::NotFound);
        let moved = self.stamps.lock()[number].name_begun > name;
        (missing && !moved).then(|| format!("did not find {}, which was there", file_name(name)))
    }
}
