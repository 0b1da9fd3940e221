//! The bytes: from the file system into an archive ([`crate::restore`] brings them back). Blocks of zeros become holes on both sides; the
//! checksum is of all bytes.

use brindle_client::{Client, Ctx};
use brindle_types::layout::{Component, Layout};
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Result};
use brindle_wire::mds::hsm::HsmWork;
use brindle_wire::mds::hsm_span::HsmPlace;
use brindle_wire::mds::open::Access;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::archive::manifest::{self, Above, Manifest, Owned, Striping, Text, Xattr};
use crate::archive::sums::{self, Summing};
use crate::archive::{Archive, CopyName, Incoming, PART_BYTES, PARTS_AT_ONCE, Whole, off_thread};
use crate::attempts::Attempt;
use crate::divided::Division;
use crate::pace::Pace;
use crate::streams::Streams;

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
/// Most names of a file that a manifest has.
const PATHS_MAX: usize = 64;

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
    /// Number of the agent.
    pub agent: [u8; 16],
    /// Streams of the agent for spans.
    pub streams: &'a Streams,
}

/// Starts and lengths of the parts of so many bytes.
pub fn parts(size_bytes: u64, part_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
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

pub fn changed(why: String) -> Fault {
    Fault::new(Code::ChangedMeanwhile).why(why)
}

/// Whether all bytes are zeros.
pub fn is_hole(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Copier<'_> {
    /// Copies a file into the archive, durably, under the name of this attempt.
    pub async fn archive(&self, work: &HsmWork) -> Result<(ArchivedCopy, Incoming)> {
        let name = CopyName { ino: work.ino, data_version: work.data_version, attempt: work.attempt };
        let division = self.attempt.until(self.division(work)).await?;
        let opened = self.attempt.until(self.client.open(&Ctx::root(), work.ino, READ, false)).await?;
        let begun = match &division {
            None => self.archive.begin(name, work.size_bytes).await.map(|incoming| (incoming, None)),
            Some(_) => self.archive.begin_divided(name, work.size_bytes).await,
        };
        let (mut incoming, upload) = match begun {
            Ok(begun) => begun,
            Err(fault) => {
                self.client.close(opened.handle).await?;
                return Err(fault);
            }
        };
        let copied = match division {
            None => self.attempt.until(self.copy_out(opened.handle, work, &mut incoming)).await,
            Some(division) => {
                let copying = self.copy_out_divided(work, &division, upload, &mut incoming);
                self.attempt.until(Box::pin(copying)).await
            }
        };
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
        let mut summing = Summing::new(size_bytes);
        while let Some((start, len, bytes)) = reads.try_next().await? {
            if bytes.len() as u64 != len {
                return Err(changed(format!(
                    "it ends at byte {} of {size_bytes}",
                    start + bytes.len() as u64
                )));
            }
            let hashed = bytes.clone();
            let (next, hole) = off_thread(move || {
                summing.update(&hashed);
                Ok((summing, is_hole(&hashed)))
            })
            .await?;
            summing = next;
            to.write(start, bytes, hole).await?;
            self.attempt.moved(len);
        }
        let (checksum, extents) = summing.finish();
        let HsmWork { data_version, attempt, .. } = *work;
        let manifest = Manifest { extents, ..self.describe(work).await? };
        Ok((ArchivedCopy { data_version, attempt, size_bytes, checksum }, manifest))
    }

    /// Copies a file with all agents of the archive.
    async fn copy_out_divided(
        &self,
        work: &HsmWork,
        division: &Division,
        upload: Option<String>,
        to: &mut Incoming,
    ) -> Result<(ArchivedCopy, Manifest)> {
        let place = HsmPlace::Copy(upload);
        let made = self.copy_divided(division, &place, |_| ()).await?;
        let values: Vec<_> = made.values().flat_map(|made| made.sums.iter().copied()).collect();
        let whole = sums::whole(work.size_bytes, &values);
        let (checksum, extents) = whole.ok_or_else(|| {
            Fault::new(Code::Bug)
                .why(format!("{} checksums of extents came, which are not all", values.len()))
        })?;
        to.has_parts(made.into_values().filter_map(|made| made.part).collect());
        let HsmWork { data_version, attempt, size_bytes, .. } = *work;
        let manifest = Manifest { extents: Some(extents), ..self.describe(work).await? };
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
            extents: None,
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
}
