//! `lfs df`.

use std::fmt::Write as _;
use std::path::PathBuf;

use brindle_types::{Code, Fault, FsName, PoolName, Result, Role, TargetId};

use crate::admin::fs_df::spaces;
use crate::admin::place::{PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use brindle_admin::paths;
use brindle_admin::pool::find;
use brindle_admin::space::{Space, Spaces};
use brindle_host::mounts;
use brindle_host::mounts::mount_of;

/// Arguments of `lfs df`.
#[derive(clap::Args)]
pub struct Args {
    /// Sizes with a unit, powers of 1024
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Inodes instead of bytes
    #[arg(short = 'i', long = "inodes")]
    inodes: bool,
    /// Only the OSTs of a pool: POOL or FS.POOL
    #[arg(short = 'p', long = "pool", value_name = "POOL", value_parser = pool, add = live::pools())]
    pool: Option<Wanted>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A path in the mount; every mount without it
    #[arg(add = live::mount_points())]
    path: Option<PathBuf>,
}

/// A pool that is asked for, and the file system in front of its name.
#[derive(Clone, Debug)]
struct Wanted {
    fs: Option<FsName>,
    name: PoolName,
}

fn pool(text: &str) -> std::result::Result<Wanted, String> {
    match text.split_once('.') {
        Some((fs, name)) => Ok(Wanted { fs: Some(fs.parse()?), name: name.parse()? }),
        None => Ok(Wanted { fs: None, name: text.parse()? }),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let lines = match &args.path {
        Some(path) => vec![mount_of(path)?],
        None => mounts::all().into_iter().filter(|m| m.fs_type == mounts::FUSE_TYPE).collect(),
    };
    if lines.is_empty() {
        return Err(Fault::new(Code::NotMounted).what("no Brindle file system is mounted here"));
    }
    let mut shown = false;
    for line in lines {
        let place = PlaceArgs { path: Some(line.mount_point.clone()), ..PlaceArgs::default() };
        let place = one(&place)?;
        if args.pool.as_ref().and_then(|p| p.fs.as_ref()).is_some_and(|fs| place.fs.as_ref() != Some(fs)) {
            continue;
        }
        let spaces = in_pool(args, spaces(&place)?)?;
        print!("{}", text(args, &spaces, &paths::text(&line.mount_point)));
        shown = true;
    }
    match args.pool.as_ref().and_then(|pool| pool.fs.as_ref()).filter(|_| !shown) {
        Some(fs) => Err(Fault::new(Code::NoSuchFs)
            .subject(fs.to_string())
            .why("it is not mounted here, or not at the path that was given")),
        None => Ok(Done::Ok),
    }
}

/// Leaves out OSTs that are not in the pool, if one is asked for; MDTs stay, as in Lustre.
fn in_pool(args: &Args, mut spaces: Spaces) -> Result<Spaces> {
    if let Some(pool) = &args.pool {
        let osts = find(&spaces.map, &pool.name)?.osts.clone();
        spaces.targets.retain(|(id, _)| id.role != Role::Ost || osts.contains(&id.index));
    }
    Ok(spaces)
}

fn text(args: &Args, spaces: &Spaces, mount: &str) -> String {
    let mut text = heading(args);
    for (id, space) in &spaces.targets {
        let uuid = format!("{}_UUID", spaces.map.fs.target(*id));
        match space {
            Ok(space) => {
                let letters = letters(*id, space);
                text.push_str(&row(args, &uuid, space, &format!("{mount}{}{letters}", place(*id))));
            }
            Err(_) => {
                let _ = writeln!(text, "{uuid:<20}: inactive device");
            }
        }
    }
    let sum = row(args, "filesystem_summary:", &spaces.sum(), mount);
    let _ = writeln!(text, "\n{}", sum.trim_end_matches('\n'));
    text.push('\n');
    text
}

/// Letters behind the mount point: D a disk that returns errors, S no space, I no inodes.
fn letters(id: TargetId, space: &Space) -> String {
    let out_of = |free: u64, all: u64| id.role == Role::Ost && free == 0 && all > 0;
    let found = [
        (space.degraded, 'D'),
        (out_of(space.available_bytes, space.total_bytes), 'S'),
        (out_of(space.inodes_free, space.inodes_used), 'I'),
    ];
    let letters: String = found.into_iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect();
    if letters.is_empty() { letters } else { format!(" {letters}") }
}

/// `[OST:3]`.
fn place(id: TargetId) -> String {
    let role = if id.role == Role::Mdt { "MDT" } else { "OST" };
    format!("[{role}:{}]", id.index)
}

fn heading(args: &Args) -> String {
    let words = match (args.inodes, args.human) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["bytes", "Used", "Available", "Use%"],
        (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
    };
    format!("{:<20} {:>11} {:>11} {:>11} {:>4} Mounted on\n", "UUID", words[0], words[1], words[2], words[3])
}

fn row(args: &Args, name: &str, space: &Space, mount: &str) -> String {
    let (total, used, free) = if args.inodes {
        (space.inodes_used + space.inodes_free, space.inodes_used, space.inodes_free)
    } else {
        let used = space.total_bytes.saturating_sub(space.available_bytes);
        (space.total_bytes >> 10, used >> 10, space.available_bytes >> 10)
    };
    let show = |n: u64| if args.human { human(n, args.inodes) } else { n.to_string() };
    let percent = format!("{}%", percent(used, used + free));
    format!("{name:<20} {:>11} {:>11} {:>11} {percent:>4}  {mount}\n", show(total), show(used), show(free))
}

/// Rounded up, as df does.
fn percent(used: u64, all: u64) -> u64 {
    (used * 100).div_ceil(all.max(1))
}

/// A number with one decimal and a letter; bytes come in KiB, inodes as they are.
fn human(n: u64, plain: bool) -> String {
    let letters: &[char] =
        if plain { &[' ', 'K', 'M', 'G', 'T', 'P'] } else { &['K', 'M', 'G', 'T', 'P', 'E'] };
    let mut value = n as f64;
    let mut letter = 0;
    while value >= 1024.0 && letter + 1 < letters.len() {
        value /= 1024.0;
        letter += 1;
    }
    if letters[letter] == ' ' { n.to_string() } else { format!("{value:.1}{}", letters[letter]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::map::Map;

    fn spaces() -> Spaces {
        let space = |total: u64, available: u64, device_id| Space {
            total_bytes: total << 10,
            available_bytes: available << 10,
            inodes_used: 10,
            inodes_free: 990,
            device_id,
            degraded: false,
        };
        Spaces {
            without_mgs: None,
            map: Map::new("testfs".parse().unwrap(), 1),
            targets: vec![
                (TargetId::mdt(0), Ok(space(125_056, 122_944, 1))),
                (TargetId::ost(0), Ok(space(325_368, 296_704, 2))),
                (TargetId::ost(1), Err(Fault::new(Code::TargetDown))),
                (TargetId::ost(2), Ok(space(3 << 20, 1 << 20, 3))),
            ],
        }
    }

    fn args(human: bool, inodes: bool) -> Args {
        Args { human, inodes, pool: None, help: None, path: None }
    }

    #[test]
    fn columns_are_those_of_lustre() {
        assert_eq!(
            text(&args(false, false), &spaces(), "/mnt"),
            "UUID                   1K-blocks        Used   Available Use% Mounted on\n\
             testfs-MDT0000_UUID       125056        2112      122944   2%  /mnt[MDT:0]\n\
             testfs-OST0000_UUID       325368       28664      296704   9%  /mnt[OST:0]\n\
             testfs-OST0001_UUID : inactive device\n\
             testfs-OST0002_UUID      3145728     2097152     1048576  67%  /mnt[OST:2]\n\
             \n\
             filesystem_summary:      3471096     2125816     1345280  62%  /mnt\n\
             \n"
        );
    }

    #[test]
    fn what_is_wrong_with_a_target_stands_behind_it() {
        let ost = TargetId::ost(0);
        let space = Space { total_bytes: 9, inodes_used: 4, degraded: true, ..Space::default() };
        assert_eq!(letters(ost, &space), " DSI");
        let well = Space { available_bytes: 1, inodes_free: 1, degraded: false, ..space };
        assert_eq!(letters(ost, &well), "");
        assert_eq!(letters(TargetId::mdt(0), &Space { degraded: false, ..space }), "");
    }

    #[test]
    fn units_and_inodes() {
        let lines = text(&args(true, false), &spaces(), "/mnt");
        assert!(
            lines.starts_with("UUID                       bytes        Used   Available Use% Mounted on\n")
        );
        assert!(
            lines.contains("testfs-OST0002_UUID         3.0G        2.0G        1.0G  67%  /mnt[OST:2]\n"),
            "{lines}"
        );
        let lines = text(&args(false, true), &spaces(), "/mnt");
        assert!(
            lines.starts_with("UUID                      Inodes       IUsed       IFree IUse% Mounted on\n")
        );
        assert!(
            lines.contains("testfs-MDT0000_UUID         1000          10         990   1%  /mnt[MDT:0]\n"),
            "{lines}"
        );
        assert!(
            lines.contains("filesystem_summary:         1000          10         990   1%  /mnt\n"),
            "{lines}"
        );
    }
}
