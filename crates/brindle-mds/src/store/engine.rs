//! The store of one MDT: the rows' home behind the log, opened for serving.

use std::sync::atomic::{AtomicU16, Ordering};

use brindle_kv::{
    DurabilityMode, FilePlace, Kv, KvOptions, LogPos, OpenReport, Snapshot, Verified, Verifier,
};
use brindle_stdx::Seams;
use brindle_stdx::disk::{Disk, DiskSpace, parent};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use super::hot::Hot;
use super::meta::{self, Format};
use super::row::FormatLevel;
use super::{Changes, Rows};

/// An open store.
pub struct Engine {
    kv: Kv,
    hot: Hot,
    format: Format,
    report: OpenReport,
    /// The format level.
    level: AtomicU16,
}

impl Engine {
    /// Makes a store in `dir` with these first rows, and syncs it. The caller then opens it with [`Engine::open`].
    pub async fn create(
        seams: &Seams,
        dir: &str,
        options: &KvOptions,
        fill: impl FnOnce(&mut Changes<'_>) -> Result<()>,
    ) -> Result<()> {
        let disk: &dyn Disk = &*seams.disk;
        let options = sized(seams, dir, options.clone())?;
        Kv::create(disk, dir, &options)?;
        let (kv, _) = Kv::open(seams.clone(), dir, options)?;
        let hot = Hot::default();
        let mut changes = Changes::new(&kv, &hot, FormatLevel::FIRST);
        fill(&mut changes)?;
        let pos = kv.append(changes.into_batch()?)?;
        kv.wait_synced(pos).await?;
        kv.close().await
    }

    /// Opens the store: takes a new term, replays the log. `NotATarget` when it was never formatted.
    pub fn open(seams: &Seams, dir: &str, options: KvOptions) -> Result<Engine> {
        let target = options.target.clone();
        let options = sized(seams, dir, options)?;
        let (kv, report) = Kv::open(seams.clone(), dir, options)?;
        Engine::of(kv, report, target)
    }

    /// A store that was opened.
    pub fn of(kv: Kv, report: OpenReport, target: String) -> Result<Engine> {
        let format = meta::format(&kv)?
            .ok_or_else(|| Fault::new(Code::NotATarget).subject(target).why("the store has no format row"))?;
        let level = AtomicU16::new(meta::format_level(&kv)?.0);
        Ok(Engine { kv, hot: Hot::default(), format, report, level })
    }

    /// All rows as they are now.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.kv.snapshot().await
    }

    /// Settings of the MDT since it was made.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Report of the opening.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Term of this opening.
    pub fn term(&self) -> u32 {
        self.kv.term()
    }

    /// A batch in the making.
    pub fn changes(&self) -> Changes<'_> {
        Changes::new(&self.kv, &self.hot, self.level())
    }

    /// The format level: rows are written in forms up to it.
    pub fn level(&self) -> FormatLevel {
        FormatLevel(self.level.load(Ordering::Acquire))
    }

    /// The batch that raises the level is in the log.
    pub fn set_level(&self, level: FormatLevel) {
        self.level.fetch_max(level.0, Ordering::AcqRel);
    }

    /// Puts changes into the log; one caller at a time, under the writer lock.
    pub fn append(&self, mut changes: Changes<'_>) -> Result<LogPos> {
        let inodes = changes.take_inodes();
        let pos = self.kv.append(changes.into_batch()?)?;
        self.hot.learn(inodes);
        Ok(pos)
    }

    /// Position that a reply showing the present state waits for.
    pub fn last_pos(&self) -> LogPos {
        self.kv.last_pos()
    }

    /// Inodes that are kept decoded.
    #[cfg(test)]
    pub fn hot(&self) -> &Hot {
        &self.hot
    }

    /// Waits for room for another operation.
    pub async fn admit(&self) -> Result<()> {
        self.kv.admit().await
    }

    /// Waits until a reply that shows state up to `pos` may leave.
    pub async fn wait_reply(&self, pos: LogPos) -> Result<()> {
        if brindle_stdx::planted("mds_reply_before_log") {
            return Ok(());
        }
        self.kv.wait_reply(pos).await
    }

    /// Waits until everything up to `pos` survives a power cut.
    pub async fn wait_synced(&self, pos: LogPos) -> Result<()> {
        self.kv.wait_synced(pos).await
    }

    /// The moment at which replies leave.
    pub fn mode(&self) -> DurabilityMode {
        self.kv.mode()
    }

    /// Changes the moment at which replies leave.
    pub fn set_mode(&self, mode: DurabilityMode) {
        self.kv.set_mode(mode);
    }

    /// Counters of the store.
    pub fn stats(&self) -> brindle_kv::KvStats {
        self.kv.stats()
    }

    /// Space of the device.
    pub fn space(&self) -> Result<DiskSpace> {
        self.kv.space()
    }

    /// Whether the device was full when it was last asked: only batches that free space are accepted.
    pub fn is_space_low(&self) -> bool {
        self.kv.is_space_low()
    }

    /// Fault that stopped the log, if one did.
    pub fn failed(&self) -> Option<Fault> {
        self.kv.failed()
    }

    /// Completes when the log has stopped, with the reason.
    pub async fn until_failed(&self) -> Fault {
        self.kv.until_failed().await
    }

    /// Verifies a piece of the store's files from the device; see [`brindle_kv::verify`]. Blocks on the disk.
    pub fn verify(&self, place: Option<&FilePlace>) -> Result<Verified> {
        brindle_kv::verify(&|| Ok(self.kv.verifier()), place)
    }

    /// Mends damage in the log: all its segments become needless, and go. Fails where one of `files` is still there.
    pub async fn renew_log(&self, files: &[String]) -> Result<()> {
        self.kv.renew_log().await?;
        still_there(&self.kv.verifier(), files)
    }

    /// Bytes of all files of the store.
    pub fn files_bytes(&self) -> u64 {
        self.kv.verifier().total_bytes()
    }

    /// Bytes of the file of the last checkpoint; 0 where that cannot be told.
    pub fn checkpoint_bytes(&self) -> u64 {
        self.kv.checkpoint_bytes()
    }

    /// Fails all requests that wait for this store: another member of the set serves, or none of it may
    /// answer.
    pub fn abandon(&self) {
        self.kv.abandon();
    }

    /// A handle that outlives borrows: for the orderly end.
    pub async fn close(&self) -> Result<()> {
        self.kv.clone().close().await
    }
}

/// Fails where a segment of the log is still needed.
pub fn still_there(verifier: &Verifier, files: &[String]) -> Result<()> {
    match files.iter().find(|file| verifier.has_segment(file)) {
        Some(file) => {
            Err(Fault::new(Code::LogDamaged).subject(file.clone()).why("the segment is still needed"))
        }
        None => Ok(()),
    }
}

/// A small device gets a small log, so that the rows have the rest. The store's directory may not exist yet.
pub fn sized(seams: &Seams, dir: &str, options: KvOptions) -> Result<KvOptions> {
    let above = parent(dir);
    let space = seams.disk.space(above).map_err(|e| {
        Fault::io(Code::KvFailed, "cannot see the space of the metadata target", above.to_owned(), &e)
    })?;
    Ok(options.sized_for(space.total_bytes))
}

impl Rows for Engine {
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.kv.get(key)
    }

    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.kv.scan_prefix(prefix, after, limit)
    }
}
