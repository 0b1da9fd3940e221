//! Bodies of requests and answers.

use std::collections::BTreeMap;

use brindle_admin::document;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::access::audit::AuditRecord;
use crate::access::tokens::TokenView;
use crate::access::users::UserView;
use crate::alerts::store::AlertsView;
use crate::live::history::Sample;
use crate::live::rates::TargetRates;
use crate::live::state::StateView;
use crate::tasks::TasksView;

/// A name and a password.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogInReq {
    /// Name of the user.
    pub name: String,
    /// Password of the user.
    pub password: String,
}

/// The secret of the first log-in, and the administrator that is to be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstReq {
    /// The secret from the printed address.
    pub token: String,
    /// Name of the administrator.
    pub name: String,
    /// Password of the administrator.
    pub password: String,
}

/// Who is logged in.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionView {
    /// The user.
    pub user: String,
    /// The role.
    pub role: Role,
    /// Value of the header `X-Brindle-CSRF` of requests that change something.
    pub csrf: String,
    /// Name of the cluster's file system; empty where it is not known.
    pub fs: String,
    /// Release of the manager.
    pub version: &'static str,
}

/// Whether an action is only planned.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActReq {
    /// Says what would be done, and changes nothing.
    pub dry_run: bool,
}

/// A user to be added.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUserReq {
    /// Name at log-in.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Password; none if the host knows it.
    #[serde(default)]
    pub password: Option<String>,
    /// Whether the host knows the password, and is asked by PAM.
    #[serde(default)]
    pub by_pam: bool,
}

/// A token to be made.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddTokenReq {
    /// Purpose of the token.
    pub name: String,
    /// Role: that of its user, or a lesser one.
    pub role: Role,
    /// How many days it lives.
    pub days: u32,
}

/// A token that was made.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewTokenView {
    /// Secret that requests carry: `Authorization: Bearer SECRET`. It is shown this once.
    pub secret: String,
    /// The token.
    pub token: TokenView,
}
document!(NewTokenView, "brindle.manager.token", 1);

/// Tokens that have not ended.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TokensView {
    /// The oldest first.
    pub tokens: Vec<TokenView>,
}
document!(TokensView, "brindle.manager.tokens", 1);

/// All users.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsersView {
    /// By name.
    pub users: Vec<UserView>,
}
document!(UsersView, "brindle.manager.users", 1);

/// The audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AuditView {
    /// The newest first.
    pub records: Vec<AuditRecord>,
}

/// Work of the cluster in the last second.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SampleView {
    /// All of it.
    #[serde(flatten)]
    pub sample: Sample,
    /// Target by target, by full name.
    pub targets: BTreeMap<String, TargetRates>,
}

/// An event of the live view: its name is that of the field, its data the field's value.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LiveView {
    /// Once a second.
    pub sample: SampleView,
    /// Every other second, and at the beginning.
    pub state: StateView,
    /// When a task begins, tells of progress or ends, and at the beginning.
    pub tasks: TasksView,
    /// When an alert is raised, changes or ends, and at the beginning.
    pub alerts: AlertsView,
}
