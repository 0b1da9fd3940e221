//! Searching and summing up trees in the MDT: `lfs find`, `brindle file find` and `brindle file du`.
//!
//! The daemon of the mount has the MDT scan the rows of the tree and passes on what matches, a page at a time. Only
//! the starting points are opened and stat'ed here. Mounts on directories of the tree are not searched.

pub mod du;
pub mod query;
pub mod values;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use brindle_admin::document;
use brindle_admin::document::Document;
use brindle_client::control::{Answer, FoundLine, RefusedLine, Request, ScanAsk, ScanPage};
use brindle_types::attr::Time;
use brindle_types::{Attr, Code, Fault, FileType, PoolName, Result};
use brindle_wire::mds::scan::{Term, Test, Wanted};
use schemars::JsonSchema;
use serde::Serialize;

use crate::control::{Control, path_fault, unexpected};
use crate::exit::{self, Done};
use crate::output::Output;
use crate::print;
use brindle_admin::paths::PathView;
use brindle_admin::pool::find as find_pool;
use query::Query;

/// Arguments of `brindle file find`.
#[derive(clap::Args)]
#[command(after_help = query::HELP)]
pub struct Args {
    #[command(flatten)]
    output: Output,
    /// Where to look (the working directory without any), then what for
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PATH|PREDICATE")]
    words: Vec<OsString>,
}

/// Arguments of `lfs find`.
#[derive(clap::Args)]
#[command(after_help = query::HELP)]
pub struct LfsArgs {
    /// Where to look (the working directory without any), then what for
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PATH|PREDICATE")]
    words: Vec<OsString>,
}

/// Runs `lfs find`: paths, as they are found.
pub fn lfs(args: &LfsArgs) -> Result<Done> {
    paths(&Query::parse(&args.words)?, Done::Code(1))
}

/// Runs `brindle file find`.
pub fn run(args: &Args) -> Result<Done> {
    let query = Query::parse(&args.words)?;
    if args.output.json() { json(&query) } else { paths(&query, Done::Partly) }
}

/// A starting point, as the user named it.
struct Start<'a> {
    path: &'a Path,
    /// The file system, for inodes that two starting points have in common.
    device: u64,
    control: Control,
    ask: ScanAsk,
}

impl<'a> Start<'a> {
    fn new(query: &Query, path: &'a Path, wanted: Wanted) -> Result<Start<'a>> {
        let meta = std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
        let ask = ScanAsk {
            start: meta.ino(),
            start_name: last_part(path.as_os_str().as_bytes()).to_vec(),
            predicate: query.predicate.clone(),
            depth_min: query.depth_min,
            depth_max: query.depth_max,
            wanted,
        };
        let start = Start { path, device: meta.dev(), control: Control::of(path)?, ask };
        start.look_at_pools()?;
        Ok(start)
    }

    /// Says which pools are searched for and do not exist. (Files may still name one that was destroyed.)
    fn look_at_pools(&self) -> Result<()> {
        let names: Vec<&PoolName> = self.ask.predicate.iter().filter_map(pool_of).collect();
        if names.is_empty() {
            return Ok(());
        }
        let map = match self.control.ask(&Request::Map)? {
            Answer::Map(map) => map,
            other => return Err(unexpected(&other)),
        };
        names.into_iter().filter_map(|name| find_pool(&map, name).err()).for_each(|fault| exit::warn(&fault));
        Ok(())
    }

    /// A path as it is printed: that of the starting point with what was found behind it.
    fn joined(&self, below: &[u8]) -> Vec<u8> {
        let mut path = self.path.as_os_str().as_bytes().to_vec();
        if !below.is_empty() {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(below);
        }
        path
    }

    fn shown(&self, below: &[u8]) -> String {
        String::from_utf8_lossy(&self.joined(below)).into_owned()
    }

    /// Scans; `each` gets the pages. Says what could not be looked into, and whether there was something.
    fn scan(&self, mut each: impl FnMut(&mut ScanPage) -> Result<()> + Send) -> Result<bool> {
        let mut is_whole = true;
        self.control.scan(self.ask.clone(), &mut |mut page| {
            each(&mut page)?;
            for RefusedLine { path, code } in page.refused {
                is_whole = false;
                let subject = self.shown(&path.into_bytes());
                exit::warn(&Fault::new(code).what("cannot look into").subject(subject));
            }
            Ok(())
        })?;
        Ok(is_whole)
    }
}

fn pool_of(term: &Term) -> Option<&PoolName> {
    match term {
        Term::Test(Test::Pool(name)) => Some(name),
        _ => None,
    }
}

/// Name of a starting point for find.
fn last_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |at| at + 1).min(path.len());
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    if start < end { &path[start..end] } else { &path[..end] }
}

