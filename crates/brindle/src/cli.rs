//! Every command and where it is carried out. Help, man pages and completions are generated from this.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use brindle_types::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{self, Done};
use crate::{
    admin, alerts, bb, bench, changelog, cluster, completion, dacctl, dev, explain, format, fsck, gen_docs,
    hsm, lctl, lfs, limit, logs, manager, mount, node, nodemap, pam, policy, pool, print, prometheus, quota,
    rbh, serve, stripe, support,
};

/// Columns of help texts.
const HELP_COLUMNS: usize = 100;

/// A parallel file system in user space.
#[derive(Parser)]
#[command(
    name = "brindle",
    version,
    max_term_width = HELP_COLUMNS,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 exists or in use, 6 unreachable, \
                  7 partly done, 8 unhealthy or findings, 130 interrupted.\n\
                  Try it: brindle dev up --dir /tmp/brindle --osts 4 --mount /mnt/brindle"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, look at and end a whole cluster on this machine
    #[command(subcommand)]
    Dev(dev::Command),
    /// Mount a file system
    Mount(mount::Args),
    /// Unmount a file system
    Umount(mount::UmountArgs),
    /// Say whether everything is well, what is not, and what to do
    Status(admin::status::Args),
    /// Show who asks the servers for what, now: jobs, users, clients, targets
    Top(admin::top::Args),
    /// Say where the time of a job, a user or a file goes, and what to do
    Why(admin::why::Args),
    /// Show requests to servers one by one, as they are answered, and a summary
    Trace(Box<admin::trace::Args>),
    /// Show what has happened: hosts and targets that came, fell silent, moved and went
    Events(admin::events::Args),
    /// A cluster of hosts: make one, let hosts join
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Let this host join a cluster
    Join(cluster::join::Args),
    /// Hosts of a cluster
    #[command(subcommand)]
    Node(node::Command),
    /// Limit what hosts may do that are not trusted fully
    #[command(subcommand)]
    Nodemap(nodemap::Command),
    /// Limit what jobs, users and hosts ask of servers
    #[command(subcommand)]
    Limit(limit::Command),
    /// Targets of a file system
    #[command(subcommand)]
    Target(admin::target_list::Command),
    /// Backups of metadata targets
    #[command(subcommand)]
    Mdt(admin::mdt::Command),
    /// File systems
    #[command(subcommand)]
    Fs(admin::fs_df::Command),
    /// Pools of OSTs
    #[command(subcommand)]
    Pool(pool::Command),
    /// Usage and limits of users, groups and projects
    #[command(subcommand)]
    Quota(quota::Command),
    /// Changelogs of MDTs: what was created, changed, renamed and removed
    #[command(subcommand)]
    Changelog(changelog::Command),
    /// Layouts of files and directories
    #[command(subcommand)]
    Stripe(stripe::Command),
    /// Files by path, by FID and by what they are like
    #[command(subcommand)]
    File(admin::mount_info::FileCommand),
    /// Make everything in a mount durable, as sync(2) would
    Sync(admin::mount_info::SyncArgs),
    /// Show what waits for whom
    Waits(admin::mount_info::WaitsArgs),
    /// Tiering: archive, release and restore files
    #[command(subcommand)]
    Hsm(hsm::Command),
    /// Move files between a file system and an archive until SIGTERM
    Agent(hsm::agent::Args),
    /// Policies: what is archived, released and removed by itself, in Robinhood's words
    #[command(subcommand)]
    Policy(policy::Command),
    /// The agent, under the command line of Lustre's tool
    #[command(name = "lhsmtool_posix", hide = true)]
    PosixTool(hsm::agent::posix_tool::PosixToolArgs),
    /// Who has how much, what is largest: Robinhood's command
    #[command(name = "rbh-report", hide = true)]
    RbhReport(Box<rbh::report::Args>),
    /// Entries by what they are like: Robinhood's command
    #[command(name = "rbh-find", hide = true)]
    RbhFind(rbh::find::Args),
    /// How much is below paths: Robinhood's command
    #[command(name = "rbh-du", hide = true)]
    RbhDu(rbh::du::Args),
    /// Lustre's user commands, in Lustre's words
    #[command(subcommand)]
    Lfs(lfs::Command),
    /// Lustre's administration commands, in Lustre's words
    Lctl(lctl::Args),
    /// Make a target in a directory
    Format(format::Args),
    /// Serve the targets in directories until SIGTERM
    Serve(serve::Args),
    /// Show the cluster to people in a browser, and act for them, until SIGTERM
    Manager(Box<manager::Args>),
    /// Show, acknowledge and silence alerts of this host's manager
    #[command(subcommand)]
    Alerts(alerts::Command),
    /// Print configuration for a site's own Prometheus
    #[command(subcommand)]
    Prometheus(prometheus::Command),
    /// Check the targets of a file system, changing nothing
    Fsck(fsck::Args),
    /// Show or check the configuration of `brindle serve`
    #[command(subcommand)]
    Config(serve::config_command::Command),
    /// Say what a code means, what to do about it, and what programs see
    Explain(explain::Args),
    /// Logs of servers, mounts, agents, burst buffers and the manager: their last lines, and their levels
    #[command(subcommand)]
    Log(logs::Command),
    /// For whoever helps from afar
    #[command(subcommand)]
    Support(support::Command),
    /// Burst buffers: file systems of jobs
    #[command(subcommand)]
    Bb(bb::Command),
    /// Asks PAM for a password; the manager calls it
    #[command(hide = true)]
    PamCheck(pam::Args),
    /// Commands that Slurm calls for burst buffers
    #[command(hide = true)]
    Dacctl(dacctl::Args),
    /// Measure a directory
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print the completions of a shell
    Completion(completion::Args),
    /// Write man pages, completions and reference pages
    #[command(hide = true)]
    GenDocs(gen_docs::Args),
}

