//! Place of one system while it is measured: a directory with its images, mounts and logs, and a network
//! namespace with its processes.
//!
//! Invariant: everything of a system is below its directory or in its namespace, so that [`SystemPlace::clear`] finds all of it,
//! also what an earlier run left that was killed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cluster::leftovers;
use crate::run::{Cmd, Finished};

/// Base directory: on a disk, short (the name of a socket has 107 bytes), and open to all users like every
/// directory above it.
const BASE: &str = "/var/tmp/brindle-peers";
/// Network namespaces are files here.
const NAMESPACES: &str = "/run/netns";
/// An address of the namespace that is not a loopback address: MooseFS refuses those.
pub const ADDRESS: &str = "10.77.0.1";
/// Longest time of a short command.
const SHORT_SECS_MAX: u64 = 60;
/// Longest time for processes to end by themselves.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// Longest time until killed processes are gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for a measured system to finish its background work.
const SETTLE_PATIENCE: Duration = Duration::from_secs(20);
/// Window of the check for background work: the system has finished when it used very little processor time
/// in it.
const SETTLE_WINDOW: Duration = Duration::from_millis(500);
const SETTLED_TICKS: u64 = 5;
/// Interval of the checks.
const POLL: Duration = Duration::from_millis(50);

/// The place of one system.
pub struct SystemPlace {
    dir: PathBuf,
    namespace: String,
    logs: PathBuf,
    log_number: u32,
}

impl SystemPlace {
    /// Place of the system called `name`; nothing is made yet.
    pub fn of(name: &str, logs: &Path) -> SystemPlace {
        let (dir, namespace) = (Path::new(BASE).join(name), format!("brindle-peers-{name}"));
        SystemPlace { dir, namespace, logs: logs.join(name), log_number: 0 }
    }

    /// The directory that holds those of all systems.
    pub fn base() -> &'static Path {
        Path::new(BASE)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path below the directory, as text for a configuration file.
    pub fn path(&self, below: &str) -> String {
        self.dir.join(below).display().to_string()
    }

    /// Mount point of a client, from 0.
    pub fn client(&self, number: usize) -> PathBuf {
        self.dir.join(format!("client{number}"))
    }

