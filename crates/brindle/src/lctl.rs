//! `lctl`: the commands by which administrators of Lustre handle pools and read and set parameters, in Lustre's text shapes.
//!
//! Reached as `lctl ...` (another name of this binary) and as `brindle lctl ...`.

mod changelog;
mod devices;
mod job_stats;
mod node;
mod nrs;
mod param_commands;
mod params;
mod read_ahead;
mod select;

use std::path::PathBuf;

use brindle_types::{Code, Fault, FsName, Nid, PoolName, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::PoolChange;

use crate::admin::place::{PlaceArgs, resolve};
use crate::changelog::MdtName;
use crate::completion::live;
use crate::exit::Done;
use crate::format::parse;
use crate::pool;
use brindle_admin::osts::{OstList, indices};
use brindle_admin::place::FsLocation;
use brindle_admin::pool::find as find_pool;

/// Arguments of `lctl`.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    /// The MDT that a changelog command is about: scratch-MDT0000
    #[arg(long, value_name = "DEVICE", value_parser = parse::<MdtName>, add = live::mdts())]
    device: Option<MdtName>,
    #[command(subcommand)]
    command: Command,
}

/// Lustre's administration commands
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a pool
    #[command(name = "pool_new")]
    NewPool(PoolArgs),
    /// Put OSTs into a pool
    #[command(name = "pool_add")]
    AddToPool(OstArgs),
    /// Take OSTs out of a pool
    #[command(name = "pool_remove")]
    RemoveFromPool(OstArgs),
    /// Destroy a pool that has no OSTs
    #[command(name = "pool_destroy")]
    DestroyPool(PoolArgs),
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    ListPools(ListArgs),
    /// Register a reader of the changelog of an MDT
    #[command(name = "changelog_register")]
    RegisterReader(changelog::RegisterArgs),
    /// Remove a reader of the changelog of an MDT
    #[command(name = "changelog_deregister")]
    DeregisterReader(changelog::DeregisterArgs),
    /// Print parameters
    #[command(name = "get_param")]
    GetParam(param_commands::GetArgs),
    /// Set parameters
    #[command(name = "set_param")]
    SetParam(param_commands::SetArgs),
    /// List the names of parameters
    #[command(name = "list_param")]
    ListParam(param_commands::ListArgs),
    /// List the devices of this host: targets that it serves, and what its mounts talk to
    #[command(
        name = "dl",
        visible_alias = "device_list",
        after_help = "Columns: number; UP, or IN while it does not answer; type; name; UUID (of a mount: its session); how much it is used:\n\
                      clients (mdt), connections (obdfilter), registered targets (mgs), targets (lov, lmv), requests under way (osc, mdc)."
    )]
    DeviceList(devices::Args),
    /// Print the addresses of this host
    #[command(name = "list_nids")]
    ListNids(devices::Args),
}

/// Where the MGS is; without any of these, that of a file system that is mounted here.
#[derive(clap::Args, Clone, Debug)]
pub struct MgsArgs {
    /// Address of the MGS; not needed where the file system is mounted
    #[arg(long, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',', conflicts_with = "dir")]
    mgs: Vec<Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Arguments of `lctl pool_new` and `pool_destroy`.
#[derive(clap::Args)]
pub struct PoolArgs {
    /// File system and pool: scratch.flash
    #[arg(value_name = "FS.POOL", value_parser = parse::<FullName>, add = live::full_pools())]
    pool: FullName,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lctl pool_add` and `pool_remove`.
#[derive(clap::Args)]
pub struct OstArgs {
    /// File system and pool: scratch.flash
    #[arg(value_name = "FS.POOL", value_parser = parse::<FullName>, add = live::full_pools())]
    pool: FullName,
    /// OSTs: scratch-OST0003, OST[0-a/2] (hexadecimal)
    #[arg(required = true, value_name = "OST", value_parser = parse::<OstList>, add = live::osts())]
    osts: Vec<OstList>,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lctl pool_list` and `lfs pool_list`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// File system, file system and pool (scratch.flash), or a path in a mount
    #[arg(value_name = "FS[.POOL]|PATH", add = live::file_systems_and_pools())]
    what: String,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// `scratch.flash`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullName {
    fs: FsName,
    pool: PoolName,
}

impl std::str::FromStr for FullName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<FullName, String> {
        let (fs, pool) =
            text.split_once('.').ok_or_else(|| format!("'{text}' is not FS.POOL, such as scratch.flash"))?;
        Ok(FullName { fs: fs.parse()?, pool: pool.parse()? })
    }
}

