//! Checks of fsck on a target that is not served: every object, every checksum, nothing is changed.

use std::collections::BTreeSet;
use std::io;

use brindle_stdx::Disk;
use brindle_stdx::disk::OpenHow;
use brindle_types::ObjectId;

use crate::boot;
use crate::findings::{self, Finding, FindingKind};
use crate::format::{
    BLOCK, HEADER_SECTOR, Header, HeaderState, REGION_BLOCKS, block_range, blocks, object_len,
};
use crate::intent;
use crate::list::{Listed, list_files};
use crate::resum::{Torn, scan};
use crate::slots::{self, InFlight};

/// Objects listed at once.
const LIST_BATCH: usize = 1024;

/// Fault of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The header or the length is bad; the text has the reason.
    Header(String),
    /// A block that does not match its checksum: (offset, stored, computed).
    Block(u64, u32, u32),
}

/// A checked object.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Name, length, existence.
    pub listed: Listed,
    /// Faults of the object.
    pub problems: Vec<Problem>,
    /// Blocks that a crash may have torn, and that the next start of the target will put right.
    pub torn_blocks: u64,
}

/// Blocks that a crash may have torn: after a power cut other ones than after the mere death of the process.
struct MaybeTorn {
    same_term: bool,
    marks: BTreeSet<(ObjectId, u64)>,
    in_flight: Vec<InFlight>,
}

impl MaybeTorn {
    fn load(disk: &dyn Disk, root: &str) -> io::Result<MaybeTorn> {
        let recorded = boot::load(disk, &format!("{root}/boot")).ok().flatten();
        let same_term = recorded.is_some_and(|b| disk.boot_identity(root).is_ok_and(|now| now == b.identity));
        let marks = match disk.open(&format!("{root}/intents"), OpenHow::ReadOnly) {
            Ok(file) => intent::load(&*file)?.0.into_iter().map(|(_, key, _)| key).collect(),
            Err(_) => BTreeSet::new(),
        };
        let in_flight = match disk.open(&format!("{root}/slots"), OpenHow::ReadOnly) {
            Ok(file) => slots::load_in_flight(&*file)?,
            Err(_) => Vec::new(),
        };
        Ok(MaybeTorn { same_term, marks, in_flight })
    }

    fn may_be(&self, object: &ObjectId, block: u64, synced_blocks: u64) -> bool {
        if self.same_term {
            let hit = |f: &&InFlight| block_range(f.offset, f.len_bytes).contains(&block);
            return self.in_flight.iter().filter(|f| f.object == *object).any(|f| hit(&f));
        }
        block >= synced_blocks || self.marks.contains(&(*object, block / REGION_BLOCKS))
    }
}

/// Checks every object of the target at `root` and hands each to `each`. With `contents` every block is read.
pub fn check(disk: &dyn Disk, root: &str, contents: bool, mut each: impl FnMut(Checked)) -> io::Result<()> {
    let torn = MaybeTorn::load(disk, root)?;
    let mut after = None;
    loop {
        let (batch, end) = list_files(disk, root, after, LIST_BATCH)?;
        after = batch.last().map(|l| l.object);
        for listed in batch {
            each(check_object(disk, root, listed, &torn, contents)?);
        }
        if end || after.is_none() {
            return Ok(());
        }
    }
}

fn check_object(
    disk: &dyn Disk,
    root: &str,
    listed: Listed,
    torn: &MaybeTorn,
    contents: bool,
) -> io::Result<Checked> {
    let object = listed.object;
    let mut checked = Checked { listed, problems: Vec::new(), torn_blocks: 0 };
    let file = disk.open(&crate::names::path(root, &object), OpenHow::ReadOnly)?;
    let mut sector = [0; HEADER_SECTOR];
    let n = file.read_at(&mut sector, 0)?;
    let header = match Header::decode(&sector[..n]) {
        HeaderState::Good(header) if header.object == object => header,
        HeaderState::Good(header) => {
            checked.problems.push(Problem::Header(format!("its file holds object {}", header.object)));
            return Ok(checked);
        }
        HeaderState::Damaged(why) => {
            checked.problems.push(Problem::Header(why));
            return Ok(checked);
        }
        HeaderState::Never => {
            checked.listed.exists = false;
            return Ok(checked);
        }
    };
    let len = object_len(file.len()?);
    if blocks(len) < header.synced_blocks && header.pending_cut.is_none() {
        let why = format!("its file ends at {len} bytes, and {} were synced", header.synced_blocks * BLOCK);
        checked.problems.push(Problem::Header(why));
    }
    if contents {
        let mut unread = None;
        let each = |t: Torn| {
            if header.pending_cut.is_some() || torn.may_be(&object, t.block, header.synced_blocks) {
                checked.torn_blocks += 1;
            } else {
                checked.problems.push(Problem::Block(t.block * BLOCK, t.stored, t.computed));
            }
            Ok(())
        };
        scan(&*file, 0..u64::MAX, each, |block| unread = unread.or(Some(block)))?;
        if let Some(block) = unread {
            return Err(io::Error::other(format!("the disk does not return the block at {}", block * BLOCK)));
        }
    }
    Ok(checked)
}

/// Findings of the store itself: re-summed blocks, damage met, objects in quarantine.
pub fn recorded_findings(disk: &dyn Disk, root: &str) -> Vec<Finding> {
    findings::load(disk, &format!("{root}/findings")).into_iter().map(|(_, f)| f).collect()
}

/// Objects in quarantine, by name.
pub fn quarantined(disk: &dyn Disk, root: &str) -> io::Result<Vec<String>> {
    disk.list(&format!("{root}/quarantine"))
}

/// The boot term that is recorded; `None` if the target never ran.
pub fn boot_term(disk: &dyn Disk, root: &str) -> Option<u32> {
    boot::load(disk, &format!("{root}/boot")).ok().flatten().map(|b| b.term)
}

/// Whether a finding is damage. Otherwise it is a note of remains of a crash.
pub fn is_damage(finding: &Finding) -> bool {
    finding.kind == FindingKind::Damaged
}
