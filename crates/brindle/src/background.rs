//! Commands that go on as a process of their own (`--daemon`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_host::announcement::Working;
use brindle_host::process::Starting;
use brindle_types::{Code, Fault, Result};

use crate::exit::Done;

/// Longest time until such a process works.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Starts this program with the arguments that `arguments` makes for a log file, and waits until it works. `what` names it in faults.
pub fn start(what: &str, log: &Path, arguments: impl FnOnce(&Path) -> Result<Vec<String>>) -> Result<Done> {
    let log = PathBuf::from(crate::cli::text(log)?);
    let parent = log.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", parent.display().to_string(), &e))?;
    let program = std::env::current_exe()
        .map_err(|e| Fault::io(Code::ProcessFailed, "cannot find", "this program", &e))?;
    let starting = Starting::spawn(&program, what, &arguments(&log)?, &log)?;
    starting.ready::<Working>(READY_LIMIT)?;
    Ok(Done::Ok)
}
