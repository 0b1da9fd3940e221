//! `brindle stripe migrate`, `lfs migrate`: files move to other OSTs, while programs use them.

use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_admin::job;
use brindle_admin::migrate::{Moved, Pace, Plan, migrate as migrate_file};
use brindle_admin::paths::{self, PathView};
use brindle_host::control::MountHere;
use brindle_stdx::Seams;
use brindle_types::units::{format_bytes, round_down};
use brindle_types::{Code, Fault, LayoutPolicy, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::PolicyArgs;
use crate::control::{ino, path_fault};
use crate::exit::Done;
use crate::follow::{Show, follow};
use crate::format::runtime;
use crate::output::{Output, print_json};

/// Arguments of `brindle stripe migrate`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle stripe migrate -c 4 /mnt/b/big.dat        (spread over four OSTs)\n  \
                        brindle stripe migrate --off 3 /mnt/b/big.dat     (whatever lies on OST 3 goes elsewhere)\n\n\
                        Programs may read and write the files meanwhile. After an interruption the same command goes on."
)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// OSTs that the files are to leave
    #[arg(long, value_name = "OST", value_delimiter = ',', add = crate::completion::live::ost_indices())]
    off: Vec<u16>,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Files that were moved.
#[derive(Serialize, JsonSchema)]
pub struct MigratedView {
    /// In the order in which they were named.
    files: Vec<MovedView>,
}
document!(MigratedView, "brindle.stripe.migrate", 1);

/// A file.
#[derive(Serialize, JsonSchema)]
struct MovedView {
    #[serde(flatten)]
    path: PathView,
    /// Bytes that were copied; 0 when it was as it is to be.
    copied_bytes: u64,
    /// Duration of the move.
    milliseconds: u64,
}

impl From<&Moved> for MovedView {
    fn from(moved: &Moved) -> MovedView {
        let Moved { path, copied_bytes, milliseconds } = moved;
        MovedView { path: PathView::from(path), copied_bytes: *copied_bytes, milliseconds: *milliseconds }
    }
}

/// Moves files one after the other, at one pace.
pub struct Migrator {
    runtime: tokio::runtime::Runtime,
    seams: Seams,
    plan: Plan,
    pace: Option<Pace>,
    show: Show,
}

impl Migrator {
    /// Moves them as `plan` says, at so many bytes a second.
    pub fn new(plan: Plan, bandwidth_bytes: Option<u64>, show: Show) -> Result<Migrator> {
        let runtime = runtime()?;
        let seams = brindle_stdx::real::seams(runtime.handle().clone());
        let pace = Some(Pace::new(bandwidth_bytes, seams.now()));
        Ok(Migrator { runtime, seams, plan, pace, show })
    }

    /// Moves a file.
    pub fn migrate(&mut self, path: &Path) -> Result<Moved> {
        let meta = std::fs::metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
        if !meta.is_file() {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot migrate")
                .subject(path.display().to_string())
                .why("only files have bytes on OSTs")
                .next(format!(
                    "for all files below it: lfs find {} -type f -print0 | xargs -0 lfs migrate ...",
                    path.display()
                )));
        }
        let (mount, ino, path) = (MountHere::of(path)?, ino(path)?, path.to_owned());
        let plan = self.plan.clone();
        // The pace comes back with the outcome; after a fault no file follows.
        let lost = || Fault::new(Code::Bug).why("a file is to be moved after one that could not be");
        let mut pace = self.pace.take().ok_or_else(lost)?;
        let running = job::start(&self.seams, "admin.migrate", |job| async move {
            let moved = migrate_file(&job, &mount, ino, &path, &plan, &mut pace).await?;
            Ok((moved, pace))
        });
        let (moved, pace) = follow(&self.runtime, running, self.show)?;
        self.pace = Some(pace);
        Ok(moved)
    }
}

/// Runs `brindle stripe migrate`.
pub fn run(args: &Args) -> Result<Done> {
    let policy = args.policy.policy()?;
    let plan =
        Plan { policy: (policy != LayoutPolicy::default()).then_some(policy), avoid: args.off.clone() };
    let mut files = Vec::new();
    let show = Show::Files.on_terminal(args.output.json());
    let mut migrator = Migrator::new(plan, args.bandwidth, show)?;
    for path in &args.paths {
        let moved = migrator.migrate(path)?;
        if !args.output.json() {
            println!("{}", describe(&moved));
        }
        files.push(MovedView::from(&moved));
    }
    if args.output.json() {
        print_json(&MigratedView { files })?;
    }
    Ok(Done::Ok)
}

fn describe(moved: &Moved) -> String {
    let name = paths::text(&moved.path);
    match moved.copied_bytes {
        0 => format!("{}: nothing to move", name),
        bytes => {
            let rate = round_down(bytes as f64 / (moved.milliseconds.max(1) as f64 / 1000.0));
            format!("{}: {} moved, {}/s", name, format_bytes(bytes), format_bytes(rate))
        }
    }
}
