//! Access rights: users, sessions, log-in attempts, the first log-in, the record of changes.

pub mod attempts;
pub mod audit;
pub mod first;
pub mod monitoring_token;
pub mod pam;
pub mod secret;
pub mod sessions;
pub mod tokens;
pub mod users;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rights of a user. Each role has those of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks at everything but users and the audit log.
    Viewer,
    /// Starts, stops and moves targets.
    Operator,
    /// Manages users, and reads the audit log.
    Administrator,
}

impl Role {
    /// The role in a word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Administrator => "administrator",
        }
    }
}
