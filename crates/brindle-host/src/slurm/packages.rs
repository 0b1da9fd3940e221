//! Slurm and munge, from Debian.

use std::path::Path;
use std::process::{Command, Stdio};

use brindle_types::{Code, Fault, Result};

use super::Tell;

/// Each program, and the package that brings it.
const PROGRAMS: [(&str, &str); 6] = [
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("sbatch", "slurm-client"),
    ("munged", "munge"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
];
/// Package with the plugins that the packages above load.
const PLUGINS: &str = "slurm-wlm-basic-plugins";
/// Directories of programs.
const DIRS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The file that says whether packages may start daemons.
const POLICY: &str = "/usr/sbin/policy-rc.d";

fn is_there(program: &str) -> bool {
    DIRS.iter().any(|dir| Path::new(dir).join(program).exists())
}

/// Installs what is missing; the daemons that packages bring are not started.
pub fn install(tell: Tell) -> Result<()> {
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages = missing;
    packages.push(PLUGINS);
    let names = packages.join(" ");
    let by_hand = format!("as root: apt-get update && apt-get install -y --no-install-recommends {names}");
    let missing = |why: String| {
        Fault::new(Code::CommandFailed)
            .what("cannot start Slurm: missing on this machine:")
            .subject(names.clone())
            .why(why)
            .next(by_hand.clone())
    };
    if !is_there("apt-get") {
        return Err(missing("there is no apt-get to install it with".to_owned()));
    }
    tell(&format!("installing Debian packages: {names} ..."));
    let policy = Policy::forbid();
    let script = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update >/dev/null && \
         apt-get -qq -o=Dpkg::Use-Pty=0 install -y --no-install-recommends {names} >/dev/null"
    );
    let status = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).status();
    drop(policy);
    match status {
        Ok(status) if status.success() && PROGRAMS.iter().all(|(program, _)| is_there(program)) => Ok(()),
        Ok(status) => Err(missing(format!("apt-get ended with {status}"))),
        Err(e) => Err(missing(e.to_string())),
    }
}

/// Keeps packages from starting their daemons, where the machine does not say itself what they may.
struct Policy {
    made: bool,
}

impl Policy {
    fn forbid() -> Policy {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        // An existing file stays. If the file cannot be made, packages start their daemons as always.
        let made = file.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")).is_ok();
        Policy { made }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.made {
            // A second process may have removed the file.
            let _ = std::fs::remove_file(POLICY);
        }
    }
}
