//! Nodemaps as a server sees them: what the host behind a connection may do (design note 038).
//!
//! One [`Nodemaps`] for each process, beside the list of removed hosts: the process learns the nodemaps from the MGS, and the gate of every
//! target asks here. A host that is trusted fully has no [`Limits`], so its requests skip all checks of this kind.
//!
//! | connection | the nodemap is found by |
//! |---|---|
//! | of this machine (local socket) | none: it is a server's host |
//! | of a server that serves a target | none: servers trust each other |
//! | with a certificate | the name in the certificate |
//! | without one (mode `none`) | its address, then the name that it claims |
//!
//! At an address that a nodemap limits, a program's claim to be a server or an administrator is refused ([`Nodemaps::check_claim`]).
//!
//! Hosts that no nodemap names are those of the default nodemap, unless their certificate has the role server, agent or admin.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_auth::HostRole;
use brindle_stdx::watch;
use brindle_types::{Code, Fault};
use brindle_wire::Cred;
use brindle_wire::mgs::id_map::{IdMap, MappedNodemap};
use brindle_wire::mgs::nodemap::{DEFAULT_NODEMAP, NOBODY, Nodemap, Squash};
use brindle_wire::principal::PrincipalKind;

pub use crate::ids::Ids;
use crate::server::ServerConn;

/// Supplementary groups of a user that are looked at.
const GROUPS_MAX: usize = 1024;

/// Limits of a host that is not trusted fully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Name of its nodemap, for messages.
    pub nodemap: String,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Users of the host that become nobody.
    pub squash: Squash,
    /// The user that they become.
    pub uid: u32,
    /// The group that they become.
    pub gid: u32,
    /// Names from the root to the tree that it sees; none for the whole file system.
    pub subtree: Vec<Vec<u8>>,
    /// Numbers of the host's users and groups, if the file system has others for them. Such a host has no root.
    pub ids: Ids,
}

impl Limits {
    /// Limits by a nodemap without a mapping; `None` if it takes nothing away.
    pub fn of(nodemap: &Nodemap) -> Option<Limits> {
        Limits::mapped(nodemap, &IdMap::default())
    }

    /// Limits by a nodemap; `None` if it takes nothing away.
    pub fn mapped(nodemap: &Nodemap, ids: &IdMap) -> Option<Limits> {
        let names = nodemap.subtree.split('/').filter(|name| !name.is_empty());
        let limits = Limits {
            nodemap: nodemap.name.clone(),
            read_only: nodemap.read_only,
            // Permissions of a host with numbers of its own are checked here, whatever a row says.
            squash: if ids.maps() && nodemap.squash == Squash::None { Squash::Root } else { nodemap.squash },
            // The user nobody is never root, whatever a row says.
            uid: if nodemap.squash_uid == 0 { NOBODY } else { nodemap.squash_uid },
            gid: if nodemap.squash_gid == 0 { NOBODY } else { nodemap.squash_gid },
            subtree: names.map(|name| name.as_bytes().to_vec()).collect(),
            ids: Ids::new(ids),
        };
        limits.takes_anything().then_some(limits)
    }

    fn takes_anything(&self) -> bool {
        self.read_only || self.squash != Squash::None || !self.subtree.is_empty()
    }

    /// Whether permissions are those of the host's own kernel: it is believed whatever user it names, root too.
    pub fn believes_all_users(&self) -> bool {
        self.squash == Squash::None
    }

    /// Credentials as they count here.
    pub fn map(&self, cred: &Cred) -> Cred {
        let nobody = || Cred { uid: self.uid, gid: self.gid, groups: Vec::new() };
        match self.squash {
            Squash::None => cred.clone(),
            Squash::All => nobody(),
            Squash::Root if cred.uid == 0 => nobody(),
            Squash::Root => {
                let group = |gid: u32| self.gid_to_fs(gid).filter(|gid| *gid != 0);
                let gid = group(cred.gid).unwrap_or(self.gid);
                let groups = cred.groups.iter().take(GROUPS_MAX).filter_map(|gid| group(*gid)).collect();
                Cred { uid: self.uid_to_fs(cred.uid).unwrap_or(self.uid), gid, groups }
            }
        }
    }

    /// Whether the host may not ask in the name of this user at all: the nodemap refuses those without a number in the file system.
    pub fn is_unknown(&self, cred: &Cred) -> bool {
        let (uid, gid) = (self.uid_to_fs(cred.uid), self.gid_to_fs(cred.gid));
        self.ids.deny_unknown() && (uid.is_none() || gid.is_none())
    }

    /// A user of the host, in the file system.
    pub fn uid_to_fs(&self, uid: u32) -> Option<u32> {
        self.ids.uids().to_fs(uid)
    }

