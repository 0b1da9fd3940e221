//! `brindle format`: makes a target in a directory.

use std::path::PathBuf;

use brindle_admin::document;
use brindle_admin::target::hex;
use brindle_host::format::{Plan, carry_out, contents, holds, occupied, shared_with};
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli;
use crate::exit::Done;
use crate::output::{Output, print_json};

/// Arguments of `brindle format`.
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("role").required(true).args(["mgs", "mdt", "ost"]),
    after_help = "Examples:\n  \
                  brindle format --mgs --fsname scratch /data/mgt\n  \
                  brindle format --mdt --fsname scratch --mgsnode 10.0.0.1 /data/mdt0\n  \
                  brindle format --ost --fsname scratch --index 0 --mgsnode 10.0.0.1 /data/ost0"
)]
pub struct Args {
    /// Make the management target (MGT)
    #[arg(long)]
    mgs: bool,
    /// Make a metadata target (MDT)
    #[arg(long)]
    mdt: bool,
    /// Make an object storage target (OST)
    #[arg(long)]
    ost: bool,
    /// Name of the file system: 1 to 8 letters, digits, '-' or '_'
    #[arg(long, value_name = "NAME", value_parser = parse::<FsName>)]
    fsname: FsName,
    /// Index of the target within its role; an OST needs one
    #[arg(long)]
    index: Option<u16>,
    /// Address of the MGS, such as 10.0.0.1:9880@tcp; may be given several times
    #[arg(long, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',')]
    mgsnode: Vec<Nid>,
    /// Destroy what the directory holds; needs --yes
    #[arg(long)]
    reformat: bool,
    /// Yes, destroy it
    #[arg(long)]
    yes: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// The directory: best the root of a file system of its own
    dir: PathBuf,
}

/// Parses with `FromStr`, its text becoming clap's.
pub fn parse<T: std::str::FromStr<Err = String>>(text: &str) -> std::result::Result<T, String> {
    text.parse()
}

/// A target that was made, or would be.
#[derive(Serialize, JsonSchema)]
pub struct FormatView {
    /// Full name of the target.
    target: String,
    /// Directory of the target.
    dir: String,
    /// Uuid of the target, in hexadecimal digits, once it is made.
    uuid: Option<String>,
    /// Names in the directory that go.
    destroys: Vec<String>,
    /// Whether it was made.
    done: bool,
}
document!(FormatView, "brindle.format", 1);

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let plan = plan(args)?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let contents = contents(&plan.dir)?;
    if !contents.is_empty() && !args.reformat {
        return Err(occupied(&*seams.disk, &plan.dir, &contents)?);
    }
    if !contents.is_empty() && !args.yes && !args.dry_run {
        return Err(Fault::new(Code::BadArgument)
            .what("will not destroy")
            .subject(plan.dir.display().to_string())
            .why(format!("it holds {}", holds(&*seams.disk, &plan.dir, &contents)?))
            .data("nothing was changed")
            .next("add --yes to destroy it, or --dry-run to see what would go"));
    }
    let mut shares = None;
    let mut view = FormatView {
        target: plan.fs.target(plan.target),
        dir: plan.dir.display().to_string(),
        uuid: None,
        destroys: contents.clone(),
        done: false,
    };
    if !args.dry_run {
        let superblock = runtime.block_on(carry_out(&seams, &plan, &contents))?;
        shares = shared_with(&*seams.disk, plan.target, &plan.dir);
        view.uuid = Some(hex(&superblock.uuid));
        view.done = true;
    }
    report(args, &view)?;
    if let (Some(note), false) = (shares, args.output.json()) {
        eprintln!("{note}");
    }
    Ok(Done::Ok)
}

fn report(args: &Args, view: &FormatView) -> Result<Done> {
    if args.output.json() {
        print_json(view)?;
    } else {
        let verb = if view.done { "formatted" } else { "would format" };
        println!("{verb} {} as {}", view.dir, view.target);
        for name in &view.destroys {
            println!("  {} {name}", if view.done { "destroyed" } else { "would destroy" });
        }
    }
    Ok(Done::Ok)
}

/// A small runtime for commands.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))
}

fn plan(args: &Args) -> Result<Plan> {
    let role = match (args.mgs, args.mdt) {
        (true, _) => Role::Mgt,
        (_, true) => Role::Mdt,
        _ => Role::Ost,
    };
    let wrong = |why: &'static str, next: &'static str| {
        Fault::new(Code::BadArgument)
            .what("cannot format")
            .subject(args.dir.display().to_string())
            .why(why)
            .next(next)
    };
    let index = match (role, args.index) {
        (Role::Ost, None) => return Err(wrong("an OST needs an index", "add --index N; the first OST is 0")),
        (Role::Mgt | Role::Mdt, Some(index)) if index > 0 => {
            return Err(wrong("this release has one MGT and one MDT, with index 0", "leave --index out"));
        }
        (_, index) => index.unwrap_or(0),
    };
    match (role, args.mgsnode.is_empty()) {
        (Role::Mgt, false) => return Err(wrong("the MGT has no other MGS", "leave --mgsnode out")),
        (Role::Mdt | Role::Ost, true) => {
            return Err(wrong("the target must know its MGS", "add --mgsnode HOST[:PORT]"));
        }
        _ => {}
    }
    let dir = PathBuf::from(cli::text(&args.dir)?);
    let target = TargetId { role, index };
    Ok(Plan { fs: args.fsname.clone(), target, mgs: args.mgsnode.clone(), dir, uuid: None })
}
