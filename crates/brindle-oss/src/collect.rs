//! Garbage collection: asks the MDT about each object, and destroys objects only on the MDT's word.
//!
//! A pass goes over all objects in order, slowly, and asks about those that the MDT has not confirmed to this process. Objects that the MDT
//! disowns are destroyed; objects that it never issued are set aside. The MDT destroys objects that it gives up later through its own
//! queue. If a late write makes such an object again, the object is unconfirmed, and a pass finds it.
//!
//! A write makes an object long before the MDT hears of it, but only after the MDT has recorded its generation. Therefore the answer is
//! right at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_objects::recheck::Known;
use brindle_targets::Caller;
use brindle_types::{ObjectId, Result, TargetId};
use brindle_wire::mds::owner::{OwnerQueryReq, Verdict};
use parking_lot::Mutex;

use crate::ops;
use crate::service::Oss;
use crate::stats::add;

/// Objects in one question.
const ASK_MAX: usize = 1024;
/// Objects that are remembered as confirmed; beyond them all are asked about again.
const CONFIRMED_MAX: usize = 1 << 20;
/// Pause between questions.
const PAUSE_MS: u64 = 200;
/// Pause between passes.
const REST_MS: u64 = 30_000;
/// Pause between two looks at the findings.
const RECHECK_MS: u64 = 30_000;

/// Objects that the MDT has called its own.
#[derive(Default)]
pub struct Confirmed {
    set: Mutex<BTreeSet<ObjectId>>,
}

impl Confirmed {
    /// The object was removed; one of the same name would be another.
    pub fn forget(&self, object: &ObjectId) {
        self.set.lock().remove(object);
    }

    fn has(&self, object: &ObjectId) -> bool {
        self.set.lock().contains(object)
    }

    fn add(&self, object: ObjectId) {
        let mut set = self.set.lock();
        if set.len() >= CONFIRMED_MAX {
            set.clear();
        }
        set.insert(object);
    }
}

/// Goes over the objects again and again, for as long as the OST runs.
pub async fn run(oss: Arc<Oss>) {
    // Once the fences are known, the MDT can be asked.
    oss.fences_known.wait().await;
    loop {
        let mut after = None;
        loop {
            match some(&oss, after).await {
                Ok(Some(last)) => {
                    after = Some(last);
                    oss.seams.sleep_ms(PAUSE_MS).await;
                }
                Ok(None) => break,
                Err(fault) => {
                    tracing::warn!(code = %fault.code, "cannot look for garbage: {fault}");
                    oss.seams.sleep_ms(REST_MS).await;
                }
            }
        }
        oss.seams.sleep_ms(REST_MS).await;
    }
}

/// Looks again and again at what was found damaged or missing, and forgets what is cured.
pub async fn recheck(oss: Arc<Oss>) {
    oss.fences_known.wait().await;
    loop {
        oss.seams.sleep_ms(RECHECK_MS).await;
        if let Err(fault) = recheck_once(&oss).await {
            tracing::warn!(code = %fault.code, "cannot look again at what was found wrong: {fault}");
        }
    }
}

/// Looks once at objects that were found damaged or missing.
pub async fn recheck_once(oss: &Oss) -> Result<()> {
    if oss.store.known_damage() == Known::default() {
        return Ok(());
    }
    let mut by_home: BTreeMap<TargetId, Vec<ObjectId>> = BTreeMap::new();
    for object in oss.store.recheck().await {
        by_home.entry(TargetId::mdt(object.ino.mdt())).or_default().push(object);
    }
    for (home, objects) in by_home {
        for objects in objects.chunks(ASK_MAX) {
            let question = OwnerQueryReq { objects: objects.to_vec(), ost: oss.identity.target.index };
            let verdicts = oss.targets.caller(home).await?.ask(&question).await?.verdicts;
            let unwanted = objects.iter().zip(verdicts).filter(|(_, verdict)| *verdict == Verdict::Disowned);
            oss.store.forget_missing(&unwanted.map(|(object, _)| *object).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// One pass without pauses, for tests and for an administrator in a hurry.
pub async fn pass(oss: &Arc<Oss>) -> Result<()> {
    let mut after = None;
    loop {
        after = some(oss, after).await?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Asks about the objects behind `after`; the last of them, or `None` at the end.
async fn some(oss: &Arc<Oss>, after: Option<ObjectId>) -> Result<Option<ObjectId>> {
    let (listed, end) = oss.store.list(after, ASK_MAX).await?;
    let last = listed.last().map(|l| l.object);
    let mut by_home: BTreeMap<TargetId, Vec<ObjectId>> = BTreeMap::new();
    for listed in listed.iter().filter(|l| !oss.confirmed.has(&l.object)) {
        by_home.entry(TargetId::mdt(listed.object.ino.mdt())).or_default().push(listed.object);
    }
    for (home, objects) in by_home {
        if let Some(home) = oss.targets.known(home) {
            ask(oss, &home, objects).await?;
        } else {
            tracing::warn!(mdt = %home, objects = objects.len(), "objects of an MDT that the map does not have");
        }
    }
    Ok(last.filter(|_| !end))
}

async fn ask(oss: &Arc<Oss>, home: &Caller, objects: Vec<ObjectId>) -> Result<()> {
    let question = OwnerQueryReq { objects, ost: oss.identity.target.index };
    let answer = home.ask(&question).await?;
    let mut garbage = Vec::new();
    for (object, verdict) in question.objects.iter().zip(answer.verdicts) {
        match verdict {
            Verdict::Owned => oss.confirmed.add(*object),
            Verdict::Disowned => garbage.push(*object),
            Verdict::Unknown => {
                // An object that stays on the disk is asked about again in the next pass.
                if let Err(fault) = ops::fence::quarantine(oss, *object).await {
                    tracing::warn!(%object, %fault, "cannot set an object aside that its MDT never heard of");
                    continue;
                }
                add(&oss.stats.unknown_owners, 1);
                tracing::warn!(%object, "set an object aside that its MDT never heard of");
            }
        }
    }
    if !garbage.is_empty() {
        let removed = ops::destroy::destroy(oss, &garbage).await?.removed;
        add(&oss.stats.garbage, u64::from(removed));
        tracing::info!(removed, "removed objects that the MDT disowns");
    }
    Ok(())
}
