//! Removal of leftovers of a cluster that was told to end: found by the cluster's directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::run::capture;

/// Longest time until a killed process is gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the process is checked.
const POLL: Duration = Duration::from_millis(10);

/// A line of /proc/self/mountinfo.
struct Mount {
    /// The minor number of its device, which is the number of a FUSE connection.
    minor: String,
    at: PathBuf,
}

/// Removes everything that belongs to `base`; names what there was besides files.
pub fn clear(base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for mount in mounts(base) {
        // A process that waits for the mount gets an error; then the mount can be removed even when it is in
        // use.
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{}/abort", mount.minor), "1");
        capture("umount", &["--lazy", &mount.at.to_string_lossy()]);
        found.push(format!("mount {}", mount.at.display()));
    }
    for pid in processes(base) {
        kill(pid);
        found.push(format!("process {pid}"));
    }
    for (device, image) in loops(base) {
        capture("losetup", &["--detach", &device]);
        found.push(format!("{device} of {image}"));
    }
    // Never through a mount that would not go.
    if !mounts(base).is_empty() {
        found.push(format!("{}, which is still mounted", base.display()));
    } else if let Err(e) = std::fs::remove_dir_all(base) {
        found.push(format!("{}: {e}", base.display()));
    }
    found
}

/// Mounts below `base`, the innermost first.
fn mounts(base: &Path) -> Vec<Mount> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<Mount> =
        text.lines().filter_map(parse_mount).filter(|m| m.at.starts_with(base)).collect();
    mounts.reverse();
    mounts
}

/// `36 35 0:98 / /mnt/a rw,noatime - fuse.brindle ...`
fn parse_mount(line: &str) -> Option<Mount> {
    let fields: Vec<&str> = line.split(' ').collect();
    let minor = fields.get(2)?.split_once(':')?.1.to_owned();
    Some(Mount { minor, at: PathBuf::from(fields.get(4)?) })
}

/// Processes with an argument below `base`.
fn processes(base: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id() as i32 && belongs(*pid, base)).collect()
}

fn belongs(pid: i32, base: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = command.split(|byte| *byte == 0);
    arguments.any(|argument| Path::new(&*String::from_utf8_lossy(argument)).starts_with(base))
}

fn kill(pid: i32) {
    // SAFETY: kill has no memory effects; the process names this cluster's directory in its arguments.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let since = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() && since.elapsed() < KILL_PATIENCE {
        std::thread::sleep(POLL);
    }
}

/// Loop devices on images below `base`.
fn loops(base: &Path) -> Vec<(String, String)> {
    let list =
        capture("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).unwrap_or_default();
    let pairs = list.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let pairs = pairs.map(|(device, image)| (device.to_owned(), image.trim().to_owned()));
    pairs.filter(|(_, image)| Path::new(image).starts_with(base)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_by_its_arguments_and_ended() {
        let base = std::env::temp_dir().join(format!("xtask-leftovers-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        // (What it says would end up in the middle of a line of the test's.)
        let mut tail = Command::new("tail");
        tail.arg("-f").arg(base.join("log")).arg("/dev/null").stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = tail.spawn().unwrap();
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        let since = Instant::now();
        while processes(&base).is_empty() {
            assert!(since.elapsed() < KILL_PATIENCE, "it was started");
        }
        let found = clear(&base);
        assert!(found.len() == 1 && found[0].starts_with("process "), "{found:?}");
        assert!(!waiter.join().unwrap().success());
        assert!(!base.exists());
    }

    #[test]
    fn mount_lines() {
        let mount = parse_mount("36 35 0:98 / /var/tmp/x/a rw - fuse.brindle 127.0.0.1:/dev rw").unwrap();
        assert_eq!((mount.minor.as_str(), mount.at.as_path()), ("98", Path::new("/var/tmp/x/a")));
    }
}
