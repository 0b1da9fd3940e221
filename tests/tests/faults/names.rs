//! Knowledge of a worker about a tree of names: every change is a pure function on a map from path to entry.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use brindle_stdx::crc;

/// A directory or a file as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Dir,
    File {
        /// Number of the file, which all its names share.
        id: u64,
        len: usize,
        crc: u32,
    },
}

/// Paths below the worker's root, without a leading slash.
pub type Tree = BTreeMap<String, Entry>;

/// A change of the tree that is atomic in the file system.
#[derive(Clone, Debug)]
pub enum Change {
    Create { path: String, id: u64 },
    Fill { id: u64, len: usize, crc: u32 },
    Mkdir { path: String },
    Link { from: String, to: String },
    Rename { from: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
}

impl Change {
    /// Makes the change; false when the tree does not allow it.
    pub fn apply(&self, tree: &mut Tree) -> bool {
        match self {
            Change::Create { path, id } => {
                has_parent(tree, path)
                    && tree.insert(path.clone(), Entry::File { id: *id, len: 0, crc: 0 }).is_none()
            }
            Change::Fill { id, len, crc } => fill(tree, *id, *len, *crc),
            Change::Mkdir { path } => {
                has_parent(tree, path) && tree.insert(path.clone(), Entry::Dir).is_none()
            }
            Change::Link { from, to } => {
                let entry = tree.get(from).cloned();
                has_parent(tree, to) && entry.is_some_and(|entry| tree.insert(to.clone(), entry).is_none())
            }
            Change::Rename { from, to } => has_parent(tree, to) && rename(tree, from, to),
            Change::Unlink { path } | Change::Rmdir { path } => tree.remove(path).is_some(),
        }
    }
}

fn has_parent(tree: &Tree, path: &str) -> bool {
    path.rsplit_once('/').is_none_or(|(parent, _)| tree.get(parent) == Some(&Entry::Dir))
}

fn fill(tree: &mut Tree, id: u64, len: usize, crc: u32) -> bool {
    let mut any = false;
    for entry in tree.values_mut() {
        if matches!(entry, Entry::File { id: this, .. } if *this == id) {
            *entry = Entry::File { id, len, crc };
            any = true;
        }
    }
    any
}

fn rename(tree: &mut Tree, from: &str, to: &str) -> bool {
    let below = format!("{from}/");
    let moved: Vec<String> = tree.keys().filter(|p| *p == from || p.starts_with(&below)).cloned().collect();
    // Two names of one file: POSIX has nothing happen.
    if let (Some(Entry::File { id: a, .. }), Some(Entry::File { id: b, .. })) = (tree.get(from), tree.get(to))
        && a == b
    {
        return true;
    }
    for path in &moved {
        if let Some(entry) = tree.remove(path) {
            tree.insert(format!("{to}{}", &path[from.len()..]), entry);
        }
    }
    !moved.is_empty()
}

/// Entry as a file system shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Dir,
    File { len: usize, crc: u32, links: u64 },
}

/// The whole tree as it is shown.
pub type View = BTreeMap<String, Seen>;

/// View that a tree must give.
pub fn expected(tree: &Tree) -> View {
    let links = |id: &u64| {
        tree.values().filter(|e| matches!(e, Entry::File { id: other, .. } if other == id)).count() as u64
    };
    let seen = |entry: &Entry| match entry {
        Entry::Dir => Seen::Dir,
        Entry::File { id, len, crc } => Seen::File { len: *len, crc: *crc, links: links(id) },
    };
    tree.iter().map(|(path, entry)| (path.clone(), seen(entry))).collect()
}

/// Reads everything below `root`.
pub fn scan(root: &Path) -> Result<View, String> {
    let mut view = View::new();
    scan_dir(root, "", &mut view)?;
    Ok(view)
}

fn scan_dir(root: &Path, below: &str, view: &mut View) -> Result<(), String> {
    let at = |name: &str| format!("{}/{name}", root.display());
    let entries = std::fs::read_dir(root.join(below)).map_err(|e| format!("list {}: {e}", at(below)))?;
    for entry in entries {
        let name = entry.map_err(|e| format!("list {}: {e}", at(below)))?.file_name();
        let name = name.to_string_lossy();
        let path = if below.is_empty() { name.into_owned() } else { format!("{below}/{name}") };
        let found =
            std::fs::symlink_metadata(root.join(&path)).map_err(|e| format!("stat {}: {e}", at(&path)))?;
        let seen = if found.is_dir() {
            scan_dir(root, &path, view)?;
            Seen::Dir
        } else {
            let bytes = std::fs::read(root.join(&path)).map_err(|e| format!("read {}: {e}", at(&path)))?;
            if bytes.len() as u64 != found.len() {
                return Err(format!("{} has {} bytes and stat says {}", at(&path), bytes.len(), found.len()));
            }
            Seen::File { len: bytes.len(), crc: crc_of(&bytes), links: found.nlink() }
        };
        if view.insert(path.clone(), seen).is_some() {
            return Err(format!("{} is listed twice", at(&path)));
        }
    }
    Ok(())
}

/// Checksum of the bytes; of nothing it is 0, as in the tree.
pub fn crc_of(bytes: &[u8]) -> u32 {
    if bytes.is_empty() { 0 } else { crc(bytes) }
}

/// The first few differences, or nothing.
pub fn difference(found: &View, wanted: &View) -> Option<String> {
    let missing = wanted.iter().filter(|(path, seen)| found.get(*path) != Some(*seen));
    let missing = missing.map(|(path, seen)| format!("{path} is {:?}, should be {seen:?}", found.get(path)));
    let extra = found.iter().filter(|(path, _)| !wanted.contains_key(*path));
    let extra = extra.map(|(path, seen)| format!("{path} is {seen:?}, should not be there"));
    let all: Vec<String> = missing.chain(extra).collect();
    let shown: Vec<&str> = all.iter().take(5).map(String::as_str).collect();
    (!all.is_empty()).then(|| format!("{} differences: {}", all.len(), shown.join("; ")))
}
