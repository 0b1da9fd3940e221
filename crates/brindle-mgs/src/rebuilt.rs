//! The configuration of a cluster, made anew from the superblocks of its targets (design note 048): the MGT and every backup of it are lost.
//!
//! [`rebuild`] is a plain function from the targets found on the hosts to a [`ConfigBackup`], which is then restored like any other
//! ([`ConfigBackup::restored`]): versions and epochs are above all that were told, and replica sets wait until their hosts have told their
//! state.
//!
//! Invariant: contradictions are refused by name. The function never guesses where a wrong guess could give a target to two hosts, or to
//! one that lacks acknowledged changes: of a replica set, only members that the newest record names count.

use std::collections::{BTreeMap, BTreeSet};

use brindle_config::Superblock;
use brindle_types::ids::DEFAULT_PORT;
use brindle_types::{Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::map::{Map, ReplicaSet, TargetEntry, TargetState};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::replica::{MEMBERS_MAX, MemberRole, ReplicaMember, ReplicaSetState};

use crate::backup::ConfigBackup;
use crate::hosts::certificate_ends_s;
use crate::hosts::rows::{Change, HostRow, ReplicaRow, Rows};
use crate::store;

/// A directory of a target on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTarget {
    /// The directory.
    pub dir: String,
    /// Superblock in it.
    pub superblock: Superblock,
    /// Highest epoch of its replica set that it has recorded; 0 where it never was in one.
    pub epoch: u64,
    /// Hosts that were in sync in that epoch; empty where that was not known there.
    pub in_sync: Vec<String>,
}

/// Targets that lie on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundHost {
    /// Name of the host.
    pub name: String,
    /// Key of the host.
    pub key: [u8; 32],
    /// Roles of the host.
    pub roles: String,
    /// Targets found on the host.
    pub targets: Vec<FoundTarget>,
}

/// Facts that no superblock has.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Hosts that are lost for good, although records name them, and targets that were removed or are lost, like `OST0002`.
    pub lost: BTreeSet<String>,
    /// Directories that do not count, as (host, directory).
    pub left_out: BTreeSet<(String, String)>,
    /// Now, seconds since 1970.
    pub now_s: i64,
}

/// A configuration made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Entries as of a backup.
    pub backup: ConfigBackup,
    /// Targets with their hosts, in words.
    pub targets: Vec<String>,
    /// Remarks for the administrator, in words.
    pub notes: Vec<String>,
}

/// A directory with its host.
type HostTarget<'a> = (&'a FoundHost, &'a FoundTarget);

fn refuse(subject: String, why: String) -> Fault {
    Fault::new(Code::SuperblocksContradict).subject(subject).why(why).data("nothing was changed")
}

fn shown((host, target): &HostTarget<'_>) -> String {
    format!("{}:{}", host.name, target.dir)
}

fn leave_out(places: &[HostTarget<'_>]) -> String {
    let words: Vec<String> = places.iter().map(|place| format!("--leave-out {}", shown(place))).collect();
    format!("look which of them is the right one, and leave the others out: {}", words.join(" or "))
}

/// Makes the configuration. `mgt` is the superblock of the new MGT, without the id of the file system; `own` the host that gets it.
pub fn rebuild(
    found: &[FoundHost],
    said: &Said,
    mut mgt: Superblock,
    own: HostRow,
    authority: String,
) -> Result<Rebuilt> {
    let places = counted(found, said)?;
    let (fs, fs_id) = file_system(&places)?;
    let mut rebuilding =
        Rebuilding { said, hosts: host_rows(found, own, said), ..Rebuilding::new(said, &fs, fs_id) };
    let mut by_target: BTreeMap<TargetId, Vec<HostTarget<'_>>> = BTreeMap::new();
    for place in places {
        by_target.entry(place.1.superblock.target).or_default().push(place);
    }
    for (n, (target, places)) in by_target.iter().enumerate() {
        let port = u16::try_from(n + 1).ok().and_then(|n| DEFAULT_PORT.checked_add(n));
        let port =
            port.ok_or_else(|| refuse(fs.target(*target), "there are more targets than ports".to_owned()))?;
        rebuilding.target(*target, places, port)?;
    }
    rebuilding.check_gaps(by_target.keys())?;
    (mgt.fs, mgt.fs_id) = (fs, fs_id);
    rebuilding.finish(mgt, authority)
}

/// Directories that count.
fn counted<'a>(found: &'a [FoundHost], said: &Said) -> Result<Vec<HostTarget<'a>>> {
    let mut names = BTreeSet::new();
    if let Some(twice) = found.iter().find(|host| !names.insert(&host.name)) {
        return Err(refuse(twice.name.clone(), "two files are of a host of this name".to_owned())
            .next("give the file of each host once; a host that was renamed: only its newest file"));
    }
    let all = found.iter().flat_map(|host| host.targets.iter().map(move |target| (host, target)));
    let counts =
        |(host, target): &HostTarget<'_>| !said.left_out.contains(&(host.name.clone(), target.dir.clone()));
    let (counted, out): (Vec<_>, Vec<_>) = all.partition(counts);
    let named = |(host, dir): &&(String, String)| !out.iter().any(|(h, t)| h.name == *host && t.dir == *dir);
    if let Some((host, dir)) = said.left_out.iter().find(named) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot leave out")
            .subject(format!("{host}:{dir}"))
            .why("no file tells of such a directory")
            .data("nothing was changed"));
    }
    Ok(counted)
}

