//! The format level of a file system: stored values may be written in the newest forms from now on.
//!
//! After an upgrade of the software servers go on writing in the forms of the release before, so that a host that is still old can take
//! over. Raising the level ends the use of the old forms, once every server is new.

use brindle_types::Result;
use brindle_wire::form::FormatLevel;
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Outcome of an upgrade.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Upgraded {
    /// The file system.
    pub fs: String,
    /// Format level before.
    pub level_before: u16,
    /// Format level after.
    pub level: u16,
    /// Whether it has changed; with `dry_run`, whether it would.
    pub changed: bool,
}
document!(Upgraded, "brindle.fs.upgrade", 1);

/// Raises the level to the newest that this release knows; with `dry_run` only says what would change.
pub async fn upgrade(servers: &Servers, place: &FsLocation, dry_run: bool) -> Result<Upgraded> {
    let newest = FormatLevel::NEWEST;
    let before = servers.mgs_map(place).await?;
    let (level, changed) = if dry_run || before.format_level >= newest {
        (before.format_level.max(newest), before.format_level < newest)
    } else {
        let raised = servers.raise_level(place, newest).await?;
        (raised.map.format_level, raised.changed)
    };
    Ok(Upgraded { fs: before.fs.to_string(), level_before: before.format_level.0, level: level.0, changed })
}
