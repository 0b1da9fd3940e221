//! sync_all: makes everything acknowledged so far durable (`brindle sync`).

use serde::{Deserialize, Serialize};

use super::Empty;
use crate::message;

/// Syncs the MDT's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncAllReq {}
message!(SyncAllReq => Empty, SyncAll);
