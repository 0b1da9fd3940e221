//! A file that is to be made again: what its manifest, or another tool's copy, says of it, checked. The
//! contents of an archive are not trusted.

use std::path::PathBuf;

use brindle_types::hsm::CHECKSUM_UNKNOWN;
use brindle_types::layout::{
    COMPONENTS_MAX, ComponentPolicy, EOF, FILE_SIZE_MAX_BYTES, LayoutPolicy, PoolChoice, StripePolicy,
};
use brindle_types::{Fid, Pair};

use crate::archive::manifest::{self, Above, Manifest, Owned, Striping, Xattr};

/// Longest path.
const PATH_BYTES_MAX: usize = 4096;
/// Longest part of a path.
const NAME_BYTES_MAX: usize = 255;
/// Most directories above the names of one file.
const DIRECTORIES_MAX: usize = 8192;

/// Location of the bytes of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Bytes in a file.
    Posix(PathBuf),
    /// Bytes in an object of the bucket, under this key.
    S3(String),
}

/// An extended attribute.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// A directory above a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Path from the root of the file system that was archived.
    pub path: Vec<u8>,
    /// Owner, permissions, times.
    pub owned: Owned,
    /// Extended attributes.
    pub xattrs: Vec<Attribute>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Source of the entry, for people: the manifest, or the link of another tool.
    pub shown: String,
    /// Paths of the file from the root of the file system that was archived.
    pub paths: Vec<Vec<u8>>,
    /// The directories above them.
    pub directories: Vec<Directory>,
    /// Owner, permissions, times.
    pub owned: Owned,
    /// Extended attributes.
    pub xattrs: Vec<Attribute>,
    /// Layout; `None`: as new files get it.
    pub layout: Option<LayoutPolicy>,
    /// BLAKE3 of the bytes, or [`CHECKSUM_UNKNOWN`].
    pub checksum: [u8; 32],
    /// Length.
    pub size_bytes: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// Attempt of the copy: of two files that had one name, the one archived later has it.
    pub attempt: Pair,
    /// The manifest, from which the new one is made.
    pub manifest: Manifest,
}

/// Whether a path is one from the root of a file system to something in it.
pub fn is_plain(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name != b"."
            && name != b".."
            && !name.contains(&0)
    };
    path.len() < PATH_BYTES_MAX && path.split(|byte| *byte == b'/').all(is_name)
}

/// Whether a path is this one or below it; everything is below the empty one.
pub fn is_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn path_of(text: &manifest::Text) -> Result<Vec<u8>, String> {
    let path = text.bytes()?;
    match is_plain(&path) {
        true => Ok(path),
        false => Err(format!("'{}' is no path in a file system", path.escape_ascii())),
    }
}

fn attributes(xattrs: &[Xattr]) -> Result<Vec<Attribute>, String> {
    xattrs
        .iter()
        .map(|xattr| Ok((xattr.name.bytes()?, manifest::from_base64(&xattr.value_base64)?)))
        .collect()
}

fn is_time(owned: &Owned) -> bool {
    [owned.atime, owned.mtime, owned.ctime].iter().all(|at| at.nanos < 1_000_000_000)
}

fn directory(above: &Above) -> Result<Directory, String> {
    if !is_time(&above.owned) {
        return Err("a time has more than 999999999 ns".to_owned());
    }
    Ok(Directory { path: path_of(&above.path)?, owned: above.owned, xattrs: attributes(&above.xattrs)? })
}

fn stripe(part: &Striping) -> Result<StripePolicy, String> {
    let pool = part.pool.as_ref().map(|name| name.parse().map(PoolChoice::Named)).transpose();
    Ok(StripePolicy {
        count: Some(part.stripe_count),
        size_bytes: Some(part.stripe_size_bytes),
        pool: pool?,
        ..StripePolicy::default()
    })
}

/// The layout that a file is to have. Parts that lie alike, since one was moved elsewhere, are one.
fn layout(parts: &[Striping]) -> Result<Option<LayoutPolicy>, String> {
    if parts.len() > COMPONENTS_MAX {
        return Err(format!("it has {} parts", parts.len()));
    }
    let Some(first) = parts.first() else { return Ok(None) };
    let is_in_order = first.start_bytes == 0 && parts.is_sorted_by(|a, b| a.start_bytes < b.start_bytes);
    if !is_in_order {
        return Err("its parts are not in order".to_owned());
    }
    let mut distinct: Vec<(u64, StripePolicy)> = Vec::new();
    for part in parts {
        let stripe = stripe(part)?;
        if distinct.last().is_none_or(|(_, last)| *last != stripe) {
            distinct.push((part.start_bytes, stripe));
        }
    }
    if let [(_, one)] = &distinct[..] {
        return Ok(Some(LayoutPolicy::from(one.clone())));
    }
    let ends = distinct.iter().skip(1).map(|(start, _)| *start).chain([EOF]);
    let components = distinct.iter().zip(ends);
    let components =
        components.map(|((_, stripe), end_bytes)| ComponentPolicy { end_bytes, stripe: stripe.clone() });
    Ok(Some(LayoutPolicy { stripe: StripePolicy::default(), components: components.collect() }))
}

