//! quota_use: what a user or group uses, from the counters that are kept with every change of an inode (`store/usage.rs`).

use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::{QuotaOwner, QuotaUseReq, QuotaUseResp};

use crate::mdt::{Call, Mdt};
use crate::store::usage::{self, Kind};

/// Tells root of everybody, others of themselves and their groups. Space of files that somebody writes may be about a second
/// behind, as in a scan.
pub async fn handle(mdt: &Mdt, _call: &Call, req: QuotaUseReq) -> Result<QuotaUseResp> {
    let cred = &req.cred;
    let (kind, own, whose) = match req.owner {
        QuotaOwner::User => (Kind::User, cred.uid == req.id, "user"),
        QuotaOwner::Group => (Kind::Group, cred.gid == req.id || cred.groups.contains(&req.id), "group"),
        QuotaOwner::Project => {
            return Err(Fault::new(Code::NotSupported)
                .what("cannot tell the usage of")
                .subject(format!("project {}", req.id))
                .why("files of this version belong to no project")
                .next("ask for a user (-u) or a group (-g)"));
        }
    };
    if cred.uid != 0 && !own {
        return Err(Fault::new(Code::NotPermitted)
            .what("cannot tell the usage of")
            .subject(format!("{whose} {}", req.id))
            .why(format!("user {} may ask for himself and his groups", cred.uid))
            .next("ask as root"));
    }
    let used = mdt.read(|t| usage::get(t, kind as u8, req.id)).await?;
    Ok(QuotaUseResp { inodes: used.inodes, bytes: used.bytes })
}
