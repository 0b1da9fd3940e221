//! Making and opening a store: checkpoint, log, new term.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use brindle_stdx::Seams;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_stdx::watch;
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::batch::LogPos;
use crate::engine::Engine;
use crate::fault::{log_io, store_io};
use crate::format::{Identity, SegmentHeader, encode_record, parse_segment_name};
use crate::log::{Log, LogStart};
use crate::memtable::{Layers, Memtable};
use crate::options::{KvOptions, OpenReport, SEGMENT_BYTES_MIN};
use crate::scan::{Scan, Tail, foreign, needed_from, scan_log};
use crate::segment::{make_segment, prepare_spare, remove_segments};
use crate::store::{Meta, STORE_FILE, Store};
use crate::tail::{Recent, Required, Shipping};

/// With more segments than this, opening makes a checkpoint before it takes another one, so that a server that dies
/// again and again does not fill the device with nearly empty segments.
pub(crate) const SEGMENTS_AT_OPEN_MAX: usize = 8;

pub(crate) fn identity_of(opts: &KvOptions) -> Identity {
    Identity { fs_id: opts.fs_id, target_uuid: opts.target_uuid }
}

fn check_options(opts: &KvOptions) -> Result<()> {
    if opts.segment_bytes < SEGMENT_BYTES_MIN || opts.memtable_bytes_max == 0 {
        return Err(Fault::new(Code::BadConfigValue)
            .subject(opts.target.clone())
            .why(format!("log segments need at least {SEGMENT_BYTES_MIN} bytes, the memtable at least 1")));
    }
    Ok(())
}

/// Names of the store's files in `dir`: whether there is a checkpoint, and whether there are segments.
fn what_is_there(disk: &dyn Disk, dir: &str) -> Result<(bool, bool)> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(log_io("cannot list the metadata store", dir, &e)),
    };
    let has_store = names.iter().any(|n| n == STORE_FILE);
    Ok((has_store, names.iter().any(|n| parse_segment_name(n).is_some())))
}

/// Makes an empty store whose terms begin above `term`. The first segment comes last: a directory without one holds no store.
pub(crate) fn create(disk: &dyn Disk, dir: &str, opts: &KvOptions, term: u32) -> Result<()> {
    check_options(opts)?;
    let io = |e| store_io("cannot create the metadata store", dir, &e);
    disk.create_dir_all(dir).map_err(io)?;
    let (has_store, has_segments) = what_is_there(disk, dir)?;
    if has_segments {
        return Err(Fault::new(Code::AlreadyFormatted).subject(dir.to_owned()));
    }
    if has_store {
        // Left by a creation that was cut short.
        disk.remove(&format!("{dir}/{STORE_FILE}")).map_err(io)?;
    }
    let identity = identity_of(opts);
    Store::create(disk, dir, identity)?;
    disk.sync_dir(dir).map_err(io)?;
    let header =
        SegmentHeader { identity, term, first_index: 1, previous_term: 0, previous_last_index: 0, salt: 0 };
    make_segment(disk, dir, header, opts.segment_bytes)?;
    disk.sync_dir(brindle_stdx::disk::parent(dir)).map_err(io)
}

/// A store whose log was replayed: it has every record that survived, and no term of its own yet.
pub(crate) struct Replayed {
    pub seams: Seams,
    pub dir: String,
    pub opts: KvOptions,
    pub identity: Identity,
    pub store: Arc<Store>,
    pub layers: Layers,
    /// The newest records, where members of a replica set may lack some.
    pub tail: Option<Recent>,
    pub scan: Scan,
    /// The last record of the checkpoint.
    pub applied: LogPos,
    /// The last record of the checkpoint that was found at open.
    found_applied: LogPos,
}

/// Replays the store. The only change on disk: the end of the log is made durable.
pub(crate) fn replay(seams: Seams, dir: &str, opts: KvOptions) -> Result<Replayed> {
    check_options(&opts)?;
    let disk = &*seams.disk;
    if what_is_there(disk, dir)? == (false, false) {
        return Err(Fault::new(Code::TargetIncomplete)
            .subject(dir.to_owned())
            .why("it has neither a checkpoint nor a log of the metadata")
            .data("nothing was changed"));
    }
    let identity = identity_of(&opts);
    let (store, view, meta) = Store::open(seams.disk.clone(), dir, opts.cache_bytes_max)?;
    if meta.identity != identity {
        return Err(foreign(&format!("{dir}/{STORE_FILE}")));
    }
    let mut active = Memtable::on_top_of(meta.applied);
    let mut tail = (opts.tail_bytes_max > 0).then(|| Recent::new(opts.tail_bytes_max, meta.applied));
    let scan = scan_log(disk, dir, Some(identity), meta.applied, &mut |pos, record, changes| {
        if let Some(tail) = &mut tail {
            // The record gets another checksum, which its receiver does not verify.
            tail.push(pos, Bytes::from(encode_record(0, pos, record.synced_index, &changes)));
        }
        active.apply(pos, record.len_bytes, changes);
    })?;
    if let Some(damage) = scan.damage.first() {
        return Err(damage.fault.clone());
    }
    if let Some(unsynced) = &scan.tail {
        make_durable(disk, unsynced)?;
    }
    let layers = Layers { active, frozen: None, view: Arc::new(view) };
    let (applied, found_applied) = (meta.applied, meta.applied);
    let (dir, store) = (dir.to_owned(), Arc::new(store));
    Ok(Replayed { dir, opts, identity, store, layers, tail, scan, applied, found_applied, seams })
}

