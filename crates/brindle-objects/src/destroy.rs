//! Removes objects, and sets objects without a known owner aside.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use brindle_types::{Code, Fault, ObjectId};

use crate::findings::{Finding, FindingKind};
use crate::names;
use crate::ranges::ALL;
use crate::stats::add;
use crate::store::ObjectStore;

/// Objects of one name that the quarantine keeps; a further one replaces the first.
const QUARANTINE_COPIES_MAX: u32 = 1000;

/// Outcome of removing objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// Number of objects that existed and are gone.
    pub removed: u32,
    /// Objects that are still there: the disk failed.
    pub stuck: Vec<ObjectId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Removed,
    Quarantined,
}

impl ObjectStore {
    /// Removes objects, durably. The store remembers their names for a while, so that a late write does not make them
    /// again. An object that the disk fails to remove is listed in [`Destroyed::stuck`]; the others are removed all the
    /// same.
    pub async fn destroy(&self, ids: &[ObjectId]) -> Result<Destroyed, Fault> {
        if let Some(fault) = self.failure() {
            return Err(fault);
        }
        let mut destroyed = Destroyed::default();
        let mut dirs = BTreeSet::new();
        for id in ids {
            self.bury(*id);
            match self.take_away(*id, Fate::Removed).await {
                Ok(true) => {
                    destroyed.removed += 1;
                    dirs.insert(names::dir(&self.root, id));
                }
                Ok(false) => {}
                Err(fault) => {
                    tracing::warn!(object = %id, %fault, "an object cannot be removed");
                    destroyed.stuck.push(*id);
                }
            }
        }
        self.sync_changed(dirs).await?;
        self.space.forget();
        add(&self.stats.objects_destroyed, u64::from(destroyed.removed));
        Ok(destroyed)
    }

    /// Sets an object aside: nobody reads or writes it any more, and nothing of it is lost.
    pub async fn quarantine(&self, id: ObjectId) -> Result<(), Fault> {
        if self.take_away(id, Fate::Quarantined).await? {
            let dirs = [names::dir(&self.root, &id), format!("{}/quarantine", self.root)];
            self.sync_changed(dirs.into()).await?;
            add(&self.stats.objects_quarantined, 1);
            self.findings.add(Finding {
                kind: FindingKind::Quarantined,
                object: id,
                offset: 0,
                stored: 0,
                computed: 0,
                boot_term: self.boot_term(),
            });
        }
        Ok(())
    }

    /// Forgets an object that another member does not have, as if it had never been. Durable on return.
    pub async fn forget_object(&self, id: ObjectId) -> Result<(), Fault> {
        if self.take_away(id, Fate::Removed).await? {
            self.sync_changed([names::dir(&self.root, &id)].into()).await?;
            self.space.forget();
        }
        self.unbury(&id);
        Ok(())
    }

    /// A name in the quarantine that is not taken: an object of this name may have been set aside before.
    fn free_quarantine_path(&self, id: &ObjectId) -> String {
        let base = names::quarantine_path(&self.root, id);
        let numbered = (1..=QUARANTINE_COPIES_MAX).map(|n| format!("{base}~{n}"));
        let taken = |path: &String| self.seams.disk.stat(path).is_ok();
        std::iter::once(base.clone()).chain(numbered).find(|p| !taken(p)).unwrap_or(base)
    }

    async fn sync_changed(&self, dirs: BTreeSet<String>) -> Result<(), Fault> {
        let term = self.boot_term();
        let first = dirs.first().cloned().unwrap_or_default();
        let synced = self.sync_dirs(dirs.into_iter().collect()).await;
        synced.map_err(|e| self.sync_failed(term, first, &e))
    }

    /// Takes an object's name away; `false` when there was none.
    async fn take_away(&self, id: ObjectId, fate: Fate) -> Result<bool, Fault> {
        loop {
            // A damaged object can be removed, too, and one that cannot be put right after a crash.
            let found = match fate {
                Fate::Removed => self.look_up(id),
                Fate::Quarantined => self.ready(id).await,
            };
            let object = match found {
                Ok(object) => Some(object),
                Err(f) if f.code == Code::ObjectDamaged => None,
                Err(f) => return Err(f),
            };
            let (mut syncing, mut all) = (None, None);
            if let Some(object) = &object {
                syncing = Some(object.syncing.lock().await);
                all = Some(object.locks.write(ALL).await);
                if object.state.lock().gone || fate == Fate::Quarantined && !self.still_ready(object) {
                    continue;
                }
            }
            let path = self.path(&id);
            let disk = &self.seams.disk;
            let done = match fate {
                Fate::Removed => disk.remove(&path),
                Fate::Quarantined => disk.rename(&path, &self.free_quarantine_path(&id)),
            };
            match done {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
                Err(e) => return Err(Fault::io(Code::OstIo, "cannot remove", format!("object {id}"), &e)),
                Ok(()) => {}
            }
            if let Some(object) = &object {
                let mut s = object.state.lock();
                s.gone = true;
                s.file = None;
                drop(s);
                self.table.forget(object);
                self.dirty.lock().remove(&id);
            }
            self.intents.drop_object(id);
            drop((syncing, all));
            return Ok(true);
        }
    }
}
