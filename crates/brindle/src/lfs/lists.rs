//! `lfs osts`, `lfs mdts` and `lfs check`.

use std::path::PathBuf;

use brindle_types::{Result, Role};
use brindle_wire::map::{Map, TargetEntry, TargetState};
use clap::ValueEnum;

use crate::admin::ask::{self, servers};
use crate::admin::place::{PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use brindle_host::mounts;
use brindle_host::mounts::mount_of;

/// Arguments of `lfs osts` and `lfs mdts`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// A path in the mount; not needed where only one file system is mounted
    #[arg(add = live::mount_points())]
    path: Option<PathBuf>,
}

/// Arguments of `lfs check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// Which servers
    #[arg(value_enum)]
    which: Which,
    /// A path in the mount; not needed where only one file system is mounted
    #[arg(add = live::mount_points())]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// All OSTs
    Osts,
    /// All MDTs
    #[value(alias = "mds")]
    Mdts,
    /// The MGS
    #[value(alias = "mgs")]
    Mgts,
    /// All of them
    #[value(alias = "servers")]
    All,
}

/// Lists the OSTs.
pub fn osts(args: &ListArgs) -> Result<Done> {
    list(args, Role::Ost, "OBDS:")
}

/// Lists the MDTs.
pub fn mdts(args: &ListArgs) -> Result<Done> {
    list(args, Role::Mdt, "MDTS:")
}

fn place_of(path: &Option<PathBuf>) -> PlaceArgs {
    PlaceArgs { path: path.clone(), ..PlaceArgs::default() }
}

fn list(args: &ListArgs, role: Role, heading: &str) -> Result<Done> {
    let place = one(&place_of(&args.path))?;
    let map = runtime()?.block_on(async { ask::map(&servers(), &place).await })?;
    print!("{}", list_text(&map, role, heading));
    Ok(Done::Ok)
}

fn list_text(map: &Map, role: Role, heading: &str) -> String {
    target_lines(map, role).into_iter().fold(format!("{heading}\n"), |text, line| text + &line + "\n")
}

/// `0: scratch-OST0000_UUID ACTIVE`, one a target.
pub fn target_lines(map: &Map, role: Role) -> Vec<String> {
    let line = |target: &TargetEntry| {
        let state = if target.state == TargetState::Up { "ACTIVE" } else { "INACTIVE" };
        format!("{}: {}_UUID {state}", target.id.index, map.fs.target(target.id))
    };
    map.targets.iter().filter(|t| t.id.role == role).map(line).collect()
}

/// Asks every server and says who answers.
pub fn check(args: &CheckArgs) -> Result<Done> {
    let place = one(&place_of(&args.path))?;
    // Lustre shows the address of the mount in the kernel; the device number says as much.
    let mount = match &args.path {
        Some(path) => mount_of(path).ok(),
        None => mounts::all()
            .into_iter()
            .find(|m| m.fs_type == mounts::FUSE_TYPE && place.is_mounted_from(&m.source)),
    };
    let minor = mount.map_or(0, |m| m.minor);
    let wanted = |role: Role| match args.which {
        Which::All => true,
        Which::Osts => role == Role::Ost,
        Which::Mdts => role == Role::Mdt,
        Which::Mgts => role == Role::Mgt,
    };
    let runtime = runtime()?;
    let all_active = runtime.block_on(async {
        let asker = servers();
        let map = ask::map(&asker, &place).await?;
        let mut all_active = true;
        for target in map.targets.iter().filter(|t| wanted(t.id.role)) {
            let active = asker.info(&map, target).await.is_ok();
            all_active &= active;
            let word = if active { "active." } else { "inactive." };
            let host = place.mgs.first().map(|n| n.host.as_str()).unwrap_or_default();
            let name = map.fs.target(target.id);
            println!("{} {word}", device(target.id.role, &name, minor, host));
        }
        Ok::<bool, brindle_types::Fault>(all_active)
    })?;
    Ok(if all_active { Done::Ok } else { Done::Code(1) })
}

/// Name of the client's end, as Lustre prints it.
fn device(role: Role, name: &str, minor: u32, mgs_host: &str) -> String {
    match role {
        Role::Mgt => format!("MGC{mgs_host}@tcp"),
        Role::Mdt => format!("{name}-mdc-{}", instance(minor)),
        Role::Ost => format!("{name}-osc-{}", instance(minor)),
    }
}

/// Number that tells a mount from others, in Lustre's form.
pub fn instance(minor: u32) -> String {
    format!("ffff{minor:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::TargetId;

    #[test]
    fn lists_look_as_in_lustre() {
        let entry = |index, state| TargetEntry {
            id: TargetId::ost(index),
            uuid: [0; 16],
            nids: Vec::new(),
            epoch: 1,
            state,
            replicas: brindle_wire::map::ReplicaSet::of(String::new()),
            format_level_max: brindle_wire::form::FormatLevel::FIRST,
        };
        let targets = vec![entry(0, TargetState::Up), entry(11, TargetState::Down)];
        let map = Map { targets, ..Map::new("testfs".parse().unwrap(), 1) };
        assert_eq!(
            list_text(&map, Role::Ost, "OBDS:"),
            "OBDS:\n0: testfs-OST0000_UUID ACTIVE\n11: testfs-OST000b_UUID INACTIVE\n"
        );
        assert_eq!(device(Role::Ost, "testfs-OST0000", 57, "h"), "testfs-OST0000-osc-ffff000000000039");
        assert_eq!(device(Role::Mgt, "x", 1, "10.0.0.1"), "MGC10.0.0.1@tcp");
    }
}
