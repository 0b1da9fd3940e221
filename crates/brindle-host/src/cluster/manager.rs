//! The manager of a development cluster: a process like its servers.

use std::path::Path;

use brindle_types::{Code, Fault, Result};

use super::node::{READY_LIMIT, free_or_any, with_log};
use super::state::{Cluster, MANAGER, ManagerState, Run, port_of_url};
use super::{Event, On};
use crate::announcement::Managing;
use crate::process::Starting;

/// A manager that has never run.
pub fn new_manager(dir: &Path) -> ManagerState {
    ManagerState { dir: dir.join(MANAGER), port: 0, log: dir.join("log").join("manager.log"), run: None }
}

impl On<'_> {
    /// Starts the manager at the port that it had, or at any free one, and waits until it is ready.
    pub(super) fn start_manager(&self, cluster: &mut Cluster) -> Result<()> {
        let none = || Fault::new(Code::Bug).why("the cluster has no manager");
        let manager = cluster.manager.as_mut().ok_or_else(none)?;
        let arguments = [
            "manager".to_owned(),
            "--ready-json".to_owned(),
            format!("--dir={}", manager.dir.display()),
            format!("--dev={}", self.dir.display()),
            format!("--listen=127.0.0.1:{}", free_or_any(manager.port)),
            format!("--log={}", manager.log.display()),
        ];
        let started = Starting::spawn(&self.host.program, MANAGER, &arguments, &manager.log)?;
        let ready = started.ready(READY_LIMIT);
        let (identity, announced): (_, Managing) = ready.map_err(|fault| with_log(fault, &manager.log))?;
        manager.port = port_of_url(&announced.url.replace("https://", "http://"));
        manager.run = Some(Run { addresses: vec![announced.url.clone()], ..Run::of(identity) });
        cluster.save(&self.dir)?;
        (self.tell)(Event::Manages { announced: &announced });
        Ok(())
    }
}
