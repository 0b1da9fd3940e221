//! Requirements of each command, and the Debian packages that bring them.
//!
//! Called at the start of the commands that need more than cargo. Installs only what is missing and says so; where it
//! may not install, it prints the command that would.

use std::process::{Command, Stdio};

use crate::{Session, tools};

/// A tool and where it comes from.
struct Tool {
    /// Probe of the tool: a program and arguments that succeed.
    probe: &'static [&'static str],
    /// Debian packages that bring it.
    packages: &'static [&'static str],
    /// Make targets that need the tool.
    targets: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        probe: &["git", "--version"],
        packages: &["git"],
        targets: &["test", "lint", "soak", "demo", "suite"],
    },
    Tool {
        probe: &["tar", "--version"],
        packages: &["tar"],
        targets: &["test", "demo", "demo-cluster", "bench", "suite", "peers"],
    },
    Tool {
        probe: &["diff", "--version"],
        packages: &["diffutils"],
        targets: &["test", "demo", "soak", "suite"],
    },
    Tool { probe: &["fio", "--version"], packages: &["fio"], targets: &["test", "soak", "suite"] },
    Tool {
        probe: &["python3", "-c", "import sqlite3"],
        packages: &["python3"],
        targets: &["test", "soak", "suite"],
    },
    Tool {
        probe: &["mkfs.ext4", "-V"],
        packages: &["e2fsprogs"],
        targets: &["test", "soak", "peers", "demo-cluster", "demo-slurm", "seeds"],
    },
    Tool {
        probe: &["python3", "-m", "pip", "--version"],
        packages: &["python3-pip", "ca-certificates"],
        targets: &["test", "soak"],
    },
    Tool { probe: &["etcd", "--version"], packages: &["etcd-server"], targets: &["test", "soak"] },
    Tool {
        probe: &["sh", "-c", "node --version && npm --version"],
        packages: &["nodejs", "npm"],
        targets: &["test", "soak"],
    },
    Tool { probe: &["chromium", "--version"], packages: &["chromium"], targets: &["test", "soak"] },
    Tool {
        probe: &["sh", "-c", "prometheus --version && promtool --version"],
        packages: &["prometheus"],
        targets: &["test", "soak"],
    },
    Tool { probe: &["iperf3", "--version"], packages: &["iperf3"], targets: &["seeds"] },
    Tool { probe: &["/usr/sbin/smartctl", "--version"], packages: &["smartmontools"], targets: &["test"] },
    Tool { probe: &["gzip", "--version"], packages: &["gzip"], targets: &["test"] },
    Tool { probe: &["ip", "-V"], packages: &["iproute2"], targets: &["test", "soak", "peers", "seeds"] },
    Tool {
        probe: &["sh", "-c", "nsenter -V && unshare -V && fstrim -V && losetup -V"],
        packages: &["util-linux", "mount"],
        targets: &["peers", "seeds"],
    },
    Tool {
        probe: &["sh", "-c", "glusterd --version && glusterfs --version"],
        packages: &["glusterfs-server", "glusterfs-client"],
        targets: &["peers-gluster"],
    },
    Tool {
        probe: &[
            "sh",
            "-c",
            "mfsmaster -v && mfschunkserver -v && mfsmount -V && command -v mfssettrashtime",
        ],
        packages: &["moosefs-master", "moosefs-chunkserver", "moosefs-client"],
        targets: &["peers-moosefs"],
    },
    Tool {
        probe: &[
            "sh",
            "-c",
            "for p in mon mgr mds osd fuse; do ceph-$p --version || exit 1; done; ceph --version",
        ],
        packages: &["ceph-mon", "ceph-mgr", "ceph-mds", "ceph-osd", "ceph-fuse", "ceph-common"],
        targets: &["peers-ceph"],
    },
    Tool {
        probe: &["sh", "-c", "cc --version && pkg-config --exists fuse3 && fusermount3 -V"],
        packages: &["libfuse3-dev", "fuse3", "pkg-config", "gcc", "libc6-dev"],
        targets: &["peers-passthrough"],
    },
    Tool {
        probe: &["sh", "-c", "dpkg-deb --version && ldd --version && strip --version && xz --version"],
        packages: &["dpkg", "libc-bin", "binutils", "xz-utils"],
        targets: &["package", "container", "test"],
    },
    Tool { probe: &["buildah", "--version"], packages: &["buildah"], targets: &["container", "test"] },
    Tool {
        probe: &[
            "sh",
            "-c",
            "command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged",
        ],
        packages: &["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"],
        targets: &["test", "soak", "demo-slurm", "seeds"],
    },
    Tool { probe: &["mkfs.xfs", "-V"], packages: &["xfsprogs"], targets: &["test", "soak", "seeds"] },
    Tool { probe: &["stress-ng", "--version"], packages: &["stress-ng"], targets: &["soak"] },
    Tool {
        probe: &["sh", "-c", "ls /usr/lib/postgresql/*/bin/pg_amcheck"],
        packages: &["postgresql"],
        targets: &["soak"],
    },
    Tool {
        probe: &["sh", "-c", "cc --version && make --version && perl --version"],
        packages: &["gcc", "libc6-dev", "make", "perl"],
        targets: &["soak"],
    },
    Tool {
        probe: &["cargo", "clippy", "--version"],
        packages: &["rust-web-clippy"],
        targets: &["test", "lint"],
    },
    Tool { probe: &["cargo", "fmt", "--version"], packages: &["rustfmt-web"], targets: &["test", "lint"] },
];