/// Scans from every starting point of the query; one that cannot be scanned is said, and the others go on. `partly` is
/// how a command ends that left something out.
fn each_start(
    query: &Query,
    wanted: Wanted,
    partly: Done,
    mut scan: impl FnMut(&Start<'_>) -> Result<bool>,
) -> Result<Done> {
    let mut done = Done::Ok;
    for path in &query.paths {
        let outcome = Start::new(query, path, wanted).and_then(|start| {
            scan(&start).map_err(|fault| {
                let is_unnamed = fault.subject.is_empty();
                if is_unnamed { fault.subject(path.display().to_string()) } else { fault }
            })
        });
        match outcome {
            Ok(true) => {}
            Ok(false) => done = partly,
            Err(fault) if query.paths.len() == 1 => return Err(fault),
            Err(fault) => {
                exit::warn(&fault);
                done = partly;
            }
        }
    }
    Ok(done)
}

fn paths(query: &Query, partly: Done) -> Result<Done> {
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let end: &[u8] = if query.print0 { b"\0" } else { b"\n" };
    let done = each_start(query, Wanted::Paths, partly, |start| {
        start.scan(|page| {
            for found in page.found.drain(..) {
                let path = start.joined(&found.path.into_bytes());
                out.write_all(&path).and_then(|()| out.write_all(end)).map_err(|e| print::fault(&e))?;
            }
            out.flush().map_err(|e| print::fault(&e))
        })
    })?;
    Ok(done)
}

/// Entries that match. Written an entry a line, as they are found: there may be millions.
#[derive(Serialize, JsonSchema)]
pub struct FindView {
    /// In the order in which the MDT finds them.
    files: Vec<FoundView>,
}
document!(FindView, "brindle.find", 1);

/// An entry in JSON.
#[derive(Serialize, JsonSchema)]
struct FoundView {
    #[serde(flatten)]
    path: PathView,
    /// FID of the entry.
    fid: String,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `char_device` or `block_device`.
    kind: &'static str,
    /// Permissions.
    mode: u16,
    /// Owner of the entry.
    uid: u32,
    /// Group of the entry.
    gid: u32,
    /// Number of its names.
    links: u32,
    /// Size of the entry.
    size_bytes: u64,
    /// Bytes that are allocated for it.
    allocated_bytes: u64,
    /// When it was last read, in seconds since 1970.
    atime_seconds: f64,
    /// When it was last written.
    mtime_seconds: f64,
    /// When its inode last changed.
    ctime_seconds: f64,
}

impl FoundView {
    fn new(path: Vec<u8>, attr: &Attr) -> FoundView {
        let seconds = |time: Time| time.secs as f64 + f64::from(time.nanos) / 1e9;
        FoundView {
            path: PathView::from(OsStr::from_bytes(&path)),
            fid: attr.ino.fid().to_string(),
            kind: kind_name(attr.kind),
            mode: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            links: attr.nlink,
            size_bytes: attr.size_bytes,
            allocated_bytes: attr.allocated_bytes,
            atime_seconds: seconds(attr.atime),
            mtime_seconds: seconds(attr.mtime),
            ctime_seconds: seconds(attr.ctime),
        }
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "fifo",
        FileType::CharDevice => "char_device",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block_device",
        FileType::Regular => "file",
        FileType::Symlink => "symlink",
        FileType::Socket => "socket",
    }
}

/// Prints a single document ([`FindView`]), an entry a line.
fn json(query: &Query) -> Result<Done> {
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(|e| print::fault(&e));
    write(
        format!("{{\"schema\":\"{}\",\"version\":{},\"files\":[", FindView::NAME, FindView::VERSION)
            .as_bytes(),
    )?;
    let mut separator: &[u8] = b"\n";
    let done = each_start(query, Wanted::Attrs, Done::Partly, |start| {
        start.scan(|page| {
            for FoundLine { path, attr } in page.found.drain(..) {
                let Some(attr) = attr else { continue };
                let view = FoundView::new(start.joined(&path.into_bytes()), &attr);
                let line = serde_json::to_vec(&view)
                    .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
                write(separator)?;
                write(&line)?;
                separator = b",\n";
            }
            Ok(())
        })
    })?;
    write(b"\n]}\n")?;
    out.flush().map_err(|e| print::fault(&e))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_points_are_named_as_find_names_them() {
        for (path, name) in
            [("/mnt/b", "b"), ("/mnt/b/", "b"), (".", "."), ("/", "/"), ("//", "/"), ("a//", "a"), ("x", "x")]
        {
            assert_eq!(last_part(path.as_bytes()), name.as_bytes(), "{path}");
        }
    }

    #[test]
    fn entries_in_json() {
        let time = |secs| Time { secs, nanos: 500_000_000 };
        let attr = Attr {
            ino: brindle_types::Ino(0x200_0000_4001),
            kind: FileType::Regular,
            perm: 0o640,
            nlink: 2,
            uid: 7,
            gid: 8,
            rdev: 0,
            size_bytes: 10,
            allocated_bytes: 4096,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            btime: time(0),
            has_acl: false,
            has_xattr: false,
            data_version: None,
            blksize_bytes: 1 << 20,
        };
        let json = serde_json::to_string(&FoundView::new(b"/mnt/f".to_vec(), &attr)).unwrap();
        let fid = attr.ino.fid();
        assert_eq!(
            json,
            format!(
                "{{\"path\":\"/mnt/f\",\"fid\":\"{fid}\",\"kind\":\"file\",\"mode\":416,\"uid\":7,\"gid\":8,\"links\":2,\
                 \"size_bytes\":10,\"allocated_bytes\":4096,\"atime_seconds\":1.5,\"mtime_seconds\":2.5,\
                 \"ctime_seconds\":3.5}}"
            )
        );
        let json = serde_json::to_string(&FoundView::new(b"\xff".to_vec(), &attr)).expect("JSON");
        assert!(json.starts_with("{\"path\":\"\u{fffd}\",\"path_bytes\":[255],"), "{json}");
    }
}
