//! Pools of OSTs: `brindle pool`, and the parts that `lctl` and `lfs` share with it.

use std::path::PathBuf;

use brindle_admin::osts::{OstList, indices};
use brindle_admin::place::FsLocation;
use brindle_admin::pool::{self, find};
use brindle_types::{Code, Fault, Nid, PoolName, Result};
use brindle_wire::map::{Map, Pool};
use brindle_wire::mgs::PoolChange;

use crate::admin::ask::{self, servers};
use crate::admin::place::{PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json, table};

/// The verbs of `brindle pool`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a pool, and give it OSTs
    Create(OstArgs),
    /// Put OSTs into a pool
    Add(OstArgs),
    /// Take OSTs out of a pool; the files on them stay
    Remove(OstArgs),
    /// Destroy a pool; the files in it stay
    Destroy(DestroyArgs),
    /// List pools and their OSTs
    List(ListArgs),
}

/// The options that say which file system is meant; without any, the one that is mounted here.
#[derive(clap::Args, Clone, Debug)]
pub struct FsArgs {
    /// A path in a mount of the file system; not needed where only one is mounted
    #[arg(long, value_name = "PATH", add = live::mount_points())]
    path: Option<PathBuf>,
    /// Address of its MGS
    #[arg(long, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',', conflicts_with_all = ["path", "dir"])]
    mgs: Vec<Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    dir: Option<PathBuf>,
}

impl FsArgs {
    /// The file system that is meant.
    pub fn place(&self) -> Result<FsLocation> {
        one(&PlaceArgs { path: self.path.clone(), mgs: self.mgs.clone(), dir: self.dir.clone() })
    }
}

/// Arguments of `brindle pool create`, `add` and `remove`.
#[derive(clap::Args)]
#[command(
    after_help = "OSTs: 0-3,7 (indices), OST000a, scratch-OST000a, OST[0-f/2] (hexadecimal, as lctl has it)\n\
                        Example: brindle pool create flash 0-3; lfs setstripe -p flash /mnt/b/fast"
)]
pub struct OstArgs {
    /// Name of the pool: 1 to 15 letters, digits, '-' or '_'
    #[arg(value_parser = parse::<PoolName>, add = live::pools())]
    pool: PoolName,
    /// OSTs
    #[arg(value_parser = parse::<OstList>, add = live::osts())]
    osts: Vec<OstList>,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle pool destroy`.
#[derive(clap::Args)]
pub struct DestroyArgs {
    /// Name of the pool
    #[arg(value_parser = parse::<PoolName>, add = live::pools())]
    pool: PoolName,
    /// Yes, even if it has OSTs
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle pool list`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Only this one
    #[arg(value_parser = parse::<PoolName>, add = live::pools())]
    pool: Option<PoolName>,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Changes a pool, and waits until the MDTs know; the map as it is then.
pub fn change(place: &FsLocation, pool: &PoolName, change: PoolChange) -> Result<Map> {
    let changed = runtime()?.block_on(async { pool::change(&servers(), place, pool, change).await })?;
    ask::warn_not_told(&changed.not_told);
    Ok(changed.map)
}

/// The map, for its pools.
pub fn map(place: &FsLocation) -> Result<Map> {
    runtime()?.block_on(async { ask::map(&servers(), place).await })
}

fn print(map: &Map, pools: &[Pool], output: Output) -> Result<Done> {
    let view = pool::view(map, pools);
    if output.json() {
        print_json(&view)?;
    } else if view.pools.is_empty() {
        println!("{} has no pools", view.fs);
    } else {
        let rows =
            view.pools.into_iter().map(|p| vec![p.name, p.osts.len().to_string(), p.targets.join(" ")]);
        println!("{}", table(&["POOL", "OSTS", "TARGETS"], rows.collect()));
    }
    Ok(Done::Ok)
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Create(args) => {
            let place = args.fs.place()?;
            // Unknown OSTs are refused before the pool is made.
            let osts = given(args, &place, false)?;
            let mut done = change(&place, &args.pool, PoolChange::Create)?;
            if !osts.is_empty() {
                done = change(&place, &args.pool, PoolChange::Add(osts))?;
            }
            shown(&done, args)
        }
        Command::Add(args) => {
            let place = args.fs.place()?;
            let osts = given(args, &place, true)?;
            shown(&change(&place, &args.pool, PoolChange::Add(osts))?, args)
        }
        Command::Remove(args) => {
            let place = args.fs.place()?;
            let osts = given(args, &place, true)?;
            shown(&change(&place, &args.pool, PoolChange::Remove(osts))?, args)
        }
        Command::Destroy(args) => {
            let place = args.fs.place()?;
            let done = change(&place, &args.pool, PoolChange::Destroy { with_osts: args.yes })?;
            if args.output.json() {
                return print(&done, &done.pools, args.output);
            }
            println!("destroyed {}.{}", done.fs, args.pool);
            Ok(Done::Ok)
        }
        Command::List(args) => {
            let map = map(&args.fs.place()?)?;
            match &args.pool {
                Some(name) => print(&map, std::slice::from_ref(find(&map, name)?), args.output),
                None => print(&map, &map.pools, args.output),
            }
        }
    }
}

/// The OSTs on the command line, all of which the file system has.
fn given(args: &OstArgs, place: &FsLocation, needed: bool) -> Result<Vec<u16>> {
    if args.osts.is_empty() && needed {
        return Err(Fault::new(Code::BadArgument)
            .what("which OSTs?")
            .why(format!("none is named for the pool {}", args.pool))
            .next("name them: 0-3,7 or OST0003; list them: brindle target list"));
    }
    let map = map(place)?;
    let osts = indices(&args.osts, &map.fs)?;
    pool::all_exist(&map, &osts)?;
    Ok(osts)
}

fn shown(map: &Map, args: &OstArgs) -> Result<Done> {
    print(map, std::slice::from_ref(find(map, &args.pool)?), args.output)
}
