//! Makes files and directories again.
//!
//! A file is made without a name, gets its attributes, becomes a released one of a copy (`HsmImport`), the copy gets the file's name in the
//! archive, and only then the file gets its own. So at every moment every name has its bytes, and whatever ends in the middle leaves nothing but
//! names of copies that nobody knows.

use std::collections::HashMap;
use std::sync::Arc;

use brindle_client::namespace::xattr::SetHow;
use brindle_client::{Client, Ctx, SetAttr};
use brindle_types::{Attr, Code, Fault, FileType, Ino, Pair, Result};
use brindle_wire::Cred;
use brindle_wire::mds::hsm::{HsmImportReq, HsmImportResp};
use brindle_wire::mds::open::Access;
use brindle_wire::mds::setattr::SetTime;
use parking_lot::Mutex;

use super::Wanted;
use super::entry::{Attribute, Bytes, Entry, is_below};
use super::tally::Tally;
use crate::archive::manifest::{Above, Manifest, Owned, Text, Xattr};
use crate::archive::{Archive, CopyName};

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
/// Nobody but root sees what is not finished.
const PRIVATE_MODE: u32 = 0o700;
/// Directories of which nothing is known.
const COMMON_MODE: u32 = 0o755;
/// How often a file is made again that a restarted MDT has let go.
const TRIES: usize = 3;
/// Most files that are made last, since their names were given to others.
const LATER_MAX: usize = 100_000;
/// ACLs, as programs name them.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// A directory that is known.
struct Dir {
    /// `None` where nothing is made.
    ino: Option<Ino>,
    /// What it is to be like in the end, if it was made here.
    wanted: Option<(Owned, Vec<Attribute>)>,
    is_made: bool,
}

/// A name that was given to a file.
#[derive(Clone, Copy)]
struct Name {
    attempt: Pair,
    /// It was given by this import.
    is_ours: bool,
}

/// Makes files.
pub struct Maker {
    client: Arc<Client>,
    archive: Archive,
    wanted: Wanted,
    tally: Arc<Tally>,
    dirs: tokio::sync::Mutex<HashMap<Vec<u8>, Dir>>,
    /// By a hash of their paths.
    names: Mutex<HashMap<[u8; 16], Name>>,
    later: Mutex<Vec<Entry>>,
}

