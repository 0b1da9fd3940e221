//! The files in a directory, in the layout of `lhsmtool_posix`: a walk through its tree of links with paths. Our own copies have a manifest
//! beside them. A copy of another tool itself has the owner, mode, times and extended attributes.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_types::{Code, Fault, Fid, Pair, Result};
use tokio::sync::mpsc;

use super::entry::{Bytes, Directory, Entry, is_plain};
use super::tally::Tally;
use crate::archive;
use crate::archive::manifest::{Manifest, Moment, Number, Owned, Text, VERSION, Xattr};
use crate::archive::posix::{failed, read_manifest};

/// Deepest directory of links.
const DEPTH_MAX: usize = 2048;
/// Largest list of names, and largest value, of extended attributes of a copy.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Source of a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The archive, canonical: nothing outside it is imported, wherever links lead.
    pub root: PathBuf,
    /// The tree of links: paths in the file system begin here.
    pub links: PathBuf,
    /// Path below which the walk looks, from the root of the file system; empty for all.
    pub only: Vec<u8>,
    /// Whether copies of other tools are read, so that their checksums are known.
    pub checksums: bool,
    /// Files have the paths of their links, whatever their manifests say.
    pub by_links: bool,
    /// The archive of the file system that is imported into.
    pub own: archive::posix::Directory,
    /// The id of that file system.
    pub own_id: String,
}

