//! redb's storage over the `Disk` seam, so that torn and lost writes hit the real code.
//!
//! redb verifies its pages only when it is asked to verify all of them (at open). After opening, [`Sums`] remembers
//! the checksum of every block that was read or written, and a block that has changed since is refused: a damaged
//! inner page would otherwise hide rows without a fault.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::read_exact_at;
use brindle_stdx::{DiskFile, crc};
use parking_lot::Mutex;
use redb::StorageBackend;

/// redb's page size: the unit of checksums, and of redb's writes that an offline reader keeps.
pub(crate) const BLOCK_BYTES: u64 = 4096;
pub(crate) const BLOCK_LEN: usize = to_usize(BLOCK_BYTES);

/// Size of a window. If reads in a window wait for the device twice, the whole window is fetched. Related
/// rows lie near each other, but a directory is read in the order of hashes: page by page that is a device
/// access for each.
const WINDOW_BYTES: u64 = 128 << 10;
/// Windows of which it is remembered that they were read once: neighbourhoods in half a GiB.
const WINDOWS: usize = 4096;

/// The windows in which a read has waited for the device, by the remainder of their number. A window
/// forgotten too early costs a wait. A window remembered too long, of a far larger file, hardly ever costs a
/// needless fetch.
struct Windows(Mutex<Vec<u64>>);

impl Windows {
    fn new() -> Windows {
        Windows(Mutex::new(vec![u64::MAX; WINDOWS]))
    }

    /// A read at `offset` has to wait. Gives the start of the window that is to be fetched.
    fn waits(&self, offset: u64) -> Option<u64> {
        let number = offset / WINDOW_BYTES;
        let last = std::mem::replace(&mut self.0.lock()[(number % WINDOWS as u64) as usize], number);
        (last == number).then_some(number * WINDOW_BYTES)
    }
}

/// The file below redb; outlives it, so that it can be shut before redb is dropped.
pub(crate) struct Gate {
    file: Arc<dyn DiskFile>,
    shut: AtomicBool,
    sums: Arc<Mutex<Sums>>,
    windows: Windows,
    /// `Some`: nothing reaches the file.
    overlay: Option<Mutex<Overlay>>,
}

/// Checksums of blocks as they were last read or written; index is the block's number. Outlives an engine that has to
/// be opened again.
#[derive(Default)]
pub(crate) struct Sums {
    blocks: Vec<Option<u32>>,
    /// Bytes of the first block, which redb writes in parts; `None` where they are not known.
    first: Option<Vec<u8>>,
    /// A write of the first block is under way, or has failed.
    is_first_open: bool,
}

/// Verdict about a block that was read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// The block was neither read nor written since the opening, or is being written.
    Unknown,
    /// The block is as it was last read or written.
    Whole,
    Damaged,
}

struct Overlay {
    len_bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// redb's handle on the gate.
pub(crate) struct Backend(Arc<Gate>);

impl Backend {
    /// Writes go to the file.
    pub fn new(file: Arc<dyn DiskFile>, sums: Arc<Mutex<Sums>>) -> (Backend, Arc<Gate>) {
        sums.lock().learn_first(&*file);
        Self::over(Gate { file, shut: AtomicBool::new(false), sums, windows: Windows::new(), overlay: None })
    }

    /// Writes stay in memory.
    pub fn unchanged(file: Arc<dyn DiskFile>) -> (Backend, Arc<Gate>) {
        let len_bytes = file.len().unwrap_or(0);
        let overlay = Some(Mutex::new(Overlay { len_bytes, pages: BTreeMap::new() }));
        let windows = Windows::new();
        Self::over(Gate { file, shut: AtomicBool::new(false), sums: Arc::default(), windows, overlay })
    }

    fn over(gate: Gate) -> (Backend, Arc<Gate>) {
        let gate = Arc::new(gate);
        (Backend(gate.clone()), gate)
    }
}

impl Gate {
    /// Makes all further calls fail.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    /// Length of the file; 0 if it cannot be asked.
    pub fn len_bytes(&self) -> u64 {
        self.file.len().unwrap_or(0)
    }