fn key(path: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    key
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn exists(path: &[u8]) -> Fault {
    Fault::new(Code::Exists)
        .what("not imported")
        .subject(shown(path))
        .why("a file of this name is there")
        .data("it was left as it is")
}

fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

impl Maker {
    /// One that makes files in a file system.
    pub fn new(client: Arc<Client>, archive: Archive, wanted: Wanted, tally: Arc<Tally>) -> Maker {
        Maker {
            client,
            archive,
            wanted,
            tally,
            dirs: tokio::sync::Mutex::default(),
            names: Mutex::default(),
            later: Mutex::default(),
        }
    }

    /// Where a path goes.
    fn place(&self, path: &[u8]) -> Vec<u8> {
        let into = &self.wanted.into;
        match (self.wanted.is_one_file, into.is_empty()) {
            (true, _) => into.clone(),
            (false, true) => path.to_vec(),
            (false, false) => [into, &b"/"[..], path].concat(),
        }
    }

    /// Makes a file, or leaves it for later if another one has its name.
    pub async fn file(&self, entry: Box<Entry>) {
        let mut entry = *entry;
        entry.paths.retain(|path| is_below(path, &self.wanted.only));
        if entry.paths.is_empty() {
            return;
        }
        let subject = entry.shown.clone();
        let mut is_free = true;
        {
            let mut names = self.names.lock();
            for path in &entry.paths {
                let name = Name { attempt: entry.attempt, is_ours: false };
                is_free &= names.insert(key(path), name).is_none_or(|before| {
                    // Whoever had it keeps it for now.
                    names.insert(key(path), before);
                    false
                });
            }
        }
        if !is_free {
            let mut later = self.later.lock();
            if later.len() >= LATER_MAX {
                let why = format!("more than {LATER_MAX} files have had names that others have now");
                self.tally.problem(subject, Fault::new(Code::Overloaded).why(why));
                return;
            }
            later.push(entry);
            return;
        }
        if let Err(fault) = self.make(&entry).await {
            self.tally.problem(subject, fault);
        }
    }

    /// Makes what was left for later, in the order of archiving, then gives the directories their times.
    pub async fn finish(&self) -> Result<()> {
        let mut later = std::mem::take(&mut *self.later.lock());
        later.sort_by_key(|entry| entry.attempt);
        for mut entry in later {
            let subject = entry.shown.clone();
            if let Err(fault) = self.free_names(&mut entry).await {
                self.tally.problem(subject, fault);
                continue;
            }
            if entry.paths.is_empty() {
                Tally::add(&self.tally.superseded, 1);
                continue;
            }
            if let Err(fault) = self.make(&entry).await {
                self.tally.problem(subject, fault);
            }
        }
        self.finish_dirs().await
    }

    /// Takes names from files of this import that were archived earlier; the others go from the list.
    async fn free_names(&self, entry: &mut Entry) -> Result<()> {
        let mut free = Vec::new();
        for path in std::mem::take(&mut entry.paths) {
            let known = self.names.lock().get(&key(&path)).copied();
            if let Some(name) = known {
                // With the same attempt and not given yet it is kept for this very file.
                if name.attempt > entry.attempt || (name.attempt == entry.attempt && name.is_ours) {
                    continue;
                }
                if name.is_ours {
                    self.give_up(&path).await?;
                }
            }
            self.names.lock().insert(key(&path), Name { attempt: entry.attempt, is_ours: false });
            free.push(path);
        }
        entry.paths = free;
        Ok(())
    }

    async fn give_up(&self, path: &[u8]) -> Result<()> {
        Tally::add(&self.tally.superseded, 1);
        self.tally.files.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if self.wanted.dry_run {
            return Ok(());
        }
        let place = self.place(path);
        let (above, name) = split(&place);
        let known = self.dirs.lock().await.get(above).and_then(|dir| dir.ino);
        let parent = known.unwrap_or_else(|| self.client.root());
        self.client.unlink(&Ctx::root(), parent, name).await
    }

    async fn make(&self, entry: &Entry) -> Result<()> {
        let mut places = Vec::new();
        for path in &entry.paths {
            let place = self.place(path);
            let parent = self.parent(&place, entry).await?;
            let there = match parent {
                Some(parent) => self.find(parent, split(&place).1).await?,
                None => None,
            };
            if there.is_some() {
                return Err(exists(&place));
            }
            places.push((parent, place));
        }
        if !self.wanted.dry_run {
            let mut tries = 0;
            loop {
                match self.make_at(entry, &places).await {
                    // A restarted MDT lets go of what has no name.
                    Err(fault) if fault.code == Code::NotFound && tries < TRIES => tries += 1,
                    made => break made?,
                }
            }
        }
        let mut names = self.names.lock();
        for path in &entry.paths {
            names.insert(key(path), Name { attempt: entry.attempt, is_ours: true });
        }
        Tally::add(&self.tally.files, 1);
        Tally::add(&self.tally.links, places.len() as u64 - 1);
        Tally::add(&self.tally.bytes, entry.size_bytes);
        Ok(())
    }

    async fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.client.lookup(parent, name).await {
            Ok(attr) => Ok(Some(attr)),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn make_at(&self, entry: &Entry, places: &[(Option<Ino>, Vec<u8>)]) -> Result<()> {
        let Some((Some(parent), first)) = places.first() else {
            return Err(Fault::new(Code::Bug).why("a file without a directory"));
        };
        let made = self.client.tmpfile(&Ctx::root(), *parent, PRIVATE_MODE, 0, READ).await?;
        let ino = made.attr.ino;
        let done = async {
            let copy = self.fill(entry, &made.attr).await?;
            let name = CopyName::of(ino, &copy.copy);
            self.adopt(entry, &name, first).await?;
            for (n, (parent, place)) in places.iter().enumerate() {
                let parent = parent.ok_or_else(|| Fault::new(Code::Bug).why("a name without a directory"))?;
                let linked = self.client.link(&Ctx::root(), ino, parent, split(place).1).await;
                if let Err(fault) = linked {
                    if n == 0 {
                        self.discard(&name, first).await;
                    }
                    return Err(if fault.code == Code::Exists {
                        exists(place)
                    } else {
                        fault.subject(shown(place))
                    });
                }
            }
            Ok(())
        };
        let done = done.await;
        // Without a name it goes with its handle.
        let closed = self.client.close(made.handle).await;
        done.and(closed)
    }

    /// Layout, owner, times, extended attributes, and what makes it a released file.
    async fn fill(&self, entry: &Entry, made: &Attr) -> Result<HsmImportResp> {
        let (ctx, ino) = (Ctx::root(), made.ino);
        if let Some(layout) = &entry.layout {
            let set = self.client.set_stripe(&ctx, ino, Some(layout.clone())).await;
            if let Err(fault) = set {
                // There may be fewer OSTs here, or no pool of that name: then it lies as new files do.
                tracing::debug!(file = entry.shown, %fault, "another layout than it had");
                Tally::add(&self.tally.other_layouts, 1);
            }
        }
        self.dress(made, &entry.owned, &entry.xattrs, true).await?;
        let request = HsmImportReq {
            ino,
            archive: self.wanted.archive,
            size_bytes: entry.size_bytes,
            checksum: entry.checksum,
            cred: Cred::default(),
        };
        self.client.ask_as_agent(&request).await
    }

    /// Owner, permissions, extended attributes, and times.
    async fn dress(&self, attr: &Attr, owned: &Owned, xattrs: &[Attribute], with_times: bool) -> Result<()> {
        let ctx = Ctx::root();
        let time = |moment: crate::archive::manifest::Moment| with_times.then(|| SetTime::At(moment.into()));
        let inherited =
            ACLS.iter().filter(|acl| attr.has_acl && !xattrs.iter().any(|(name, _)| name == *acl));
        for acl in inherited {
            match self.client.removexattr(&ctx, attr.ino, acl).await {
                Err(fault) if fault.code != Code::NoXattr => return Err(fault),
                _ => {}
            }
        }
        let set = SetAttr {
            mode: Some(owned.mode.into()),
            uid: Some(owned.uid),
            gid: Some(owned.gid),
            atime: time(owned.atime),
            mtime: time(owned.mtime),
            ..SetAttr::default()
        };
        self.client.setattr(&ctx, attr.ino, set).await?;
        for (name, value) in xattrs {
            self.client.setxattr(&ctx, attr.ino, name, value, SetHow::default()).await?;
        }
        Ok(())
    }

    /// The copy in the archive gets the name of the new file, and a manifest of it.
    async fn adopt(&self, entry: &Entry, name: &CopyName, path: &[u8]) -> Result<()> {
        let map = self.client.map();
        let directories = entry.directories.iter().map(|dir| Above {
            path: Text::of(&self.place(&dir.path)),
            owned: dir.owned,
            xattrs: dir.xattrs.iter().map(|(name, value)| Xattr::of(name, value)).collect(),
        });
        let directories = if self.wanted.is_one_file { Vec::new() } else { directories.collect() };
        let manifest = Manifest {
            file_system: self.client.config().fs.to_string(),
            fs_id: format!("{:016x}", map.fs_id),
            fid: name.ino.fid().to_string(),
            data_version: name.data_version.into(),
            attempt: name.attempt.into(),
            paths: entry.paths.iter().map(|path| Text::of(&self.place(path))).collect(),
            directories,
            ..entry.manifest.clone()
        };
        self.archive.adopt(&entry.bytes, *name, manifest, path.to_vec()).await
    }

    async fn discard(&self, name: &CopyName, path: &[u8]) {
        let next = Pair { counter: name.attempt.counter + 1, ..name.attempt };
        if let Err(fault) = self.archive.remove(name.ino, next, path.to_vec()).await {
            tracing::warn!(%fault, "a name in the archive that no file has is left");
        }
    }

    /// The directory of a path, made if need be; `None` if it would be made.
    async fn parent(&self, place: &[u8], entry: &Entry) -> Result<Option<Ino>> {
        let mut dirs = self.dirs.lock().await;
        let mut at = Some(self.client.root());
        let ends = place.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends {
            let path = &place[..end];
            let above = entry
                .directories
                .iter()
                .find(|dir| !self.wanted.is_one_file && self.place(&dir.path) == path);
            let wanted = above.map(|dir| (dir.owned, dir.xattrs.clone()));
            if let Some(known) = dirs.get_mut(path) {
                known.take_in(wanted);
                at = known.ino;
                continue;
            }
            let dir = self.dir(at, path, wanted).await?;
            at = dir.ino;
            dirs.insert(path.to_vec(), dir);
        }
        Ok(at)
    }

    async fn dir(
        &self,
        above: Option<Ino>,
        path: &[u8],
        wanted: Option<(Owned, Vec<Attribute>)>,
    ) -> Result<Dir> {
        let name = split(path).1;
        if let Some(above) = above
            && let Some(there) = self.find(above, name).await?
        {
            if there.kind != FileType::Directory {
                return Err(Fault::new(Code::NotDirectory).what("cannot import below").subject(shown(path)));
            }
            return Ok(Dir { ino: Some(there.ino), wanted: None, is_made: false });
        }
        Tally::add(&self.tally.directories, 1);
        let above = above.filter(|_| !self.wanted.dry_run);
        let Some(above) = above else { return Ok(Dir { ino: None, wanted, is_made: false }) };
        let mode = if wanted.is_some() { PRIVATE_MODE } else { COMMON_MODE };
        let made = self.client.mkdir(&Ctx::root(), above, name, mode, 0).await?;
        if let Some((owned, _)) = &wanted {
            // ACLs come last: files that are made here would inherit them.
            self.dress(&made, owned, &[], false).await?;
        }
        Ok(Dir { ino: Some(made.ino), wanted, is_made: true })
    }

    /// Gives the directories that were made their times and ACLs, the deepest first.
    async fn finish_dirs(&self) -> Result<()> {
        let dirs = std::mem::take(&mut *self.dirs.lock().await);
        let mut made: Vec<(Vec<u8>, Dir)> = dirs.into_iter().filter(|(_, dir)| dir.is_made).collect();
        made.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, dir) in made {
            let (Some(ino), Some((owned, xattrs))) = (dir.ino, dir.wanted) else { continue };
            let dressed = async {
                let attr = self.client.getattr(ino).await?;
                self.dress(&attr, &owned, &xattrs, true).await
            };
            if let Err(fault) = dressed.await {
                self.tally.problem(shown(&path), fault);
            }
        }
        Ok(())
    }
}

impl Dir {
    /// Of what several manifests say the latest counts.
    fn take_in(&mut self, wanted: Option<(Owned, Vec<Attribute>)>) {
        let at = |owned: &Owned| (owned.ctime.secs, owned.ctime.nanos);
        let Some(wanted) = wanted.filter(|_| self.is_made || self.ino.is_none()) else { return };
        if self.wanted.as_ref().is_none_or(|known| at(&wanted.0) > at(&known.0)) {
            self.wanted = Some(wanted);
        }
    }
}

impl Archive {
    /// Has a copy that lies there already be that of another file.
    pub async fn adopt(
        &self,
        bytes: &Bytes,
        name: CopyName,
        manifest: Manifest,
        path: Vec<u8>,
    ) -> Result<()> {
        match (self, bytes) {
            (Archive::Posix(dir), Bytes::Posix(from)) => {
                let (dir, from) = (dir.clone(), from.clone());
                crate::archive::off_thread(move || dir.adopt(&from, &name, &manifest, &path)).await
            }
            (Archive::S3(bucket), Bytes::S3(_)) => bucket.adopt(&name, &manifest).await,
            _ => Err(Fault::new(Code::Bug).why("bytes of an archive of another kind")),
        }
    }
}
