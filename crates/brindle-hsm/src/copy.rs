//! The bytes: from the file system into an archive, and back. Blocks of zeros become holes on both sides; the checksum is of all bytes.

use blake3::Hasher;
use brindle_client::{Client, Ctx, SetAttr, WriteIn};
use brindle_stdx::cast::to_usize;
use brindle_types::hsm::CHECKSUM_UNKNOWN;
use brindle_types::layout::{Component, Layout};
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Ino, Result};
use brindle_wire::mds::hsm::HsmWork;
use brindle_wire::mds::open::Access;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::archive::manifest::{self, Above, Manifest, Owned, Striping, Text, Xattr};
use crate::archive::{
    Archive, CopyName, Incoming, PART_BYTES, PARTS_AT_ONCE, Source, Whole, damaged, off_thread,
};
use crate::attempts::Attempt;
use crate::pace::Pace;

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };
/// Most names of a file that a manifest has.
const PATHS_MAX: usize = 64;
/// Mode of a file that is being restored: only root may access it.
const PRIVATE_MODE: u32 = 0o600;

/// Parts that copying needs.
pub struct Copier<'a> {
    /// The file system.
    pub client: &'a Client,
    /// The archive.
    pub archive: &'a Archive,
    /// The pace of the agent.
    pub pace: &'a Pace,
    /// The attempt that this is.
    pub attempt: &'a Attempt,
}

fn parts(size_bytes: u64, part_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..size_bytes.div_ceil(part_bytes)).map(move |n| n * part_bytes);
    starts.map(move |start| (start, part_bytes.min(size_bytes - start)))
}

/// Striping of the parts of a file.
fn striping(layout: &Layout) -> Vec<Striping> {
    let of = |component: &Component| Striping {
        start_bytes: component.start,
        stripe_count: component.asked.count.unwrap_or(0),
        stripe_size_bytes: component.stripe_size_bytes,
        pool: component.asked.pool().map(ToString::to_string),
    };
    layout.components.iter().map(of).collect()
}

fn changed(why: String) -> Fault {
    Fault::new(Code::ChangedMeanwhile).why(why)
}