    /// A group of the host, in the file system.
    pub fn gid_to_fs(&self, gid: u32) -> Option<u32> {
        self.ids.gids().to_fs(gid)
    }

    /// An owner in the file system, as the host sees it: an owner without a number there appears as nobody.
    pub fn uid_to_host(&self, uid: u32) -> u32 {
        self.ids.uids().to_host(uid).unwrap_or(self.uid)
    }

    /// A group in the file system, as the host sees it.
    pub fn gid_to_host(&self, gid: u32) -> u32 {
        self.ids.gids().to_host(gid).unwrap_or(self.gid)
    }

    /// Whether some user of the host may be this one of the file system.
    pub fn may_be_user(&self, uid: u32) -> bool {
        uid != 0 && (self.ids.uids().to_host(uid).is_some() || uid == self.uid)
    }

    /// Whether some user of the host may be in this group of the file system.
    pub fn may_be_in_group(&self, gid: u32) -> bool {
        gid != 0 && (self.ids.gids().to_host(gid).is_some() || gid == self.gid)
    }

    /// Whether a host that was under `before` may do less under `now`: what it has open counts no more.
    pub fn are_tighter(before: Option<&Limits>, now: Option<&Limits>) -> bool {
        // Attributes that the host keeps have the numbers of the mapping before.
        if before.map(|limits| &limits.ids).filter(|ids| ids.maps())
            != now.map(|limits| &limits.ids).filter(|ids| ids.maps())
        {
            return true;
        }
        let Some(now) = now else { return false };
        let Some(before) = before else { return true };
        let rank = |squash: Squash| match squash {
            Squash::None => 0,
            Squash::Root => 1,
            Squash::All => 2,
        };
        let becomes_another = before.squash != Squash::None && (before.uid, before.gid) != (now.uid, now.gid);
        let sees_less = !now.subtree.is_empty() && before.subtree != now.subtree;
        now.read_only && !before.read_only
            || rank(now.squash) > rank(before.squash)
            || now.squash != Squash::None && becomes_another
            || sees_less
    }
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    base: IpAddr,
    prefix: u8,
}

impl AddressRange {
    fn bits(address: IpAddr) -> (u128, u8) {
        match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        }
    }

    fn network(&self, address: IpAddr) -> Option<u128> {
        let (bits, width) = AddressRange::bits(address);
        let same_family = address.is_ipv4() == self.base.is_ipv4();
        let shift = u32::from(width - self.prefix.min(width));
        same_family.then(|| bits.checked_shr(shift).unwrap_or(0))
    }

    /// Whether an address lies in the range.
    pub fn has(&self, address: IpAddr) -> bool {
        let own = self.network(self.base);
        own.is_some() && self.network(address) == own
    }

    /// Whether two ranges have an address in common.
    pub fn overlaps(&self, other: &AddressRange) -> bool {
        self.has(other.base) || other.has(self.base)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressRange, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let wrong = || format!("'{text}' is no address or range: 10.0.3.7, 10.0.3.0/24 and fd00::/64 are");
        let base: IpAddr = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let width = AddressRange::bits(base).1;
        let prefix = prefix.map_or(Ok(width), |p| p.parse::<u8>().map_err(|_| wrong()))?;
        if prefix > width {
            return Err(wrong());
        }
        Ok(AddressRange { base, prefix })
    }
}

/// The nodemaps at one moment.
#[derive(Debug, Default)]
struct Table {
    by_host: BTreeMap<String, Option<Arc<Limits>>>,
    by_address: Vec<(AddressRange, Option<Arc<Limits>>)>,
    default: Option<Arc<Limits>>,
}

impl Table {
    fn new(nodemaps: &[MappedNodemap]) -> Table {
        let mut table = Table::default();
        for MappedNodemap { nodemap, ids } in nodemaps {
            let limits = Limits::mapped(nodemap, ids).map(Arc::new);
            if nodemap.name == DEFAULT_NODEMAP {
                table.default = limits;
                continue;
            }
            table.by_host.extend(nodemap.hosts.iter().map(|host| (host.clone(), limits.clone())));
            let ranges = nodemap.addresses.iter().filter_map(|range| range.parse().ok());
            table.by_address.extend(ranges.map(|range| (range, limits.clone())));
        }
        table
    }

    /// Limits of the address range of a connection, if the other end has not proven who it is. `Some(None)`: the
    /// range is trusted fully.
    fn of_range(&self, conn: &ServerConn) -> Option<&Option<Arc<Limits>>> {
        if conn.proof().is_some() || conn.is_of_this_machine() {
            return None;
        }
        let address = conn.peer().host.parse::<IpAddr>().ok()?.to_canonical();
        self.by_address.iter().find(|(range, _)| range.has(address)).map(|(_, limits)| limits)
    }

