//! quota_use: what a user, group or project uses of a file system (`lfs quota`).

use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Whose usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOwner {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// Asks what somebody uses. Root may ask for all, others for themselves and their groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUseReq {
    /// Whose usage.
    pub owner: QuotaOwner,
    /// Number of the user, group or project.
    pub id: u32,
    /// Who asks.
    pub cred: Cred,
}

/// What is used; zeros for somebody who has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUseResp {
    /// Inodes.
    pub inodes: u64,
    /// Allocated bytes.
    pub bytes: u64,
}
message!(QuotaUseReq => QuotaUseResp, QuotaUse);
