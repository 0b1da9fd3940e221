//! `rbh-report`, `rbh-find` and `rbh-du`: Robinhood's commands in Robinhood's texts, over scans of the MDT.
//!
//! The commands have no database that could be behind: each command looks at the file system as it is now. Only root may run them, since
//! they show files of all users; `brindle file find` and `brindle file du` are for everybody. An option of Robinhood that these commands
//! lack is refused by name.

pub mod du;
pub mod find;
pub mod report;
mod rows;
mod tops;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_client::Client;
use brindle_host::control::ino;
use brindle_host::mounts;
use brindle_hsm::policy::pages::{Pages, Wanted};
use brindle_policy::condition::Context;
use brindle_policy::{Condition, Entry, Names, Program};
use brindle_types::attr::Time;
use brindle_types::{Attr, Code, Fault, FileType, Result};
use brindle_wire::mds::scan::Term;

use crate::policy::run::PlaceArgs;
use crate::policy::text::{HostNames, TextArgs};

/// Type names, as Robinhood has them.
pub const TYPES: [(FileType, &str); 7] = [
    (FileType::BlockDevice, "blk"),
    (FileType::CharDevice, "chr"),
    (FileType::Directory, "dir"),
    (FileType::Fifo, "fifo"),
    (FileType::Regular, "file"),
    (FileType::Socket, "sock"),
    (FileType::Symlink, "symlink"),
];

/// The name of a type.
pub fn type_name(kind: FileType) -> &'static str {
    TYPES.iter().find(|(known, _)| *known == kind).map_or("?", |(_, name)| name)
}

/// A type by the letter or the name that options take.
pub fn type_of(text: &str) -> std::result::Result<FileType, String> {
    let by_name = TYPES.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind);
    let kind = by_name.or(match text {
        "f" => Some(FileType::Regular),
        "d" => Some(FileType::Directory),
        "l" => Some(FileType::Symlink),
        "b" => Some(FileType::BlockDevice),
        "c" => Some(FileType::CharDevice),
        "p" => Some(FileType::Fifo),
        "s" => Some(FileType::Socket),
        _ => None,
    });
    kind.ok_or_else(|| format!("'{text}' is no type: f, d, l, b, c, p or s"))
}

/// `lhsm:VALUE`, or `VALUE`.
pub fn status_of(text: &str) -> std::result::Result<String, String> {
    const KNOWN: [&str; 6] = ["new", "modified", "retrieving", "archiving", "synchro", "released"];
    let value = text.strip_prefix("lhsm:").or_else(|| text.strip_prefix("lhsm_status:")).unwrap_or(text);
    match KNOWN.contains(&value) {
        true => Ok(value.to_owned()),
        false => Err(format!("'{text}' is no status; they are lhsm:{}", KNOWN.join(", lhsm:"))),
    }
}

/// A path of an argument, or the only file system that is mounted here.
pub fn start(path: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    let mut points: BTreeMap<String, PathBuf> = BTreeMap::new();
    mounts::ours().for_each(|line| _ = points.entry(line.source).or_insert(line.mount_point));
    let listed: Vec<String> = points.values().map(|point| point.display().to_string()).collect();
    match (points.len(), points.into_values().next()) {
        (1, Some(only)) => Ok(only),
        (0, _) => Err(Fault::new(Code::NotABrindlePath)
            .what("no file system is mounted here")
            .next("give a path in a mount")),
        _ => Err(Fault::new(Code::BadArgument)
            .what("several file systems are mounted here")
            .subject(listed.join(", "))
            .next("give a path in the one that is meant")),
    }
}

/// Refuses an option that Robinhood has and this has not.
pub fn not_here(option: &str, why: &str, next: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("there is no")
        .subject(option.to_owned())
        .why(why.to_owned())
        .next(next.to_owned())
}

/// Names of users and groups, asked for once each.
#[derive(Default)]
pub struct Known {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Known {
    /// The name of a user, or the number.
    pub fn user(&mut self, uid: u32) -> &str {
        self.users.entry(uid).or_insert_with(|| HostNames.user(uid).unwrap_or_else(|| uid.to_string()))
    }

    /// The name of a group, or the number.
    pub fn group(&mut self, gid: u32) -> &str {
        self.groups.entry(gid).or_insert_with(|| HostNames.group(gid).unwrap_or_else(|| gid.to_string()))
    }
}

/// The classes of a policy text.
pub struct Classes {
    program: Program,
    definitions: BTreeMap<String, Condition>,
}

impl Classes {
    /// Loads the classes of a text, whose paths are below this mount point.
    pub fn load(file: PathBuf, mount: &Path) -> Result<Classes> {
        let program = TextArgs::of(file, &[])?.load_at(&[crate::cli::text(mount)?])?;
        let definitions = program.definitions();
        Ok(Classes { program, definitions })
    }