fn is_hole(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Copier<'_> {
    /// Copies a file into the archive, durably, under the name of this attempt.
    pub async fn archive(&self, work: &HsmWork) -> Result<(ArchivedCopy, Incoming)> {
        let name = CopyName { ino: work.ino, data_version: work.data_version, attempt: work.attempt };
        let opened = self.attempt.until(self.client.open(&Ctx::root(), work.ino, READ, false)).await?;
        let mut incoming = match self.archive.begin(name, work.size_bytes).await {
            Ok(incoming) => incoming,
            Err(fault) => {
                self.client.close(opened.handle).await?;
                return Err(fault);
            }
        };
        let copied = self.attempt.until(self.copy_out(opened.handle, work, &mut incoming)).await;
        self.client.close(opened.handle).await?;
        let finished = match copied {
            Ok((copy, manifest)) => {
                let whole = Whole { copy, attr: opened.attr, manifest };
                incoming.finish(whole).await.map(|()| copy)
            }
            Err(fault) => Err(fault),
        };
        match finished {
            Ok(copy) => Ok((copy, incoming)),
            Err(fault) => {
                incoming.discard().await?;
                Err(fault)
            }
        }
    }

    async fn copy_out(
        &self,
        handle: u64,
        work: &HsmWork,
        to: &mut Incoming,
    ) -> Result<(ArchivedCopy, Manifest)> {
        let size_bytes = work.size_bytes;
        let read = |(start, len): (u64, u64)| async move {
            self.pace.wait(self.client.seams(), len).await;
            let bytes = self.client.read(handle, start, len, false).await?.into_bytes();
            Ok::<_, Fault>((start, len, bytes))
        };
        let mut reads = stream::iter(parts(size_bytes, PART_BYTES)).map(read).buffered(PARTS_AT_ONCE);
        let mut hasher = Hasher::new();
        while let Some((start, len, bytes)) = reads.try_next().await? {
            if bytes.len() as u64 != len {
                return Err(changed(format!(
                    "it ends at byte {} of {size_bytes}",
                    start + bytes.len() as u64
                )));
            }
            let hashed = bytes.clone();
            let (next, hole) = off_thread(move || {
                hasher.update(&hashed);
                Ok((hasher, is_hole(&hashed)))
            })
            .await?;
            hasher = next;
            to.write(start, bytes, hole).await?;
            self.attempt.moved(len);
        }
        let checksum = *hasher.finalize().as_bytes();
        let HsmWork { data_version, attempt, .. } = *work;
        let manifest = self.describe(work).await?;
        Ok((ArchivedCopy { data_version, attempt, size_bytes, checksum }, manifest))
    }

    /// Describes a file in all but its bytes, for a reader that has the archive alone. Refuses a file that
    /// has changed since the copy was begun: so every manifest describes contents that the file has had.
    async fn describe(&self, work: &HsmWork) -> Result<Manifest> {
        let (client, ino) = (self.client, work.ino);
        let attr = client.getattr(ino).await?;
        if attr.data_version != Some(work.data_version) {
            return Err(changed("somebody wrote to it, or opened it for writing".to_owned()));
        }
        let mut paths = client.path_of(ino).await?;
        paths.truncate(PATHS_MAX);
        let mut directories = Vec::new();
        for path in &paths {
            self.describe_above(path, &mut directories).await?;
        }
        let xattrs = self.xattrs(&attr).await?;
        let striping =
            client.get_stripe(ino).await?.layout.map(|layout| striping(&layout)).unwrap_or_default();
        let map = client.map();
        Ok(Manifest {
            version: manifest::VERSION,
            file_system: client.config().fs.to_string(),
            fs_id: format!("{:016x}", map.fs_id),
            fid: ino.fid().to_string(),
            data_version: work.data_version.into(),
            attempt: work.attempt.into(),
            size_bytes: work.size_bytes,
            blake3: String::new(),
            paths: paths.iter().map(|path| Text::of(path)).collect(),
            directories,
            owned: Owned::from(&attr),
            xattrs,
            striping,
            object: String::new(),
        })
    }

    /// The extended attributes of a file or directory, ACLs among them.
    async fn xattrs(&self, attr: &Attr) -> Result<Vec<Xattr>> {
        let mut xattrs = Vec::new();
        if attr.has_acl || attr.has_xattr {
            for name in self.client.listxattr(attr.ino).await? {
                let value = self.client.getxattr(attr.ino, &name).await?;
                xattrs.push(Xattr::of(&name, &value));
            }
        }
        Ok(xattrs)
    }

    /// The directories above a path.
    async fn describe_above(&self, path: &[u8], directories: &mut Vec<Above>) -> Result<()> {
        let mut dir = self.client.root();
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let name = path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let attr = self.client.lookup(dir, name).await?;
            let path = Text::of(&path[..end]);
            if !directories.iter().any(|above| above.path == path) {
                let xattrs = self.xattrs(&attr).await?;
                directories.push(Above { path, owned: Owned::from(&attr), xattrs });
            }
            dir = attr.ino;
        }
        Ok(())
    }

    /// Copies the current copy of a file into a new file without a name, durably. Returns the inode number, and the handle, which keeps
    /// the file.
    pub async fn restore(&self, work: &HsmWork) -> Result<(Ino, u64)> {
        let copy = work.copy.ok_or_else(|| Fault::new(Code::Bug).why("a released file without a copy"))?;
        let source = self.attempt.until(self.archive.open_copy(work.ino, copy)).await?;
        let (ctx, root) = (Ctx::root(), self.client.root());
        let making = self.client.tmpfile(&ctx, root, PRIVATE_MODE, 0, WRITE);
        let made = self.attempt.until(making).await?;
        let filled = self.attempt.until(self.fill(made.handle, made.attr.ino, &copy, &source)).await;
        match filled {
            Ok(()) => Ok((made.attr.ino, made.handle)),
            Err(fault) => {
                self.client.close(made.handle).await?;
                Err(fault)
            }
        }
    }

    async fn fill(&self, handle: u64, to: Ino, copy: &ArchivedCopy, source: &Source) -> Result<()> {
        let (part_bytes, parts_at_once) = source.pace();
        let read = |(start, len): (u64, u64)| async move {
            self.pace.wait(self.client.seams(), len).await;
            Ok::<_, Fault>((start, source.read(start, len).await?))
        };
        let mut reads = stream::iter(parts(copy.size_bytes, part_bytes)).map(read).buffered(parts_at_once);
        let mut hasher = Hasher::new();
        let mut end = 0;
        while let Some((start, data)) = reads.try_next().await? {
            for (within, len) in parts(data.len() as u64, PART_BYTES) {
                let piece = data.slice(to_usize(within)..to_usize(within + len));
                hasher.update(&piece);
                if !is_hole(&piece) {
                    self.write(handle, start + within, piece).await?;
                    end = start + within + len;
                }
                self.attempt.moved(len);
            }
        }
        let is_known = copy.checksum != CHECKSUM_UNKNOWN;
        if is_known && *hasher.finalize().as_bytes() != copy.checksum {
            let why = "its bytes are not those that were archived: the checksum differs";
            return Err(damaged(source, why.to_owned()));
        }
        if end < copy.size_bytes {
            let set = SetAttr { size_bytes: Some(copy.size_bytes), handle, ..SetAttr::default() };
            self.client.setattr(&Ctx::root(), to, set).await?;
        }
        self.client.fsync(handle).await
    }

    async fn write(&self, handle: u64, mut offset: u64, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let write = WriteIn { offset, data: data.clone(), ..WriteIn::default() };
            let written = self.client.write(&Ctx::root(), handle, write).await?;
            if written == 0 {
                return Err(
                    Fault::new(Code::OstFull).why("an OST has taken nothing of what was to be restored")
                );
            }
            offset += written;
            data = data.slice(to_usize(written)..);
        }
        Ok(())
    }
}
