//! Pools of OSTs: `brindle pool`, and what `lctl` and `lfs` need of them.

use std::path::PathBuf;

use brindle_types::{Code, Fault, FsName, Nid, PoolName, Result, TargetId};
use brindle_wire::map::{Map, Pool};
use brindle_wire::mgs::{ChangePoolResp, PoolChange};
use serde::Serialize;

use crate::admin::ask::Asker;
use crate::admin::place::{Place, PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::nearest::nearest;
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
    fn place(&self) -> Result<Place> {
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

/// OSTs as people name them: indices and ranges of them, names, or Lustre's `scratch-OST[0-a/2]`, whose numbers are
/// hexadecimal like those in names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstList {
    /// The file system that is named with them.
    fs: Option<FsName>,
    /// Indices, as given.
    osts: Vec<u16>,
}

impl std::str::FromStr for OstList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<OstList, String> {
        let Some((before, behind)) = text.split_once("OST") else {
            return Ok(OstList { fs: None, osts: crate::stripe::ost_list(text)? });
        };
        let wrong = |why: &str| format!("'{text}' is not OST000a, scratch-OST000a or OST[0-a/2]: {why}");
        let fs = match before.strip_suffix('-') {
            Some(fs) => Some(fs.parse::<FsName>()?),
            None if before.is_empty() => None,
            None => return Err(wrong("a '-' stands between the file system and OST")),
        };
        let behind = behind.strip_suffix("_UUID").unwrap_or(behind);
        let hex = |t: &str| {
            u16::from_str_radix(t, 16).map_err(|_| wrong(&format!("'{t}' is no hexadecimal index")))
        };
        let Some(list) = behind.strip_prefix('[') else {
            return if behind.len() == 4 {
                Ok(OstList { fs, osts: vec![hex(behind)?] })
            } else {
                Err(wrong("an index has four digits"))
            };
        };
        let list = list.strip_suffix(']').ok_or_else(|| wrong("there is no ']'"))?;
        let mut osts = Vec::new();
        for item in list.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => {
                    (range, step.parse::<usize>().map_err(|_| wrong("a step is a number"))?)
                }
                None => (item, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (hex(first)?, hex(last)?);
            if step == 0 || last < first {
                return Err(wrong("a range goes upwards"));
            }
            osts.extend((first..=last).step_by(step));
        }
        osts.sort_unstable();
        osts.dedup();
        Ok(OstList { fs, osts })
    }
}

/// The indices of lists; refuses those that name another file system.
pub fn indices(lists: &[OstList], fs: &FsName) -> Result<Vec<u16>> {
    if let Some(other) = lists.iter().filter_map(|list| list.fs.as_ref()).find(|named| *named != fs) {
        return Err(Fault::new(Code::UnknownTarget)
            .what("no such OST in")
            .subject(fs.to_string())
            .why(format!("an OST of {other} is named; those of {fs} are {fs}-OST0000 and so on"))
            .data("nothing was changed"));
    }
    let mut osts: Vec<u16> = lists.iter().flat_map(|list| list.osts.iter().copied()).collect();
    osts.sort_unstable();
    osts.dedup();
    Ok(osts)
}

/// Changes a pool, and waits until the MDTs know.
pub fn change(place: &Place, pool: &PoolName, change: PoolChange) -> Result<ChangePoolResp> {
    runtime()?.block_on(async {
        let asker = Asker::new();
        let done = asker.change_pool(place, pool, change).await?;
        for name in asker.until_known(&done.map).await {
            eprintln!(
                "warning: {name} does not know of the change yet; it takes it in when it finds the MGS"
            );
        }
        Ok(done)
    })
}

/// The map, for its pools.
pub fn map(place: &Place) -> Result<Map> {
    runtime()?.block_on(async { Asker::new().map(place).await })
}

/// The pool of a name, or a refusal with the nearest.
pub fn find<'a>(map: &'a Map, name: &PoolName) -> Result<&'a Pool> {
    map.pool(name).ok_or_else(|| {
        let fault = Fault::new(Code::NoSuchPool).subject(format!("{}.{name}", map.fs)).why(format!(
            "the pools of {} are: {}",
            map.fs,
            map.pool_names()
        ));
        match nearest(name.as_str(), map.pools.iter().map(|p| p.name.as_str())) {
            Some(near) => fault.next(format!("did you mean '{near}'?")),
            None => fault,
        }
    })
}

