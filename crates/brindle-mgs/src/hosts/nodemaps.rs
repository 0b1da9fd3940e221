//! Decisions about nodemaps: pure functions from all rows and a change to what is stored (design note 038).

use brindle_auth::check_host_name;
use brindle_net::nodemaps::AddressRange;
use brindle_types::{Code, Fault, Result};
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
) -> Result<(Vec<Change>, Option<Nodemap>)> {
    check_name(name)?;
    let known = rows.nodemap(name);
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
            return Ok((vec![Change::NoNodemap(name.to_owned())], None));
        }
        NodemapChange::Add(_) if known.is_some() => {
            return Err(Fault::new(Code::NodemapExists).subject(name.to_owned()).data("nothing was changed"));
        }
        NodemapChange::Add(_) if rows.nodemaps().len() >= NODEMAPS_MAX => {
            return Err(bad(name, format!("a cluster has at most {NODEMAPS_MAX} nodemaps")));
        }
        NodemapChange::Add(_) => Nodemap::new(name),
        // The default nodemap is always there, also before anything was said of it.
        NodemapChange::Set(_) if is_default => known.cloned().unwrap_or_else(|| Nodemap::new(name)),
        NodemapChange::Set(_) => known.ok_or_else(unknown)?.clone(),
    };
    let (NodemapChange::Add(edit) | NodemapChange::Set(edit)) = change else { return Err(unknown()) };
    let after = edited(before.clone(), edit);
    check(rows, &after)?;
    let is_same = known.is_some() && after == before;
    let changes = if is_same { Vec::new() } else { vec![Change::Nodemap(Box::new(after.clone()))] };
    Ok((changes, Some(after)))
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
        super::change(rows, name, &change).err().map(|fault| fault.code)
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
        let (changes, after) =
            super::change(&Rows::default(), DEFAULT_NODEMAP, &NodemapChange::Set(squash)).expect("it is set");
        assert_eq!((changes.len(), after.map(|nodemap| nodemap.squash)), (1, Some(Squash::Root)));
        let rows = rows(&[Nodemap::new("lab")]);
        let none = NodemapChange::Set(NodemapEdit::default());
        assert_eq!(super::change(&rows, "lab", &none).expect("it is as it was").0, Vec::new());
    }
}
