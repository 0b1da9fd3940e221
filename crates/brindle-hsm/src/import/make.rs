//! Makes files and directories again.
//!
//! A file is made without a name, gets its attributes, and becomes a released file of a copy (`HsmImport`). Then the copy gets the file's
//! name in the archive, and only then the file gets its own. At every moment every name therefore has its bytes. An import that ends in the
//! middle leaves only names of copies that nobody knows.

use std::collections::HashMap;
use std::sync::Arc;

use brindle_client::namespace::rename::RenameIn;
use brindle_client::namespace::xattr::SetHow;
use brindle_client::{Client, Ctx, SetAttr};
use brindle_types::hsm::HSM_RELEASED;
use brindle_types::{Attr, Code, Fault, Fid, FileType, Ino, Pair, Result};
use brindle_wire::Cred;
use brindle_wire::mds::hsm::{HsmImportReq, HsmImportResp, HsmStateReq};
use brindle_wire::mds::open::Access;
use brindle_wire::mds::setattr::SetTime;
use parking_lot::Mutex;

use super::Wanted;
use super::entry::{Attribute, Bytes, Entry, is_below};
use super::tally::Tally;
use crate::archive::manifest::{Above, Manifest, Owned, Text, Xattr};
use crate::archive::{Archive, CopyName};

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
/// Mode of unfinished files and directories: only root may access them.
const PRIVATE_MODE: u32 = 0o700;
/// Directories of which nothing is known.
const COMMON_MODE: u32 = 0o755;
/// Number of tries to make a file that a restarted MDT has dropped.
const TRIES: usize = 3;
/// Most files that are made last, since their names were given to others.
const LATER_MAX: usize = 100_000;
/// ACLs, as programs name them.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// The access ACL belongs to the mode.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// A directory that an import has made and not finished: nobody but root may enter it.
const UNFINISHED: &[u8] = b"trusted.brindle.import";

/// A directory that is known.
struct Dir {
    /// `None` where nothing is made.
    ino: Option<Ino>,
    /// Final owner and attributes, if the import has made the directory.
    wanted: Option<(Owned, Vec<Attribute>)>,
    is_made: bool,
}

/// A name that was given to a file.
#[derive(Clone, Copy)]
struct Name {
    attempt: Pair,
    /// The name was given by this import, or would be in a dry run.
    is_ours: bool,
    /// The file of this import that has it.
    made: Option<Made>,
}

/// A file as this import has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    ino: Ino,
    data_version: Pair,
}

/// Destination of a name of a file.
struct NameDestination {
    /// `None` where nothing is made.
    parent: Option<Ino>,
    path: Vec<u8>,
    /// Attributes of the file that has the name.
    there: Option<Attr>,
    /// The file of this import that has it, and gives it up.
    older: Option<Made>,
}

/// Makes files.
pub struct Maker {
    client: Arc<Client>,
    archive: Archive,
    wanted: Wanted,
    tally: Arc<Tally>,
    dirs: tokio::sync::Mutex<HashMap<Vec<u8>, Dir>>,
    /// Names by a hash of their paths.
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
    /// Maker of files in a file system.
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

