//! `lfs hsm_state` and `hsm_action`, which scripts ask before they touch a file. This version archives nothing, so that no file
//! has a flag and none has an action under way; commands that would change that are refused as unknown.

use std::path::{Path, PathBuf};

use brindle_types::Result;

use crate::control::{Control, ino};
use crate::exit::Done;
use brindle_admin::paths;

/// Arguments of `lfs hsm_state` and `hsm_action`.
#[derive(clap::Args)]
pub struct Args {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Prints the flags of files.
pub fn state(args: &Args) -> Result<Done> {
    each(args, state_line)
}

/// Prints what is being done with files.
pub fn action(args: &Args) -> Result<Done> {
    each(args, action_line)
}

fn each(args: &Args, line: fn(&Path) -> String) -> Result<Done> {
    for path in &args.paths {
        Control::of(path)?;
        ino(path)?;
        println!("{}", line(path));
    }
    Ok(Done::Ok)
}

fn state_line(path: &Path) -> String {
    format!("{}: ({:#010x})", paths::text(path), 0)
}

fn action_line(path: &Path) -> String {
    format!("{}: NOOP", paths::text(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_nowhere_else_looks_as_it_does_in_lustre() {
        assert_eq!(state_line(Path::new("/mnt/f")), "/mnt/f: (0x00000000)");
        assert_eq!(action_line(Path::new("/mnt/f")), "/mnt/f: NOOP");
    }
}
