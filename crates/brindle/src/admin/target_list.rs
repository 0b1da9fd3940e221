//! `brindle target list`: the map, a line a target.

use brindle_types::{Result, Role};
use brindle_wire::map::{Map, TargetEntry, TargetState};
use serde::Serialize;

use super::ask::Asker;
use super::place::{PlaceArgs, one};
use super::{target_add, target_drain, target_remove};
use crate::exit::Done;
use crate::format::{hex, runtime};
use crate::output::{Output, print_json, table};

/// The verbs of `brindle target`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the targets of a file system
    List(Args),
    /// Add an OST while the file system runs: format a directory if need be, and serve it
    Add(Box<target_add::Args>),
    /// Move everything off an OST, and give it no new files
    Drain(target_drain::DrainArgs),
    /// Give an OST that was drained new files again
    Undrain(target_drain::UndrainArgs),
    /// Take an empty OST out of the file system for good
    Remove(target_remove::Args),
}

/// Arguments of `brindle target list`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct View {
    fs: String,
    map_version: u64,
    targets: Vec<TargetView>,
}

#[derive(Serialize)]
struct TargetView {
    name: String,
    state: &'static str,
    addresses: Vec<String>,
    host: String,
    epoch: u32,
    uuid: String,
}

/// Whether the MGS hears of a target.
pub fn state_word(state: TargetState) -> &'static str {
    match state {
        TargetState::Up => "up",
        TargetState::Down => "down",
    }
}

/// Whether it gets no new objects.
pub fn is_draining(map: &Map, target: &TargetEntry) -> bool {
    target.id.role == Role::Ost && map.draining.contains(&target.id.index)
}

fn view(map: &Map) -> View {
    let targets = map.targets.iter().map(|t| TargetView {
        name: map.fs.target(t.id),
        state: if is_draining(map, t) { "draining" } else { state_word(t.state) },
        addresses: t.nids.iter().map(ToString::to_string).collect(),
        host: t.host().to_owned(),
        epoch: t.epoch,
        uuid: hex(&t.uuid),
    });
    View { fs: map.fs.to_string(), map_version: map.version, targets: targets.collect() }
}

/// Runs the command.
pub fn run(command: Command) -> Result<Done> {
    match command {
        Command::List(args) => list(&args),
        Command::Add(args) => target_add::run(*args),
        Command::Drain(args) => target_drain::drain(&args),
        Command::Undrain(args) => target_drain::undrain(&args),
        Command::Remove(args) => target_remove::run(&args),
    }
}

fn list(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    let map = runtime()?.block_on(async { Asker::new().map(&place).await })?;
    let view = view(&map);
    if args.output.json() {
        print_json("brindle.target.list", 1, &view)?;
        return Ok(Done::Ok);
    }
    let rows = view.targets.into_iter().map(|t| {
        vec![t.name, t.state.to_owned(), t.addresses.join(","), t.host, t.epoch.to_string(), t.uuid]
    });
    println!("{}", table(&["TARGET", "STATE", "ADDRESS", "HOST", "EPOCH", "UUID"], rows.collect()));
    Ok(Done::Ok)
}
