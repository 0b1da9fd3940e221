//! Targets of a file system: listing them, draining and removing an OST, the index of a new one.
//!
//! An OST that leaves is drained first: the MGS notes it, the MDTs hear of it (from then on they place nothing new there), and
//! a job moves its files ([`crate::drain`]). The OST is taken out of the map only when the MDTs count no file on it.

use brindle_types::{Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry, TargetState};
use brindle_wire::mgs::TargetChange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::osts::{OstList, indices};
use crate::place::FsLocation;
use crate::servers::{Servers, Use};

/// Targets of a file system, as its MGS knows them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetListView {
    /// The file system.
    pub fs: String,
    /// Version of its map.
    pub map_version: u64,
    /// In the order of the map.
    pub targets: Vec<TargetEntryView>,
}
document!(TargetListView, "brindle.target.list", 1);

/// A target in the map.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetEntryView {
    /// Full name.
    pub name: String,
    /// `up`, `down` or `draining`.
    pub state: &'static str,
    /// Addresses at which the target is served.
    pub addresses: Vec<String>,
    /// The host of its server.
    pub host: String,
    /// Epoch of the target.
    pub epoch: u32,
    /// Uuid of the target, in hexadecimal digits.
    pub uuid: String,
}

/// A change of the map, and who does not know it yet.
#[derive(Debug)]
pub struct Changed {
    /// The map as it is now.
    pub map: Map,
    /// Full names of MDTs that have not taken it in: they do when they find the MGS.
    pub not_told: Vec<String>,
}

/// An OST that was removed.
#[derive(Debug)]
pub struct Removed {
    /// Full name of the target.
    pub name: String,
    /// The host of its server, which may end.
    pub host: String,
    /// Full names of MDTs that do not know it yet.
    pub not_told: Vec<String>,
}

/// Whether the MGS hears of a target.
pub fn state_word(state: TargetState) -> &'static str {
    match state {
        TargetState::Up => "up",
        TargetState::Down => "down",
    }
}

/// Whether it gets no new objects.
pub fn is_draining(map: &Map, target: &TargetEntry) -> bool {
    target.id.role == Role::Ost && map.draining.contains(&target.id.index)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The targets of a map.
pub fn list(map: &Map) -> TargetListView {
    let targets = map.targets.iter().map(|t| TargetEntryView {
        name: map.fs.target(t.id),
        state: if is_draining(map, t) { "draining" } else { state_word(t.state) },
        addresses: t.nids.iter().map(ToString::to_string).collect(),
        host: t.host().to_owned(),
        epoch: t.epoch,
        uuid: hex(&t.uuid),
    });
    TargetListView { fs: map.fs.to_string(), map_version: map.version, targets: targets.collect() }
}

/// The single OST of a list.
pub fn one_ost(list: &OstList, fs: &FsName) -> Result<u16> {
    match indices(std::slice::from_ref(list), fs)?[..] {
        [ost] => Ok(ost),
        ref several => Err(Fault::new(Code::BadArgument)
            .what("cannot take")
            .subject(format!("{} OSTs", several.len()))
            .why("it is done with one OST at a time")
            .data("nothing was changed")
            .next("give them one after the other")),
    }
}

/// Changes what an OST is used for, and waits until the MDTs know.
pub async fn change(
    servers: &Servers,
    place: &FsLocation,
    ost: u16,
    change: TargetChange,
) -> Result<Changed> {
    let done = servers.change_target(place, ost, change).await?;
    let not_told = servers.until_known(&done.map).await;
    Ok(Changed { map: done.map, not_told })
}

/// Takes an OST out, if it is empty. `mount`: the mount point, for the advice.
pub async fn remove(
    servers: &Servers,
    place: &FsLocation,
    map: &Map,
    ost: u16,
    mount: &str,
) -> Result<Removed> {
    let id = TargetId::ost(ost);
    let name = map.fs.target(id);
    let empty_it = format!("empty it first: brindle target drain {ost} {mount}");
    let refuse = || {
        Fault::new(Code::TargetInUse).what("cannot remove").subject(name.clone()).data("nothing was changed")
    };
    if let Some(behind) = servers.until_known(map).await.first() {
        return Err(refuse()
            .why(format!("{behind} does not answer, or does not know of all changes yet"))
            .next("look at brindle status, and try again"));
    }
    let used = servers.ost_use(map, ost).await?;
    if used.files > 0 {
        return Err(refuse().why(describe_use(used)).next(empty_it));
    }
    let host = map.target(id).map_or_else(String::new, |t| t.host().to_owned());
    let changed = change(servers, place, ost, TargetChange::Remove).await.map_err(|fault| {
        // The MGS does not know where the file system is mounted.
        if fault.code == Code::TargetInUse { fault.next(empty_it) } else { fault }
    })?;
    Ok(Removed { name, host, not_told: changed.not_told })
}

/// Use of an OST, in words.
pub fn describe_use(used: Use) -> String {
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    match used {
        Use { files: all, nameless: 0 } => format!("parts of {} lie on it", files(all)),
        Use { files: all, nameless } if all == nameless => {
            format!(
                "parts of {} lie on it that have no name any more and that programs have open",
                files(all)
            )
        }
        Use { files: all, nameless } => {
            format!(
                "parts of {} lie on it, {nameless} of them without a name and open in programs",
                files(all)
            )
        }
    }
}

/// The index of a new OST: the one that was asked for if it is free, else the lowest free one.
pub fn free_index(map: &Map, asked: Option<u16>) -> Result<u16> {
    let free = |index: &u16| map.target(TargetId::ost(*index)).is_none();
    let lowest = (0..=u16::MAX).find(free);
    match (asked, lowest) {
        (Some(index), _) if free(&index) => Ok(index),
        (None, Some(index)) => Ok(index),
        (asked, lowest) => {
            let fault = Fault::new(Code::IndexInUse)
                .what("cannot add")
                .subject(
                    asked.map_or_else(|| "an OST".to_owned(), |index| map.fs.target(TargetId::ost(index))),
                )
                .data("nothing was changed");
            Err(match lowest {
                Some(index) => fault.why("there is one").next(format!("the lowest free index is {index}")),
                None => fault.why("every index is taken"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::form::FormatLevel;
    use brindle_wire::map::ReplicaSet;

    use super::*;

    #[test]
    fn use_is_said_in_words() {
        assert_eq!(describe_use(Use { files: 1, nameless: 0 }), "parts of 1 file lie on it");
        assert_eq!(
            describe_use(Use { files: 3, nameless: 3 }),
            "parts of 3 files lie on it that have no name any more and that programs have open"
        );
        assert_eq!(
            describe_use(Use { files: 3, nameless: 2 }),
            "parts of 3 files lie on it, 2 of them without a name and open in programs"
        );
    }

    #[test]
    fn the_lowest_free_index_is_taken() {
        let entry = |index| TargetEntry {
            id: TargetId::ost(index),
            uuid: [0; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of(String::new()),
            format_level_max: FormatLevel::FIRST,
        };
        let targets = [0, 1, 3].map(entry).to_vec();
        let map = Map { targets, ..Map::new("scratch".parse().expect("good"), 1) };
        assert_eq!(free_index(&map, None), Ok(2));
        assert_eq!(free_index(&map, Some(7)), Ok(7));
        let fault = free_index(&map, Some(3)).expect_err("taken");
        assert_eq!((fault.code, fault.next.as_ref()), (Code::IndexInUse, "the lowest free index is 2"));
    }
}