    /// Fills `out`. Fetches what lies around it, where reads come together.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.file.read_in_memory(out, offset)? {
            return Ok(());
        }
        // A file system that does not fetch makes nothing wrong, only slower.
        if let Some(window) = self.windows.waits(offset)
            && let Err(error) = self.file.fetch(window, WINDOW_BYTES)
        {
            tracing::debug!(%error, window, "pages of the metadata store could not be fetched ahead");
        }
        read_exact_at(&*self.file, out, offset)
    }

    /// Bytes that the file takes on the device, without holes; 0 if the file system does not tell.
    pub fn allocated_bytes(&self) -> u64 {
        self.file.stat().map_or(0, |stat| stat.allocated_bytes)
    }

    fn check_open(&self) -> io::Result<()> {
        if self.shut.load(Ordering::Acquire) {
            return Err(io::Error::other("the store was shut"));
        }
        Ok(())
    }
}

impl Sums {
    /// The whole blocks of a range, with their numbers. The first block of the file is left out: redb rewrites parts
    /// of it and has checksums of its own there.
    fn blocks(offset: u64, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
        let whole = offset.is_multiple_of(BLOCK_BYTES);
        let first = to_usize(offset / BLOCK_BYTES);
        let blocks = data.chunks_exact(BLOCK_LEN).enumerate().map(move |(n, b)| (first + n, b));
        blocks.filter(move |(n, _)| whole && *n > 0)
    }

    fn range(offset: u64, len: usize) -> std::ops::Range<usize> {
        to_usize(offset / BLOCK_BYTES)..to_usize((offset + len as u64).div_ceil(BLOCK_BYTES))
    }

    /// Reads the first block, unless its bytes are known. redb has checksums of its own there, which it verifies when it opens the file.
    fn learn_first(&mut self, file: &dyn DiskFile) {
        if self.first.is_some() && !self.is_first_open {
            return;
        }
        let mut block = vec![0; BLOCK_LEN];
        // (A file in the making has no first block. One that cannot be read is refused by redb.)
        if file.read_at(&mut block, 0).is_ok_and(|n| n == BLOCK_LEN) {
            self.first = Some(block);
            self.is_first_open = false;
        }
    }

    /// The blocks of the range are being written: what a failed write leaves there is unknown.
    fn forget(&mut self, offset: u64, len: usize) {
        let range = Self::range(offset, len);
        if self.blocks.len() < range.end {
            self.blocks.resize(range.end, None);
        }
        self.blocks[range].fill(None);
        self.is_first_open |= offset < BLOCK_BYTES;
    }

    fn written(&mut self, offset: u64, data: &[u8]) {
        for (n, block) in Self::blocks(offset, data) {
            self.blocks[n] = Some(crc(block));
        }
        if let (Some(first), Ok(at)) = (&mut self.first, usize::try_from(offset)) {
            let end = BLOCK_LEN.min(at.saturating_add(data.len()));
            if at < end {
                first[at..end].copy_from_slice(&data[..end - at]);
                self.is_first_open = false;
            }
        }
    }

    /// Number of blocks that are known of.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Checksum of a block; `None` where it is not known.
    pub fn get(&self, n: usize) -> Option<u32> {
        match n {
            0 => self.first.as_deref().filter(|_| !self.is_first_open).map(crc),
            _ => self.blocks.get(n).copied().flatten(),
        }
    }

    /// Compares a block that was read from the device with what was last read or written.
    pub fn judge(&self, n: usize, block: &[u8]) -> BlockState {
        match self.get(n) {
            None => BlockState::Unknown,
            Some(sum) if sum == crc(block) => BlockState::Whole,
            Some(_) => BlockState::Damaged,
        }
    }

