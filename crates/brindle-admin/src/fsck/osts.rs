//! Checks the objects of each OST by themselves, then compares them with the inodes.

use std::collections::BTreeMap;

use brindle_kv::KvReader;
use brindle_layout::object_len;
use brindle_mds::check::{FileObjects, for_each_file};
use brindle_mds::store::{inode, meta};
use brindle_objects::check as objects;
use brindle_objects::check::Problem;
use brindle_objects::replies::NOTHING_LOST;
use brindle_stdx::disk::Disk;
use brindle_types::layout::Component;
use brindle_types::{Code, Fault, ObjectId};

use super::mdt::path;
use super::report::Report;
use super::targets::Target;

/// Advice on a damaged file.
const RESTORE: &str = "restore the file from a copy";

/// Contents of an OST.
pub struct Ost {
    name: String,
    boot_term: Option<u32>,
    /// Length of each object that exists.
    objects: BTreeMap<ObjectId, u64>,
}

fn named(mdt: Option<&KvReader>, object: &ObjectId) -> String {
    match mdt {
        Some(reader) => format!("{} (object {object})", path(reader, object.ino)),
        None => format!("object {object} of {}", object.ino.fid()),
    }
}

/// Checks an OST by itself: headers, lengths, checksums.
pub fn alone(
    disk: &dyn Disk,
    target: &Target,
    mdt: Option<&KvReader>,
    contents: bool,
    report: &mut Report,
) -> Ost {
    let boot_term = objects::boot_term(disk, &target.dir);
    let mut ost = Ost { name: target.name.clone(), boot_term, objects: BTreeMap::new() };
    // An OST that never ran has nothing to check yet.
    if boot_term.is_none() {
        return ost;
    }
    let checked = objects::check(disk, &target.dir, contents, |checked| {
        let listed = checked.listed;
        if listed.exists {
            report.object(listed.len_bytes);
            ost.objects.insert(listed.object, listed.len_bytes);
        }
        let subject = || named(mdt, &listed.object);
        for problem in checked.problems {
            report.finding(&target.name, damaged(subject(), problem));
        }
        if checked.torn_blocks > 0 {
            let what = Fault::new(Code::DataLost)
                .what("a crash tore blocks that nobody had synced:")
                .subject(subject())
                .why(format!("{} blocks of 4 KiB", checked.torn_blocks))
                .next("nothing to do: the next start of the target sums them anew");
            report.note(&target.name, what);
        }
    });
    if let Err(e) = checked {
        report.finding(
            &target.name,
            Fault::io(Code::OstIo, "cannot read the objects of", target.dir.clone(), &e),
        );
    }
    for name in objects::quarantined(disk, &target.dir).unwrap_or_default() {
        report.finding(&target.name, Fault::new(Code::ObjectUnowned).what("set aside:").subject(name));
    }
    ost
}

fn damaged(subject: String, problem: Problem) -> Fault {
    let fault = Fault::new(Code::ObjectDamaged).subject(subject).next(RESTORE);
    match problem {
        Problem::Header(why) => fault.why(why),
        Problem::Block(offset, stored, computed) => fault
            .why(format!("the block at byte {offset} of the object has checksum {computed:08x}, and should have {stored:08x}"))
            .data("the block is never returned to programs"),
    }
}

/// Compares what the OSTs hold with what the MDT says.
pub fn compare(reader: &KvReader, mdt: &Target, osts: &BTreeMap<u16, Ost>, report: &mut Report) {
    let mut owned: BTreeMap<u16, Vec<ObjectId>> = BTreeMap::new();
    let outcome = for_each_file(reader, |file| {
        report.files += 1;
        // A move was under way: as soon as the MDT runs, the copied blocks are the file's, or garbage.
        for (stripe, ost) in file.aside.iter().flat_map(Component::stripes) {
            owned.entry(ost).or_default().push(ObjectId::of(file.ino, stripe));
        }
        for (stripe, ost) in file.layout.stripes() {
            let object = ObjectId::of(file.ino, stripe);
            owned.entry(ost).or_default().push(object);
            if let Some(ost) = osts.get(&ost) {
                one_object(reader, &file, object, ost, report);
            }
        }
    });
    if let Err(fault) = outcome {
        report.finding(&mdt.name, fault);
    }
    let empty = Vec::new();
    for (index, ost) in osts {
        let mut mine = owned.get(index).unwrap_or(&empty).clone();
        mine.sort_unstable();
        let strangers = ost.objects.keys().filter(|o| mine.binary_search(o).is_err());
        for object in strangers {
            stranger(reader, object, ost, report);
        }
    }
}

