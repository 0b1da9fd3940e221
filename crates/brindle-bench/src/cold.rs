//! Cold caches: before a phase that reads, everything dirty is written and the kernel's caches are dropped, so that the bytes
//! that are read come from the disk, through the whole file system.
//!
//! `drop_caches` empties the caches of the kernel of **this** machine, those of FUSE mounts among them. A peer that caches in
//! its client process keeps that cache; the command given with `--cold-command` (a remount, say) empties it, too.

use std::process::{Command, Stdio};

use brindle_types::{Code, Fault, Result};

const DROP: &str = "/proc/sys/vm/drop_caches";

/// Way to make caches cold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cold {
    /// The kernel's are not dropped.
    pub keep: bool,
    /// Run by the shell after that.
    pub command: Option<String>,
}

impl Cold {
    /// Makes the caches cold. `Ok(false)` when they could not be dropped, because this user may not.
    pub fn make(&self) -> Result<bool> {
        let dropped = self.keep || self.drop_caches();
        if let Some(command) = &self.command {
            run(command)?;
        }
        Ok(dropped)
    }

    /// Syncs, and drops the kernel's caches unless they are to be kept; whether they were dropped.
    pub fn drop_caches(&self) -> bool {
        !self.keep && {
            rustix::fs::sync();
            std::fs::write(DROP, "3").is_ok()
        }
    }

    /// Whether [`Cold::make`] can do it.
    pub fn possible(&self) -> bool {
        self.keep || rustix::fs::access(DROP, rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// Text for the notes of a run.
    pub fn note(&self) -> String {
        let kernel = if self.keep {
            "Caches are kept: phases that read may be answered from memory."
        } else if self.possible() {
            "Before every phase that reads or removes, everything is synced and the kernel's caches of this machine are dropped."
        } else {
            "Caches could not be dropped (this needs root): phases that read may be answered from memory."
        };
        match &self.command {
            Some(command) => format!("{kernel} Then '{command}' is run."),
            None => kernel.to_owned(),
        }
    }
}

fn run(command: &str) -> Result<()> {
    let ended =
        Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let failed = || {
        Fault::new(Code::CommandFailed)
            .what("the command between the phases failed:")
            .subject(command.to_owned())
            .next("run it by hand, then give it again with --cold-command")
    };
    match ended {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect::<String>();
            Err(failed().why(format!("it ended with {}: {said}", output.status)))
        }
        Err(e) => Err(failed().why(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_told() {
        run("true").expect("runs");
        let fault = run("echo no mount >&2; exit 3").expect_err("fails");
        assert_eq!(fault.subject, "echo no mount >&2; exit 3");
        assert!(fault.why[0].ends_with("no mount"), "{:?}", fault.why);
    }

    #[test]
    fn the_note_says_what_is_done() {
        let keep = Cold { keep: true, command: None };
        assert!(keep.note().starts_with("Caches are kept"));
        assert_eq!(keep.make(), Ok(true));
        let with = Cold { keep: true, command: Some("remount".to_owned()) };
        assert!(with.note().ends_with("Then 'remount' is run."));
    }
}