    /// Makes the directory and the namespace.
    pub fn make(&mut self) -> Result<(), String> {
        self.mkdir("")?;
        if self.namespace_file().exists() {
            return Ok(());
        }
        let name = self.namespace.clone();
        self.short("netns", "ip", &["netns", "add", &name])?;
        self.short("netns", "ip", &["-n", &name, "link", "set", "lo", "up"])?;
        self.short("netns", "ip", &["-n", &name, "address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])
    }

    /// Makes a directory below.
    pub fn mkdir(&self, below: &str) -> Result<PathBuf, String> {
        let path = self.dir.join(below);
        std::fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(path)
    }

    /// Writes a file below.
    pub fn write(&self, below: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.dir.join(below);
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(path)
    }

    /// A new ext4 image on a loop device, mounted below: the disk of a server.
    pub fn disk(&mut self, name: &str, bytes: u64) -> Result<PathBuf, String> {
        let (image, at) = (self.dir.join(format!("{name}.img")), self.mkdir(name)?);
        let sized = std::fs::File::create_new(&image).and_then(|file| file.set_len(bytes));
        sized.map_err(|e| format!("cannot make the image {}: {e}", image.display()))?;
        let image = image.display().to_string();
        self.short("mkfs", "mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
        self.short("mount", "mount", &["-o", "loop", &image, &at.display().to_string()])?;
        Ok(at)
    }

    /// Gives the room of removed files in the images back to the disk below.
    pub fn trim(&mut self) {
        for at in self.mounts().into_iter().filter(|m| m.kind == "ext4") {
            // Only to save room; where it cannot be done the disk fills earlier, and the benchmark says so.
            let _ = self.short("fstrim", "fstrim", &[&at.at.display().to_string()]);
        }
    }

    /// A command in the namespace, with the time limit of a short one.
    pub fn inside(&self, program: &str) -> Cmd {
        let namespace = format!("--net={}", self.namespace_file().display());
        Cmd::new("nsenter").arg(namespace).arg(program).dir(Path::new("/")).limit_secs(SHORT_SECS_MAX)
    }

    /// Runs a command to its end; an error has its last words.
    pub fn run(&mut self, what: &str, command: Cmd) -> Result<String, String> {
        let done = self.log(what, command);
        if done.ok() { Ok(done.output()) } else { Err(format!("'{what}' failed: {}", done.explain())) }
    }

    fn short(&mut self, what: &str, program: &str, args: &[&str]) -> Result<(), String> {
        let command = Cmd::new(program).args(args).limit_secs(SHORT_SECS_MAX).even_when_interrupted();
        self.run(what, command).map(drop)
    }

    fn log(&mut self, what: &str, command: Cmd) -> Finished {
        self.log_number += 1;
        // Each process that works on a place has files of its own.
        let name = format!("{}-{:03}-{what}.log", std::process::id(), self.log_number);
        command.run(&self.logs.join(name))
    }

    /// Waits until `done` says so.
    pub fn wait(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut SystemPlace) -> bool,
    ) -> Result<(), String> {
        let since = Instant::now();
        while !done(self) {
            if crate::run::interrupted() {
                return Err("interrupted".to_owned());
            }
            if since.elapsed() > limit {
                return Err(format!("{what}: not within {} s", limit.as_secs()));
            }
            std::thread::sleep(POLL * 4);
        }
        Ok(())
    }

    /// Waits until its processes have nothing left to do: what they still remove or move would slow down the next system.
    pub fn settle(&self) {
        let since = Instant::now();
        while since.elapsed() < SETTLE_PATIENCE && !crate::run::interrupted() {
            let before = self.ticks();
            std::thread::sleep(SETTLE_WINDOW);
            if self.ticks().saturating_sub(before) <= SETTLED_TICKS {
                return;
            }
        }
    }

    /// Processor time of its processes so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        self.processes().iter().map(|pid| ticks_of(&stat(pid))).sum()
    }

    /// Free bytes of the file system at `at`; 0 when it does not answer.
    pub fn room(at: &Path) -> u64 {
        brindle_bench::site::free(at).map_or(0, |(bytes, _)| bytes)
    }

    /// Unmounts a client and waits until its process is gone: only then has it let go of all it knew.
    pub fn unmount(&mut self, number: usize) -> Result<(), String> {
        let at = self.client(number);
        if self.mounts().iter().any(|m| m.at == at) {
            self.short("umount", "umount", &[&at.display().to_string()])?;
        }
        let shown = at.display().to_string();
        let since = Instant::now();
        while self.processes().iter().any(|pid| command_line(*pid).contains(&shown)) {
            if since.elapsed() > END_PATIENCE {
                return Err(format!(
                    "{shown} is unmounted, but its client still runs after {} s",
                    END_PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends everything of the system and removes it. Says what had to be ended by force.
    pub fn clear(&mut self) -> Vec<String> {
        for number in 0..2 {
            // A mount that stays is removed below, and named.
            let _ = self.unmount(number);
        }
        let mut forced = self.end_processes();
        let mut mounts = self.mounts();
        mounts.reverse();
        for mount in mounts {
            let _ = self.short("umount", "umount", &[&mount.at.display().to_string()]);
        }
        if self.dir.exists() {
            forced.extend(leftovers::clear(&self.dir));
        }
        if self.namespace_file().exists() {
            let name = self.namespace.clone();
            forced.extend(self.short("netns", "ip", &["netns", "delete", &name]).err());
        }
        // Only the last of all systems can remove it.
        let _ = std::fs::remove_dir(BASE);
        forced
    }

    /// Whether anything of the system is there.
    pub fn exists(&self) -> bool {
        self.dir.exists() || self.namespace_file().exists()
    }

    /// Asks the processes of one program to end, and waits for them: some need others for that.
    pub fn end_program(&self, program: &str) {
        let of = |pid: &i32| {
            command_line(*pid).split(' ').next().is_some_and(|p| p.rsplit('/').next() == Some(program))
        };
        let since = Instant::now();
        let mut pids: Vec<i32> = self.processes().into_iter().filter(of).collect();
        signal_all(&pids, libc::SIGTERM);
        while !pids.is_empty() && since.elapsed() < END_PATIENCE {
            std::thread::sleep(POLL);
            let there = self.processes();
            pids.retain(|pid| there.contains(pid));
        }
    }

    /// Asks all processes of the namespace to end, and kills those that do not.
    fn end_processes(&self) -> Vec<String> {
        signal_all(&self.processes(), libc::SIGTERM);
        let mut rest = self.wait_for_end(END_PATIENCE);
        let forced = rest.iter().map(|pid| format!("process {pid}: {}", command_line(*pid))).collect();
        let since = Instant::now();
        while !rest.is_empty() && since.elapsed() < KILL_PATIENCE {
            signal_all(&rest, libc::SIGKILL);
            std::thread::sleep(POLL);
            rest = self.processes();
        }
        forced
    }

    fn wait_for_end(&self, limit: Duration) -> Vec<i32> {
        let since = Instant::now();
        loop {
            let rest = self.processes();
            if rest.is_empty() || since.elapsed() > limit {
                return rest;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Processes in the namespace.
    pub fn processes(&self) -> Vec<i32> {
        let Ok(own) = std::fs::metadata(self.namespace_file()) else { return Vec::new() };
        let of = |pid: &i32| std::fs::metadata(format!("/proc/{pid}/ns/net"));
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| of(pid).is_ok_and(|ns| (ns.dev(), ns.ino()) == (own.dev(), own.ino()))).collect()
    }

    fn namespace_file(&self) -> PathBuf {
        Path::new(NAMESPACES).join(&self.namespace)
    }

    fn mounts(&self) -> Vec<Mount> {
        let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        text.lines().filter_map(Mount::parse).filter(|m| m.at.starts_with(&self.dir)).collect()
    }
}

/// A line of /proc/self/mounts.
struct Mount {
    at: PathBuf,
    kind: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let fields: Vec<&str> = line.split(' ').collect();
        Some(Mount { at: PathBuf::from(fields.get(1)?), kind: (*fields.get(2)?).to_owned() })
    }
}

fn signal_all(pids: &[i32], signal: libc::c_int) {
    for pid in pids {
        // SAFETY: kill has no memory effects; the process is in the namespace that was made for this system.
        unsafe { libc::kill(*pid, signal) };
    }
}

/// Ticks used, in user and kernel mode, of a line of /proc/PID/stat: its fields 14 and 15.
fn ticks_of(stat: &str) -> u64 {
    // The name in parentheses may hold anything; the first field behind it is number 3.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).into_iter().flatten();
    fields.skip(14 - 3).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_apart() {
        let logs = Path::new("logs");
        let (a, b) = (SystemPlace::of("moosefs", logs), SystemPlace::of("moosefs-shipped", logs));
        assert_ne!(a.dir, b.dir);
        assert!(!b.dir.starts_with(&a.dir));
        assert_eq!(a.client(1), a.dir.join("client1"));
    }

    #[test]
    fn ticks_are_those_of_user_and_kernel() {
        assert_eq!(ticks_of("42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 3 0 12345"), 300);
        assert_eq!(ticks_of(""), 0);
    }

    #[test]
    fn mounts_are_told_by_kind() {
        let mount = Mount::parse("/dev/loop3 /var/tmp/x/disk0 ext4 rw,relatime 0 0").unwrap();
        assert_eq!((mount.at.as_path(), mount.kind.as_str()), (Path::new("/var/tmp/x/disk0"), "ext4"));
    }
}