#[derive(Serialize)]
struct View {
    fs: String,
    map_version: u64,
    pools: Vec<PoolView>,
}

#[derive(Serialize)]
struct PoolView {
    name: String,
    osts: Vec<u16>,
    targets: Vec<String>,
}

fn view(map: &Map, pools: &[Pool]) -> View {
    let target = |index: &u16| map.fs.target(TargetId::ost(*index));
    let one = |pool: &Pool| PoolView {
        name: pool.name.to_string(),
        targets: pool.osts.iter().map(target).collect(),
        osts: pool.osts.clone(),
    };
    View { fs: map.fs.to_string(), map_version: map.version, pools: pools.iter().map(one).collect() }
}

fn print(map: &Map, pools: &[Pool], output: Output) -> Result<Done> {
    let view = view(map, pools);
    if output.json() {
        print_json("brindle.pool", 1, &view)?;
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
            // What cannot be added is found before the pool is made.
            let osts = given(args, &place, false)?;
            let mut done = change(&place, &args.pool, PoolChange::Create)?;
            if !osts.is_empty() {
                done = change(&place, &args.pool, PoolChange::Add(osts))?;
            }
            shown(&done.map, args)
        }
        Command::Add(args) => {
            let place = args.fs.place()?;
            let osts = given(args, &place, true)?;
            shown(&change(&place, &args.pool, PoolChange::Add(osts))?.map, args)
        }
        Command::Remove(args) => {
            let place = args.fs.place()?;
            let osts = given(args, &place, true)?;
            shown(&change(&place, &args.pool, PoolChange::Remove(osts))?.map, args)
        }
        Command::Destroy(args) => {
            let place = args.fs.place()?;
            let done = change(&place, &args.pool, PoolChange::Destroy { with_osts: args.yes })?;
            if args.output.json() {
                return print(&done.map, &done.map.pools, args.output);
            }
            println!("destroyed {}.{}", done.map.fs, args.pool);
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
fn given(args: &OstArgs, place: &Place, needed: bool) -> Result<Vec<u16>> {
    if args.osts.is_empty() && needed {
        return Err(Fault::new(Code::BadArgument)
            .what("which OSTs?")
            .why(format!("none is named for the pool {}", args.pool))
            .next("name them: 0-3,7 or OST0003; list them: brindle target list"));
    }
    let map = map(place)?;
    let osts = indices(&args.osts, &map.fs)?;
    match osts.iter().find(|ost| map.target(TargetId::ost(**ost)).is_none()) {
        None => Ok(osts),
        Some(ost) => Err(Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(TargetId::ost(*ost)))
            .data("nothing was changed")
            .next("list those that there are: brindle target list")),
    }
}

fn shown(map: &Map, args: &OstArgs) -> Result<Done> {
    print(map, std::slice::from_ref(find(map, &args.pool)?), args.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osts(text: &str) -> Vec<u16> {
        text.parse::<OstList>().expect("good").osts
    }

    #[test]
    fn osts_are_named_as_in_brindle_and_as_in_lustre() {
        assert_eq!(osts("0-3,7"), [0, 1, 2, 3, 7]);
        assert_eq!(osts("OST000a"), [10]);
        assert_eq!(osts("OST[0-a/2]"), [0, 2, 4, 6, 8, 10]);
        assert_eq!(osts("scratch-OST[0,4-5]_UUID"), [0, 4, 5]);
        let named: OstList = "scratch-OST0001_UUID".parse().expect("good");
        assert_eq!(named.fs.as_ref().map(FsName::as_str), Some("scratch"));
        for wrong in ["", "OST", "OST1", "OST[1", "OST[5-1]", "OST[0-5/0]", "OST[x]", "xOST0001", "a b"] {
            assert!(wrong.parse::<OstList>().is_err(), "{wrong}");
        }
        let fs: FsName = "other".parse().expect("good");
        assert_eq!(indices(&[named], &fs).expect_err("of another").code, Code::UnknownTarget);
    }
}
