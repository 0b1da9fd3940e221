//! Messages of the MGS about nodemaps: the rights of hosts that are not trusted fully (design note 038).

use serde::{Deserialize, Serialize};

use crate::{first_form, message};

/// Name of the nodemap of all hosts that no other nodemap names.
pub const DEFAULT_NODEMAP: &str = "default";
/// User and group that squashed users become unless the nodemap says otherwise.
pub const NOBODY: u32 = 65_534;
/// Most nodemaps of a cluster.
pub const NODEMAPS_MAX: usize = 256;
/// Most hosts and ranges of addresses of one nodemap.
pub const MEMBERS_MAX: usize = 4096;

/// Users of a host that become nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Squash {
    /// None: the host is believed whatever user it names.
    #[default]
    None,
    /// Root.
    Root,
    /// All.
    All,
}

impl Squash {
    /// Name, as commands have it.
    pub fn name(self) -> &'static str {
        match self {
            Squash::None => "none",
            Squash::Root => "root",
            Squash::All => "all",
        }
    }
}

/// A set of hosts, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodemap {
    /// Name of the nodemap.
    pub name: String,
    /// Names of hosts, as in their certificates.
    pub hosts: Vec<String>,
    /// Ranges of addresses (`10.0.3.0/24`); they count for connections that prove no name.
    pub addresses: Vec<String>,
    /// The hosts change nothing.
    pub read_only: bool,
    /// Users of these hosts that become nobody.
    pub squash: Squash,
    /// The user that they become.
    pub squash_uid: u32,
    /// The group that they become.
    pub squash_gid: u32,
    /// The tree that the hosts see, as an absolute path; empty for the whole file system.
    pub subtree: String,
}

impl Nodemap {
    /// One without hosts, which takes nothing away.
    pub fn new(name: impl Into<String>) -> Nodemap {
        Nodemap {
            name: name.into(),
            hosts: Vec::new(),
            addresses: Vec::new(),
            read_only: false,
            squash: Squash::None,
            squash_uid: NOBODY,
            squash_gid: NOBODY,
            subtree: String::new(),
        }
    }
}

/// All nodemaps, as a server keeps them in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodemapList {
    /// Nodemaps by name.
    pub nodemaps: Vec<Nodemap>,
}

first_form!(1 => Nodemap, NodemapList);

/// A server asks for the nodemaps; answered when they are newer than `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchNodemapsReq {
    /// Version that the server has; 0 for none.
    pub known_version: u64,
    /// Longest wait for newer nodemaps, in milliseconds.
    pub wait_ms: u32,
}

/// The nodemaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchNodemapsResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// All nodemaps; `None` where the server's version is the newest.
    pub nodemaps: Option<Vec<Nodemap>>,
}
message!(WatchNodemapsReq => WatchNodemapsResp, WatchNodemaps);

/// Asks for all nodemaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNodemapsReq {}

/// All nodemaps, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNodemapsResp {
    /// The nodemaps.
    pub nodemaps: Vec<Nodemap>,
}
message!(ListNodemapsReq => ListNodemapsResp, ListNodemaps);

/// A change of one property; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodemapEdit {
    /// Hosts that are added.
    pub add_hosts: Vec<String>,
    /// Hosts that are taken out.
    pub remove_hosts: Vec<String>,
    /// Ranges of addresses that are added.
    pub add_addresses: Vec<String>,
    /// Ranges of addresses that are taken out.
    pub remove_addresses: Vec<String>,
    /// Whether the hosts change nothing.
    pub read_only: Option<bool>,
    /// Users that become nobody.
    pub squash: Option<Squash>,
    /// The user that they become.
    pub squash_uid: Option<u32>,
    /// The group that they become.
    pub squash_gid: Option<u32>,
    /// The tree that the hosts see; empty for the whole file system.
    pub subtree: Option<String>,
}

/// A change of a nodemap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodemapChange {
    /// Makes it.
    Add(NodemapEdit),
    /// Changes it.
    Set(NodemapEdit),
    /// Removes it: its hosts are those of the default nodemap from then on.
    Remove,
}

/// Changes a nodemap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeNodemapReq {
    /// Name of the nodemap.
    pub name: String,
    /// The change.
    pub change: NodemapChange,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The nodemap as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeNodemapResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The nodemap; `None` of one that was removed.
    pub nodemap: Option<Nodemap>,
}
message!(ChangeNodemapReq => ChangeNodemapResp, ChangeNodemap);