impl MgsArgs {
    fn place_args(&self) -> PlaceArgs {
        PlaceArgs { path: None, mgs: self.mgs.clone(), dir: self.dir.clone() }
    }

    /// The file system of this name.
    pub fn place(&self, fs: &FsName) -> Result<FsLocation> {
        let places = resolve(&self.place_args())?;
        let known: Vec<String> = places.iter().filter_map(|p| Some(p.fs.as_ref()?.to_string())).collect();
        let mut found: Vec<FsLocation> =
            places.into_iter().filter(|p| p.fs.as_ref().is_none_or(|name| name == fs)).collect();
        match (found.pop(), found.is_empty()) {
            (Some(place), true) => Ok(FsLocation { fs: Some(fs.clone()), ..place }),
            (Some(_), false) => Err(Fault::new(Code::BadArgument)
                .what("which file system?")
                .why(format!("several that are called {fs} are mounted here"))
                .next("name the MGS of the one that is meant: --mgs HOST[:PORT]")),
            (None, _) => Err(Fault::new(Code::NoSuchFs)
                .subject(fs.to_string())
                .why(format!("those that are mounted here: {}", known.join(", ")))
                .next("name its MGS: --mgs HOST[:PORT]")),
        }
    }
}

/// Every parameter: pattern, what it means, whether it can be set; for the reference.
pub fn parameter_table() -> Vec<(String, &'static str, bool)> {
    let of = |kind: &&'static str| {
        let kind = *kind;
        params::names(kind).into_iter().map(move |(name, help, set)| (format!("{kind}.*.{name}"), help, set))
    };
    let host = params::HOST.iter().map(|row| (row.name.to_owned(), row.help, false));
    host.chain(params::KINDS.iter().flat_map(of)).collect()
}

/// Parameters of Lustre that Brindle lacks, with the reason; for the reference.
pub fn absent_parameters() -> &'static [(&'static [&'static str], &'static str)] {
    params::ABSENT
}

/// Parameters of this host by name, with what they mean; for completions.
pub fn parameter_names(places: PlaceArgs, settable: bool) -> Vec<(String, &'static str)> {
    params::listed(&node::Node::hurried(places), settable)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let device = args.device.as_ref();
    if device.is_some() && !matches!(args.command, Command::RegisterReader(_) | Command::DeregisterReader(_))
    {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use --device with this command")
            .why("only changelog_register and changelog_deregister have a device")
            .data("nothing was changed")
            .next("leave it out"));
    }
    match &args.command {
        Command::RegisterReader(args) => changelog::register(device, args)?,
        Command::DeregisterReader(args) => changelog::deregister(device, args)?,
        Command::NewPool(args) => {
            pool::change(&args.mgs.place(&args.pool.fs)?, &args.pool.pool, PoolChange::Create)?;
            println!("Pool {} created", full(&args.pool));
        }
        Command::AddToPool(args) => change(args, "added to", PoolChange::Add)?,
        Command::RemoveFromPool(args) => change(args, "removed from", PoolChange::Remove)?,
        Command::DestroyPool(args) => {
            let change = PoolChange::Destroy { with_osts: false };
            pool::change(&args.mgs.place(&args.pool.fs)?, &args.pool.pool, change)?;
            println!("Pool {} destroyed", full(&args.pool));
        }
        Command::ListPools(args) => return list(args),
        Command::GetParam(args) => return param_commands::get(args),
        Command::SetParam(args) => return param_commands::set(args),
        Command::ListParam(args) => return param_commands::list(args),
        Command::DeviceList(args) => return devices::list(args),
        Command::ListNids(args) => return devices::nids(args),
    }
    Ok(Done::Ok)
}