    fn of(&self, conn: &ServerConn) -> Option<Arc<Limits>> {
        let of_range = self.of_range(conn);
        // Limits of an address hold whatever the program there says that it is.
        if let Some(Some(limits)) = of_range {
            return Some(limits.clone());
        }
        if is_trusted(conn) {
            return None;
        }
        let principal = conn.principal();
        let Some(proof) = conn.proof() else {
            let found = of_range.or_else(|| self.by_host.get(&principal.host));
            return found.unwrap_or(&self.default).clone();
        };
        if let Some(limits) = self.by_host.get(&proof.host) {
            return limits.clone();
        }
        let is_trusted = [HostRole::Server, HostRole::Agent, HostRole::Admin];
        let is_trusted = is_trusted.iter().any(|role| proof.roles.has(*role));
        self.default.clone().filter(|_| !is_trusted)
    }
}

/// Whether a process of this kind may do more than any nodemap gives.
fn needs_trust(kind: PrincipalKind) -> bool {
    use PrincipalKind::{Administrator, Mdt, Mgs, Ost};
    [Mdt, Ost, Mgs, Administrator].contains(&kind)
}

/// Whether no nodemap limits the other end: a server, or a program of this machine.
fn is_trusted(conn: &ServerConn) -> bool {
    let kind = conn.principal().kind;
    [PrincipalKind::Mdt, PrincipalKind::Ost, PrincipalKind::Mgs].contains(&kind) || conn.is_of_this_machine()
}

/// The nodemaps of the cluster, as far as this process has heard.
#[derive(Default)]
pub struct Nodemaps {
    table: watch::Sender<Arc<Table>>,
    /// Whether the MGS has to tell them before any host that they may limit is let in.
    is_awaited: AtomicBool,
    /// Whether any host is limited: where none is, nothing is looked up.
    limits_any: AtomicBool,
}

impl Nodemaps {
    /// Replaces all nodemaps.
    pub fn replace(&self, nodemaps: &[MappedNodemap]) {
        let limits_any = nodemaps.iter().any(|mapped| Limits::mapped(&mapped.nodemap, &mapped.ids).is_some());
        self.table.send_replace(Arc::new(Table::new(nodemaps)));
        self.limits_any.store(limits_any, Ordering::Release);
        self.is_awaited.store(false, Ordering::Release);
    }

    /// Notes that this process has neither heard of nodemaps nor has them on file. Hosts that they may limit
    /// are kept out until [`Nodemaps::replace`].
    pub fn wait_for_first(&self) {
        self.is_awaited.store(true, Ordering::Release);
    }

    /// Whether the host behind a connection may be limited by nodemaps that this process has not heard of yet.
    pub fn may_limit_unheard(&self, conn: &ServerConn) -> bool {
        self.is_awaited.load(Ordering::Acquire) && !is_trusted(conn)
    }

    /// Refuses a program that proves nothing, comes from an address that a nodemap limits, and says that it is a server or an administrator's
    /// command.
    pub fn check_claim(&self, conn: &ServerConn) -> Result<(), Fault> {
        if !self.limits_any.load(Ordering::Acquire) || !needs_trust(conn.principal().kind) {
            return Ok(());
        }
        let table = self.table.borrow();
        let Some(Some(limits)) = table.of_range(conn) else { return Ok(()) };
        let why = format!(
            "it proves no name, and nodemap '{}' limits the range of its address {}: servers and commands of administrators come from elsewhere",
            limits.nodemap,
            conn.peer().host
        );
        Err(Fault::new(Code::NotForNodemap)
            .subject(conn.principal().to_string())
            .why(why)
            .data("nothing was changed")
            .next("if it is one, take its address out of the range: brindle nodemap set"))
    }

