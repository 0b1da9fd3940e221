//! Findings that are cured: a damaged block that was written over or cut off, an object that was removed or
//! is there again. Cured findings are not told any more.

use std::collections::BTreeSet;

use brindle_types::ObjectId;

use crate::findings::{Finding, FindingKind};
use crate::format::BLOCK;
use crate::read::read_blocks;
use crate::store::ObjectStore;
use crate::sums;

/// Damage that was found and is not known to be cured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Damaged blocks, each once.
    pub damaged_blocks: u64,
    /// Objects that are missing.
    pub missing_objects: u64,
    /// The object that the last finding of either kind is about.
    pub last: Option<ObjectId>,
}

fn is_wrong(finding: &Finding) -> bool {
    matches!(finding.kind, FindingKind::Damaged | FindingKind::Missing)
}

impl ObjectStore {
    /// Damage that was found and is not known to be cured.
    pub fn known_damage(&self) -> Known {
        let found: Vec<Finding> = self.findings().into_iter().filter(is_wrong).collect();
        let each: BTreeSet<(FindingKind, ObjectId, u64)> =
            found.iter().map(|f| (f.kind, f.object, f.offset)).collect();
        let count = |kind| each.iter().filter(|(k, ..)| *k == kind).count() as u64;
        Known {
            damaged_blocks: count(FindingKind::Damaged),
            missing_objects: count(FindingKind::Missing),
            last: found.last().map(|f| f.object),
        }
    }

    /// Looks at the findings again, and forgets those that are cured. The objects that are missing still.
    pub async fn recheck(&self) -> Vec<ObjectId> {
        let mut missing = BTreeSet::new();
        let each: BTreeSet<(FindingKind, ObjectId, u64)> =
            self.findings().iter().filter(|f| is_wrong(f)).map(|f| (f.kind, f.object, f.offset)).collect();
        for (kind, id, offset) in each {
            // An object that cannot be opened is not cured; the others are looked at all the same.
            let Ok(object) = self.readable(id).await else { continue };
            let exists = object.state.lock().exists();
            let is_cured = match kind {
                FindingKind::Missing => exists,
                _ if !exists => true,
                _ => {
                    let block = offset / BLOCK;
                    let _range = object.locks.read(block..block + 1).await;
                    let state = object.state.lock();
                    let (file, len) = (state.file.clone(), state.len);
                    drop(state);
                    match file {
                        Some(file) if offset < len => {
                            let read = read_blocks(&*file, block..block + 1);
                            read.is_ok_and(|(data, stored)| sums::verify(&data, &stored).is_ok())
                        }
                        _ => true,
                    }
                }
            };
            if is_cured {
                self.findings.forget(|f| f.kind == kind && f.object == id && f.offset == offset);
            } else if kind == FindingKind::Missing {
                missing.insert(id);
            }
        }
        missing.into_iter().collect()
    }

    /// The MDT wants these objects no more: that they are missing is as it should be.
    pub fn forget_missing(&self, objects: &[ObjectId]) {
        self.findings.forget(|f| f.kind == FindingKind::Missing && objects.contains(&f.object));
    }
}