/// Invariant 7: known objects exist, and hold nothing beyond the file's size.
fn one_object(reader: &KvReader, file: &FileObjects, object: ObjectId, ost: &Ost, report: &mut Report) {
    let subject = || format!("{} (object {object})", path(reader, file.ino));
    let unsynced = file.unsynced.iter().find(|(stripe, _)| *stripe == object.named()).map(|(_, term)| *term);
    match ost.objects.get(&object) {
        None if file.layout.object_known(object.named()) => {
            let why = "the file has data in this stripe, and its OST does not have the object";
            report.finding(
                &ost.name,
                Fault::new(Code::ObjectMissing).subject(subject()).why(why).next(RESTORE),
            );
        }
        None if unsynced.is_some() && unsynced == ost.boot_term => {
            let why = "it was written since its OST last lost power, so no power cut has taken it";
            report.finding(
                &ost.name,
                Fault::new(Code::ObjectMissing).subject(subject()).why(why).next(RESTORE),
            );
        }
        None if unsynced == Some(NOTHING_LOST) => {
            let why = "its OST answered the write when it was on the disk, so no power cut has taken it";
            report.finding(
                &ost.name,
                Fault::new(Code::ObjectMissing).subject(subject()).why(why).next(RESTORE),
            );
        }
        None if unsynced.is_some_and(|term| ost.boot_term > Some(term)) => {
            let fault = Fault::new(Code::DataLost)
                .what("lost in a power cut before anybody synced it:")
                .subject(subject())
                .next("nothing to do: the stripe reads as a hole");
            report.note(&ost.name, fault);
        }
        Some(len) if is_settled(file) => {
            let most = object_len(&file.layout, object.named(), file.size_bytes);
            // Bytes behind the last byte that the object can have come from a move that was called off; no
            // reader sees them.
            let shown = (*len).min(object_len(&file.layout, object.named(), u64::MAX));
            if shown > most {
                let why =
                    format!("it has {len} bytes, and a file of {} bytes has {most} there", file.size_bytes);
                let fault = Fault::new(Code::Inconsistent).subject(subject()).why(why);
                report.finding(&ost.name, fault.why("that breaks invariant 7"));
            }
        }
        _ => {}
    }
}

/// Whether the file's size is certain: nobody wrote it when the MDT stopped.
fn is_settled(file: &FileObjects) -> bool {
    !file.layout.inline && !file.convert_begun && !file.open_for_write && file.pending_cut.is_none()
}

/// An object that no file names: garbage if this MDT issued it, otherwise of an unknown owner.
fn stranger(reader: &KvReader, object: &ObjectId, ost: &Ost, report: &mut Report) {
    let reserved = meta::inodes_reserved(reader).unwrap_or(0);
    let term = reader.report().term.max(reader.report().previous_term);
    let issued = object.ino.counter() < reserved && (1..=term).contains(&object.generation.term);
    let is_file = inode::find(reader, object.ino).ok().flatten().is_none_or(|i| i.file.is_some());
    if issued && is_file {
        let fault = Fault::new(Code::ObjectUnknown)
            .what("garbage that waits for its collector:")
            .subject(format!("object {object}"))
            .next("nothing to do");
        report.note(&ost.name, fault);
        return;
    }
    let why = "its metadata target never issued this file or generation";
    report.finding(&ost.name, Fault::new(Code::ObjectUnowned).subject(format!("object {object}")).why(why));
}
