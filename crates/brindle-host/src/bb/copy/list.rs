//! `type=list`: a file that names what is copied, one path a line.
//!
//! A relative path is relative to the directory of the list, and is copied to the same relative path below the destination. An absolute
//! one, or `~/...`, goes into the destination under its last name; a list in a buffer has relative ones only. Blank lines and lines that
//! begin with `#` are passed over.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use brindle_bb::Entry;
use brindle_types::{Code, Fault, Result};

use super::{Pair, failed};

/// Largest list.
const LIST_MAX_BYTES: u64 = 16 << 20;
/// Most entries of the lists of a job.
const ENTRIES_MAX: usize = 100_000;

/// The copies, with the entries of lists in place of the lists.
pub fn expand(pairs: Vec<Pair>, stages_in: bool, home: &Path) -> Result<Vec<Pair>> {
    let mut all = Vec::new();
    for pair in pairs {
        if pair.entry == Entry::List {
            read(&pair, stages_in, home, &mut all)?;
        } else {
            all.push(pair);
        }
    }
    Ok(all)
}

fn read(list: &Pair, stages_in: bool, home: &Path, all: &mut Vec<Pair>) -> Result<()> {
    let wrong = |number: usize, why: String| {
        Fault::new(Code::StageFailed)
            .what("cannot use the list")
            .subject(list.from.display().to_string())
            .why(format!("line {number}: {why}"))
            .data("nothing was copied")
    };
    let text = contents(list, stages_in)?;
    let dir = list.from.parent().unwrap_or(Path::new("/"));
    let mut targets = HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let path = Path::new(line);
        let (from, name) = match line.strip_prefix("~/") {
            _ if line.starts_with('/') && !stages_in => {
                let why = format!("'{line}' is absolute; write it relative to the list's directory");
                return Err(wrong(index + 1, why));
            }
            Some(rest) if stages_in => (home.join(rest), last_name(path)),
            _ if path.is_absolute() => (path.to_owned(), last_name(path)),
            _ => (dir.join(path), plain(path)),
        };
        let name =
            name.ok_or_else(|| wrong(index + 1, format!("'{line}' names no entry below a directory")))?;
        let meta = std::fs::metadata(&from)
            .map_err(|e| failed("cannot stage", &from, &e).why(format!("line {} of the list", index + 1)))?;
        let to = list.to.join(name);
        if !targets.insert(to.clone()) {
            return Err(wrong(index + 1, format!("an earlier line is copied to {}, too", to.display())));
        }
        if all.len() == ENTRIES_MAX {
            return Err(wrong(index + 1, format!("a job lists {ENTRIES_MAX} paths at most")));
        }
        let entry = if meta.is_dir() { Entry::Directory } else { Entry::File };
        all.push(Pair { entry, from, to, root: list.root.clone(), directive: list.directive });
    }
    Ok(())
}

fn contents(list: &Pair, stages_in: bool) -> Result<String> {
    let cannot =
        |e: &std::io::Error| failed("cannot read the list", &list.from, e).data("nothing was copied");
    if !stages_in {
        super::refuse_outside(list, stages_in)?;
    }
    let file = std::fs::File::open(&list.from).map_err(|e| cannot(&e))?;
    let len = file.metadata().map_err(|e| cannot(&e))?.len();
    if len > LIST_MAX_BYTES {
        let why = format!("it has {len} bytes, {LIST_MAX_BYTES} are possible");
        return Err(cannot(&std::io::Error::new(std::io::ErrorKind::FileTooLarge, why)));
    }
    let mut text = String::new();
    file.take(LIST_MAX_BYTES).read_to_string(&mut text).map_err(|e| cannot(&e))?;
    Ok(text)
}

fn last_name(path: &Path) -> Option<PathBuf> {
    path.file_name().map(PathBuf::from)
}

/// A relative path without `.`; none where it has `..`.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!out.as_os_str().is_empty()).then_some(out)
}
