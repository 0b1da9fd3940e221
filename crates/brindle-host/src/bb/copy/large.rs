//! Large files that several hosts copy, or compare, in parts.
//!
//! A try of which a part is not answered is begun anew with another file: a host that is late would write into this one after it has its
//! name.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{StageFile, StageRange, StagedFile};
use rustix::fs::SeekFrom;

use super::partial::{partial, remove_if_there};
use super::share::{Sent, TRIES_MAX, ending_of};
use super::side::Route;
use super::{Copy, failed, has_changed, is_same, xattr};

/// A file of this size is divided.
pub(super) const LARGE_BYTES: u64 = 64 << 20;
/// Least and most bytes of a part of a large file. Parts begin at multiples of the least.
const PART_BYTES_MIN: u64 = 4 << 20;
const PART_BYTES_MAX: u64 = 64 << 20;
/// Parts for each unit that may be under way: all hosts end at about the same time.
const PARTS_EACH: u64 = 8;

/// A large file whose parts other hosts have.
pub(super) struct Large {
    route: Route,
    from: PathBuf,
    to: PathBuf,
    file: StageFile,
    source: Rc<File>,
    before: Metadata,
    /// The copy, and its name until it is complete; `None`: the file that is there already is compared.
    target: Option<(File, PathBuf)>,
    ending: String,
    tries: usize,
    part_bytes: u64,
    /// Parts that are not answered yet.
    waits: usize,
    all_sent: bool,
    bytes: u64,
    has_failed: bool,
}

impl Copy {
    /// Has other hosts copy a large file in parts, or compare it where it seems to be there. Returns before they have.
    pub(super) fn large(&mut self, route: &Route, from: &Path, to: &Path, file: StageFile) -> Result<()> {
        let source = File::open(from).map_err(|e| failed("cannot read", from, &e))?;
        let is_there = match (std::fs::symlink_metadata(to), source.metadata()) {
            (Ok(there), Ok(meta)) => {
                is_same(&there, &meta) && File::open(to).is_ok_and(|there| xattr::are_same(&source, &there))
            }
            _ => false,
        };
        self.begin_large(route.clone(), (from.to_owned(), to.to_owned()), file, is_there, 1)
    }

    fn begin_large(
        &mut self,
        route: Route,
        (from, to): (PathBuf, PathBuf),
        file: StageFile,
        compares: bool,
        tries: usize,
    ) -> Result<()> {
        let source = File::open(&from).map_err(|e| failed("cannot read", &from, &e))?;
        let before = source.metadata().map_err(|e| failed("cannot look at", &from, &e))?;
        let is_it = (before.ino(), before.len(), before.mtime(), before.mtime_nsec())
            == (file.inode, file.bytes, file.mtime_s, file.mtime_ns);
        if !is_it || !self.share.is_shared() || tries > TRIES_MAX {
            return self.file_alone(&from, &to);
        }
        let ending = self.share.new_ending();
        let target = if compares { None } else { Some(new_target(&to, &ending, before.len())?) };
        let number = self.share.new_id();
        let (source, waits, bytes) = (Rc::new(source), 0, 0);
        let part_bytes = part_bytes(file.bytes, self.share.streams());
        let large = Large {
            route,
            from,
            to,
            file,
            source,
            before,
            target,
            ending,
            tries,
            part_bytes,
            waits,
            all_sent: false,
            bytes,
            has_failed: false,
        };
        self.share.larges.insert(number, large);
        self.send_parts(number)?;
        if let Some(large) = self.share.larges.get_mut(&number) {
            large.all_sent = true;
        }
        self.end_large(number)
    }

