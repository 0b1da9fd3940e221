//! Devices that let pass so many bytes a second: rules of the `blkio` controller (control groups, version 1) for loop devices.
//!
//! A rule counts for the group that submits the I/O. Servers are in the group of this process; what the kernel writes back for them is in the
//! root group. So each rule stands in both.
//!
//! Invariant: when a [`Throttles`] is dropped, no rule of it is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Largest part of a rule that a device may let pass before the rule is taken to have no effect.
const RULE_EXCEEDED: f64 = 1.1;
/// The file beside the target by which a device is measured.
const PROBE: &str = "device-limit";

/// A device with a file system on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Its mount point.
    pub at: PathBuf,
    /// Major and minor number, `7:3`.
    number: String,
}

/// Bytes a second that a device lets pass.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Of writes.
    pub write: u64,
    /// Of reads.
    pub read: u64,
}

/// Devices that are mounted below a directory, in the order of their names.
pub fn devices_below(dir: &Path) -> Result<Vec<Device>, String> {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    Ok(found_below(&mounts, dir))
}

/// The same from the text of `mountinfo`: the third word is the device, the fifth the mount point, and behind a dash come type and source.
fn found_below(mounts: &str, dir: &Path) -> Vec<Device> {
    let found = mounts.lines().filter_map(|line| {
        let (front, behind) = line.split_once(" - ")?;
        let words: Vec<&str> = front.split_ascii_whitespace().collect();
        let at = PathBuf::from(words.get(4)?);
        let is_loop = behind.split_ascii_whitespace().nth(1)?.starts_with("/dev/loop");
        (is_loop && at.starts_with(dir)).then(|| Device { at, number: words[2].to_owned() })
    });
    // A directory that is mounted over shows twice.
    found.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Rules that are in force.
pub struct Throttles {
    /// Groups of control that have them.
    groups: Vec<PathBuf>,
    /// Devices that they are for.
    devices: Vec<String>,
}

impl Throttles {
    /// None yet; a refusal where this machine cannot have any.
    pub fn new() -> Result<Throttles, String> {
        let mounts =
            std::fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
        let root = hierarchy(&mounts).ok_or(
            "devices cannot be throttled: no blkio controller of control groups version 1 is mounted\n  \
             next: run places without devices, or mount it: mount -t cgroup -o blkio blkio DIR",
        )?;
        let own =
            std::fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
        let groups = BTreeSet::from([root.clone(), root.join(group(&own).trim_start_matches('/'))]);
        Ok(Throttles { groups: groups.into_iter().collect(), devices: Vec::new() })
    }

    /// Lets a device pass so many bytes a second.
    pub fn set(&mut self, device: &Device, rate: Rate) -> Result<(), String> {
        self.devices.push(device.number.clone());
        self.write(&device.number, rate)
    }

    fn write(&self, number: &str, rate: Rate) -> Result<(), String> {
        for group in &self.groups {
            for (way, bytes) in [("read", rate.read), ("write", rate.write)] {
                let file = group.join(format!("blkio.throttle.{way}_bps_device"));
                let rule = format!("{number} {bytes}");
                std::fs::write(&file, &rule)
                    .map_err(|e| format!("cannot write '{rule}' to {}: {e}", file.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Throttles {
    fn drop(&mut self) {
        for number in &self.devices {
            // A rate of 0 removes the rule.
            if let Err(why) = self.write(number, Rate { write: 0, read: 0 }) {
                eprintln!("the throttle of device {number} stays: {why}");
            }
        }
    }
}

/// Where the controller `blkio` is mounted.
fn hierarchy(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it =
            words.get(2) == Some(&"cgroup") && words.get(3)?.split(',').any(|option| option == "blkio");
        is_it.then(|| PathBuf::from(words[1]))
    })
}

/// The group of a process by its `/proc/PID/cgroup`; the root group where the controller has no line.
fn group(text: &str) -> &str {
    text.lines()
        .find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == "blkio").then_some(path)
        })
        .unwrap_or("/")
}

/// Bytes a second that devices let pass together, in MB/s: each gets a plain file that takes about `seconds` to write, past the page cache, all at
/// once; then all are read. An error if they let pass more than their rules.
pub fn limit(devices: &[Device], rate: Rate, seconds: u32) -> Result<super::place::Limit, String> {
    let mib = (rate.write * u64::from(seconds)).div_ceil(MIB).max(1);
    let measured = probe(devices, mib);
    // The files go, also after a failure.
    let removed = devices.iter().try_for_each(|device| match std::fs::remove_file(device.at.join(PROBE)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", device.at.display())),
        _ => Ok(()),
    });
    let (to, from) = measured?;
    removed?;
    let count = devices.len() as f64;
    for (way, found, rule) in [("write", to, rate.write), ("read", from, rate.read)] {
        let allowed = count * rule as f64 / 1e6;
        if found > allowed * RULE_EXCEEDED {
            return Err(format!(
                "devices {way} {found:.1} MB/s where {allowed:.1} are allowed: the throttle has no effect"
            ));
        }
    }
    let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
    Ok(super::place::Limit { to: rounded(to), from: rounded(from) })
}

fn probe(devices: &[Device], mib: u64) -> Result<(f64, f64), String> {
    let file = |device: &Device| device.at.join(PROBE).display().to_string();
    let count = format!("count={mib}");
    let write = |device: &Device| {
        let to = format!("of={}", file(device));
        ["if=/dev/zero".to_owned(), to, "bs=1M".to_owned(), count.clone(), "oflag=direct".to_owned()]
    };
    let read = |device: &Device| {
        let from = format!("if={}", file(device));
        [from, "of=/dev/null".to_owned(), "bs=1M".to_owned(), count.clone(), "iflag=direct".to_owned()]
    };
    let bytes = (devices.len() as u64 * mib * MIB) as f64;
    let to = bytes / all_at_once(devices.iter().map(write))?;
    let from = bytes / all_at_once(devices.iter().map(read))?;
    Ok((to / 1e6, from / 1e6))
}

/// Runs `dd` with these words, all at once; the seconds until the last has ended.
fn all_at_once(each: impl Iterator<Item = [String; 5]>) -> Result<f64, String> {
    let since = Instant::now();
    let start = |words: [String; 5]| {
        let mut command = Command::new("dd");
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|e| format!("cannot run dd: {e}"))
    };
    let running: Vec<Result<Child, String>> = each.map(start).collect();
    let mut first = None;
    for child in running {
        let ended = child.and_then(|child| child.wait_with_output().map_err(|e| format!("dd: {e}")));
        match ended {
            Ok(out) if out.status.success() => {}
            Ok(out) => first = first.or(Some(format!("dd: {}", String::from_utf8_lossy(&out.stderr).trim()))),
            Err(why) => first = first.or(Some(why)),
        }
    }
    first.map_or(Ok(since.elapsed().as_secs_f64()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_of_loops_below_the_directory() {
        let mounts = "22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                      80 22 7:3 / /t/c/ost1 rw,relatime - ext4 /dev/loop3 rw\n\
                      81 22 7:2 / /t/c/ost0 rw,relatime shared:9 - ext4 /dev/loop2 rw\n\
                      82 22 7:2 / /t/c/ost0 rw,relatime - ext4 /dev/loop2 rw\n\
                      83 22 7:4 / /t/cc/ost0 rw,relatime - ext4 /dev/loop4 rw\n\
                      84 22 0:44 / /t/c/mnt rw - fuse.brindle dev rw\n";
        let found = found_below(mounts, Path::new("/t/c"));
        let found: Vec<(&str, &str)> =
            found.iter().map(|d| (d.at.to_str().unwrap(), d.number.as_str())).collect();
        assert_eq!(found, [("/t/c/ost0", "7:2"), ("/t/c/ost1", "7:3")]);
    }

    #[test]
    fn the_group_of_a_process_is_that_of_its_controller() {
        let text = "9:name=systemd:/\n7:blkio:/user.slice\n4:memory:/a/b\n0::/\n";
        assert_eq!(group(text), "/user.slice");
        assert_eq!(group("0::/init.scope\n"), "/");
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n";
        assert_eq!(hierarchy(mounts), Some(PathBuf::from("/sys/fs/cgroup/blkio")));
        assert_eq!(hierarchy("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), None);
    }
}
