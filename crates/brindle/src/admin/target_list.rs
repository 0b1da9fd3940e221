//! `brindle target list`: the map, a line a target.

use brindle_types::Result;

use super::ask::{self, servers};
use super::place::{PlaceArgs, one};
use super::{
    target_add, target_assign, target_drain, target_replica, target_scrub, target_set, target_shared,
};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// The verbs of `brindle target`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the targets of a file system
    List(Args),
    /// Add a target while the file system runs: on a host of the cluster, or served by this very command
    Add(Box<target_add::Args>),
    /// Have its host serve a target that was stopped
    Start(target_assign::TargetArgs),
    /// Have its host stop serving a target; programs wait for it
    Stop(target_assign::TargetArgs),
    /// Have the other host of a shared target serve it
    Failover(target_shared::FailoverArgs),
    /// Have the preferred host of a shared target serve it again
    Failback(target_assign::TargetArgs),
    /// Show and change the copies of OSTs that have several
    #[command(subcommand)]
    Replica(target_replica::Command),
    /// Read everything on OSTs and mend what is damaged: start, stop, status
    #[command(subcommand)]
    Scrub(target_scrub::Command),
    /// Change when targets answer: durability relaxed, sync or scratch; programs go on
    Set(target_set::Args),
    /// Move everything off an OST, and give it no new files
    Drain(target_drain::DrainArgs),
    /// Give an OST that was drained new files again
    Undrain(target_drain::UndrainArgs),
    /// Take an empty OST out of the file system for good
    Remove(target_drain::RemoveArgs),
}

/// Arguments of `brindle target list`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(command: Command) -> Result<Done> {
    match command {
        Command::List(args) => list(&args),
        Command::Add(args) => target_add::run(*args),
        Command::Start(args) => target_assign::want(&args, true),
        Command::Stop(args) => target_assign::want(&args, false),
        Command::Failover(args) => target_shared::failover(&args),
        Command::Failback(args) => target_shared::failback(&args),
        Command::Replica(command) => target_replica::run(&command),
        Command::Scrub(command) => target_scrub::run(&command),
        Command::Set(args) => target_set::run(&args),
        Command::Drain(args) => target_drain::drain(&args),
        Command::Undrain(args) => target_drain::undrain(&args),
        Command::Remove(args) => target_drain::remove(&args),
    }
}

fn list(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    let map = runtime()?.block_on(async { ask::map(&servers(), &place).await })?;
    let view = brindle_admin::target::list(&map);
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows = view.targets.into_iter().map(|t| {
        vec![t.name, t.state.to_owned(), t.addresses.join(","), t.host, t.epoch.to_string(), t.uuid]
    });
    println!("{}", table(&["TARGET", "STATE", "ADDRESS", "HOST", "EPOCH", "UUID"], rows.collect()));
    Ok(Done::Ok)
}
