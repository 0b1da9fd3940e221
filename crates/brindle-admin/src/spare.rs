//! Spare hosts: they get a copy of a target when one of its copies is lost.

use brindle_types::{Code, Result};
use brindle_wire::mgs::spare::{ChangeSpareReq, ChangeSpareResp, ListSparesReq, ListSparesResp, SpareHost};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// A spare host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpareView {
    /// Name of the host.
    pub host: String,
    /// Directory on it, in which each copy gets one of its own.
    pub dir: String,
    /// A copy that has been away for so long is given up and made anew here, seconds.
    pub after_s: u64,
}
document!(SpareView, "brindle.node.spare", 1);

/// A spare host, for people and programs.
pub fn view(spare: &SpareHost) -> SpareView {
    SpareView { host: spare.host.clone(), dir: spare.dir.clone(), after_s: spare.after_s }
}

impl Servers {
    /// All spare hosts. A release of the MGS that knows of none has none.
    pub async fn spares(&self, place: &FsLocation) -> Result<ListSparesResp> {
        match self.ask_the_mgs(place, &ListSparesReq {}).await {
            Err(fault) if fault.code == Code::UnknownOp => Ok(ListSparesResp { spares: Vec::new() }),
            answer => answer,
        }
    }

    /// Makes a host a spare one, or not.
    pub async fn change_spare(
        &self,
        place: &FsLocation,
        host: &str,
        spare: Option<SpareHost>,
        is_dry_run: bool,
    ) -> Result<ChangeSpareResp> {
        self.ask_the_mgs(place, &ChangeSpareReq { host: host.to_owned(), spare, is_dry_run }).await
    }
}
