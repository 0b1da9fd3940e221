//! Critical sections: lock a file, read a number, write another, sync, unlock.
//!
//! While a client holds the lock it asks again and again whether its handle lives; the time from the grant to
//! the last such question that succeeded belongs to it alone. A section must read the value of the last
//! section that is known to have ended well, or of one in between whose end is not known.

use std::sync::Arc;

use brindle_client::{Opened, WriteIn};
use brindle_types::{Fault, Ino};
use brindle_wire::mds::lock::{LockKind, LockSpace, LockState};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;

/// Name of the file.
pub const FILE: &str = "lock";
/// Longest pause between two sections.
const PAUSE_MS: u64 = 2_500;
/// Longest pauses inside one.
const INSIDE_MS: u64 = 400;
/// Offset of the number: behind the bytes that fit into the MDT, so that the number is on an OST.
const OFFSET: u64 = 64 << 10;

#[derive(Clone)]
struct Section {
    client: usize,
    granted_ns: u64,
    /// Time until which the client surely had the lock.
    alive_ns: u64,
    read: Option<u64>,
    wrote: u64,
    /// Whether all steps succeeded, the sync included.
    done: bool,
}

/// All sections; outlives the clients.
#[derive(Clone, Default)]
pub struct Locks {
    sections: Arc<Mutex<Vec<Section>>>,
}

impl Locks {
    /// Works until it is told to stop.
    pub async fn run(self, life: Life) {
        let ino = life.find(FILE).await;
        while !life.stopping() {
            life.pause(PAUSE_MS).await;
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let opening = life.client.open(&life.ctx, ino, access, false);
            let Ok(opened) = life.note("open lock".into(), opening).await else { continue };
            // The record has the outcome of the section.
            let _ = self.section(&life, ino, &opened).await;
            let _ = life.client.close(opened.handle).await;
        }
    }

    async fn section(&self, life: &Life, ino: Ino, opened: &Opened) -> Result<(), Fault> {
        let handle = opened.handle;
        let lock = |kind| LockState {
            space: LockSpace::Posix,
            owner: life.index as u64 + 1,
            kind,
            start: 0,
            end: u64::MAX,
            pid: 1,
        };
        let ctx = life.ctx.clone();
        let locking = life.client.set_lock(&ctx, ino, lock(LockKind::Write), true);
        life.note("lock".into(), locking).await?;
        let wrote = life.history.value();
        let now_ns = life.history.now_ns();
        let at = {
            let section = Section {
                client: life.index,
                granted_ns: now_ns,
                alive_ns: now_ns,
                read: None,
                wrote,
                done: false,
            };
            let mut sections = self.sections.lock();
            sections.push(section);
            sections.len() - 1
        };
        let done = self.inside(life, at, handle, wrote).await;
        if done.is_ok() {
            let mut sections = self.sections.lock();
            sections[at].done = true;
        }
        let unlocking = life.client.set_lock(&ctx, ino, lock(LockKind::Unlock), false);
        life.note("unlock".into(), unlocking).await?;
        done
    }

    async fn inside(&self, life: &Life, at: usize, handle: u64, wrote: u64) -> Result<(), Fault> {
        self.alive(life, at, handle).await?;
        life.pause(INSIDE_MS).await;
        let reading = life.client.read(handle, OFFSET, 8, false);
        let read = life.note(format!("read under lock {at}"), reading).await?.into_bytes();
        let mut number = [0; 8];
        number[..read.len()].copy_from_slice(&read);
        self.sections.lock()[at].read = Some(u64::from_le_bytes(number));
        self.alive(life, at, handle).await?;
        life.pause(INSIDE_MS).await;
        let write =
            WriteIn { offset: OFFSET, data: wrote.to_le_bytes().to_vec().into(), ..WriteIn::default() };
        life.note(format!("write {wrote} under lock {at}"), life.client.write(&life.ctx, handle, write))
            .await?;
        self.alive(life, at, handle).await
    }

    /// Asks the servers whether the handle, and so the lock, lives.
    async fn alive(&self, life: &Life, at: usize, handle: u64) -> Result<(), Fault> {
        let asked_ns = life.history.now_ns();
        life.note(format!("fsync under lock {at}"), life.client.fsync(handle)).await?;
        self.sections.lock()[at].alive_ns = asked_ns;
        Ok(())
    }

    /// Violations found in the sections.
    pub fn check(&self) -> Vec<String> {
        let mut sections = self.sections.lock().clone();
        sections.sort_by_key(|s| s.granted_ns);
        let mut wrong = Vec::new();
        for (n, s) in sections.iter().enumerate() {
            for t in &sections[..n] {
                if t.alive_ns > s.granted_ns {
                    wrong.push(format!(
                        "I5: c{} got the lock at {} ns while c{} held it until {} ns",
                        s.client, s.granted_ns, t.client, t.alive_ns
                    ));
                }
            }
            let Some(read) = s.read else { continue };
            let mut allowed = Vec::new();
            let mut known = false;
            for t in sections[..n].iter().rev() {
                allowed.push(t.wrote);
                if t.done {
                    known = true;
                    break;
                }
            }
            if !known {
                allowed.push(0);
            }
            if !allowed.contains(&read) {
                wrong.push(format!(
                    "I5: c{} read {read} under the lock granted at {} ns; it can only be one of {allowed:?}",
                    s.client, s.granted_ns
                ));
            }
        }
        wrong
    }

    /// Number of sections, and number of those that ended well.
    pub fn len(&self) -> (usize, usize) {
        let sections = self.sections.lock();
        (sections.len(), sections.iter().filter(|s| s.done).count())
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }
}
