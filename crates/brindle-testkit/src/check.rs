//! [`disks`]: the stopped servers' disks against the invariants, as `brindle fsck` would see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_kv::KvReader;
use brindle_mds::check::{FileObjects, for_each_file, verify};
use brindle_mds::store::{destroy_queue, orphan};
use brindle_objects::check::{Problem, check, is_damage, recorded_findings};
use brindle_objects::format::BLOCK;
use brindle_stdx::Disk;
use brindle_types::{Fault, ObjectId};

use crate::cluster::{SimCluster, TARGET_DIR};
use crate::history::History;

/// Longest list of one kind that is reported.
const SHOWN_MAX: usize = 5;

/// Kills every server and looks at its disk. Files without a name that nobody has open must have
/// left no trace.
pub fn disks(cluster: &SimCluster, history: &History) {
    let world = cluster.world();
    let servers = cluster.servers();
    servers.iter().for_each(|name| world.kill(name));
    let disk = |name: &str| world.restart(name).seams.disk;
    let files = match rows(&*disk("mdt0"), history) {
        Ok(files) => files,
        Err(fault) => return history.violation(format!("I4: the MDT's rows cannot be read: {fault:?}")),
    };
    let osts = cluster.osts();
    for (index, name) in osts.iter().enumerate() {
        objects(index as u16, name, disk(name), &files, history);
    }
}

/// Checks the MDT's rows; its regular files.
fn rows(disk: &dyn Disk, history: &History) -> Result<Vec<FileObjects>, Fault> {
    let reader = KvReader::open_read_only(disk, &brindle_mds::config::store_dir(TARGET_DIR))?;
    for finding in verify(&reader)?.into_iter().take(SHOWN_MAX) {
        history.violation(format!("I4: invariant {}: {finding}", finding.invariant));
    }
    let orphans = orphan::list(&reader)?;
    if !orphans.is_empty() {
        history.violation(format!("I4: files without names are left that nobody has open: {orphans:?}"));
    }
    for ost in destroy_queue::osts(&reader)? {
        let left = destroy_queue::first(&reader, ost, None, SHOWN_MAX)?;
        history.violation(format!("I4: objects that OST {ost:04x} never destroyed: {left:?}"));
    }
    let mut files = Vec::new();
    for_each_file(&reader, |file| files.push(file))?;
    Ok(files)
}

/// Checks the objects of one OST against the files.
fn objects(index: u16, name: &str, disk: Arc<dyn Disk>, files: &[FileObjects], history: &History) {
    let mut owned: BTreeMap<ObjectId, &FileObjects> = BTreeMap::new();
    let mut known: BTreeSet<ObjectId> = BTreeSet::new();
    for file in files {
        if !file.aside.is_empty() {
            history.violation(format!("I4: objects of a move are left beside file {}", file.ino.fid()));
        }
        for (stripe, _) in file.layout.stripes().filter(|(_, ost)| *ost == index) {
            let object = ObjectId::of(file.ino, stripe);
            owned.insert(object, file);
            if file.layout.object_known(stripe) && !file.layout.inline {
                known.insert(object);
            }
        }
    }
    let checked = check(&*disk, TARGET_DIR, true, |checked| {
        let object = checked.listed.object;
        let rotten = |offset: u64| history.is_rotten(object, offset / BLOCK);
        let known_rot = |p: &Problem| matches!(p, Problem::Block(offset, ..) if rotten(*offset));
        for problem in checked.problems.iter().filter(|p| !known_rot(p)) {
            history.violation(format!("I1: object {object} on {name} is damaged: {problem:?}"));
        }
        if !checked.listed.exists {
            return;
        }
        known.remove(&object);
        match owned.get(&object) {
            None => history.violation(format!("I4: object {object} on {name} belongs to nobody")),
            Some(file) if file.layout.inline && !file.convert_begun => {
                history.violation(format!("I4: object {object} on {name} belongs to a file in the MDT"));
            }
            Some(_) => {}
        }
    });
    if let Err(e) = checked {
        history.violation(format!("I4: objects of {name} cannot be listed: {e}"));
    }
    if !known.is_empty() {
        history.violation(format!("I1: objects are missing on {name}: {known:?}"));
    }
    let findings = recorded_findings(&*disk, TARGET_DIR).into_iter().filter(is_damage);
    for finding in findings.filter(|f| !history.is_rotten(f.object, f.offset / BLOCK)) {
        history.violation(format!("I1: {name} has met damage: {finding:?}"));
    }
}