    /// Sends all parts of a file, as long as none has failed. A part that is only a hole is not sent, unless it is compared.
    fn send_parts(&mut self, number: u64) -> Result<()> {
        let mut start = 0;
        loop {
            self.wait_for_room()?;
            let is_shared = self.share.is_shared();
            let Some(large) = self.share.larges.get_mut(&number) else { return Err(unknown()) };
            if large.target.is_some() {
                match rustix::fs::seek(&*large.source, SeekFrom::Data(start)) {
                    Ok(data) => start = start.max(data - data % PART_BYTES_MIN),
                    Err(rustix::io::Errno::NXIO) => return Ok(()),
                    Err(e) => return Err(failed("cannot read", &large.from, &e.into())),
                }
            }
            if start >= large.file.bytes {
                return Ok(());
            }
            large.has_failed |= !is_shared;
            if large.has_failed {
                return Ok(());
            }
            large.waits += 1;
            let end = large.file.bytes.min(start + large.part_bytes);
            let range = Some(StageRange { start, end, compares: large.target.is_none() });
            let (route, file, ending) = (large.route.clone(), large.file.clone(), large.ending.clone());
            let id = self.share.send(&route, vec![file], &ending, range)?;
            self.share.sent.insert(id, Sent::Part { large: number });
            start = end;
        }
    }

    /// Takes the answer to a part.
    pub(super) fn take_part(&mut self, number: u64, answer: Option<&[StagedFile]>) -> Result<()> {
        let Some(large) = self.share.larges.get_mut(&number) else { return Err(unknown()) };
        large.waits -= 1;
        match answer {
            Some([StagedFile::Copied { bytes, .. }]) if large.target.is_some() => large.bytes += bytes,
            Some([StagedFile::Unchanged]) if large.target.is_none() => {}
            _ => large.has_failed = true,
        }
        self.end_large(number)
    }

    /// Completes a file whose parts are all answered.
    fn end_large(&mut self, number: u64) -> Result<()> {
        if !self.share.larges.get(&number).is_some_and(|large| large.all_sent && large.waits == 0) {
            return Ok(());
        }
        let Some(large) = self.share.larges.remove(&number) else { return Err(unknown()) };
        let is_good = !large.has_failed && !has_changed(&large.source, &large.before, &large.from)?;
        let Large { route, from, to, file, source, before, target, tries, bytes, .. } = large;
        match target {
            Some((target, path)) if is_good => {
                self.finish(&source, &target, &before, &to)?;
                std::fs::rename(&path, &to).map_err(|e| failed("cannot rename to", &to, &e))?;
                self.outcome.files += 1;
                self.outcome.bytes += bytes;
                self.share.done_file();
                Ok(())
            }
            None if is_good => {
                let there = File::open(&to).map_err(|e| failed("cannot read", &to, &e))?;
                there.sync_all().map_err(|e| failed("cannot sync", &to, &e))?;
                self.outcome.unchanged += 1;
                self.share.done_file();
                Ok(())
            }
            target => {
                if let Some((_, path)) = &target {
                    remove_if_there(path)?;
                }
                // A file that was only compared is copied now.
                self.begin_large(route, (from, to), file, false, tries + usize::from(target.is_some()))
            }
        }
    }
}

/// The file that becomes `to`, as long as it will be.
fn new_target(to: &Path, ending: &str, bytes: u64) -> Result<(File, PathBuf)> {
    let path = partial(to, &ending_of(ending, 0));
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let target = target.map_err(|e| failed("cannot write", to, &e))?;
    target.set_len(bytes).map_err(|e| failed("cannot write", to, &e))?;
    Ok((target, path))
}

/// Bytes of the parts of a file that so many units share.
fn part_bytes(file_bytes: u64, streams: usize) -> u64 {
    let parts = (streams as u64).saturating_mul(PARTS_EACH).max(1);
    let bytes = (file_bytes / parts).next_multiple_of(PART_BYTES_MIN);
    bytes.clamp(PART_BYTES_MIN, PART_BYTES_MAX)
}

fn unknown() -> Fault {
    Fault::new(Code::Bug).what("an answer came for a file that is not being copied")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_so_many_that_all_hosts_end_together_and_never_tiny() {
        assert_eq!(part_bytes(LARGE_BYTES, 20), PART_BYTES_MIN);
        assert_eq!(part_bytes(10 << 30, 20), 64 << 20);
        assert_eq!(part_bytes(5 << 30, 20), 32 << 20);
        assert_eq!((part_bytes(1 << 50, 1), part_bytes(1 << 30, 0)), (PART_BYTES_MAX, PART_BYTES_MAX));
    }
}