fn full(name: &FullName) -> String {
    format!("{}.{}", name.fs, name.pool)
}

fn change(args: &OstArgs, done: &str, what: impl Fn(Vec<u16>) -> PoolChange) -> Result<()> {
    let place = args.mgs.place(&args.pool.fs)?;
    let osts = indices(&args.osts, &args.pool.fs)?;
    pool::change(&place, &args.pool.pool, what(osts.clone()))?;
    for ost in osts {
        println!("OST {}_UUID {done} pool {}", args.pool.fs.target(TargetId::ost(ost)), full(&args.pool));
    }
    Ok(())
}

/// Runs `lctl pool_list` and `lfs pool_list`.
pub fn list(args: &ListArgs) -> Result<Done> {
    let (place, pool) = match args.what.parse::<FullName>() {
        Ok(name) => (args.mgs.place(&name.fs)?, Some(name.pool)),
        Err(why) => match args.what.parse::<FsName>() {
            Ok(fs) => (args.mgs.place(&fs)?, None),
            Err(_) if args.what.contains('/') => {
                let path = Some(PathBuf::from(&args.what));
                (crate::admin::place::one(&PlaceArgs { path, ..PlaceArgs::default() })?, None)
            }
            Err(_) => {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot list")
                    .subject(args.what.clone())
                    .why(why));
            }
        },
    };
    print!("{}", list_text(&pool::map(&place)?, pool.as_ref())?);
    Ok(Done::Ok)
}

fn list_text(map: &Map, pool: Option<&PoolName>) -> Result<String> {
    let lines: Vec<String> = match pool {
        None => {
            let names = map.pools.iter().map(|p| format!("{}.{}", map.fs, p.name));
            std::iter::once(format!("Pools from {}:", map.fs)).chain(names).collect()
        }
        Some(name) => {
            let osts = &find_pool(map, name)?.osts;
            let names = osts.iter().map(|ost| format!("{}_UUID", map.fs.target(TargetId::ost(*ost))));
            std::iter::once(format!("Pool: {}.{name}", map.fs)).chain(names).collect()
        }
    };
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::map::Pool;

    #[test]
    fn lists_look_as_in_lustre() {
        let pool = |name: &str, osts| Pool { name: name.parse().expect("good"), osts };
        let fs = "testfs".parse().expect("good");
        let pools = vec![pool("disk", Vec::new()), pool("flash", vec![0, 10])];
        let map = Map { pools, ..Map::new(fs, 1) };
        assert_eq!(list_text(&map, None).expect("text"), "Pools from testfs:\ntestfs.disk\ntestfs.flash\n");
        let name = |n: &str| n.parse::<PoolName>().expect("good");
        assert_eq!(
            list_text(&map, Some(&name("flash"))).expect("text"),
            "Pool: testfs.flash\ntestfs-OST0000_UUID\ntestfs-OST000a_UUID\n"
        );
        let fault = list_text(&map, Some(&name("flush"))).expect_err("no such pool");
        assert_eq!((fault.code, fault.next.as_ref()), (Code::NoSuchPool, "did you mean 'flash'?"));
    }

    #[test]
    fn names_have_a_file_system_in_front() {
        assert!("scratch.flash".parse::<FullName>().is_ok());
        for wrong in
            ["scratch", "scratch.", ".flash", "scratch.sixteen_letters_", "scratch.fl ash", "scratch.none"]
        {
            assert!(wrong.parse::<FullName>().is_err(), "{wrong}");
        }
    }
}