impl Replayed {
    /// Puts everything into the checkpoint, and removes segments that nobody needs any more.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.applied = checkpoint_now(&self.store, self.identity, &mut self.layers)?;
        self.remove_needless();
        Ok(())
    }

    /// Removes segments that the checkpoint has made needless: all but the newest, which says which term was the last.
    pub fn remove_needless(&mut self) {
        let needless: Vec<_> =
            self.scan.segments.drain(..needed_from(&self.scan.segments, self.applied)).collect();
        remove_segments(&*self.seams.disk, &needless);
    }

    /// Durably takes a new term and starts the background tasks.
    pub fn serve(mut self) -> Result<(Arc<Engine>, OpenReport)> {
        let disk = &*self.seams.disk;
        if self.scan.segments.len() > SEGMENTS_AT_OPEN_MAX
            || !has_room(disk, &self.dir, self.opts.segment_bytes)?
        {
            self.checkpoint()?;
        }
        let Replayed { seams, dir, opts, identity, store, layers, tail, scan, applied, found_applied } = self;
        let report = report(&scan, found_applied, next_term(&scan, found_applied));
        let shipping = tail.map(|tail| Shipping { tail: Mutex::new(tail), required: Required::nobody() });
        let log = take_term(seams.clone(), &dir, &opts, (scan, shipping), &report, applied)?;
        let engine = Engine {
            dir,
            identity,
            memtable_bytes_max: opts.memtable_bytes_max,
            reserve_bytes: opts.reserve_bytes,
            log: Arc::new(log),
            layers: RwLock::new(layers),
            store,
            applied: watch::Sender::new(applied.index),
            asked: AtomicU64::new(0),
            kick: Notify::new(),
            closing: AtomicBool::new(false),
            running: watch::Sender::new(0),
            checkpoints: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            reuse_stale: AtomicBool::new(true),
            count_after: Mutex::default(),
            seams,
        };
        let engine = Arc::new(engine);
        start_tasks(&engine);
        Ok((engine, report))
    }
}

/// Whether the segment of a new term can be made.
fn has_room(disk: &dyn Disk, dir: &str, segment_bytes: u64) -> Result<bool> {
    match prepare_spare(disk, dir, segment_bytes) {
        Ok(()) => Ok(true),
        Err(fault) if fault.code == Code::MdtFull => Ok(false),
        Err(fault) => Err(fault),
    }
}

pub(crate) fn next_term(scan: &Scan, applied: LogPos) -> u32 {
    let highest = scan.term_max.max(applied.term);
    if crate::planted("log_reuse_term") { highest } else { highest + 1 }
}

fn report(scan: &Scan, checkpoint: LogPos, term: u32) -> OpenReport {
    OpenReport {
        term,
        previous_term: scan.segments.last().map_or(0, |s| s.header.term),
        checkpoint,
        last: scan.last,
        replayed_records: scan.replayed,
        dropped_bytes: scan.dropped_bytes,
    }
}

/// Writes the end of the log once more and syncs it, before the next header says that it is there.
fn make_durable(disk: &dyn Disk, tail: &Tail) -> Result<()> {
    let write = || {
        let file = disk.open(&tail.path, OpenHow::Existing)?;
        file.write_at(&tail.bytes, tail.offset)?;
        file.sync_data()
    };
    write().map_err(|e| log_io("cannot make the end of the metadata log durable", &tail.path, &e))
}

fn checkpoint_now(store: &Store, identity: Identity, layers: &mut Layers) -> Result<LogPos> {
    let applied = layers.active.last;
    let meta = Meta { identity, applied };
    let view = store.checkpoint(layers.active.rows(), &meta, |view| layers.view = Arc::new(view))?;
    layers.view = Arc::new(view);
    layers.active = Memtable::on_top_of(applied);
    Ok(applied)
}

/// Durably takes the new term with a segment of its own, and removes segments that nobody needs.
fn take_term(
    seams: Seams,
    dir: &str,
    opts: &KvOptions,
    (scan, shipping): (Scan, Option<Shipping>),
    report: &OpenReport,
    applied: LogPos,
) -> Result<Log> {
    let header = SegmentHeader {
        identity: identity_of(opts),
        term: report.term,
        first_index: scan.last.index + 1,
        previous_term: report.previous_term,
        previous_last_index: scan.last.index,
        salt: seams.rng.next_u64(),
    };
    let (segment, file) = make_segment(&*seams.disk, dir, header, opts.segment_bytes)?;
    let mut segments = scan.segments;
    segments.push(segment);
    let needless: Vec<_> = segments.drain(..needed_from(&segments, applied)).collect();
    remove_segments(&*seams.disk, &needless);
    Ok(Log::new(LogStart {
        seams,
        dir: dir.to_owned(),
        segment_bytes: opts.segment_bytes,
        reserve_bytes: opts.reserve_bytes,
        mode: opts.mode,
        last: scan.last,
        segments,
        file,
        shipping,
    }))
}

fn start_tasks(engine: &Arc<Engine>) {
    type Run = fn(Arc<Engine>) -> brindle_stdx::Task;
    let tasks: [(&'static str, Run); 3] = [
        ("kv-log", |e| Box::pin(e.log.clone().run())),
        ("kv-checkpoint", |e| Box::pin(e.run_checkpoints())),
        ("kv-space", |e| Box::pin(e.run_space())),
    ];
    engine.running.send_replace(tasks.len());
    for (name, run) in tasks {
        let task = run(engine.clone());
        let engine = engine.clone();
        engine.seams.clone().spawn(name, async move {
            task.await;
            engine.running.send_modify(|n| *n -= 1);
        });
    }
}