/// The declaration of everything, for help and generated documents.
pub fn declaration() -> clap::Command {
    Cli::command()
}

/// The command line that was meant: under another name the binary is that tool.
fn by_name(arguments: &[OsString]) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let rest = arguments.iter().skip(1).cloned();
    if ["lfs", "lctl", "rbh-report", "rbh-find", "rbh-du"].iter().any(|tool| name == *tool) {
        return [OsString::from("brindle"), name.to_owned()].into_iter().chain(rest).collect();
    }
    if name == "lhsmtool_posix" || name == "lhmstool_posix" {
        // (The second is how a paper has it that people type from.)
        return [OsString::from("brindle"), OsString::from("lhsmtool_posix")]
            .into_iter()
            .chain(rest)
            .collect();
    }
    if dacctl::is_asked(name, arguments.get(1)) {
        return dacctl::command_line(rest);
    }
    if mount::is_asked_by_mount(arguments) {
        return mount::mount_helper(arguments);
    }
    arguments.to_vec()
}

/// Runs the command line.
pub fn run(arguments: &[OsString]) -> ExitCode {
    if let Some(code) = completion::answer(arguments) {
        return code;
    }
    let matches = match declaration().try_get_matches_from(by_name(arguments)) {
        Ok(matches) => matches,
        Err(e) => return exit::usage(&e),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(e) => return exit::usage(&e),
    };
    if cli.command.only_prints() {
        end_with_the_reader();
    }
    exit::code(dispatch(cli.command).and_then(|done| print::failed().map_or(Ok(done), Err)))
}

impl Command {
    /// Whether nothing is lost when it ends in the middle, because the reader of its output has gone (`| head`).
    fn only_prints(&self) -> bool {
        !matches!(
            self,
            Command::Serve(_)
                | Command::Mount(_)
                | Command::Agent(_)
                | Command::PosixTool(_)
                | Command::Policy(_)
                | Command::Hsm(hsm::Command::Import(_) | hsm::Command::Restore(_))
                | Command::Manager(_)
                | Command::Umount(_)
                | Command::Dev(_)
                | Command::Target(admin::target_list::Command::Add(_))
                | Command::Cluster(_)
                | Command::Mdt(_)
                | Command::Join(_)
                | Command::Format(_)
                | Command::Bench(_)
                | Command::Bb(_)
                | Command::Dacctl(_)
        )
    }
}

/// Lets SIGPIPE end this process, as other commands do; for commands that have nothing left to do but to print.
pub fn end_with_the_reader() {
    // SAFETY: this sets the default action of a signal; no handler of ours runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn dispatch(command: Command) -> Result<Done> {
    match command {
        Command::Dev(command) => dev::run(command),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => mount::umount(&args),
        Command::Status(args) => admin::status::run(&args),
        Command::Top(args) => admin::top::run(&args),
        Command::Why(args) => admin::why::run(&args),
        Command::Trace(args) => admin::trace::run(&args),
        Command::Events(args) => admin::events::run(&args),
        Command::Cluster(command) => cluster::run(&command),
        Command::Join(args) => cluster::join::run(&args),
        Command::Node(command) => node::run(&command),
        Command::Nodemap(command) => nodemap::run(&command),
        Command::Limit(command) => limit::run(&command),
        Command::Target(command) => admin::target_list::run(command),
        Command::Mdt(command) => admin::mdt::run(&command),
        Command::Fs(command) => admin::fs_df::run(&command),
        Command::Pool(command) => pool::run(&command),
        Command::Quota(command) => quota::run(&command),
        Command::Changelog(command) => changelog::run(&command),
        Command::Stripe(command) => stripe::run(&command),
        Command::File(command) => admin::mount_info::file(&command),
        Command::Sync(args) => admin::mount_info::sync(&args),
        Command::Waits(args) => admin::mount_info::waits(&args),
        Command::Hsm(command) => hsm::run(&command),
        Command::Agent(args) => hsm::agent::run(&args),
        Command::Policy(command) => policy::run(&command),
        Command::PosixTool(args) => hsm::agent::posix_tool::run(args),
        Command::RbhReport(args) => rbh::report::run(&args),
        Command::RbhFind(args) => rbh::find::run(&args),
        Command::RbhDu(args) => rbh::du::run(&args),
        Command::Lfs(command) => lfs::run(&command),
        Command::Lctl(args) => lctl::run(&args),
        Command::Format(args) => format::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Manager(args) => manager::run(&args),
        Command::PamCheck(args) => Ok(pam::run(&args)),
        Command::Alerts(command) => alerts::run(&command),
        Command::Log(command) => logs::run(&command),
        Command::Support(command) => support::run(&command),
        Command::Prometheus(command) => prometheus::run(&command),
        Command::Fsck(args) => fsck::run(&args),
        Command::Config(command) => serve::config_command::run(&command),
        Command::Explain(args) => explain::run(&args),
        Command::Bb(command) => bb::run(command),
        Command::Dacctl(args) => dacctl::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Completion(args) => completion::run(&args),
        Command::GenDocs(args) => gen_docs::run(&args),
    }
}

pub use brindle_host::text;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Release builds do not check this by themselves.
    fn check(command: &clap::Command, path: &str) {
        let mut seen = BTreeSet::new();
        for long in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(seen.insert(long), "{path} has --{long} twice");
        }
        for sub in command.get_subcommands() {
            check(sub, &format!("{path} {}", sub.get_name()));
        }
    }

    #[test]
    fn no_command_has_an_option_twice() {
        check(&super::declaration(), "brindle");
    }
}
