//! Commands to a running mount: `brindle sync`, `brindle waits`, `brindle file`.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brindle_admin::document;
use brindle_client::control::{Answer, Request, WaitLine};
use brindle_types::{Fid, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::completion::live;
use crate::control::{Control, ino, unexpected};
use crate::exit::Done;
use crate::output::{Output, print_json, table};
use brindle_admin::paths;

/// Arguments of `brindle sync`.
#[derive(clap::Args)]
pub struct SyncArgs {
    /// A path in the mount
    #[arg(value_name = "MNT", add = live::mount_points())]
    mount: PathBuf,
}

/// Makes everything that this mount was told is written durable: what sync(2) would do if the kernel passed it on.
pub fn sync(args: &SyncArgs) -> Result<Done> {
    match Control::of(&args.mount)?.ask(&Request::Sync)? {
        Answer::Done => Ok(Done::Ok),
        other => Err(unexpected(&other)),
    }
}

/// Arguments of `brindle waits`.
#[derive(clap::Args)]
pub struct WaitsArgs {
    /// A path in the mount
    #[arg(value_name = "MNT", add = live::mount_points())]
    mount: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Calls that wait.
#[derive(Serialize, JsonSchema)]
pub struct WaitsView {
    /// In the mount and at the MDT.
    waits: Vec<Wait>,
}
document!(WaitsView, "brindle.waits", 1);

/// A call that waits.
#[derive(Serialize, JsonSchema)]
struct Wait {
    /// The call.
    what: String,
    /// Target that the call waits for.
    target: String,
    /// For how long.
    seconds: f64,
}

/// Shows what waits for whom.
pub fn waits(args: &WaitsArgs) -> Result<Done> {
    let lines = match Control::of(&args.mount)?.ask(&Request::Waits)? {
        Answer::Waits(lines) => lines,
        other => return Err(unexpected(&other)),
    };
    if args.output.json() {
        let wait = |w: WaitLine| Wait { what: w.what, target: w.target, seconds: w.ms as f64 / 1000.0 };
        print_json(&WaitsView { waits: lines.into_iter().map(wait).collect() })?;
    } else if lines.is_empty() {
        println!("nothing waits");
    } else {
        let row = |w: WaitLine| vec![w.what, w.target, format!("{:.1} s", w.ms as f64 / 1000.0)];
        println!("{}", table(&["WHAT", "WAITS FOR", "SINCE"], lines.into_iter().map(row).collect()));
    }
    Ok(Done::Ok)
}

/// The verbs of `brindle file`.
#[derive(clap::Subcommand)]
pub enum FileCommand {
    /// Print the FID of a file
    Fid {
        /// The file
        path: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Print the paths of a FID
    Path {
        /// A path in the mount
        #[arg(value_name = "MNT", add = live::mount_points())]
        mount: PathBuf,
        /// A FID such as [0x200000400:0x1:0x0]
        #[arg(value_parser = crate::format::parse::<Fid>)]
        fid: Fid,
        #[command(flatten)]
        output: Output,
    },
    /// Search trees in the MDT, without walking them
    Find(crate::find::Args),
    /// Add up the space of trees in the MDT, without walking them
    Du(crate::find::du::Args),
}

/// A file by its FID and its paths.
#[derive(Serialize, JsonSchema)]
pub struct FileView {
    /// The FID.
    fid: String,
    /// The paths, as text.
    paths: Vec<String>,
    /// The bytes of the paths, where one of them is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_bytes: Option<Vec<Vec<u8>>>,
}

document!(FileView, "brindle.file", 1);

impl FileView {
    fn new(fid: String, paths: &[PathBuf]) -> FileView {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let is_text = paths.iter().all(|path| paths::is_text(path.as_os_str().as_bytes()));
        FileView {
            fid,
            paths: paths.iter().map(|path| path.display().to_string()).collect(),
            paths_bytes: (!is_text).then(|| paths.iter().map(bytes).collect()),
        }
    }
}

/// Runs `brindle file`.
pub fn file(command: &FileCommand) -> Result<Done> {
    let (view, output, plain) = match command {
        FileCommand::Fid { path, output } => {
            Control::of(path)?;
            let fid = ino(path)?.fid().to_string();
            (FileView::new(fid.clone(), std::slice::from_ref(path)), *output, vec![fid])
        }
        FileCommand::Path { mount, fid, output } => {
            let paths = crate::lfs::fid::paths(&Control::of(mount)?, *fid)?;
            let plain = paths.iter().map(|path| paths::text(path)).collect();
            (FileView::new(fid.to_string(), &paths), *output, plain)
        }
        FileCommand::Find(args) => return crate::find::run(args),
        FileCommand::Du(args) => return crate::find::du::run(args),
    };
    if output.json() {
        print_json(&view)?;
    } else {
        plain.iter().for_each(|line| println!("{line}"));
    }
    Ok(Done::Ok)
}