    /// Path in the file system for a path of the archive.
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
                let name = Name { attempt: entry.attempt, is_ours: false, made: None };
                is_free &= names.insert(key(path), name).is_none_or(|before| {
                    // The previous holder keeps the name for now.
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
        if let Err(fault) = self.make_gone(&entry).await {
            self.tally.problem(subject, fault);
        }
    }

    /// Makes the postponed files, in the order of archiving, then gives the directories their times.
    pub async fn finish(&self) -> Result<()> {
        let mut later = std::mem::take(&mut *self.later.lock());
        later.sort_by_key(|entry| entry.attempt);
        for mut entry in later {
            let subject = entry.shown.clone();
            self.free_names(&mut entry);
            if entry.paths.is_empty() {
                Tally::add(&self.tally.superseded, 1);
                continue;
            }
            if let Err(fault) = self.make_gone(&entry).await {
                self.tally.problem(subject, fault);
            }
        }
        self.finish_dirs().await
    }

    /// Leaves an entry the names of files of this import that were archived earlier; the others go from the list.
    fn free_names(&self, entry: &mut Entry) {
        let attempt = entry.attempt;
        let mut names = self.names.lock();
        entry.paths.retain(|path| {
            let known = names.get(&key(path)).copied();
            if let Some(name) = known {
                // With the same attempt and not given yet it is kept for this very file.
                if name.attempt > attempt || (name.attempt == attempt && name.is_ours) {
                    return false;
                }
                if name.is_ours && self.wanted.dry_run {
                    self.tally.replaced();
                }
            }
            // The previous holder keeps the name until the other file is made.
            let made = known.and_then(|name| name.made);
            names.insert(key(path), Name { attempt, is_ours: false, made });
            true
        });
    }

    /// Makes a file, unless it is one of this file system and still there.
    async fn make_gone(&self, entry: &Entry) -> Result<()> {
        let own_id = format!("{:016x}", self.client.map().fs_id);
        if entry.manifest.fs_id == own_id
            && let Some(ino) = entry.manifest.fid.parse::<Fid>().ok().and_then(Fid::ino)
        {
            match self.client.getattr(ino).await {
                Ok(attr) if attr.nlink > 0 => {
                    return Err(Fault::new(Code::Exists)
                        .what("not imported")
                        .subject(entry.manifest.fid.clone())
                        .why("the file of this copy is there")
                        .data("it was left as it is"));
                }
                Err(fault) if fault.code != Code::NotFound => return Err(fault),
                // The file was removed.
                _ => {}
            }
        }
        self.make(entry).await
    }

    async fn make(&self, entry: &Entry) -> Result<()> {
        let mut places = Vec::new();
        for path in &entry.paths {
            places.push(self.look(path, entry).await?);
        }
        if places.iter().any(|place| place.there.is_some() && place.older.is_none()) {
            return self.complete(entry, &places).await;
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
            let made = names.get(&key(path)).and_then(|name| name.made);
            names.insert(key(path), Name { attempt: entry.attempt, is_ours: true, made });
        }
        Tally::add(&self.tally.files, 1);
        Tally::add(&self.tally.links, places.len() as u64 - 1);
        Tally::add(&self.tally.bytes, entry.size_bytes);
        Ok(())
    }

    /// Looks up the file that has the name.
    async fn look(&self, path: &[u8], entry: &Entry) -> Result<NameDestination> {
        let place = self.place(path);
        let parent = self.parent(&place, entry).await?;
        let there = match parent {
            Some(parent) => self.find(parent, split(&place).1).await?,
            None => None,
        };
        let made = self.names.lock().get(&key(path)).and_then(|name| name.made);
        let mut older = None;
        if let (Some(attr), Some(made)) = (&there, made)
            && self.is_as_made(attr, made).await?
        {
            older = Some(made);
        }
        Ok(NameDestination { parent, path: place, there, older })
    }

    /// Whether a file is one that this import has made, and nobody has written or brought back since.
    async fn is_as_made(&self, attr: &Attr, made: Made) -> Result<bool> {
        let is_same = attr.ino == made.ino && attr.data_version == Some(made.data_version);
        Ok(is_same && self.is_released(attr).await?)
    }

    /// Whether the bytes of a file lie in the archive alone; an empty one has none.
    async fn is_released(&self, attr: &Attr) -> Result<bool> {
        if attr.kind != FileType::Regular {
            return Ok(false);
        }
        let state = self.client.ask_as_agent(&HsmStateReq { ino: attr.ino }).await?;
        Ok(attr.size_bytes == 0 || state.flags & HSM_RELEASED != 0)
    }

    /// Completes a file of which only a part of the names exists. If an interrupted import has given a name to a file of this very copy,
    /// that file gets the other names.
    async fn complete(&self, entry: &Entry, places: &[NameDestination]) -> Result<()> {
        let missing: Vec<&NameDestination> = places.iter().filter(|place| place.there.is_none()).collect();
        let Some(first) = places.iter().find(|place| place.there.is_some()) else { return Ok(()) };
        if missing.is_empty() || self.wanted.dry_run {
            return Err(exists(&first.path));
        }
        for attr in places.iter().filter_map(|place| place.there.as_ref()) {
            if !self.is_released(attr).await? || !self.archive.is_copy_of(attr.ino, &entry.bytes).await? {
                continue;
            }
            for place in &missing {
                let parent =
                    place.parent.ok_or_else(|| Fault::new(Code::Bug).why("a name without a directory"))?;
                let name = split(&place.path).1;
                let linked = self.client.link(&Ctx::root(), attr.ino, parent, name).await;
                linked.map_err(|fault| fault.subject(shown(&place.path)))?;
                Tally::add(&self.tally.links, 1);
            }
            let mut names = self.names.lock();
            for path in &entry.paths {
                names.insert(key(path), Name { attempt: entry.attempt, is_ours: true, made: None });
            }
            return Ok(());
        }
        let listed: Vec<String> = missing.iter().map(|place| shown(&place.path)).collect();
        Err(Fault::new(Code::HsmRefused)
            .what("not imported")
            .subject(listed.join(", "))
            .why(format!("{} is there, and is not the file of this copy", shown(&first.path)))
            .data("nothing of it was changed")
            .next("import it elsewhere: --into DIR"))
    }

    async fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.client.lookup(parent, name).await {
            Ok(attr) => Ok(Some(attr)),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn make_at(&self, entry: &Entry, places: &[NameDestination]) -> Result<()> {
        let Some((Some(parent), first)) = places.first().map(|place| (place.parent, &place.path)) else {
            return Err(Fault::new(Code::Bug).why("a file without a directory"));
        };
        let opened = self.client.tmpfile(&Ctx::root(), parent, PRIVATE_MODE, 0, READ).await?;
        let ino = opened.attr.ino;
        let done = async {
            let copy = self.fill(entry, &opened.attr).await?;
            let name = CopyName::of(ino, &copy.copy);
            self.adopt(entry, &name, first).await?;
            let made = Made { ino, data_version: name.data_version };
            for (n, (place, path)) in places.iter().zip(&entry.paths).enumerate() {
                if let Err(fault) = self.put_name(made, place).await {
                    if n == 0 {
                        self.discard(&name, first).await;
                    }
                    return Err(if fault.code == Code::Exists {
                        exists(&place.path)
                    } else {
                        fault.subject(shown(&place.path))
                    });
                }
                if let Some(name) = self.names.lock().get_mut(&key(path)) {
                    name.made = Some(made);
                }
            }
            Ok(())
        };
        let done = done.await;
        // Without a name it goes with its handle.
        let closed = self.client.close(opened.handle).await;
        done.and(closed)
    }

    /// Gives a file a name. If an older file of this import has it and is as it was made, the name passes from one to the other in one step.
    async fn put_name(&self, made: Made, place: &NameDestination) -> Result<()> {
        let ctx = Ctx::root();
        let parent = place.parent.ok_or_else(|| Fault::new(Code::Bug).why("a name without a directory"))?;
        let name = split(&place.path).1;
        let Some(older) = place.older else {
            return self.client.link(&ctx, made.ino, parent, name).await.map(drop);
        };
        let there = self.find(parent, name).await?;
        let is_as_made = match &there {
            Some(attr) => self.is_as_made(attr, older).await?,
            None => false,
        };
        if !is_as_made {
            return Err(exists(&place.path));
        }
        let fresh = format!(".brindle-import.{:x}", made.ino.0).into_bytes();
        self.client.link(&ctx, made.ino, parent, &fresh).await?;
        let renamed = RenameIn {
            parent,
            name: &fresh,
            new_parent: parent,
            new_name: name,
            no_replace: false,
            exchange: true,
            whiteout: false,
        };
        let exchanged = self.client.rename(&ctx, renamed).await.map(drop);
        // Meanwhile a user may have written to the older file, or given the name to another one.
        let is_older = match (&exchanged, self.find(parent, &fresh).await) {
            (Ok(()), Ok(Some(attr))) => self.is_as_made(&attr, older).await.unwrap_or(false),
            _ => false,
        };
        if exchanged.is_ok() && !is_older {
            self.client.rename(&ctx, renamed).await.map_err(|fault| {
                fault.why(format!("{} has the file that had this name", String::from_utf8_lossy(&fresh)))
            })?;
        }
        if let Err(fault) = self.client.unlink(&ctx, parent, &fresh).await {
            tracing::warn!(%fault, name = %String::from_utf8_lossy(&fresh), "a second name of an imported file is left");
        }
        exchanged?;
        if !is_older {
            return Err(exists(&place.path));
        }
        self.tally.replaced();
        Ok(())
    }

    /// Layout, owner, times, extended attributes, and what makes it a released file.
    async fn fill(&self, entry: &Entry, made: &Attr) -> Result<HsmImportResp> {
        let (ctx, ino) = (Ctx::root(), made.ino);
        if let Some(layout) = &entry.layout {
            let set = self.client.set_stripe(&ctx, ino, Some(layout.clone())).await;
            if let Err(fault) = set {
                // The file system may have fewer OSTs, or no pool of that name. The file then lies as new files do.
                tracing::debug!(file = entry.shown, %fault, "another layout than it had");
                Tally::add(&self.tally.other_layouts, 1);
            }
        }
        self.dress(made, &entry.owned, &entry.xattrs).await?;
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
    async fn dress(&self, attr: &Attr, owned: &Owned, xattrs: &[Attribute]) -> Result<()> {
        let ctx = Ctx::root();
        let time = |moment: crate::archive::manifest::Moment| Some(SetTime::At(moment.into()));
        let inherited =
            ACLS.iter().filter(|acl| attr.has_acl && !xattrs.iter().any(|(name, _)| name == *acl));
        for acl in inherited {
            match self.client.removexattr(&ctx, attr.ino, acl).await {
                Err(fault) if fault.code != Code::NoXattr => return Err(fault),
                _ => {}
            }
        }
        // Beside an ACL the bits of the group are its mask: alone they would let in the whole group.
        for (name, value) in xattrs.iter().filter(|(name, _)| name == ACCESS_ACL) {
            self.client.setxattr(&ctx, attr.ino, name, value, SetHow::default()).await?;
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
        let others = xattrs.iter().filter(|(name, _)| name != ACCESS_ACL && name != UNFINISHED);
        for (name, value) in others {
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
            // An interrupted import has left the directory unfinished; the present one finishes it.
            let is_made = !self.wanted.dry_run && self.is_unfinished(&there).await?;
            let wanted = wanted.filter(|_| is_made);
            return Ok(Dir { ino: Some(there.ino), wanted, is_made });
        }
        Tally::add(&self.tally.directories, 1);
        let above = above.filter(|_| !self.wanted.dry_run);
        let Some(above) = above else { return Ok(Dir { ino: None, wanted, is_made: false }) };
        let ctx = Ctx::root();
        // Owner, mode and ACLs come last: nobody enters it before, and files that are made here do not inherit them.
        let fresh = format!(".brindle-import.{}", blake3::hash(path).to_hex()).into_bytes();
        if let Some(left) = self.find(above, &fresh).await?
            && left.kind == FileType::Directory
        {
            // An import that was cut off has left it, and nothing was put into it.
            self.client.rmdir(&ctx, above, &fresh).await?;
        }
        let made = self.client.mkdir(&ctx, above, &fresh, PRIVATE_MODE, 0).await?;
        let named = async {
            self.client.setxattr(&ctx, made.ino, UNFINISHED, b"1", SetHow::default()).await?;
            let renamed = RenameIn {
                parent: above,
                name: &fresh,
                new_parent: above,
                new_name: name,
                no_replace: true,
                exchange: false,
                whiteout: false,
            };
            self.client.rename(&ctx, renamed).await.map(drop)
        };
        if let Err(fault) = named.await {
            self.client.rmdir(&ctx, above, &fresh).await?;
            return Err(fault);
        }
        Ok(Dir { ino: Some(made.ino), wanted, is_made: true })
    }

    async fn is_unfinished(&self, dir: &Attr) -> Result<bool> {
        match self.client.getxattr(dir.ino, UNFINISHED).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.code == Code::NoXattr => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Gives the directories that were made owner, mode, ACLs and times, the deepest first.
    async fn finish_dirs(&self) -> Result<()> {
        let dirs = std::mem::take(&mut *self.dirs.lock().await);
        let mut made: Vec<(Vec<u8>, Dir)> = dirs.into_iter().filter(|(_, dir)| dir.is_made).collect();
        made.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, dir) in made {
            let Some(ino) = dir.ino else { continue };
            let ctx = Ctx::root();
            let dressed = async {
                match &dir.wanted {
                    Some((owned, xattrs)) => {
                        let attr = self.client.getattr(ino).await?;
                        self.dress(&attr, owned, xattrs).await?;
                    }
                    None => {
                        let set = SetAttr { mode: Some(COMMON_MODE), ..SetAttr::default() };
                        self.client.setattr(&ctx, ino, set).await?;
                    }
                }
                self.client.removexattr(&ctx, ino, UNFINISHED).await
            };
            if let Err(fault) = dressed.await {
                self.tally.problem(shown(&path), fault);
            }
        }
        Ok(())
    }
}

impl Dir {
    /// Takes in attributes from a manifest; of several manifests the latest counts.
    fn take_in(&mut self, wanted: Option<(Owned, Vec<Attribute>)>) {
        let at = |owned: &Owned| (owned.ctime.secs, owned.ctime.nanos);
        let Some(wanted) = wanted.filter(|_| self.is_made || self.ino.is_none()) else { return };
        if self.wanted.as_ref().is_none_or(|known| at(&wanted.0) > at(&known.0)) {
            self.wanted = Some(wanted);
        }
    }
}

impl Archive {
    /// Whether a file has the copy of these bytes.
    pub async fn is_copy_of(&self, ino: Ino, bytes: &Bytes) -> Result<bool> {
        match (self, bytes) {
            (Archive::Posix(dir), Bytes::Posix(from)) => {
                let (dir, from) = (dir.clone(), from.clone());
                crate::archive::off_thread(move || dir.is_copy_of(ino, &from)).await
            }
            (Archive::S3(bucket), Bytes::S3(object)) => bucket.is_copy_of(ino, object).await,
            _ => Err(Fault::new(Code::Bug).why("bytes of an archive of another kind")),
        }
    }

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
