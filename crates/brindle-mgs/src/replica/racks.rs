//! Racks: hosts that fail together. Members of a replica set are on different hosts, and in different racks as far as there are several.
//!
//! Plain functions of all rows and of the map, which has the label of each host ([`brindle_wire::map::HostEntry::failure_domain`]). Of a host without a
//! label nothing is known: it counts as standing in no rack, and never as one in another rack.

use brindle_auth::{HostRole, Roles};
use brindle_types::{Code, Fault, Result};
use brindle_wire::map::Map;

use crate::hosts::decide::known;
use crate::hosts::rows::{HostRow, Rows};

/// Longest name of a rack, bytes.
const RACK_MAX_BYTES: usize = 64;
/// Most hosts that a refusal names.
const NAMED_MAX: usize = 4;

/// Rack of a host; `None` where nothing is said.
pub(crate) fn rack<'a>(map: &'a Map, host: &str) -> Option<&'a str> {
    map.host(host).map(|entry| entry.failure_domain.as_str()).filter(|rack| !rack.is_empty())
}

/// The one of several hosts that is in the rack of a host.
pub(crate) fn neighbour<'a>(map: &Map, others: &[&'a str], host: &str) -> Option<&'a str> {
    let own = rack(map, host)?;
    others.iter().copied().find(|other| *other != host && rack(map, other) == Some(own))
}

/// Hosts that could have a copy in a rack where none of `others` is, with their racks.
fn elsewhere<'a>(rows: &'a Rows, map: &'a Map, others: &[&str], host: &str) -> Vec<(&'a str, &'a str)> {
    let is_server =
        |row: &&HostRow| row.roles.parse::<Roles>().is_ok_and(|roles| roles.has(HostRole::Server));
    let is_free = |name: &str| name != host && !others.contains(&name);
    let taken: Vec<&str> = others.iter().filter_map(|other| rack(map, other)).collect();
    let free = rows.hosts().filter(is_server).map(|row| row.name.as_str()).filter(|name| is_free(name));
    free.filter_map(|name| Some((name, rack(map, name)?))).filter(|(_, rack)| !taken.contains(rack)).collect()
}

/// Refuses a copy on a host that stands in the rack of another member, where a host of another rack could have it.
pub(crate) fn check_apart(
    rows: &Rows,
    map: &Map,
    others: &[&str],
    host: &str,
    is_same_rack: bool,
) -> Result<()> {
    let Some(other) = neighbour(map, others, host).filter(|_| !is_same_rack) else { return Ok(()) };
    let free = elsewhere(rows, map, others, host);
    if free.is_empty() {
        return Ok(());
    }
    let named = free.iter().take(NAMED_MAX).map(|(host, rack)| format!("{host} ({rack})"));
    Err(Fault::new(Code::BadArgument)
        .what("will not put a copy on")
        .subject(host.to_owned())
        .why(format!(
            "it is in the rack {} with {other}: what takes the power or the network of that rack takes both copies",
            rack(map, host).unwrap_or_default()
        ))
        .data("nothing was changed")
        .next(format!(
            "choose a host of another rack: {}; to have both in one rack all the same: --same-rack",
            named.collect::<Vec<_>>().join(", ")
        )))
}

/// The map with a host in a rack, or in none; `None` if it is so already.
pub(crate) fn labelled(rows: &Rows, map: &Map, host: &str, rack: &str) -> Result<Option<Map>> {
    known(rows, host)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if rack.len() > RACK_MAX_BYTES || !rack.chars().all(is_plain) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot label the host")
            .subject(host.to_owned())
            .why(format!(
                "the name of a rack has letters, digits and -_.: only, and at most {RACK_MAX_BYTES} of them"
            ))
            .data("nothing was changed"));
    }
    let mut next = map.clone();
    next.version += 1;
    next.note_host(host);
    if let Some(entry) = next.hosts.iter_mut().find(|entry| entry.name == host) {
        entry.failure_domain = rack.to_owned();
    }
    Ok((rack != self::rack(map, host).unwrap_or_default()).then_some(next))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hosts::rows::Change;

    /// A cluster of servers, with their racks; an empty one: nothing is said.
    pub(crate) fn cluster(hosts: &[(&str, &str)]) -> (Rows, Map) {
        let (mut rows, mut map) = (Rows::default(), Map::new("scratch".parse().unwrap(), 1));
        for (n, (name, rack)) in hosts.iter().enumerate() {
            let row = HostRow {
                name: (*name).to_owned(),
                key: [n as u8; 32],
                roles: if name.starts_with('c') { "client" } else { "server" }.to_owned(),
                joined_s: 0,
                certificate_ends_s: 0,
                assignments: Vec::new(),
            };
            rows.apply(Change::Host(row), n as u64 + 1);
            map = labelled(&rows, &map, name, rack).unwrap().unwrap_or(map);
        }
        (rows, map)
    }

    #[test]
    fn copies_in_one_rack_are_refused_where_another_rack_has_a_free_host() {
        let (rows, map) = cluster(&[("a", "R1"), ("b", "R1"), ("d", "R2"), ("n", ""), ("c", "R3")]);
        let check = |others: &[&str], host: &str| check_apart(&rows, &map, others, host, false);
        let fault = check(&["a"], "b").unwrap_err();
        assert!(fault.why[0].contains("R1 with a") && fault.next.contains("d (R2)"), "{fault}");
        assert!(!fault.next.contains("c (R3)"), "a client has no copies");
        assert_eq!(check_apart(&rows, &map, &["a"], "b", true), Ok(()), "it was asked for");
        assert_eq!(check(&["a"], "d"), Ok(()));
        assert_eq!(check(&["a"], "n"), Ok(()), "nothing is known of it");
        assert_eq!(check(&["n"], "a"), Ok(()));
        assert_eq!(check(&["a", "d"], "b"), Ok(()), "no third rack has a free host");
        let (rows, map) = cluster(&[("a", "R1"), ("b", "R1"), ("n", ""), ("c", "R3")]);
        assert_eq!(check_apart(&rows, &map, &["a"], "b", false), Ok(()), "there is one rack only");
    }

    #[test]
    fn labels_are_names_and_change_nothing_twice() {
        let (rows, map) = cluster(&[("a", "R1")]);
        assert_eq!(labelled(&rows, &map, "a", "R1"), Ok(None));
        assert_eq!(rack(&labelled(&rows, &map, "a", "").unwrap().unwrap(), "a"), None);
        for (host, rack) in [("x", "R1"), ("a", "R 1"), ("a", "r\n"), ("a", &"x".repeat(65))] {
            assert!(labelled(&rows, &map, host, rack).is_err(), "{rack}");
        }
    }
}