/// The single file system that all targets belong to.
fn file_system(places: &[HostTarget<'_>]) -> Result<(FsName, u64)> {
    let Some(first) = places.first() else {
        return Err(Fault::new(Code::UnknownTarget)
            .what("cannot make the configuration anew")
            .why("no target lies on the hosts that were looked at")
            .data("nothing was changed")
            .next("on each host: brindle cluster superblocks -o json --under DIR"));
    };
    let fs = &first.1.superblock.fs;
    if let Some(other) = places.iter().find(|(_, target)| target.superblock.fs != *fs) {
        let why = format!("{} is {}", shown(other), other.1.superblock.name());
        return Err(refuse(first.1.superblock.name(), format!("{} is {fs}'s", shown(first)))
            .why(why)
            .next(leave_out(&[*first, *other])));
    }
    // A target that has never registered does not know the id.
    let knows = |place: &&HostTarget<'_>| place.1.superblock.fs_id != 0;
    let Some(known) = places.iter().find(knows) else {
        return Err(refuse(
            fs.to_string(),
            "no target knows the id of the file system: none was ever served".to_owned(),
        ));
    };
    let fs_id = known.1.superblock.fs_id;
    match places.iter().filter(knows).find(|(_, target)| target.superblock.fs_id != fs_id) {
        Some(other) => Err(refuse(
            fs.to_string(),
            format!(
                "{} is of the file system {fs_id:016x}, {} of {:016x}",
                shown(known),
                shown(other),
                other.1.superblock.fs_id
            ),
        )
        .next(leave_out(&[*known, *other]))),
        None => Ok((fs.clone(), fs_id)),
    }
}

/// Refuses copies of which not every one can be a member.
fn check_copies(name: &str, places: &[HostTarget<'_>]) -> Result<()> {
    for (n, place) in places.iter().enumerate() {
        if let Some(other) = places[..n].iter().find(|other| other.0.name == place.0.name) {
            return Err(refuse(
                name.to_owned(),
                format!("{} and {} are two copies on one host", shown(other), shown(place)),
            )
            .next(leave_out(&[*other, *place])));
        }
    }
    if places.len() > MEMBERS_MAX {
        return Err(refuse(
            name.to_owned(),
            format!("there are {} copies, and a target has at most {MEMBERS_MAX}", places.len()),
        )
        .next(leave_out(places)));
    }
    Ok(())
}

fn host_rows(found: &[FoundHost], own: HostRow, said: &Said) -> BTreeMap<String, HostRow> {
    let row = |host: &FoundHost| HostRow {
        name: host.name.clone(),
        key: host.key,
        roles: host.roles.clone(),
        joined_s: said.now_s,
        certificate_ends_s: certificate_ends_s(said.now_s),
        assignments: Vec::new(),
    };
    let mut rows: BTreeMap<String, HostRow> =
        found.iter().map(|host| (host.name.clone(), row(host))).collect();
    rows.insert(own.name.clone(), own);
    rows
}

struct Rebuilding<'a> {
    said: &'a Said,
    hosts: BTreeMap<String, HostRow>,
    map: Map,
    sets: Vec<ReplicaSetState>,
    targets: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Rebuilding<'a> {
    fn new(said: &'a Said, fs: &FsName, fs_id: u64) -> Rebuilding<'a> {
        Rebuilding {
            said,
            hosts: BTreeMap::new(),
            map: Map::new(fs.clone(), fs_id),
            sets: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn target(&mut self, target: TargetId, places: &[HostTarget<'_>], port: u16) -> Result<()> {
        let (first, name) = (places[0], self.map.fs.target(target));
        if target.role == Role::Mgt {
            return Err(refuse(name, format!("{} holds an MGT", shown(&first)))
                .why("where its configuration is whole, nothing has to be made anew")
                .next(format!("serve it; or, if it is of no use: --leave-out {}", shown(&first))));
        }
        if let Some(other) = places.iter().find(|place| place.1.superblock.uuid != first.1.superblock.uuid) {
            return Err(refuse(
                name,
                format!(
                    "{} and {} have different identities, and each says that it is this target",
                    shown(&first),
                    shown(other)
                ),
            )
            .next(leave_out(&[first, *other])));
        }
        let is_set = places.iter().any(|place| place.1.epoch != 0);
        let primary = match is_set {
            true => self.set(target, places, port)?,
            false => self.single(target, places, port)?,
        };
        let entry = TargetEntry {
            id: target,
            uuid: first.1.superblock.uuid,
            nids: Vec::new(),
            epoch: 0,
            state: TargetState::Down,
            replicas: ReplicaSet::of(primary.clone()),
            format_level_max: FormatLevel::NEWEST,
        };
        self.map.note_host(&primary);
        self.map.targets.push(entry);
        Ok(())
    }

    /// A target of one host alone.
    fn single(&mut self, target: TargetId, places: &[HostTarget<'_>], port: u16) -> Result<String> {
        let name = self.map.fs.target(target);
        let [(host, found)] = places else {
            return Err(refuse(
                name,
                format!(
                    "{} and {} are copies of one directory: neither was in a replica set",
                    shown(&places[0]),
                    shown(&places[1])
                ),
            )
            .next(leave_out(places)));
        };
        let assignment = Assignment {
            target,
            uuid: found.superblock.uuid,
            dir: found.dir.clone(),
            port,
            is_formatted: true,
            is_wanted: true,
        };
        if let Some(row) = self.hosts.get_mut(&host.name) {
            row.assignments.push(assignment);
            row.assignments.sort_by_key(|a| a.target);
        }
        self.targets.push(format!("{name} on {} in {}", host.name, found.dir));
        Ok(host.name.clone())
    }

    /// A replica set, as its newest record has it.
    fn set(&mut self, target: TargetId, places: &[HostTarget<'_>], port: u16) -> Result<String> {
        let name = self.map.fs.target(target);
        check_copies(&name, places)?;
        let newest = places.iter().map(|place| place.1.epoch).max().unwrap_or(0);
        let of_newest = || places.iter().filter(|place| place.1.epoch == newest);
        let record = of_newest().find(|place| !place.1.in_sync.is_empty());
        let mut in_sync: Vec<&str> = match record {
            Some(place) => place.1.in_sync.iter().map(String::as_str).collect(),
            None => of_newest().map(|place| place.0.name.as_str()).collect(),
        };
        let has = |host: &str| places.iter().any(|place| place.0.name == host);
        let absent: Vec<&str> = in_sync.iter().copied().filter(|host| !has(host)).collect();
        let missing: Vec<&str> =
            absent.iter().copied().filter(|host| !self.said.lost.contains(*host)).collect();
        if !missing.is_empty() {
            let from = record.or_else(|| of_newest().next()).map(shown).unwrap_or_default();
            return Err(refuse(
                name,
                format!(
                    "by the record of {from}, {} had all of it in epoch {newest}, and was not looked at",
                    missing.join(", ")
                ),
            )
            .next(format!(
                "give the file of {0} too; or, if that host is lost for good: --lost {0}",
                missing[0]
            )));
        }
        in_sync.retain(|host| has(host));
        let Some(primary) = in_sync.first().map(|host| (*host).to_owned()) else {
            return Err(refuse(name, format!("its data was complete on {} only", absent.join(", ")))
                .next("find one of those disks; or leave the other copies out, and restore its files from elsewhere"));
        };
        if record.is_none() && places.len() > 1 {
            return Err(refuse(name, format!("no record says which copies had all of it in epoch {newest}"))
                .next(leave_out(places)));
        }
        let member = |place: &HostTarget<'_>| ReplicaMember {
            host: place.0.name.clone(),
            dir: place.1.dir.clone(),
            is_formatted: true,
            role: match in_sync.contains(&place.0.name.as_str()) {
                true => MemberRole::InSync,
                false => MemberRole::Learner,
            },
            boot_term: 0,
            recorded_epoch: place.1.epoch,
            nids: Vec::new(),
        };
        let mut members: Vec<ReplicaMember> = places.iter().map(member).collect();
        members.sort_by_key(|m| m.host != primary);
        let shown: Vec<String> = members.iter().map(|m| format!("{} in {}", m.host, m.dir)).collect();
        self.targets.push(format!("{name} with copies on {}; epoch {newest}", shown.join(", ")));
        // The terms that clients were told are unknown. A term above all of them says that unsynced changes may be
        // lost.
        let term = crate::restored::new_term(0, self.said.now_s);
        // A copy that is lost or was left out may have gone by a higher epoch than those that were found.
        let epoch = crate::restored::above(newest, self.said.now_s);
        let uuid = places[0].1.superblock.uuid;
        self.sets.push(ReplicaSetState {
            target,
            uuid,
            epoch,
            term,
            port,
            primary: primary.clone(),
            members,
        });
        Ok(primary)
    }

    /// Refuses indices without a target, unless an administrator has said that the target is lost: a target made later under such an index
    /// would be taken for the one that holds files.
    fn check_gaps<'t>(&mut self, targets: impl Iterator<Item = &'t TargetId> + Clone) -> Result<()> {
        let osts: Vec<u16> = targets.clone().filter(|t| t.role == Role::Ost).map(|t| t.index).collect();
        let highest = osts.last().copied().unwrap_or(0);
        let gaps = (0..highest).filter(|n| !osts.contains(n)).map(|n| TargetId::ost(n).to_string());
        let (told, missing): (Vec<String>, Vec<String>) = gaps.partition(|gap| self.said.lost.contains(gap));
        if !missing.is_empty() {
            let lost: Vec<String> = missing.iter().map(|gap| format!("--lost {gap}")).collect();
            return Err(refuse(
                self.map.fs.to_string(),
                format!("{} was found, and not {}", TargetId::ost(highest), missing.join(", ")),
            )
            .next(format!(
                "look for their disks, and give the files of their hosts; or, of what was removed or is lost for good: {}",
                lost.join(" ")
            )));
        }
        if !told.is_empty() {
            self.notes.push(format!(
                "not there, as you say: {}; files with data there are not whole",
                told.join(", ")
            ));
        }
        if let Some(highest) = osts.last() {
            self.notes.push(format!(
                "the highest OST that was found is {}; if there were higher ones, they are missing",
                TargetId::ost(*highest)
            ));
        }
        if !targets.clone().any(|t| t.role == Role::Mdt) {
            self.notes.push("no MDT was found: without it no file has a name".to_owned());
        }
        Ok(())
    }

    fn finish(mut self, mgt: Superblock, authority: String) -> Result<Rebuilt> {
        self.map.targets.sort_by_key(|entry| entry.id);
        let none = Rows::default();
        let hosts = self.hosts.into_values().map(Change::Host);
        let sets = self.sets.into_iter().map(|set| Change::Replicas(Box::new(ReplicaRow { set })));
        let map = form::encode(FormatLevel::NEWEST, &self.map)?.to_vec();
        let mut entries = vec![(store::key(&self.map.fs), map)];
        for change in hosts.chain(sets) {
            let (key, _, value) = change.entry(&none)?;
            entries.extend(value.map(|value| (key, value)));
        }
        entries.sort();
        let backup = ConfigBackup { made_s: self.said.now_s, superblock: mgt.to_bytes(), authority, entries };
        Ok(Rebuilt { backup, targets: self.targets, notes: self.notes })
    }
}

#[cfg(test)]
mod tests;
