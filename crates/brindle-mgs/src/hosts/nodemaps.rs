//! Decisions about nodemaps: pure functions from all rows and a change to what is stored (design note 038).

use brindle_auth::check_host_name;
use brindle_net::nodemaps::AddressRange;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::id_map::{
    CLOSED_SUBTREE, IdMap, IdMapEdit, IdMapRow, IdRange, MappedNodemap, RANGES_MAX,
};
use brindle_wire::mgs::nodemap::{
    DEFAULT_NODEMAP, MEMBERS_MAX, NODEMAPS_MAX, Nodemap, NodemapChange, NodemapEdit, Squash,
};

use super::rows::{Change, Rows};

/// Longest name of a nodemap, bytes.
const NAME_BYTES_MAX: usize = 32;

/// The rows that a change of a nodemap stores, and the nodemap after it.
pub(crate) fn change(
    rows: &Rows,
    name: &str,
    change: &NodemapChange,
    ids: &IdMapEdit,
) -> Result<(Vec<Change>, Option<MappedNodemap>)> {
    check_name(name)?;
    let known = rows.mapped_nodemap(name);
    let unknown = || {
        let names: Vec<&str> = rows.nodemaps().map(|nodemap| nodemap.name.as_str()).take(8).collect();
        Fault::new(Code::UnknownNodemap)
            .subject(name.to_owned())
            .why(format!(
                "there are: {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ))
            .data("nothing was changed")
    };
    let is_default = name == DEFAULT_NODEMAP;
    let before = match change {
        NodemapChange::Remove => {
            known.ok_or_else(unknown)?;
            let no_ids = rows.id_map(name).map(|_| Change::NoIdMap(name.to_owned()));
            return Ok((std::iter::once(Change::NoNodemap(name.to_owned())).chain(no_ids).collect(), None));
        }
        NodemapChange::Add(_) if known.is_some() => {
            return Err(Fault::new(Code::NodemapExists).subject(name.to_owned()).data("nothing was changed"));
        }
        NodemapChange::Add(_) if rows.nodemaps().len() >= NODEMAPS_MAX => {
            return Err(bad(name, format!("a cluster has at most {NODEMAPS_MAX} nodemaps")));
        }
        NodemapChange::Add(_) => Nodemap::new(name).into(),
        // The default nodemap is always there, also before anything was said of it.
        NodemapChange::Set(_) if is_default => known.clone().unwrap_or_else(|| Nodemap::new(name).into()),
        NodemapChange::Set(_) => known.clone().ok_or_else(unknown)?,
    };
    let (NodemapChange::Add(edit) | NodemapChange::Set(edit)) = change else { return Err(unknown()) };
    let after = edited_with_ids(&before, edit, ids)?;
    check(rows, &after.nodemap)?;
    check_ids(&after)?;
    let is_same = known.is_some_and(|known| known == after);
    let changes = if is_same { Vec::new() } else { stored(rows, &after) };
    Ok((changes, Some(after)))
}

/// The rows of a nodemap, in an order in which every step leaves it at least as closed as the result: a mapping is stored before the
/// nodemap that needs it, and removed after it.
fn stored(rows: &Rows, after: &MappedNodemap) -> Vec<Change> {
    let MappedNodemap { nodemap, ids } = after;
    let name = &nodemap.name;
    let mut open = nodemap.clone();
    if !ids.maps() {
        let no_ids = rows.id_map(name).map(|_| Change::NoIdMap(name.clone()));
        // A mapping that was left behind by a nodemap of this name, which is gone, does not count for the new one.
        let is_left_behind = rows.nodemap(name).is_none();
        let nodemap = std::iter::once(Change::Nodemap(Box::new(open)));
        return match is_left_behind {
            true => no_ids.into_iter().chain(nodemap).collect(),
            false => nodemap.chain(no_ids).collect(),
        };
    }
    let row = IdMapRow { nodemap: name.clone(), subtree: nodemap.subtree.clone(), ids: ids.clone() };
    open.subtree = CLOSED_SUBTREE.to_owned();
    vec![Change::IdMap(Box::new(row)), Change::Nodemap(Box::new(open))]
}

/// A nodemap after a change. Root of a host with numbers of its own is squashed, unless something else is asked for.
fn edited_with_ids(before: &MappedNodemap, edit: &NodemapEdit, ids: &IdMapEdit) -> Result<MappedNodemap> {
    let mut nodemap = edited(before.nodemap.clone(), edit);
    let merge = |known: &[IdRange], add: &[IdRange], remove: &[IdRange]| {
        if let Some(range) = remove.iter().find(|range| !known.contains(range)) {
            let why = format!("it has no mapping {range}: name a range as it is shown");
            return Err(bad(&nodemap.name, why).next(format!("brindle nodemap show {}", nodemap.name)));
        }
        let mut ranges = [known, add].concat();
        ranges.retain(|range| !remove.contains(range));
        ranges.sort();
        ranges.dedup();
        Ok(ranges)
    };
    let ids = IdMap {
        uids: merge(&before.ids.uids, &ids.add_uids, &ids.remove_uids)?,
        gids: merge(&before.ids.gids, &ids.add_gids, &ids.remove_gids)?,
        deny_unknown: ids.deny_unknown.unwrap_or(before.ids.deny_unknown),
    };
    if ids.maps() && nodemap.squash == Squash::None && edit.squash.is_none() {
        nodemap.squash = Squash::Root;
    }
    // Without ranges every user keeps its own number.
    let deny_unknown = ids.deny_unknown && ids.maps();
    Ok(MappedNodemap { nodemap, ids: IdMap { deny_unknown, ..ids } })
}

fn check_ids(mapped: &MappedNodemap) -> Result<()> {
    let MappedNodemap { nodemap, ids } = mapped;
    if nodemap.subtree == CLOSED_SUBTREE {
        return Err(bad(
            &nodemap.name,
            format!("{CLOSED_SUBTREE} stands for nodemaps that older servers cannot read"),
        ));
    }
    if !ids.maps() {
        return Ok(());
    }
    if nodemap.squash == Squash::None {
        let why = "root of a host with user numbers of its own is squashed";
        return Err(bad(&nodemap.name, why)
            .next(format!("brindle nodemap set {} --squash root, or take its mappings out", nodemap.name)));
    }
    check_numbers(&nodemap.name, "user", &ids.uids, nodemap.squash_uid)?;
    check_numbers(&nodemap.name, "group", &ids.gids, nodemap.squash_gid)
}

/// Each number has one partner: no two ranges overlap, on either side, and nobody's number and root's are in none.
fn check_numbers(name: &str, kind: &str, ranges: &[IdRange], nobody: u32) -> Result<()> {
    if ranges.len() > RANGES_MAX {
        return Err(bad(
            name,
            format!("it would map {} ranges of {kind}s, {RANGES_MAX} are possible", ranges.len()),
        ));
    }
    for (at, range) in ranges.iter().enumerate() {
        let Some((host_last, fs_last)) = range.lasts() else {
            return Err(bad(name, format!("mapping {range} of {kind}s goes beyond the last number")));
        };
        if range.host == 0 || range.fs == 0 {
            let why = format!(
                "mapping {range} of {kind}s names 0: root of such a host is squashed, and nobody becomes root"
            );
            return Err(bad(name, why));
        }
        let holds = |first: u32, last: u32| (first..=last).contains(&nobody);
        if holds(range.host, host_last) || holds(range.fs, fs_last) {
            let why =
                format!("mapping {range} of {kind}s holds {nobody}, the number of those without a mapping");
            return Err(
                bad(name, why).next(format!("give those another number: --squash-{}", kind_option(kind)))
            );
        }
        for other in &ranges[..at] {
            let (other_host_last, other_fs_last) = other.lasts().unwrap_or_default();
            if range.host <= other_host_last && other.host <= host_last {
                return Err(bad(name, format!("{other} and {range} map the same {kind} of the hosts twice")));
            }
            if range.fs <= other_fs_last && other.fs <= fs_last {
                return Err(bad(
                    name,
                    format!("{other} and {range} map two {kind}s onto one of the file system"),
                ));
            }
        }
    }
    Ok(())
}

fn kind_option(kind: &str) -> &'static str {
    if kind == "user" { "uid" } else { "gid" }
}

fn edited(mut nodemap: Nodemap, edit: &NodemapEdit) -> Nodemap {
    let merge = |list: &mut Vec<String>, add: &[String], remove: &[String]| {
        list.extend(add.iter().cloned());
        list.retain(|member| !remove.contains(member));
        list.sort();
        list.dedup();
    };
    merge(&mut nodemap.hosts, &edit.add_hosts, &edit.remove_hosts);
    merge(&mut nodemap.addresses, &edit.add_addresses, &edit.remove_addresses);
    nodemap.read_only = edit.read_only.unwrap_or(nodemap.read_only);
    nodemap.squash = edit.squash.unwrap_or(nodemap.squash);
    nodemap.squash_uid = edit.squash_uid.unwrap_or(nodemap.squash_uid);
    nodemap.squash_gid = edit.squash_gid.unwrap_or(nodemap.squash_gid);
    if let Some(subtree) = &edit.subtree {
        nodemap.subtree.clone_from(subtree);
    }
    nodemap
}

fn bad(name: &str, why: impl Into<String>) -> Fault {
    Fault::new(Code::BadNodemap).subject(name.to_owned()).why(why.into()).data("nothing was changed")
}

fn check_name(name: &str) -> Result<()> {
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_word {
        let why = format!("its name has 1 to {NAME_BYTES_MAX} letters, digits, '-' or '_'");
        return Err(bad(name, why));
    }
    Ok(())
}

fn check(rows: &Rows, nodemap: &Nodemap) -> Result<()> {
    let name = &nodemap.name;
    let members = nodemap.hosts.len() + nodemap.addresses.len();
    if name == DEFAULT_NODEMAP && members > 0 {
        return Err(bad(name, "it is for all hosts that no other nodemap names: it names none itself"));
    }
    if members > MEMBERS_MAX {
        return Err(bad(
            name,
            format!("it would name {members} hosts and ranges, {MEMBERS_MAX} are possible"),
        ));
    }
    if nodemap.squash_uid == 0 || nodemap.squash_gid == 0 {
        return Err(bad(name, "nobody is squashed to root or its group: give another user and group"));
    }
    if !nodemap.subtree.is_empty() {
        check_subtree(nodemap)?;
    }
    let others: Vec<&Nodemap> = rows.nodemaps().filter(|other| other.name != *name).collect();
    for host in &nodemap.hosts {
        check_host_name(host).map_err(|fault| bad(name, fault.to_string()))?;
        if let Some(other) = others.iter().find(|other| other.hosts.contains(host)) {
            let why = format!("host {host} is in nodemap '{}'", other.name);
            return Err(bad(name, why).next(format!(
                "take it out first: brindle nodemap set {} --remove-host {host}",
                other.name
            )));
        }
        let is_admin = rows.host(host).is_some_and(|row| row.roles.split(',').any(|role| role == "admin"));
        if is_admin && (nodemap.read_only || nodemap.squash != Squash::None || !nodemap.subtree.is_empty()) {
            let why = format!("host {host} has joined as admin: it could change the nodemap itself");
            return Err(bad(name, why)
                .next("let it join again as client: brindle node remove, brindle cluster token"));
        }
    }
    for range in &nodemap.addresses {
        let parsed: AddressRange = range.parse().map_err(|why: String| bad(name, why))?;
        let overlaps =
            |text: &String| text.parse::<AddressRange>().is_ok_and(|other| other.overlaps(&parsed));
        let own = nodemap.addresses.iter().filter(|other| *other != range).find(|other| overlaps(other));
        if let Some(other) = own {
            return Err(bad(name, format!("{range} and {other} overlap")));
        }
        if let Some(other) = others.iter().find(|other| other.addresses.iter().any(overlaps)) {
            return Err(bad(name, format!("{range} overlaps a range of nodemap '{}'", other.name)));
        }
    }
    Ok(())
}

fn check_subtree(nodemap: &Nodemap) -> Result<()> {
    let subtree = &nodemap.subtree;
    let names = subtree.split('/').skip(1);
    let is_plain = |name: &str| !name.is_empty() && name != "." && name != ".." && name.len() <= 255;
    if !subtree.starts_with('/') || !names.clone().all(is_plain) || subtree.len() > 4096 {
        return Err(bad(&nodemap.name, format!("'{subtree}' is no absolute path without '.' and '..'")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(nodemaps: &[Nodemap]) -> Rows {
        let mut rows = Rows::default();
        for (version, nodemap) in (1..).zip(nodemaps) {
            rows.apply(Change::Nodemap(Box::new(nodemap.clone())), version);
        }
        rows
    }

    fn edit(hosts: &[&str], addresses: &[&str]) -> NodemapEdit {
        let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        NodemapEdit { add_hosts: strings(hosts), add_addresses: strings(addresses), ..NodemapEdit::default() }
    }

    fn code(rows: &Rows, name: &str, change: NodemapChange) -> Option<Code> {
        super::change(rows, name, &change, &IdMapEdit::default()).err().map(|fault| fault.code)
    }

    #[test]
    fn a_host_is_in_one_nodemap() {
        let lab = Nodemap {
            hosts: vec!["c1".into()],
            addresses: vec!["10.0.3.0/24".into()],
            ..Nodemap::new("lab")
        };
        let rows = rows(&[lab]);
        let add = |hosts: &[&str], addresses: &[&str]| {
            code(&rows, "other", NodemapChange::Add(edit(hosts, addresses)))
        };
        assert_eq!(add(&["c2"], &["10.0.4.0/24"]), None);
        assert_eq!(add(&["c1"], &[]), Some(Code::BadNodemap));
        assert_eq!(add(&[], &["10.0.0.0/16"]), Some(Code::BadNodemap));
        assert_eq!(add(&[], &["10.0.3.7"]), Some(Code::BadNodemap));
        assert_eq!(add(&[], &["10.0.5.0/24", "10.0.5.9"]), Some(Code::BadNodemap));
        assert_eq!(add(&["c/2"], &[]), Some(Code::BadNodemap));
    }

    #[test]
    fn what_is_impossible_changes_nothing() {
        let rows = rows(&[Nodemap::new("lab")]);
        let set = |edit: NodemapEdit| code(&rows, "lab", NodemapChange::Set(edit));
        let none = NodemapEdit::default;
        assert_eq!(set(NodemapEdit { squash_uid: Some(0), ..none() }), Some(Code::BadNodemap));
        assert_eq!(set(NodemapEdit { squash_gid: Some(0), ..none() }), Some(Code::BadNodemap));
        for path in ["projects", "/projects/", "/a/../b", "//a", "/"] {
            let subtree = Some(path.to_owned());
            assert_eq!(set(NodemapEdit { subtree, ..none() }), Some(Code::BadNodemap), "{path}");
        }
        assert_eq!(code(&rows, "lab", NodemapChange::Add(none())), Some(Code::NodemapExists));
        assert_eq!(code(&rows, "nix", NodemapChange::Set(none())), Some(Code::UnknownNodemap));
        assert_eq!(code(&rows, "nix", NodemapChange::Remove), Some(Code::UnknownNodemap));
        assert_eq!(code(&rows, "n x", NodemapChange::Add(none())), Some(Code::BadNodemap));
        let named = code(&rows, DEFAULT_NODEMAP, NodemapChange::Set(edit(&["c1"], &[])));
        assert_eq!(named, Some(Code::BadNodemap));
    }

    #[test]
    fn the_default_is_there_from_the_beginning() {
        let squash = NodemapEdit { squash: Some(Squash::Root), ..NodemapEdit::default() };
        let (changes, after) = super::change(
            &Rows::default(),
            DEFAULT_NODEMAP,
            &NodemapChange::Set(squash),
            &IdMapEdit::default(),
        )
        .expect("it is set");
        assert_eq!((changes.len(), after.map(|after| after.nodemap.squash)), (1, Some(Squash::Root)));
        let rows = rows(&[Nodemap::new("lab")]);
        let none = NodemapChange::Set(NodemapEdit::default());
        let same = super::change(&rows, "lab", &none, &IdMapEdit::default()).expect("it is as it was");
        assert_eq!(same.0, Vec::new());
    }

    fn mapped(rows: &mut Rows, add_uids: &[&str], edit: NodemapEdit) -> Result<MappedNodemap> {
        let add_uids = add_uids.iter().map(|text| text.parse().expect("a range")).collect();
        let ids = IdMapEdit { add_uids, ..IdMapEdit::default() };
        let (changes, after) = super::change(rows, "lab", &NodemapChange::Set(edit), &ids)?;
        for change in changes {
            let version = rows.version() + 1;
            rows.apply(change, version);
            let now = rows.mapped_nodemap("lab").expect("it is there");
            assert!(now.ids.maps(), "it is closed at every step");
        }
        Ok(after.expect("it is there"))
    }

    #[test]
    fn a_mapping_is_kept_beside_a_nodemap_that_older_servers_see_closed() {
        let mut rows = rows(&[Nodemap { subtree: "/a".into(), ..Nodemap::new("lab") }]);
        let after = mapped(&mut rows, &["1000-1999:5000"], NodemapEdit::default()).expect("good");
        assert_eq!((after.nodemap.squash, &after.nodemap.subtree[..]), (Squash::Root, "/a"));
        assert_eq!(rows.mapped_nodemap("lab"), Some(after));
        assert_eq!(rows.nodemap("lab").map(|row| &row.subtree[..]), Some(CLOSED_SUBTREE));
        let none = NodemapEdit { squash: Some(Squash::None), ..NodemapEdit::default() };
        assert!(mapped(&mut rows, &[], none).is_err(), "root of such a host is squashed");
        let (changes, _) =
            super::change(&rows, "lab", &NodemapChange::Remove, &IdMapEdit::default()).expect("removed");
        assert_eq!(changes, [Change::NoNodemap("lab".into()), Change::NoIdMap("lab".into())]);
        // A new nodemap of the same name does not take over the old mapping.
        let version = rows.version() + 1;
        rows.apply(changes[0].clone(), version);
        let add = NodemapChange::Add(NodemapEdit::default());
        let (changes, after) = super::change(&rows, "lab", &add, &IdMapEdit::default()).expect("added");
        assert_eq!(
            (changes.len(), &changes[0], after),
            (2, &Change::NoIdMap("lab".into()), Some(Nodemap::new("lab").into()))
        );
    }

    #[test]
    fn mappings_that_are_not_one_to_one_are_refused_by_name() {
        let why = |ranges: &[&str]| {
            let mut rows = rows(&[Nodemap::new("lab")]);
            mapped(&mut rows, ranges, NodemapEdit::default()).err().map(|fault| fault.why[0].to_string())
        };
        assert_eq!(why(&["1000:5000", "1001-1999:5001", "10:5000000"]), None);
        let twice = "1000-1999:5000 and 1500:9000 map the same user of the hosts twice";
        assert_eq!(why(&["1500:9000", "1000-1999:5000"]).as_deref(), Some(twice));
        let onto_one = "7:5500 and 1000-1999:5000 map two users onto one of the file system";
        assert_eq!(why(&["1000-1999:5000", "7:5500"]).as_deref(), Some(onto_one));
        for root in ["0:5000", "5000:0"] {
            assert!(why(&[root]).is_some_and(|why| why.contains("names 0")), "{root}");
        }
        for nobody in ["65534:5000", "60000-69999:1000", "1:65534"] {
            assert!(why(&[nobody]).is_some_and(|why| why.contains("holds 65534")), "{nobody}");
        }
        let many: Vec<String> = (1..=300).map(|n| format!("{}:{}", 2 * n, 70_000 + 2 * n)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(why(&many).is_some_and(|why| why.contains("300 ranges of users, 256 are possible")));
    }
}
