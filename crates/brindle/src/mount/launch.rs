//! Starts the daemon of a mount and waits until it is usable.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_types::{Code, Fault, Result};

use super::options::Settings;
use crate::exit::Done;
use brindle_host::announcement::Mounted;
use brindle_host::process::Starting;

/// Longest time of a mount: longer than the daemon itself waits for MGS and MDT.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Log of daemons that were given none.
const LOG_DEFAULT: &str = "/var/log/brindle/mount.log";

/// Mounts in the background.
pub fn run(settings: &Settings) -> Result<Done> {
    let log = settings.log.clone().unwrap_or_else(|| PathBuf::from(LOG_DEFAULT));
    let log = PathBuf::from(crate::cli::text(&log)?);
    let parent = log.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", parent.display().to_string(), &e))?;
    let name = format!("the daemon of {}", settings.mount_point.display());
    let program = std::env::current_exe()
        .map_err(|e| Fault::io(Code::ProcessFailed, "cannot find", "this program", &e))?;
    let starting = Starting::spawn(&program, &name, &settings.foreground_arguments(&log), &log)?;
    starting.ready::<Mounted>(READY_LIMIT)?;
    Ok(Done::Ok)
}
