//! Where the two sides of a copy are, in words that other hosts understand: a directory that is there already, and paths below it without
//! symbolic links.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_bb::Entry;
use brindle_wire::bb::StageTop;

use super::Pair;

/// One side of a copy.
#[derive(Clone, Debug)]
struct Side {
    /// The path as the copy has it.
    given: PathBuf,
    /// Directory that is there already; no part of its path is a link.
    top: PathBuf,
    /// The rest of the path.
    rest: PathBuf,
}

impl Side {
    fn new(path: &Path) -> std::io::Result<Side> {
        let above = path.ancestors().find(|above| std::fs::symlink_metadata(above).is_ok());
        let above = above.unwrap_or(Path::new("/"));
        let rest = path.strip_prefix(above).unwrap_or(Path::new("")).to_owned();
        let real = std::fs::canonicalize(above)?;
        let given = path.to_owned();
        if real.is_dir() {
            return Ok(Side { given, top: real, rest });
        }
        let top = real.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Side { given, top, rest: real.file_name().unwrap_or_default().into() })
    }

    /// Path below `top`; none where it is no text.
    fn below(&self, path: &Path, is_file: bool) -> Option<String> {
        let tail = if is_file { Path::new("") } else { path.strip_prefix(&self.given).ok()? };
        let whole = if tail.as_os_str().is_empty() { self.rest.clone() } else { self.rest.join(tail) };
        whole.to_str().map(str::to_owned)
    }
}

/// The sides of a copy.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Serial number of the buffer.
    pub(super) buffer: u64,
    /// Directory of the buffer, below the one that nodes share.
    pub(super) inside: String,
    /// Directory on the other side.
    pub(super) outside: StageTop,
    from: Side,
    to: Side,
    is_file: bool,
}

impl Route {
    /// The sides of a copy; none where other hosts cannot be told.
    pub(super) fn of(pair: &Pair, buffer: u64, stages_in: bool) -> Option<Route> {
        let (from, to) = (Side::new(&pair.from).ok()?, Side::new(&pair.to).ok()?);
        let (near, far) = if stages_in { (&to, &from) } else { (&from, &to) };
        let inside = near.top.strip_prefix(&pair.root).ok()?.to_str()?.to_owned();
        let outside = top_of(&far.top)?;
        Some(Route { buffer, inside, outside, from, to, is_file: pair.entry == Entry::File })
    }

    /// Source and copy, each relative to the directory of its side.
    pub(super) fn below(&self, from: &Path, to: &Path) -> Option<(String, String)> {
        Some((self.from.below(from, self.is_file)?, self.to.below(to, self.is_file)?))
    }

    /// Whether files of both go together.
    pub(super) fn is_with(&self, other: &Route) -> bool {
        (self.buffer, &self.inside, &self.outside) == (other.buffer, &other.inside, &other.outside)
    }
}

/// A directory as this host sees it.
fn top_of(dir: &Path) -> Option<StageTop> {
    let meta = std::fs::metadata(dir).ok()?;
    let kind = rustix::fs::statfs(dir).ok()?.f_type;
    Some(StageTop {
        path: dir.to_str()?.to_owned(),
        inode: meta.ino(),
        kind,
        mtime_s: meta.mtime(),
        mtime_ns: meta.mtime_nsec(),
    })
}
