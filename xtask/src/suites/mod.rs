//! Programs and POSIX suites that run in any directory: a mount, or a local file system for comparison.

use crate::Session;

/// `cargo xtask suite NAME DIR`.
pub fn run(session: &Session) -> Result<(), String> {
    Err(format!("no suite is called '{}'", session.args.first().map_or("", String::as_str)))
}
