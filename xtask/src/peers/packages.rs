//! Debian packages of the peers, without the services that they would start.
//!
//! Packages that were installed before are left as they are. A package that is installed here neither runs now nor
//! at the next start of the machine: only this program starts it, in its own places.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::run::capture;
use crate::setup;

/// Script that packages ask whether a service may be started; exit code 101 is no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what `target` needs and is missing; its services stay off.
pub fn need(target: &str, units: &[&str], init_scripts: &[&str]) -> Result<(), String> {
    if setup::has(target) {
        return Ok(());
    }
    let policy = Policy::set()?;
    let installed = setup::need(target);
    drop(policy);
    installed?;
    // Without such a program, nothing would start the services.
    for unit in units {
        capture("systemctl", &["disable", "--quiet", unit]);
    }
    for script in init_scripts {
        capture("update-rc.d", &[script, "disable"]);
        capture("systemctl", &["disable", "--quiet", &format!("{script}.service")]);
    }
    Ok(())
}

/// No service starts while this is there.
struct Policy {
    ours: bool,
}

impl Policy {
    fn set() -> Result<Policy, String> {
        if Path::new(POLICY).exists() {
            return Ok(Policy { ours: false });
        }
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        let written =
            file.and_then(|mut file| std::io::Write::write_all(&mut file, b"#!/bin/sh\nexit 101\n"));
        written.map_err(|e| format!("cannot write {POLICY}: {e}\n  next: run this as root"))?;
        Ok(Policy { ours: true })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours
            && let Err(e) = std::fs::remove_file(POLICY)
        {
            eprintln!(
                "cannot remove {POLICY}: {e}\n  next: remove it, or no service starts when it is installed"
            );
        }
    }
}
