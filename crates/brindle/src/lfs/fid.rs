//! `lfs path2fid` and `lfs fid2path`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brindle_client::control::{Answer, Request};
use brindle_types::{Fid, Result};

use crate::control::{Control, ino, unexpected};
use crate::exit::Done;
use brindle_admin::paths::text;

/// Arguments of `lfs path2fid`.
#[derive(clap::Args)]
pub struct Path2FidArgs {
    /// Files and directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Arguments of `lfs fid2path`.
#[derive(clap::Args)]
pub struct Fid2PathArgs {
    /// A path in the mount
    #[arg(add = crate::completion::live::mount_points())]
    mount: PathBuf,
    /// FIDs such as [0x200000400:0x1:0x0]
    #[arg(required = true, value_parser = crate::format::parse::<Fid>)]
    fids: Vec<Fid>,
}

/// Prints FIDs; with several paths each behind its path.
pub fn path2fid(args: &Path2FidArgs) -> Result<Done> {
    for path in &args.paths {
        Control::of(path)?;
        let fid = ino(path)?.fid();
        if args.paths.len() == 1 {
            println!("{fid}");
        } else {
            println!("{}: {fid}", text(path));
        }
    }
    Ok(Done::Ok)
}

/// Prints the paths of FIDs, below the mount point.
pub fn fid2path(args: &Fid2PathArgs) -> Result<Done> {
    let control = Control::of(&args.mount)?;
    for fid in &args.fids {
        for path in paths(&control, *fid)? {
            println!("{}", text(&path));
        }
    }
    Ok(Done::Ok)
}

/// The paths of a FID as this mount shows them.
pub fn paths(control: &Control, fid: Fid) -> Result<Vec<PathBuf>> {
    match control.ask(&Request::Fid2path { fid: fid.to_string() })? {
        Answer::Paths(paths) => {
            let source = &control.mount().source;
            let subdir = source.parse::<brindle_admin::place::Source>().map(|s| s.subdir).unwrap_or_default();
            let inside =
                paths.iter().filter_map(|path| Path::new(OsStr::from_bytes(path)).strip_prefix(&subdir).ok());
            Ok(inside.map(|path| below(&control.mount().mount_point, path)).collect())
        }
        other => Err(unexpected(&other)),
    }
}

fn below(mount: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { mount.to_owned() } else { mount.join(path) }
}