    /// Limits of the host behind a connection; `None` if it is trusted fully.
    pub fn limits(&self, conn: &ServerConn) -> Option<Arc<Limits>> {
        if !self.limits_any.load(Ordering::Acquire) {
            return None;
        }
        self.table.borrow().of(conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_they_say() {
        let range = |text: &str| text.parse::<AddressRange>();
        let has = |text: &str, address: &str| range(text).unwrap().has(address.parse().unwrap());
        assert!(has("10.0.3.0/24", "10.0.3.255") && !has("10.0.3.0/24", "10.0.4.0"));
        assert!(has("10.0.3.7", "10.0.3.7") && !has("10.0.3.7", "10.0.3.8"));
        assert!(has("0.0.0.0/0", "255.1.2.3") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/64", "fd00::9") && has("::/0", "fe80::1"));
        for wrong in ["", "10.0.3", "10.0.3.0/33", "10.0.3.0/", "10.0.3.0/x", "fd00::/129", "host"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        let overlaps = |a: &str, b: &str| range(a).unwrap().overlaps(&range(b).unwrap());
        assert!(overlaps("10.0.0.0/8", "10.9.0.0/16") && overlaps("10.9.0.0/16", "10.0.0.0/8"));
        assert!(!overlaps("10.8.0.0/16", "10.9.0.0/16") && !overlaps("0.0.0.0/0", "::/0"));
    }

    #[test]
    fn root_is_squashed_with_its_group() {
        let root = Nodemap { squash: Squash::Root, ..Nodemap::new("lab") };
        let limits = Limits::of(&root).unwrap();
        let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
        assert_eq!(limits.map(&cred(0, 0, &[0, 5])), cred(65_534, 65_534, &[]));
        assert_eq!(limits.map(&cred(7, 0, &[0, 5])), cred(7, 65_534, &[5]));
        assert_eq!(limits.map(&cred(7, 8, &[9])), cred(7, 8, &[9]));
        let all = Limits { squash: Squash::All, ..limits };
        assert_eq!(all.map(&cred(7, 8, &[9])), cred(65_534, 65_534, &[]));
        assert_eq!(Limits::of(&Nodemap::new("lab")), None, "it takes nothing away");
    }

    #[test]
    fn a_host_with_numbers_of_its_own_has_no_root_and_names_nobody_else() {
        let range = |text: &str| text.parse().unwrap();
        let ids =
            IdMap { uids: vec![range("1000-1009:5000")], gids: vec![range("100:9000")], deny_unknown: false };
        let limits = Limits::mapped(&Nodemap::new("lab"), &ids).unwrap();
        let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
        assert_eq!(limits.map(&cred(1003, 100, &[100, 7])), cred(5003, 9000, &[9000]));
        assert_eq!(
            limits.map(&cred(5003, 9000, &[9000])),
            cred(65_534, 65_534, &[]),
            "numbers of the file system"
        );
        assert_eq!(limits.map(&cred(0, 0, &[0])), cred(65_534, 65_534, &[]));
        assert_eq!(
            (limits.uid_to_host(5009), limits.uid_to_host(5010), limits.uid_to_host(0)),
            (1009, 65_534, 65_534)
        );
        assert!(limits.may_be_user(5000) && !limits.may_be_user(1000) && !limits.may_be_user(0));
        assert!(
            limits.may_be_in_group(9000) && limits.may_be_in_group(65_534) && !limits.may_be_in_group(100)
        );
        let strict =
            Limits::mapped(&Nodemap::new("lab"), &IdMap { deny_unknown: true, ..ids.clone() }).unwrap();
        let is_unknown =
            |uid, gid| (limits.is_unknown(&cred(uid, gid, &[])), strict.is_unknown(&cred(uid, gid, &[])));
        assert_eq!(is_unknown(1000, 100), (false, false));
        assert_eq!(
            (is_unknown(1010, 100), is_unknown(1000, 7), is_unknown(0, 0)),
            ((false, true), (false, true), (false, true))
        );
        let one_kind = Limits::mapped(&Nodemap::new("lab"), &IdMap { gids: Vec::new(), ..ids }).unwrap();
        assert_eq!(
            one_kind.map(&cred(1003, 100, &[0, 7])),
            cred(5003, 100, &[7]),
            "groups have the same numbers"
        );
        for (before, now) in [(None, Some(&limits)), (Some(&limits), None), (Some(&limits), Some(&one_kind))]
        {
            assert!(Limits::are_tighter(before, now), "{before:?} {now:?}");
        }
        assert!(!Limits::are_tighter(Some(&limits), Some(&limits)));
    }

    #[test]
    fn what_takes_more_away_is_tighter() {
        let of = |read_only, squash| Limits::of(&Nodemap { read_only, squash, ..Nodemap::new("lab") });
        let tighter = |before: &Option<Limits>, now: &Option<Limits>| {
            Limits::are_tighter(before.as_ref(), now.as_ref())
        };
        let (none, ro) = (None, of(true, Squash::None));
        let (root, all) = (of(false, Squash::Root), of(false, Squash::All));
        for (before, now) in [(&none, &ro), (&none, &root), (&root, &all), (&root, &ro), (&ro, &root)] {
            assert!(tighter(before, now), "{before:?} {now:?}");
        }
        for (before, now) in [(&ro, &none), (&all, &root), (&root, &root), (&none, &none)] {
            assert!(!tighter(before, now), "{before:?} {now:?}");
        }
        let other = all.clone().map(|all| Limits { uid: 9, ..all });
        assert!(tighter(&all, &other), "the files of the one are not those of the other");
    }
}
