//! Alerts: what is wrong, raised once and ended once each, with the code that `brindle explain` knows.
//!
//! | step | where |
//! |---|---|
//! | numbers of the daemons that somebody should look at | [`numbers`] |
//! | what is wrong now, of the state, the numbers, the forecast and the certificates | [`conditions`], pure |
//! | raised, acknowledged, silenced, ended; kept over a restart | [`store`] |
//! | told to a webhook and by mail | [`notify`] |
//!
//! A condition must hold for some seconds before it is an alert, and be gone for some before the alert ends: a target that restarts raises
//! no alert.

pub mod conditions;
pub mod notify;
pub mod numbers;
pub mod post;
pub mod store;

use brindle_types::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing waits yet.
    Warning,
    /// Programs wait or fail, or data is in danger.
    Critical,
}

impl Severity {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Code of the condition.
    pub code: Code,
    /// How urgent it is.
    pub severity: Severity,
    /// The target, host or daemon that it concerns.
    pub subject: String,
    /// The trouble, in a sentence.
    pub text: String,
    /// The remedy.
    pub next: String,
}