impl Walk {
    /// Walks the tree, and hands on the files. For a thread of its own.
    pub fn run(&self, tally: &Arc<Tally>, found: &mpsc::Sender<Box<Entry>>) -> Result<()> {
        let start = self.links.join(Path::new(std::ffi::OsStr::from_bytes(&self.only)));
        let meta = start.symlink_metadata().map_err(|e| {
            let code = if e.kind() == io::ErrorKind::NotFound { Code::NothingToImport } else { Code::ArchiveFailed };
            Fault::io(code, "cannot import", start.display().to_string(), &e)
                .next("an archive of lhsmtool_posix or of 'brindle agent --backend posix:' has a directory 'shadow' with the paths of its files")
        })?;
        let mut above = Vec::new();
        for (end, _) in self.only.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            above.push(self.directory(&self.only[..end])?);
        }
        match meta.is_dir() {
            true => self.dir(&self.only, &mut above, tally, found),
            false => {
                self.file(&self.only, &above, tally, found);
                Ok(())
            }
        }
    }

    /// A directory of links, as one that files lie in.
    fn directory(&self, path: &[u8]) -> Result<Directory> {
        let shown = self.links.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        let meta = shown.symlink_metadata().map_err(|e| failed("cannot look at", &shown, &e))?;
        Ok(Directory { path: path.to_vec(), owned: owned(&meta), xattrs: Vec::new() })
    }

    fn dir(
        &self,
        path: &[u8],
        above: &mut Vec<Directory>,
        tally: &Arc<Tally>,
        found: &mpsc::Sender<Box<Entry>>,
    ) -> Result<()> {
        let dir = self.links.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        if above.len() >= DEPTH_MAX {
            let why = format!("it lies below {DEPTH_MAX} others");
            return Err(Fault::new(Code::ArchiveFailed)
                .what("cannot walk through")
                .subject(dir.display().to_string())
                .why(why));
        }
        let listed = || -> io::Result<Vec<(Vec<u8>, bool)>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                names.push((entry.file_name().as_bytes().to_vec(), entry.file_type()?.is_dir()));
            }
            names.sort();
            Ok(names)
        };
        let names = listed().map_err(|e| failed("cannot list", &dir, &e))?;
        if !path.is_empty() {
            above.push(self.directory(path)?);
        }
        for (name, is_dir) in names {
            if found.is_closed() {
                break;
            }
            let below: Vec<u8> = if path.is_empty() { name } else { [path, b"/", &name[..]].concat() };
            match is_dir {
                true => self.dir(&below, above, tally, found)?,
                false => self.file(&below, above, tally, found),
            }
        }
        if !path.is_empty() {
            above.pop();
        }
        Ok(())
    }

    fn file(&self, path: &[u8], above: &[Directory], tally: &Arc<Tally>, found: &mpsc::Sender<Box<Entry>>) {
        let link = self.links.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        match self.entry(path, &link, above) {
            // The maker may have ended.
            Ok(Some(entry)) => drop(found.blocking_send(Box::new(entry))),
            Ok(None) => Tally::add(&tally.superseded, 1),
            Err(fault) => tally.problem(link.display().to_string(), fault),
        }
    }

    /// The file of a link; `None` for a name that it had before.
    fn entry(&self, path: &[u8], link: &Path, above: &[Directory]) -> Result<Option<Entry>> {
        let refused = |code: Code, why: String| {
            Fault::new(code).what("cannot import").subject(link.display().to_string()).why(why)
        };
        let copy = link.canonicalize().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                refused(Code::ArchiveDamaged, "the copy that it leads to is not there".to_owned())
            }
            _ => failed("cannot look at", link, &e),
        })?;
        if !copy.starts_with(&self.root) {
            return Err(refused(
                Code::NotPermitted,
                format!("it leads out of the archive, to {}", copy.display()),
            ));
        }
        let meta = copy.metadata().map_err(|e| failed("cannot look at", &copy, &e))?;
        if !meta.is_file() {
            return Err(refused(Code::ArchiveDamaged, "it is neither a file nor a link to one".to_owned()));
        }
        if !is_plain(path) {
            return Err(refused(Code::ArchiveDamaged, "no file system has such a path".to_owned()));
        }
        let Some(manifest_path) = manifest_of(&copy, &meta)? else {
            self.refuse_own_name(&copy, link, "")?;
            return self.of_another_tool(path, link, (&copy, &meta), above).map(Some);
        };
        let wrong = |why: String| {
            Fault::new(Code::ManifestDamaged).subject(manifest_path.display().to_string()).why(why)
        };
        let manifest = read_manifest(&manifest_path)?;
        self.refuse_own_name(&copy, link, &manifest.fs_id)?;
        if copy.file_name().and_then(|name| name.to_str()) != Some(manifest.fid.trim_matches(['[', ']'])) {
            return Err(wrong(format!("it is of file {}", manifest.fid)));
        }
        if manifest.size_bytes != meta.len() {
            return Err(wrong(format!(
                "it tells of {} bytes, and {} has {}",
                manifest.size_bytes,
                copy.display(),
                meta.len()
            )));
        }
        let entry =
            Entry::of(manifest, manifest_path.display().to_string(), Bytes::Posix(copy)).map_err(wrong)?;
        if self.by_links {
            return Ok(Some(Entry { paths: vec![path.to_vec()], directories: above.to_vec(), ..entry }));
        }
        // The name may differ from those of the last archiving: the file was renamed between two of its copies.
        Ok(entry.paths.iter().any(|known| known == path).then_some(entry))
    }

    /// The numbers of files of another file system are those of files here: their copies must not lie where ours would.
    fn refuse_own_name(&self, copy: &Path, link: &Path, fs_id: &str) -> Result<()> {
        if fs_id == self.own_id || !self.own.is_own_name(copy) {
            return Ok(());
        }
        let root = self.own.root().display().to_string();
        Err(Fault::new(Code::BadArgument)
            .what("cannot import")
            .subject(link.display().to_string())
            .why(format!("its copy lies where one of a file of this file system would lie, in {root}, and is of another file system"))
            .next(format!("move what lies in {root} into a directory beside it, say {root}.old, and import from there: --from posix:{root}.old")))
    }

    /// A copy without a manifest: it has owner, mode, times and extended attributes of its file.
    fn of_another_tool(
        &self,
        path: &[u8],
        link: &Path,
        (copy, meta): (&Path, &Metadata),
        above: &[Directory],
    ) -> Result<Entry> {
        let blake3 = match self.checksums {
            true => crate::archive::manifest::hex(&checksum(copy)?),
            false => String::new(),
        };
        let none = Number::from(Pair::ZERO);
        let manifest = Manifest {
            version: VERSION,
            file_system: String::new(),
            fs_id: String::new(),
            fid: Fid { seq: 0, oid: 0, ver: 0 }.to_string(),
            data_version: none,
            attempt: none,
            size_bytes: meta.len(),
            blake3,
            extents: None,
            paths: vec![Text::of(path)],
            directories: Vec::new(),
            owned: owned(meta),
            xattrs: xattrs(copy)?,
            striping: Vec::new(),
            object: String::new(),
        };
        let shown = link.display().to_string();
        let entry = Entry::of(manifest, shown.clone(), Bytes::Posix(copy.to_owned()));
        let mut entry = entry.map_err(|why| Fault::new(Code::ArchiveDamaged).subject(shown).why(why))?;
        entry.directories = above.to_vec();
        Ok(entry)
    }
}

fn owned(meta: &Metadata) -> Owned {
    let moment =
        |secs, nanos: i64| Moment { secs, nanos: u32::try_from(nanos).unwrap_or(0).min(999_999_999) };
    Owned {
        uid: meta.uid(),
        gid: meta.gid(),
        mode: (meta.mode() & 0o7777) as u16,
        atime: moment(meta.atime(), meta.atime_nsec()),
        mtime: moment(meta.mtime(), meta.mtime_nsec()),
        ctime: moment(meta.ctime(), meta.ctime_nsec()),
    }
}

