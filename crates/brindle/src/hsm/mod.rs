//! `brindle hsm`: tiering in our own words, and `-o json`. `lfs hsm_*` and `lctl` have these commands in
//! Lustre's words.

pub mod agent;
pub mod backend;
mod files;
pub mod import;
mod info;
pub mod params;
pub mod restore;

pub use files::{FilesView, ask, each, state_of, text_of_state};
pub use info::{HsmListView, HsmStatusView};

use brindle_types::Result;

use crate::exit::Done;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Say whether tiering is on, who serves archives, and what waits
    Status(info::StatusArgs),
    /// List the actions that wait, are under way, or have ended a moment ago
    List(info::ListArgs),
    /// Show where files lie
    State(files::StateArgs),
    /// Copy files into an archive
    Archive(files::ArchiveArgs),
    /// Let the bytes of archived files go; opening them brings them back
    Release(files::Args),
    /// Bring the bytes of released files back
    Restore(restore::Args),
    /// Make files again from an archive alone, without the file system that they came from
    Import(Box<import::Args>),
    /// Remove the copies of files from their archive
    Remove(files::Args),
    /// Give up what waits or is under way for files
    Cancel(files::Args),
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Status(args) => info::status(args),
        Command::List(args) => info::list(args),
        Command::State(args) => files::state(args),
        Command::Archive(args) => files::archive(args),
        Command::Release(args) => files::release(args),
        Command::Restore(args) => restore::run(args),
        Command::Import(args) => import::run(args),
        Command::Remove(args) => files::remove(args),
        Command::Cancel(args) => files::cancel(args),
    }
}
