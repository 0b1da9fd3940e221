//! Messages of the MGS about spare hosts: they get a copy of a target when one of its members is lost (design note 042).

use serde::{Deserialize, Serialize};

use crate::message;

/// A host that gets copies when others are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareHost {
    /// The host.
    pub host: String,
    /// Directory on it; each copy has a directory of its own there.
    pub dir: String,
    /// Seconds for which a member of a replica set must have been away before its copy is given up and made
    /// anew here.
    pub after_s: u64,
}

/// Asks for all spare hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSparesReq {}

/// All spare hosts, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSparesResp {
    /// Spare hosts by name.
    pub spares: Vec<SpareHost>,
}
message!(ListSparesReq => ListSparesResp, ListSpares);

/// Makes a host a spare one, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSpareReq {
    /// The host.
    pub host: String,
    /// Role as a spare host; `None`: no spare host.
    pub spare: Option<SpareHost>,
    /// Only say whether that could be done.
    pub is_dry_run: bool,
}

/// Acknowledgement: the change is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSpareResp {
    /// Whether anything was changed.
    pub changed: bool,
}
message!(ChangeSpareReq => ChangeSpareResp, ChangeSpare);

/// A spare host tells what is free where its copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportSpareReq {
    /// Free bytes of the file system of its directory.
    pub available_bytes: u64,
}

/// Acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportSpareResp {}
message!(ReportSpareReq => ReportSpareResp, ReportSpare);