/// The manifest of a copy: beside the name with version and attempt that is the same file.
fn manifest_of(copy: &Path, meta: &Metadata) -> Result<Option<PathBuf>> {
    let (Some(dir), Some(fid)) = (copy.parent(), copy.file_name()) else { return Ok(None) };
    let of_copy = [fid.as_bytes(), b".v"].concat();
    let look = || -> io::Result<Option<PathBuf>> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.as_bytes().starts_with(&of_copy) || name.as_bytes().ends_with(b".json") {
                continue;
            }
            let other = entry.metadata()?;
            if (other.dev(), other.ino()) == (meta.dev(), meta.ino()) {
                let manifest = dir.join(std::ffi::OsStr::from_bytes(&[name.as_bytes(), b".json"].concat()));
                return Ok(manifest.symlink_metadata().is_ok().then_some(manifest));
            }
        }
        Ok(None)
    };
    look().map_err(|e| failed("cannot list", dir, &e))
}

/// The extended attributes of a copy that belong to its file: those of users, and ACLs. All other attributes belong to the file system that
/// holds the archive.
fn xattrs(copy: &Path) -> Result<Vec<Xattr>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = match rustix::fs::listxattr(copy, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(e) => return Err(failed("cannot list the extended attributes of", copy, &e.into())),
    };
    let mut xattrs = Vec::new();
    for name in names[..len].split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") && name != b"system.posix_acl_access" {
            continue;
        }
        let mut value = vec![0; XATTR_BYTES_MAX];
        let len = rustix::fs::getxattr(copy, name, &mut value[..])
            .map_err(|e| failed("cannot read an extended attribute of", copy, &e.into()))?;
        xattrs.push(Xattr::of(name, &value[..len]));
    }
    Ok(xattrs)
}

fn checksum(copy: &Path) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut sum = || -> io::Result<()> {
        hasher.update_reader(File::open(copy)?)?;
        Ok(())
    };
    sum().map_err(|e| failed("cannot read the copy", copy, &e))?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn walk(root: &Path, only: &[u8]) -> (Vec<Entry>, Vec<String>, Result<()>) {
        let root = root.canonicalize().unwrap();
        let own = tempfile::tempdir().unwrap();
        let own = archive::posix::Directory::open(own.path(), archive::posix::Layout::V1, true).unwrap();
        let walk = Walk {
            links: root.join("shadow"),
            root,
            only: only.to_vec(),
            checksums: true,
            by_links: false,
            own,
            own_id: "1".to_owned(),
        };
        let (tell, mut told) = mpsc::channel(64);
        let tally = Arc::default();
        let done = walk.run(&tally, &tell);
        drop(tell);
        let mut entries = Vec::new();
        while let Some(entry) = told.blocking_recv() {
            entries.push(*entry);
        }
        (entries, tally.problems().iter().map(|p| p.fault.to_string()).collect(), done)
    }

    #[test]
    fn another_tools_archive_is_read_by_its_links_and_nothing_outside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("arch"), dir.path().join("secret"));
        let copies = root.join("0001/0000/0401/0000/0002/0000");
        fs::create_dir_all(&copies).unwrap();
        fs::create_dir_all(root.join("shadow/project")).unwrap();
        fs::write(&outside, "not yours").unwrap();
        fs::write(copies.join("0x200000401:0x1:0x0"), "bytes").unwrap();
        let target = "0001/0000/0401/0000/0002/0000/0x200000401:0x1:0x0";
        symlink(format!("../../{target}"), root.join("shadow/project/f")).unwrap();
        symlink("../../../secret", root.join("shadow/project/g")).unwrap();
        symlink(format!("../{target}9"), root.join("shadow/gone")).unwrap();
        let (entries, problems, done) = walk(&root, b"");
        done.unwrap();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((&entry.paths[0][..], entry.size_bytes), (&b"project/f"[..], 5));
        assert_eq!(entry.checksum, *blake3::hash(b"bytes").as_bytes());
        assert_eq!(entry.directories[0].path, b"project");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().any(|p| p.contains("out of the archive")), "{problems:?}");
        assert_eq!(walk(&root, b"project/f").0.len(), 1, "one file alone");
        assert_eq!(walk(&root, b"proj").2.unwrap_err().code, Code::NothingToImport);
        assert_eq!(walk(dir.path(), b"").2.unwrap_err().code, Code::NothingToImport, "no archive");
    }
}