/// `cargo xtask setup TARGET`.
pub fn run(session: &Session) -> Result<(), String> {
    let target =
        session.args.first().ok_or("usage: cargo xtask setup TARGET (demo, test, soak, bench, lint, s3)")?;
    if target == "s3" {
        // A program of its own below target/tools, and no package.
        let log = session.root.join("target/s3-server.log");
        return tools::s3_server(&session.root, &log).map(|program| println!("{}", program.display()));
    }
    need(target)
}

/// Whether everything is there that `target` needs.
pub fn has(target: &str) -> bool {
    TOOLS.iter().filter(|tool| tool.targets.contains(&target)).all(|tool| works(tool.probe))
}

/// Installs what `target` needs and is missing.
pub fn need(target: &str) -> Result<(), String> {
    let missing = |tool: &&Tool| tool.targets.contains(&target) && !works(tool.probe);
    let missing: Vec<&Tool> = TOOLS.iter().filter(missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|tool| tool.packages).copied().collect();
    let rustup: Vec<&str> = missing.iter().filter_map(|tool| rustup_component(tool)).collect();
    if !rustup.is_empty() && works(&["rustup", "--version"]) {
        println!("installing with rustup: {} ...", rustup.join(" "));
        let status = Command::new("rustup").args(["component", "add"]).args(&rustup).status();
        return match status {
            Ok(status) if status.success() => need_again(target),
            _ => Err(format!("'rustup component add {}' failed", rustup.join(" "))),
        };
    }
    install(&packages)?;
    let still: Vec<&str> =
        missing.iter().filter(|tool| !works(tool.probe)).map(|tool| tool.probe[0]).collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("installed, but still not usable: {}", still.join(", ")))
    }
}

fn need_again(target: &str) -> Result<(), String> {
    let missing = |tool: &&Tool| tool.targets.contains(&target) && !works(tool.probe);
    let packages: Vec<&str> = TOOLS.iter().filter(missing).flat_map(|tool| tool.packages).copied().collect();
    if packages.is_empty() { Ok(()) } else { install(&packages) }
}

fn rustup_component(tool: &Tool) -> Option<&'static str> {
    match tool.probe {
        ["cargo", "clippy", ..] => Some("clippy"),
        ["cargo", "fmt", ..] => Some("rustfmt"),
        _ => None,
    }
}

fn works(probe: &[&str]) -> bool {
    let (program, args) = probe.split_first().expect("a probe has a program");
    let quiet = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Installs Debian packages.
fn install(packages: &[&str]) -> Result<(), String> {
    let command =
        format!("apt-get update && apt-get install -y --no-install-recommends {}", packages.join(" "));
    // SAFETY: geteuid only reads the process's credentials.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !works(&["apt-get", "--version"]) {
        return Err(format!("missing on this machine: {}\n  next: as root: {command}", packages.join(", ")));
    }
    println!("installing Debian packages: {} ...", packages.join(" "));
    let quiet = "-qq -o=Dpkg::Use-Pty=0";
    let script = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get {quiet} update && \
         apt-get {quiet} install -y --no-install-recommends {} >/dev/null",
        packages.join(" ")
    );
    match Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("cannot install packages\n  next: run it by hand and read what it says: {command}")),
    }
}