impl Entry {
    /// Entry of a manifest, after checks; `Err` has the reason.
    pub fn of(manifest: Manifest, shown: String, bytes: Bytes) -> Result<Entry, String> {
        let paths: Vec<Vec<u8>> = manifest.paths.iter().map(path_of).collect::<Result<_, _>>()?;
        if paths.is_empty() {
            return Err("it names no path".to_owned());
        }
        manifest.fid.parse::<Fid>()?;
        if manifest.size_bytes > FILE_SIZE_MAX_BYTES || !is_time(&manifest.owned) {
            return Err("no file has such a length or time".to_owned());
        }
        if manifest.directories.len() > DIRECTORIES_MAX {
            return Err(format!("it names {} directories", manifest.directories.len()));
        }
        Ok(Entry {
            shown,
            paths,
            directories: manifest.directories.iter().map(directory).collect::<Result<_, _>>()?,
            owned: manifest.owned,
            xattrs: attributes(&manifest.xattrs)?,
            layout: layout(&manifest.striping)?,
            checksum: match manifest.blake3.is_empty() {
                true => CHECKSUM_UNKNOWN,
                false => manifest::checksum(&manifest.blake3)?,
            },
            size_bytes: manifest.size_bytes,
            bytes,
            attempt: manifest.attempt.into(),
            manifest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::manifest::{Moment, Number, Text, VERSION};

    pub fn manifest() -> Manifest {
        let now = Moment { secs: 5, nanos: 6 };
        let number = Number { term: 1, counter: 2 };
        Manifest {
            version: VERSION,
            file_system: "scratch".to_owned(),
            fs_id: "01".to_owned(),
            fid: "[0x1:0x2:0x0]".to_owned(),
            data_version: number,
            attempt: number,
            size_bytes: 9,
            blake3: manifest::hex(&[0xab; 32]),
            extents: None,
            paths: vec![Text::of(b"a/b")],
            directories: Vec::new(),
            owned: Owned { uid: 1, gid: 2, mode: 0o640, atime: now, mtime: now, ctime: now },
            xattrs: Vec::new(),
            striping: Vec::new(),
            object: "k".to_owned(),
        }
    }

    fn part(start_bytes: u64, stripe_count: i32) -> Striping {
        Striping { start_bytes, stripe_count, stripe_size_bytes: 1 << 20, pool: None }
    }

    #[test]
    fn what_a_manifest_says_is_checked() {
        let of = |change: &dyn Fn(&mut Manifest)| {
            let mut changed = manifest();
            change(&mut changed);
            Entry::of(changed, "m".to_owned(), Bytes::S3("k".to_owned()))
        };
        let entry = of(&|_| {}).expect("a good one");
        assert_eq!((&entry.paths[..], entry.checksum), (&[b"a/b".to_vec()][..], [0xab; 32]));
        for path in [&b""[..], b"/etc", b"../x", b"a/../b", b"a//b", b"a/./b", b"a\0b", &[b'x'; 300]] {
            assert!(of(&|m| m.paths = vec![Text::of(path)]).is_err(), "{}", path.escape_ascii());
        }
        assert!(of(&|m| m.paths.clear()).is_err());
        assert!(of(&|m| m.blake3.truncate(10)).is_err());
        assert!(of(&|m| m.blake3 = "\u{e4}".repeat(32)).is_err());
        assert!(of(&|m| m.size_bytes = u64::MAX).is_err());
        assert!(of(&|m| m.owned.mtime.nanos = 1_000_000_000).is_err());
        assert!(of(&|m| m.fid = "7".to_owned()).is_err());
        assert!(of(&|m| m.striping = vec![part(5, 1)]).is_err(), "it begins later");
    }

    #[test]
    fn layouts_are_asked_for_again() {
        let one = layout(&[part(0, 2), part(1 << 20, 2)]).unwrap().unwrap();
        assert_eq!(
            (one.stripe.count, one.components.len()),
            (Some(2), 0),
            "a part of it was moved elsewhere"
        );
        let two = layout(&[part(0, 1), part(1 << 20, -1)]).unwrap().unwrap();
        let ends: Vec<_> = two.components.iter().map(|c| (c.end_bytes, c.stripe.count)).collect();
        assert_eq!(ends, [(1 << 20, Some(1)), (EOF, Some(-1))]);
        assert_eq!(layout(&[]), Ok(None));
    }

    #[test]
    fn paths_are_below_others() {
        assert!(is_below(b"a/b", b"a") && is_below(b"a", b"a") && is_below(b"x", b""));
        assert!(!is_below(b"ab", b"a") && !is_below(b"a", b"a/b"));
    }
}
