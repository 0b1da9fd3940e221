//! Commands that ask the manager of this host, over its local socket.

use std::path::{Path, PathBuf};

use brindle_manager::web::local;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::{Code, Fault, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::DIR_DEFAULT;
use crate::format::runtime;

/// The manager that is meant.
#[derive(clap::Args)]
pub struct ManagerArgs {
    /// Directory of the manager's files; of a development cluster it is DIR/manager
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    manager: PathBuf,
}

impl ManagerArgs {
    /// The manager of a directory.
    pub fn of(dir: &Path) -> ManagerArgs {
        ManagerArgs { manager: dir.to_owned() }
    }

    /// The manager's answer to a request below `/api/v1`, or its refusal.
    pub fn ask<A: DeserializeOwned>(&self, method: &str, path: &str, body: &impl Serialize) -> Result<A> {
        let method = method.parse().map_err(|_| Fault::new(Code::Bug).why("no method of HTTP"))?;
        runtime()?.block_on(local::ask(&self.manager, method, path, body))
    }
}

/// A time for people, in UTC.
pub fn time(at_s: i64) -> String {
    rfc3339(Timestamp::new(at_s, 0)).chars().take(19).collect::<String>() + "Z"
}
