//! `KvReader`: a store seen without changing it, for fsck on a stopped target.

use brindle_stdx::disk::Disk;
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use std::sync::Arc;

use crate::batch::LogPos;
use crate::engine::scan_layers;
use crate::format::parse_segment_name;
use crate::memtable::{Layers, Memtable, PointRead, prefix_end};
use crate::options::{CACHE_BYTES_MAX, Damage, OpenReport};
use crate::scan::scan_log;
use crate::store::{FIRST_KEY, Offline, STORE_FILE, Store};

/// A store seen without changing it: for fsck, on a stopped target. Damage is collected, not fatal.
pub struct KvReader {
    damage: Vec<Damage>,
    report: OpenReport,
    /// The checkpoint with the log on top; the fault that keeps it from being read otherwise.
    layers: Result<Layers>,
    _file: Option<Offline>,
}

impl KvReader {
    /// Reads checkpoint and log of `dir` without writing anything. Fails only where there is no store at all, or
    /// where the disk cannot be read.
    pub fn open_read_only(disk: &dyn Disk, dir: &str) -> Result<KvReader> {
        if disk.list(dir).map_or(true, |names| names.is_empty()) {
            return Err(Fault::new(Code::NotATarget).subject(dir.to_owned()));
        }
        let mut damage = Vec::new();
        let opened = Store::open_unchanged(disk, dir, CACHE_BYTES_MAX);
        let applied = opened.as_ref().map_or_else(|_| before_the_log(disk, dir), |(_, _, meta)| meta.applied);
        let identity = opened.as_ref().ok().map(|(_, _, meta)| meta.identity);
        let of_store = match &opened {
            Ok((file, ..)) => file.free_list.as_ref(),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = of_store {
            damage.push(Damage { file: format!("{dir}/{STORE_FILE}"), offset: None, fault: fault.clone() });
        }
        let mut active = Memtable::on_top_of(applied);
        let scan = scan_log(disk, dir, identity, applied, &mut |pos, record, changes| {
            active.apply(pos, record.len_bytes, changes);
        })?;
        damage.extend(scan.damage);
        let report = OpenReport {
            term: scan.term_max.max(applied.term),
            previous_term: scan.segments.last().map_or(0, |s| s.header.term),
            checkpoint: applied,
            last: scan.last,
            replayed_records: scan.replayed,
            dropped_bytes: scan.dropped_bytes,
        };
        let (layers, file) = match opened {
            Ok((file, view, _)) => (Ok(Layers { active, frozen: None, view: Arc::new(view) }), Some(file)),
            Err(fault) => (Err(fault), None),
        };
        Ok(KvReader { damage, report, layers, _file: file })
    }

    /// Damage of the files.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Report that an opening would give; `term` is the last one taken.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    fn layers(&self) -> Result<&Layers> {
        self.layers.as_ref().map_err(Clone::clone)
    }

    /// A row; a damaged one is a fault.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.layers()?.find(key) {
            PointRead::Here(value) => Ok(value),
            PointRead::Below(view) => view.get(key),
        }
    }

    /// At most `limit` rows with `start <= key < end`, in order; a damaged one among them is a fault.
    pub fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let layers = self.layers()?;
        scan_layers(&|start, end| layers.chunk(start, end), start, end, limit)
    }

    /// Calls `each` for every row whose key begins with `prefix`, in order; damaged rows come as faults, and it goes
    /// on. Fails where the structure of the file itself is damaged.
    pub fn for_each(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], Result<Bytes>)) -> Result<()> {
        let layers = self.layers()?;
        let end = prefix_end(prefix);
        let start = prefix.max(FIRST_KEY);
        let mut changes = layers.active.range(start, end.as_deref()).peekable();
        for row in layers.view.range(start, end.as_deref())? {
            let (key, value) = row?;
            while let Some((changed, value)) = changes.next_if(|(changed, _)| **changed < key) {
                if let Some(value) = value {
                    each(changed, Ok(value.clone()));
                }
            }
            match changes.next_if(|(changed, _)| **changed == key) {
                Some((_, Some(newer))) => each(&key, Ok(newer.clone())),
                Some((_, None)) => {}
                None => each(&key, value),
            }
        }
        for (key, value) in changes {
            if let Some(value) = value {
                each(key, Ok(value.clone()));
            }
        }
        Ok(())
    }
}

/// The position before the oldest segment: where a checkpoint that cannot be read may have ended, so that the log is
/// not blamed for beginning later.
fn before_the_log(disk: &dyn Disk, dir: &str) -> LogPos {
    let names = disk.list(dir).unwrap_or_default();
    let first = names.iter().filter_map(|n| parse_segment_name(n)).map(|(_, first)| first).min();
    LogPos { term: 0, index: first.map_or(0, |first| first.saturating_sub(1)) }
}
