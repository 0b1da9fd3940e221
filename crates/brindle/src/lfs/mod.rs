//! `lfs`: the commands that users of Lustre have in their fingers and scripts, in Lustre's exact text shapes.
//!
//! Reached as `lfs ...` (another name of this binary) and as `brindle lfs ...`. JSON and our own wording are at the
//! noun-verb commands; the commands here print only Lustre's texts.

mod changelog;
mod df;
pub mod fid;
mod getdirstripe;
mod getstripe;
mod hsm;
pub mod lists;
mod migrate;
mod project;
mod quota;
mod setstripe;

use brindle_types::Result;

use crate::exit::Done;

/// Lustre's user commands
#[derive(clap::Subcommand)]
pub enum Command {
    /// Choose the layout of a new or empty file, or the default of a directory
    Setstripe(setstripe::Args),
    /// Move files to other OSTs, or give them another layout
    Migrate(migrate::Args),
    /// Show how files lie
    Getstripe(getstripe::Args),
    /// Show which MDT answers for directories
    Getdirstripe(getdirstripe::Args),
    /// Search trees in the MDT, without walking them
    Find(crate::find::LfsArgs),
    /// Show the space of each target
    #[command(disable_help_flag = true)]
    Df(df::Args),
    /// List or set the project of files and directories
    Project(project::Args),
    /// Show what users, groups and projects use and may use
    #[command(disable_help_flag = true)]
    Quota(quota::Args),
    /// Limit what users, groups and projects may use
    Setquota(quota::SetArgs),
    /// Print the changelog of an MDT
    Changelog(changelog::Args),
    /// Say that a reader of a changelog needs records no more
    #[command(name = "changelog_clear")]
    ChangelogClear(changelog::ClearArgs),
    /// Print the FID of files
    Path2fid(fid::Path2FidArgs),
    /// Print the paths of FIDs
    Fid2path(fid::Fid2PathArgs),
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList(crate::lctl::ListArgs),
    /// List the OSTs
    Osts(lists::ListArgs),
    /// List the MDTs
    Mdts(lists::ListArgs),
    /// Say which servers answer
    Check(lists::CheckArgs),
    /// Show the HSM flags of files
    #[command(name = "hsm_state")]
    HsmState(hsm::Args),
    /// Show the HSM actions on files
    #[command(name = "hsm_action")]
    HsmAction(hsm::Args),
    /// Copy files into an archive
    #[command(name = "hsm_archive")]
    HsmArchive(hsm::ArchiveArgs),
    /// Let the bytes of archived files go; opening them brings them back
    #[command(name = "hsm_release")]
    HsmRelease(hsm::FileArgs),
    /// Bring the bytes of released files back
    #[command(name = "hsm_restore")]
    HsmRestore(hsm::FileArgs),
    /// Remove the copies of files from their archive
    #[command(name = "hsm_remove")]
    HsmRemove(hsm::RemoveArgs),
    /// Give up the HSM actions on files
    #[command(name = "hsm_cancel")]
    HsmCancel(hsm::FileArgs),
    /// Set HSM flags of files
    #[command(name = "hsm_set")]
    HsmSet(hsm::FlagArgs),
    /// Clear HSM flags of files
    #[command(name = "hsm_clear")]
    HsmClear(hsm::FlagArgs),
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Setstripe(args) => setstripe::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Getstripe(args) => getstripe::run(args),
        Command::Getdirstripe(args) => getdirstripe::run(args),
        Command::Find(args) => crate::find::lfs(args),
        Command::Df(args) => df::run(args),
        Command::Project(args) => project::run(args),
        Command::Quota(args) => quota::run(args),
        Command::Setquota(args) => quota::set(args),
        Command::Changelog(args) => changelog::run(args),
        Command::ChangelogClear(args) => changelog::clear(args),
        Command::Path2fid(args) => fid::path2fid(args),
        Command::Fid2path(args) => fid::fid2path(args),
        Command::PoolList(args) => crate::lctl::list(args),
        Command::Osts(args) => lists::osts(args),
        Command::Mdts(args) => lists::mdts(args),
        Command::Check(args) => lists::check(args),
        Command::HsmState(args) => hsm::state(args),
        Command::HsmAction(args) => hsm::action(args),
        Command::HsmArchive(args) => hsm::archive(args),
        Command::HsmRelease(args) => hsm::release(args),
        Command::HsmRestore(args) => hsm::restore(args),
        Command::HsmRemove(args) => hsm::remove(args),
        Command::HsmCancel(args) => hsm::cancel(args),
        Command::HsmSet(args) => hsm::set(args),
        Command::HsmClear(args) => hsm::clear(args),
    }
}
