//! `brindle format`: makes a target in a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_config::Superblock;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use serde::Serialize;

use crate::cli;
use crate::exit::Done;
use crate::output::{Output, print_json};
use crate::target_dir::{DirLock, LOCK_FILE};

/// Names in a directory that do not count as contents.
const NO_CONTENTS: [&str; 2] = ["lost+found", LOCK_FILE];

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

/// What is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// File system.
    pub fs: FsName,
    /// Role and index.
    pub target: TargetId,
    /// Addresses of the MGS; none for the MGT.
    pub mgs: Vec<Nid>,
    /// The directory.
    pub dir: PathBuf,
}

#[derive(Serialize)]
struct View {
    target: String,
    dir: String,
    uuid: Option<String>,
    destroys: Vec<String>,
    done: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let plan = plan(args)?;
    let contents = contents(&plan.dir)?;
    if !contents.is_empty() && !args.reformat {
        return Err(occupied(&plan.dir, &contents)?);
    }
    if !contents.is_empty() && !args.yes && !args.dry_run {
        return Err(Fault::new(Code::BadArgument)
            .what("will not destroy")
            .subject(plan.dir.display().to_string())
            .why(format!("it holds {}", holds(&plan.dir, &contents)?))
            .data("nothing was changed")
            .next("add --yes to destroy it, or --dry-run to see what would go"));
    }
    let mut shares = None;
    let mut view = View {
        target: plan.fs.target(plan.target),
        dir: plan.dir.display().to_string(),
        uuid: None,
        destroys: contents.clone(),
        done: false,
    };
    if !args.dry_run {
        let runtime = runtime()?;
        let seams = brindle_stdx::real::seams(runtime.handle().clone());
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

/// What an administrator should know of an OST that has its disk not to itself.
pub fn shared_with(disk: &dyn brindle_stdx::Disk, target: TargetId, dir: &Path) -> Option<String> {
    let absolute = std::path::absolute(dir).ok().filter(|_| target.role == Role::Ost)?;
    // Where it cannot be told nothing is said: the target is made.
    let other = brindle_config::neighbour(disk, absolute.to_str()?).ok()??;
    Some(format!(
        "note: {} lies on the same file system as {other}; an OST wants one of its own: what others write takes its room\n\
         next: for anything but a trial mount a file system of its own there (docs/operations/osts.md)",
        dir.display()
    ))
}

fn report(args: &Args, view: &View) -> Result<Done> {
    if args.output.json() {
        print_json("brindle.format", 1, view)?;
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
    Ok(Plan { fs: args.fsname.clone(), target, mgs: args.mgsnode.clone(), dir })
}

/// Names in the directory, without those that do not count; none if it does not exist.
fn contents(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            return Err(Fault::io(Code::NotWritable, "cannot look into", dir.display().to_string(), &e));
        }
    };
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|n| !NO_CONTENTS.contains(&n.as_str())).collect();
    names.sort();
    Ok(names)
}

/// Contents of the directory, in words.
fn holds(dir: &Path, contents: &[String]) -> Result<String> {
    let runtime = runtime()?;
    let disk = brindle_stdx::real_disk::RealDisk::new(runtime.handle().clone());
    let loaded = Superblock::load(&disk, &cli::text(dir)?, &brindle_config::Expected::default());
    Ok(match loaded {
        Ok(loaded) => format!("the target {}", loaded.superblock.name()),
        Err(fault) if fault.code == Code::NotATarget => match contents {
            [one] => format!("'{one}'"),
            [first, rest @ ..] => format!("'{first}' and {} more", rest.len()),
            [] => "nothing".to_owned(),
        },
        Err(_) => "a target whose superblock cannot be read".to_owned(),
    })
}

/// Refuses a directory that holds anything.
pub fn refuse_occupied(dir: &Path) -> Result<()> {
    let contents = contents(dir)?;
    if contents.is_empty() { Ok(()) } else { Err(occupied(dir, &contents)?) }
}

fn occupied(dir: &Path, contents: &[String]) -> Result<Fault> {
    let holds = holds(dir, contents)?;
    let code = if holds.starts_with('\'') { Code::BadArgument } else { Code::AlreadyFormatted };
    Ok(Fault::new(code)
        .what("cannot format")
        .subject(dir.display().to_string())
        .why(format!("it holds {holds}"))
        .data("nothing was changed")
        .next("give an empty directory, or add --reformat --yes to destroy what it holds"))
}

/// Makes the target; also called by `brindle dev up`. `destroy` are names to remove first.
pub async fn carry_out(seams: &Seams, plan: &Plan, destroy: &[String]) -> Result<Superblock> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot format", plan.dir.display().to_string(), e);
    std::fs::create_dir_all(&plan.dir).map_err(|e| cannot(&e))?;
    let _lock = DirLock::target(&plan.dir)?;
    for name in destroy {
        let path = plan.dir.join(name);
        let is_dir = std::fs::symlink_metadata(&path).map(|m| m.is_dir()).unwrap_or(false);
        let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|e| cannot(&e))?;
    }
    let dir = cli::text(&plan.dir)?;
    let (disk, rng, now) = (Arc::clone(&seams.disk), &*seams.rng, seams.wall());
    match plan.target.role {
        Role::Mgt => brindle_mgs::format(disk, rng, now, &dir, plan.fs.clone()),
        Role::Mdt => {
            brindle_mds::format(seams, &dir, plan.fs.clone(), plan.target.index, plan.mgs.clone()).await
        }
        Role::Ost => {
            let mut superblock = Superblock::new(plan.fs.clone(), plan.target, plan.mgs.clone(), now, rng);
            superblock.save(&*disk, &dir)?;
            Ok(superblock)
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
