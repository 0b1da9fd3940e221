//! `brindle cluster superblocks`, and `brindle cluster restore --from-superblocks`: a configuration of which no backup is left.

use std::path::PathBuf;

use brindle_admin::document;
use brindle_host::need_root;
use brindle_host::superblocks::{self, Rebuild, SuperblocksView};
use brindle_stdx::Seams;
use brindle_types::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::OwnArgs;
use super::backup::RestoreArgs;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// Directories below which targets are looked for.
const UNDER: &str = "/var/lib/brindle";

/// Arguments of `brindle cluster superblocks`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: brindle cluster superblocks --under /data -o json > /tmp/$(hostname).json\n\
                        It only reads, and goes four directories deep. The file is for brindle cluster restore --from-superblocks."
)]
pub struct Args {
    /// Directory below which targets are looked for; may be given several times
    #[arg(long, value_name = "DIR", default_value = UNDER)]
    under: Vec<PathBuf>,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    output: Output,
}

/// A configuration that was made anew, or would be.
#[derive(Serialize, JsonSchema)]
pub struct RebuildView {
    /// Whether it was done.
    done: bool,
    /// File system.
    fs: String,
    /// Directory of the MGT.
    dir: String,
    /// Hosts of the cluster.
    hosts: Vec<String>,
    /// Targets with their hosts and directories, in words.
    targets: Vec<String>,
    /// Targets that wait until all their hosts have told what they have.
    waiting: Vec<String>,
    /// Whether all other hosts have to join again, because the key of the authority is lost.
    join_again: bool,
    /// Points to look at, in words.
    notes: Vec<String>,
    /// Facts that no superblock has, in words.
    unknown: Vec<&'static str>,
}
document!(RebuildView, "brindle.cluster.rebuild", 1);

/// Parts of a configuration that lie nowhere else.
const UNKNOWN: [&str; 7] = [
    "nodemaps: every host is trusted fully until they are set again (brindle nodemap add)",
    "pools: make them again (brindle pool create); layouts of files stay",
    "limits of jobs and users at servers (brindle limit), durability of targets, spare hosts and racks of hosts",
    "OSTs that were to get no new files (brindle target drain)",
    "targets that were removed: their directories must not be among those that are given",
    "targets on devices that two hosts share: they are not served by a standby host",
    "events so far; tokens are void; hosts without targets join again",
];

/// Lists the targets of this host.
pub fn list(args: &Args) -> Result<Done> {
    need_root("cannot read the superblocks of the targets")?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let view: SuperblocksView = superblocks::scan(&seams, &args.own.conf, &args.own.host(), &args.under)?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows = view.targets.iter().map(|t| {
        let set =
            if t.epoch == 0 { "-".to_owned() } else { format!("{} ({})", t.epoch, t.in_sync.join(",")) };
        vec![format!("{}-{}", t.fs, t.target), t.dir.clone(), t.uuid.clone(), set]
    });
    println!("{}", table(&["TARGET", "DIRECTORY", "IDENTITY", "EPOCH (COMPLETE ON)"], rows.collect()));
    view.troubles.iter().for_each(|trouble| eprintln!("{trouble}"));
    Ok(Done::Ok)
}

/// Makes the MGT from the superblocks of the hosts.
pub fn restore(seams: &Seams, args: &RestoreArgs, address: String) -> Result<Done> {
    let from = &args.superblocks;
    let wanted = Rebuild {
        files: from.from_superblocks.clone(),
        authority: from.authority.clone(),
        lost: from.lost.iter().cloned().collect(),
        left_out: from.leave_out.iter().cloned().collect(),
        removed: args.removed.clone(),
        dir: PathBuf::from(crate::cli::text(&args.dir)?),
        conf: args.own.conf.clone(),
        host: args.own.host(),
        address,
        port: args.port,
        is_dry_run: args.dry_run,
    };
    let done = superblocks::restore(seams, &wanted)?;
    let fs = done.rebuilt.backup.superblock()?.fs;
    let view = RebuildView {
        done: !args.dry_run,
        fs: fs.to_string(),
        dir: wanted.dir.display().to_string(),
        hosts: done.restored.hosts,
        targets: done.rebuilt.targets,
        waiting: done.restored.waiting.iter().map(|target| fs.target(*target)).collect(),
        join_again: done.has_new_authority,
        notes: done.rebuilt.notes.into_iter().chain(done.troubles).collect(),
        unknown: UNKNOWN.to_vec(),
    };
    match args.output.json() {
        true => print_json(&view)?,
        false => print(args, &view),
    }
    Ok(Done::Ok)
}

fn print(args: &RestoreArgs, view: &RebuildView) {
    let verb = if view.done { "made" } else { "would make" };
    println!(
        "{verb} the configuration of {} anew in {}, from the superblocks of its targets",
        view.fs, view.dir
    );
    println!("  hosts of the cluster: {}", view.hosts.join(", "));
    view.targets.iter().for_each(|target| println!("  {target}"));
    view.notes.iter().for_each(|note| println!("  look at this: {note}"));
    if !view.waiting.is_empty() {
        println!("  served when all their hosts have told what they have: {}", view.waiting.join(", "));
    }
    println!("not known, because it lay nowhere else:");
    view.unknown.iter().for_each(|unknown| println!("  {unknown}"));
    if !view.done {
        println!("nothing was changed; leave --dry-run out to do it");
        return;
    }
    println!("\nnext, on this host:\n  {}", args.own.how_to_serve());
    if view.join_again {
        println!(
            "the key of the authority is lost, and there is a new one: no certificate from before is accepted. For each other host, mounts included:\n  \
             brindle cluster token --role server --host HOST | ssh HOST brindle join --again"
        );
    }
    println!("then look at what waits:\n  brindle status");
}
