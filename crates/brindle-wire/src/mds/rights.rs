//! session_rights: the rights that a session of a host that is not trusted fully has on the objects of a file (design note
//! 038).

use brindle_types::{Ino, Pair, SessionId};
use serde::{Deserialize, Serialize};

use crate::message;

/// An OST asks what a session may do with the objects of a file. Answered at once, from what the session has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRightsReq {
    /// The session.
    pub session: SessionId,
    /// Epoch of the session, as its request has it.
    pub epoch: Pair,
    /// The host that the request came from.
    pub host: String,
    /// The file.
    pub ino: Ino,
}

/// Rights of the session to the file, at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRightsResp {
    /// Whether it may read.
    pub read: bool,
    /// Whether it may write.
    pub write: bool,
    /// The session has not declared yet what it had open before the MDT restarted: ask again.
    pub is_unsettled: bool,
}
message!(SessionRightsReq => SessionRightsResp, SessionRights);
