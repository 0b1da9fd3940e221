//! return_grant.

use serde::{Deserialize, Serialize};

use crate::mds::Empty;
use crate::message;

/// The session of the header needs nothing of what it was granted any more: all that it acknowledged has been written or given
/// up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnGrantReq {}
message!(ReturnGrantReq => Empty, ReturnGrant);
