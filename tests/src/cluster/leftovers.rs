//! Finding and removing leftovers of a cluster: processes, mounts, files. Used for clusters of this process at their
//! end, and for clusters of test processes that were killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;

use super::{BASE, KILL_LIMIT, PREFIX};

/// A line of /proc/self/mountinfo.
struct Mounted {
    /// Minor number of the device: the number of a FUSE connection.
    minor: String,
    at: PathBuf,
    fuse: bool,
}

fn mounted() -> Vec<Mounted> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let minor = fields.get(2)?.split_once(':')?.1.to_owned();
        let fuse = line.contains(" - fuse.brindle ");
        Some(Mounted { minor, at: PathBuf::from(fields.get(4)?), fuse })
    };
    text.lines().filter_map(parse).collect()
}

/// Whether something is mounted exactly there.
pub fn is_mount_point(at: &Path) -> bool {
    mounted().iter().any(|m| m.at == at)
}

/// Whether a process with this pid runs. A zombie does not, unless it is only the first of several threads.
pub fn exists(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let threads = rest.split(' ').nth(17).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    !rest.starts_with('X') && (!rest.starts_with('Z') || threads > 1)
}

/// Fails everything that waits for a mount below `base`.
pub fn abort_mounts(base: &Path) {
    for mount in mounted().iter().filter(|m| m.fuse && m.at.starts_with(base)) {
        if !Path::new("/sys/fs/fuse/connections").join(&mount.minor).exists() {
            let (kind, none) = ("fusectl", rustix::mount::MountFlags::empty());
            // The file system is mounted already, or the connection is gone.
            let _ = rustix::mount::mount("none", "/sys/fs/fuse/connections", kind, none, None);
        }
        // The connection may be gone already.
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{}/abort", mount.minor), "1");
    }
}

/// Copies the logs of a failed test to where they are looked for.
pub fn keep_logs(state: &Path, name: &str) {
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-logs/faults").join(name);
    let copied = std::fs::create_dir_all(&to).and_then(|()| {
        for entry in std::fs::read_dir(state.join("log"))? {
            let path = entry?.path();
            std::fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
        }
        // Daemons of hosts that were set up by hand write to the host's own directory.
        for host in std::fs::read_dir(state.join("hosts")).into_iter().flatten() {
            let host = host?;
            let log = host.path().join("lib/serve.log");
            if log.exists() {
                std::fs::copy(log, to.join(format!("{}.serve.log", host.file_name().to_string_lossy())))?;
            }
        }
        let history = state.with_file_name("history");
        if history.exists() { std::fs::copy(history, to.join("history")).map(drop) } else { Ok(()) }
    });
    match copied {
        Ok(()) => println!("logs and history of this test: {}", to.display()),
        Err(e) => println!("logs could not all be kept in {}: {e}", to.display()),
    }
}

/// Removes everything below and of `base`; says what there was besides empty directories.
pub fn clear(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for pid in processes_of(base) {
        found.push(format!("process {pid}"));
        // SAFETY: plain call; the process names this cluster's directory in its command line.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let since = Instant::now();
        while exists(pid) && since.elapsed() < KILL_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    abort_mounts(base);
    for mount in mounted().iter().rev().filter(|m| m.at.starts_with(base)) {
        found.push(format!("mount {}", mount.at.display()));
        let flags = if mount.fuse { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        let gone = rustix::mount::unmount(&mount.at, flags);
        if gone.is_err() {
            // A lazy unmount gives the loop device back when its last user is gone.
            let _ = rustix::mount::unmount(&mount.at, UnmountFlags::DETACH);
        }
    }
    for namespace in namespaces_of(base) {
        found.push(format!("network namespace {namespace}"));
        // The next run sweeps a namespace that cannot be deleted.
        let _ = std::process::Command::new("ip").args(["netns", "delete", &namespace]).status();
    }
    if base.join("state").exists() {
        found.push(format!("files in {}", base.join("state").display()));
    }
    if !mounted().iter().any(|m| m.at.starts_with(base)) {
        // The next run sweeps a directory that cannot be removed.
        let _ = std::fs::remove_dir_all(base);
    }
    found
}

/// Network namespaces of the hosts of a cluster whose state is still there.
fn namespaces_of(base: &Path) -> Vec<String> {
    let text = std::fs::read(base.join("state/state.json")).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let Some(id) = state["network"]["id"].as_str() else { return Vec::new() };
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("{id}-"))).collect()
}

/// Processes of the binary whose command line names something below `base`.
fn processes_of(base: &Path) -> Vec<i32> {
    let wanted = format!("{}/", base.display());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let belongs = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let ours = ["\0serve\0", "\0mount\0", "\0host-init\0"].iter().any(|verb| line.contains(verb));
        ours && line.contains(&wanted) && exists(*pid)
    };
    pids.filter(belongs).collect()
}

/// Removes the clusters of test processes that are gone.
pub fn sweep() {
    for entry in std::fs::read_dir(BASE).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<i32>().ok());
        if owner.is_some_and(|pid| !exists(pid)) {
            clear(&entry.path());
        }
    }
}
