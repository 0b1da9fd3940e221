//! Questions of commands to the daemon of a mount.

use std::path::Path;

use brindle_admin::mount::Mount as _;
use brindle_client::control::{Answer, Request, ScanAsk, ScanPage};
use brindle_host::control::MountHere;
use brindle_host::mounts::MountLine;
use brindle_types::Result;

use crate::format::runtime;

pub use brindle_admin::mount::unexpected;
pub use brindle_host::control::{RUN_DIR, ino, make_run_dir, path_fault, socket};

/// A mount that answers questions.
pub struct Control {
    mount: MountHere,
    runtime: tokio::runtime::Runtime,
}

impl Control {
    /// The mount that holds `path`.
    pub fn of(path: &Path) -> Result<Control> {
        Ok(Control { mount: MountHere::of(path)?, runtime: runtime()? })
    }

    /// Line of the mount in the mount table.
    pub fn mount(&self) -> &MountLine {
        self.mount.line()
    }

    /// Asks its daemon.
    pub fn ask(&self, request: &Request) -> Result<Answer> {
        self.runtime.block_on(self.mount.ask(request))
    }

    /// Has its daemon scan; `each` gets the pages.
    pub fn scan(&self, ask: ScanAsk, each: &mut (dyn FnMut(ScanPage) -> Result<()> + Send)) -> Result<()> {
        self.runtime.block_on(self.mount.scan(ask, each))
    }
}