    /// Writes a damaged block anew, if the right bytes of it are in memory: the first block is kept here, the others may be in the page cache.
    /// The caller holds the lock of the checksums, so that redb does not write the block meanwhile.
    pub fn mend(&self, n: usize, file: &dyn DiskFile) -> io::Result<bool> {
        let at = n as u64 * BLOCK_BYTES;
        let mut block = vec![0; BLOCK_LEN];
        match &self.first {
            Some(first) if n == 0 => block.copy_from_slice(first),
            _ => read_exact_at(file, &mut block, at)?,
        }
        if self.judge(n, &block) != BlockState::Whole {
            return Ok(false);
        }
        file.write_at(&block, at)?;
        file.sync_data()?;
        Ok(true)
    }

    fn check_read(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        for (n, block) in Self::blocks(offset, data) {
            if self.blocks.len() <= n {
                self.blocks.resize(n + 1, None);
            }
            if *self.blocks[n].get_or_insert_with(|| crc(block)) != crc(block) {
                let at = n as u64 * BLOCK_BYTES;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the block at offset {at} has changed since it was written"),
                ));
            }
        }
        Ok(())
    }
}

impl Overlay {
    fn page<'a>(&'a mut self, file: &dyn DiskFile, at: u64) -> io::Result<&'a mut Vec<u8>> {
        use std::collections::btree_map::Entry;
        match self.pages.entry(at) {
            Entry::Occupied(page) => Ok(page.into_mut()),
            Entry::Vacant(slot) => {
                let mut page = vec![0; BLOCK_LEN];
                file.read_at(&mut page, at)?;
                Ok(slot.insert(page))
            }
        }
    }

    /// Calls `each` with every overlaid piece of the range: the page's bytes and the place in the range.
    fn pieces(
        offset: u64,
        len: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let page = at - at % BLOCK_BYTES;
            let within = to_usize(at - page);
            let n = (BLOCK_LEN - within).min(len - done);
            each(page, within..within + n, done..done + n)?;
            done += n;
        }
        Ok(())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.check_open()?;
        match &self.0.overlay {
            Some(overlay) => Ok(overlay.lock().len_bytes),
            None => self.0.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.check_open()?;
        let Some(overlay) = &self.0.overlay else {
            self.0.read(offset, out)?;
            return self.0.sums.lock().check_read(offset, out);
        };
        let overlay = overlay.lock();
        if offset + out.len() as u64 > overlay.len_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let n = self.0.file.read_at(out, offset)?;
        out[n..].fill(0);
        Overlay::pieces(offset, out.len(), |page, within, place| {
            if let Some(bytes) = overlay.pages.get(&page) {
                out[place].copy_from_slice(&bytes[within]);
            }
            Ok(())
        })
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.check_open()?;
        match &self.0.overlay {
            Some(overlay) => overlay.lock().len_bytes = len_bytes,
            None => {
                self.0.file.set_len(len_bytes)?;
                self.0.sums.lock().blocks.truncate((len_bytes / BLOCK_BYTES) as usize);
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.check_open()?;
        match &self.0.overlay {
            Some(_) => Ok(()),
            None => self.0.file.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.check_open()?;
        let Some(overlay) = &self.0.overlay else {
            self.0.sums.lock().forget(offset, data.len());
            self.0.file.write_at(data, offset)?;
            self.0.sums.lock().written(offset, data);
            return Ok(());
        };
        let mut overlay = overlay.lock();
        Overlay::pieces(offset, data.len(), |page, within, place| {
            overlay.page(&*self.0.file, page)?[within].copy_from_slice(&data[place]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_fetched_when_a_second_read_in_it_waits() {
        let windows = Windows::new();
        let far = WINDOW_BYTES * WINDOWS as u64;
        assert_eq!(windows.waits(WINDOW_BYTES + 4096), None);
        assert_eq!(windows.waits(0), None, "another window");
        assert_eq!(windows.waits(2 * WINDOW_BYTES - 1), Some(WINDOW_BYTES));
        assert_eq!(windows.waits(WINDOW_BYTES), Some(WINDOW_BYTES), "it may have gone from memory meanwhile");
        assert_eq!(windows.waits(far + WINDOW_BYTES), None, "one that shares the place");
        assert_eq!(windows.waits(WINDOW_BYTES), None);
    }
}