    /// Names of extended attributes that they ask about.
    pub fn xattrs(&self) -> Vec<String> {
        self.program.xattrs.clone()
    }

    /// The classes that an entry is in, as Robinhood writes several; empty for none.
    pub fn of(&self, entry: &Entry, now: Time) -> String {
        let context = Context { now, names: &HostNames, classes: &self.definitions, superseded: None };
        let is_in = |name: &&String| self.definitions[*name].eval(entry, &context) == Some(true);
        let names = self.definitions.keys().filter(is_in).map(|name| &self.program.classes[name].name);
        names.cloned().collect::<Vec<_>>().join("+")
    }
}

/// Entry that a scan has found.
pub struct ScannedEntry {
    /// The whole path.
    pub path: PathBuf,
    /// Levels below the start.
    pub depth: usize,
    /// Attributes as the MDT knows them.
    pub attr: Attr,
    /// Entry for conditions, with the path from the root of the file system.
    pub entry: Entry,
    /// Class of the entry; `None` where no text is given.
    pub class: Option<String>,
}

impl ScannedEntry {
    /// Text of the class in output.
    pub fn class_text(&self) -> &str {
        match self.class.as_deref() {
            None => "[n/a]",
            Some("") => "[none]",
            Some(class) => class,
        }
    }

    /// Text of the status in output.
    pub fn status_text(&self) -> &'static str {
        brindle_policy::condition::status(&self.entry).unwrap_or("[none]")
    }

    /// Space in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.attr.allocated_bytes.div_ceil(512) * 512
    }
}

/// A scan from a path.
pub struct Scan {
    /// The client that it goes through.
    pub client: Arc<Client>,
    pages: Pages,
    start: PathBuf,
    /// Path from the root of the file system, without slashes at its ends.
    below_root: String,
    classes: Option<Classes>,
}

impl Scan {
    /// Begins at a path in a mount; `text` is one with classes.
    pub async fn begin(start: &Path, predicate: Vec<Term>, text: Option<&Path>) -> Result<Scan> {
        let absolute = std::fs::canonicalize(start)
            .map_err(|e| Fault::io(Code::NotFound, "cannot look at", start.display().to_string(), &e))?;
        let mount = mounts::mount_of(&absolute)?;
        let below = absolute.strip_prefix(&mount.mount_point).unwrap_or(Path::new(""));
        let classes = text.map(|text| Classes::load(text.to_owned(), &mount.mount_point)).transpose()?;
        let xattrs = classes.as_ref().map(Classes::xattrs).unwrap_or_default();
        let first = ino(&absolute)?;
        let client = PlaceArgs::of(crate::cli::text(&absolute)?).connect().await?;
        let wanted = Wanted { start: first, predicate, xattrs };
        Ok(Scan {
            pages: Pages::new(client.clone(), wanted),
            client,
            start: start.to_owned(),
            below_root: below.to_string_lossy().into_owned(),
            classes,
        })
    }

    /// Entries of the next page; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<ScannedEntry>>> {
        let Some(page) = self.pages.next().await? else { return Ok(None) };
        let mut all = Vec::with_capacity(page.found.len());
        for found in page.found {
            let depth =
                if found.path.is_empty() { 0 } else { found.path.split(|byte| *byte == b'/').count() };
            let path = match depth {
                0 => self.start.clone(),
                _ => self.start.join(std::ffi::OsStr::from_bytes(&found.path)),
            };
            let attr = found.attr.clone();
            let mut entry = self.pages.entry(found);
            let below = entry.path.trim_start_matches('/').to_owned();
            let parts = [self.below_root.as_str(), below.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            entry.path = format!("/{}", parts.join("/"));
            let class = self.classes.as_ref().map(|classes| classes.of(&entry, page.began));
            all.push(ScannedEntry { path, depth, attr, entry, class });
        }
        Ok(Some(all))
    }
}

/// A time as Robinhood shows it, in the time zone of this process.
pub fn date(secs: i64) -> String {
    // SAFETY: zeros are a valid `tm`, and both pointers are to values that live as long as the call.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&secs, &mut tm);
        tm
    };
    format!(
        "{:04}/{:02}/{:02} {:02}:{:02}:{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_types_and_states_are_robinhoods() {
        assert_eq!(type_of("f"), Ok(FileType::Regular));
        assert_eq!(type_of("symlink"), Ok(FileType::Symlink));
        assert!(type_of("x").is_err());
        assert_eq!(type_name(FileType::CharDevice), "chr");
        assert_eq!(status_of("lhsm:released"), Ok("released".to_owned()));
        assert_eq!(status_of("synchro"), Ok("synchro".to_owned()));
        assert!(status_of("lhsm:gone").unwrap_err().contains("lhsm:archiving"));
        assert_eq!(date(0).len(), 19);
    }
}
