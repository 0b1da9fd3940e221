//! Tiering commands for single files: state, archive, release, restore, remove, cancel.

use std::path::{Path, PathBuf};

use brindle_admin::paths;
use brindle_client::control::{Answer, Request};
use brindle_types::hsm::hsm_words;
use brindle_types::{Fault, Result};
use brindle_wire::mds::hsm::{HsmAsk, HsmStateResp, HsmUnderWay};
use schemars::JsonSchema;
use serde::Serialize;

use crate::control::{Control, ino, unexpected};
use crate::exit::{Done, warn};
use crate::output::{Output, print_json, table};

/// Arguments of `brindle hsm release`, `remove` and `cancel`.
#[derive(clap::Args)]
pub struct Args {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Arguments of `brindle hsm archive`.
#[derive(clap::Args)]
pub struct ArchiveArgs {
    /// Number of the archive; that which the files have, or 1
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    archive: u32,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Arguments of `brindle hsm state`.
#[derive(clap::Args)]
pub struct StateArgs {
    #[command(flatten)]
    output: Output,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Tiering states of files.
#[derive(Serialize, JsonSchema)]
pub struct FilesView {
    /// The files, in the order in which they were named.
    files: Vec<FileLine>,
}
brindle_admin::document!(FilesView, "brindle.hsm.state", 1);

/// Tiering state of a file.
#[derive(Serialize, JsonSchema)]
struct FileLine {
    /// Path of the file.
    path: String,
    /// Lustre's words: released, exists, dirty, archived, never_release, never_archive, lost_from_hsm.
    flags: Vec<String>,
    /// Number of its archive; 0 for none.
    archive: u32,
    /// The action on it, if there is one: RESTORE, REMOVE or ARCHIVE.
    action: Option<String>,
    /// Whether an agent has it.
    is_running: bool,
    /// Bytes that were copied.
    moved_bytes: u64,
}

/// The state of a file.
pub fn state_of(path: &Path) -> Result<HsmStateResp> {
    match Control::of(path)?.ask(&Request::HsmState { ino: ino(path)?.0 })? {
        Answer::HsmState(state) => Ok(state),
        other => Err(unexpected(&other)),
    }
}

/// Asks for something to be done with a file; a refusal names it.
pub fn ask(path: &Path, request: impl FnOnce(u64) -> Request) -> Result<()> {
    let control = Control::of(path)?;
    match control.ask(&request(ino(path)?.0)).map_err(|fault| named(fault, path))? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn named(fault: Fault, path: &Path) -> Fault {
    fault.subject(paths::text(path))
}

/// Does something with each file; what fails for one of several is said, and the others are done.
pub fn each(all: &[PathBuf], mut work: impl FnMut(&Path) -> Result<()>) -> Result<Done> {
    if let [one] = all {
        return work(one).map(|()| Done::Ok);
    }
    let mut done = Done::Ok;
    for path in all {
        if let Err(fault) = work(path) {
            warn(&fault);
            done = Done::Partly;
        }
    }
    Ok(done)
}

/// The flags of a file as Lustre prints them.
pub fn text_of_state(state: &HsmStateResp) -> String {
    let words: String = hsm_words(state.flags).iter().map(|word| format!(" {word}")).collect();
    let archive = if state.archive == 0 { String::new() } else { format!(", archive_id:{}", state.archive) };
    format!("({:#010x}){words}{archive}", state.flags)
}

fn words_of_action(action: &HsmUnderWay) -> String {
    let how = if action.running { "running" } else { "waiting" };
    format!("{} {how}, {} bytes", action.kind, action.moved_bytes)
}

/// Runs `brindle hsm state`.
pub fn state(args: &StateArgs) -> Result<Done> {
    let mut files = Vec::new();
    let mut rows = Vec::new();
    let done = each(&args.paths, |path| {
        let state = state_of(path)?;
        let flags: Vec<String> = hsm_words(state.flags).into_iter().map(str::to_owned).collect();
        let action = state.under_way.as_ref();
        rows.push(vec![
            paths::text(path),
            if flags.is_empty() { "-".to_owned() } else { flags.join(",") },
            if state.archive == 0 { "-".to_owned() } else { state.archive.to_string() },
            action.map_or("-".to_owned(), words_of_action),
        ]);
        files.push(FileLine {
            path: paths::text(path),
            flags,
            archive: state.archive,
            action: action.map(|action| action.kind.to_string()),
            is_running: action.is_some_and(|action| action.running),
            moved_bytes: action.map_or(0, |action| action.moved_bytes),
        });
        Ok(())
    })?;
    if args.output.json() {
        print_json(&FilesView { files })?;
    } else {
        println!("{}", table(&["FILE", "STATE", "ARCHIVE", "ACTION"], rows));
    }
    Ok(done)
}

fn act(all: &[PathBuf], what: HsmAsk) -> Result<Done> {
    each(all, |path| ask(path, |ino| Request::HsmAct { ino, ask: what }))
}

/// Runs `brindle hsm archive`.
pub fn archive(args: &ArchiveArgs) -> Result<Done> {
    act(&args.paths, HsmAsk::Archive(args.archive))
}

/// Runs `brindle hsm release`.
pub fn release(args: &Args) -> Result<Done> {
    act(&args.paths, HsmAsk::Release)
}

/// Runs `brindle hsm remove`.
pub fn remove(args: &Args) -> Result<Done> {
    act(&args.paths, HsmAsk::Remove)
}

/// Runs `brindle hsm cancel`.
pub fn cancel(args: &Args) -> Result<Done> {
    act(&args.paths, HsmAsk::Cancel)
}
