//! Processor time and memory of the processes that make up a file system, from /proc.
//!
//! The kernel counts in ticks (usually 10 ms), so phases should take a second or more for a useful figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most memory of a mount, under any load.
const MOUNT_BYTES_MAX: u64 = 512 << 20;
/// Most memory of an MDT's server, besides 200 bytes for each inode that it has in memory.
const MDT_BYTES_MAX: u64 = 1 << 30;
/// Most memory of an OST's server, besides the requests that are in flight.
const OST_BYTES_MAX: u64 = 512 << 20;

/// Processes whose processor time is counted; none by default.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Processes whose command lines contain one of these.
    pub patterns: Vec<String>,
    /// Servers and mounts of Brindle.
    pub brindle: bool,
}

/// Ticks of each process so far, and of the whole machine.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    processes: BTreeMap<(u32, u64), u64>,
    machine_ticks: u64,
}

/// Use of processor time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Processor time of the watched processes, in seconds; `None` when there was none.
    pub watched_seconds: Option<f64>,
    /// Processor time of everything on this machine, interrupts included.
    pub machine_seconds: f64,
}

/// Memory of a watched process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessMemory {
    /// Name of the process: `serve mdt0`, `mount /mnt/b`, or the name of its program.
    pub process: String,
    /// Most memory that it has had resident since it started (VmHWM).
    pub peak_bytes: u64,
    /// Resident memory now (VmRSS).
    pub resident_bytes: u64,
    /// Most memory that the process may have, where that is known: of a mount, and of servers whose
    /// directories are called `mdtN` or `ostN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
}

impl ProcessMemory {
    /// The most that it has had, and what it may have: `97 of 512 MiB`.
    pub fn peak(&self) -> String {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let bound = self.bytes_max.map(|bytes| format!(" of {}", mib(bytes))).unwrap_or_default();
        format!("{}{bound} MiB", mib(self.peak_bytes))
    }
}

impl Watched {
    /// Memory of every watched process, by name.
    pub fn memory(&self) -> Vec<ProcessMemory> {
        let mut all: Vec<ProcessMemory> = self
            .processes()
            .filter_map(|(pid, words)| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
                let bytes = |field| Some(kib_of(&status, field)? << 10);
                Some(ProcessMemory {
                    process: name_of(&words),
                    peak_bytes: bytes("VmHWM:")?,
                    resident_bytes: bytes("VmRSS:")?,
                    bytes_max: bytes_max_of(&name_of(&words)),
                })
            })
            .collect();
        all.sort_by(|a, b| a.process.cmp(&b.process));
        all
    }

    /// Watched processes and their arguments.
    fn processes(&self) -> impl Iterator<Item = (u32, Vec<String>)> {
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words = words_of(&arguments);
            self.wants(&words).then_some((pid, words))
        })
    }

    /// Reads the counters of every watched process.
    pub fn read(&self) -> Reading {
        let processes = self.processes().filter_map(|(pid, _)| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (start, ticks) = ticks_of(&stat)?;
            Some(((pid, start), ticks))
        });
        let machine = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Reading { processes: processes.collect(), machine_ticks: busy_ticks(&machine) }
    }

    /// Number of processes that are watched now.
    pub fn count(&self) -> usize {
        self.read().processes.len()
    }

    fn wants(&self, words: &[String]) -> bool {
        let program = program_of(words);
        let verb = words.get(1).map(String::as_str).unwrap_or_default();
        if program == "brindle" && verb == "bench" {
            // The benchmark itself and its ranks, whose own arguments hold the patterns.
            return false;
        }
        let ours = program == "mount.brindle" || (program == "brindle" && matches!(verb, "serve" | "mount"));
        let line = words.join(" ");
        (self.brindle && ours) || self.patterns.iter().any(|pattern| line.contains(pattern.as_str()))
    }
}

impl Reading {
    /// Use of processor time since `before`.
    pub fn since(&self, before: &Reading) -> Used {
        let ticks = self.processes.iter().map(|(id, now)| {
            // A process that was not there before has used all of its time since.
            now.saturating_sub(before.processes.get(id).copied().unwrap_or(0))
        });
        let watched = ticks.sum::<u64>();
        Used {
            watched_seconds: (!self.processes.is_empty()).then(|| seconds(watched)),
            machine_seconds: seconds(self.machine_ticks.saturating_sub(before.machine_ticks)),
        }
    }
}

/// The words of a /proc/PID/cmdline.
fn words_of(arguments: &[u8]) -> Vec<String> {
    let words = arguments.split(|b| *b == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn program_of(words: &[String]) -> &str {
    // A program may say more about itself there: `mfsmount (mounted on: /mnt)`.
    let path = words.first().map(|word| word.split(" (").next().unwrap_or(word)).unwrap_or_default();
    path.rsplit('/').next().unwrap_or(path)
}

/// Short name of a process, for people.
fn name_of(words: &[String]) -> String {
    let program = program_of(words);
    let last_part = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned();
    match words.get(1).map(String::as_str) {
        Some("serve") if program == "brindle" => {
            let value = |(at, word): (usize, &String)| match word.strip_prefix("--dir") {
                Some("") => words.get(at + 1).map(|dir| last_part(dir)),
                Some(dir) => dir.strip_prefix('=').map(last_part),
                None => None,
            };
            let dirs: Vec<String> = words.iter().enumerate().filter_map(value).collect();
            format!("serve {}", dirs.join(" ")).trim_end().to_owned()
        }
        Some("mount") if program == "brindle" => {
            format!("mount {}", words.last().map(String::as_str).unwrap_or_default())
        }
        _ => program.to_owned(),
    }
}

/// Most memory that a process of that name may have.
fn bytes_max_of(name: &str) -> Option<u64> {
    let (verb, rest) = name.split_once(' ')?;
    let target = |dir: &str| match dir.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "mdt" => MDT_BYTES_MAX,
        "ost" => OST_BYTES_MAX,
        _ => 0,
    };
    let bytes = match verb {
        "mount" => MOUNT_BYTES_MAX,
        "serve" => rest.split(' ').map(target).sum(),
        _ => 0,
    };
    (bytes > 0).then_some(bytes)
}

/// A number of /proc/PID/status, in KiB.
fn kib_of(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Start time and ticks used, in user and kernel mode, of a line of /proc/PID/stat.
fn ticks_of(stat: &str) -> Option<(u64, u64)> {
    // The name in parentheses may hold anything; fields are counted from behind it, the first being field 3.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    Some((field(22)?, field(14)?.saturating_add(field(15)?)))
}

/// Ticks in which a processor of this machine did something: user, nice, system, irq, softirq.
fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum()
}

/// Processor time of this thread, in seconds.
pub fn of_thread() -> f64 {
    clock(rustix::time::ClockId::ThreadCPUTime)
}

/// Processor time of this process and of the commands that it has waited for, in seconds.
pub fn of_process() -> f64 {
    // SAFETY: getrusage fills the structure, which is plain numbers, and keeps nothing.
    let children = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    clock(rustix::time::ClockId::ProcessCPUTime) + time(children.ru_utime) + time(children.ru_stime)
}

fn clock(id: rustix::time::ClockId) -> f64 {
    let t = rustix::time::clock_gettime(id);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 3 0 12345 1000 200";
        assert_eq!(ticks_of(stat), Some((12345, 300)));
        assert_eq!(busy_ticks("cpu  10 20 30 1000 500 4 6 99 0 0\ncpu0 1 2 3\n"), 70);
    }

    #[test]
    fn the_processes_of_the_file_system_are_told_from_others() {
        let ours = Watched { patterns: Vec::new(), brindle: true };
        let wants = |watched: &Watched, arguments: &[u8]| watched.wants(&words_of(arguments));
        assert!(wants(&ours, b"/usr/bin/brindle\0serve\0/d/ost0\0"));
        assert!(wants(&ours, b"brindle\0mount\0mgs:/fs\0/mnt\0"));
        assert!(!wants(&ours, b"brindle\0bench\0ior\0/mnt\0"));
        assert!(!wants(&ours, b"/usr/sbin/glusterfsd\0-s\0host\0"));
        let peers = Watched { patterns: vec!["glusterfs".to_owned(), "/d/x/".to_owned()], brindle: false };
        assert!(!wants(&Watched::default(), b"brindle\0serve\0/d/ost0\0"));
        assert!(wants(&peers, b"/usr/sbin/glusterfsd\0-s\0host\0"));
        assert!(wants(&peers, b"brindle\0serve\0/d/x/ost0\0"));
        assert!(!wants(&peers, b"brindle\0bench\0ior\0--cpu-of\0glusterfs\0"));
    }

    #[test]
    fn processes_are_called_what_people_call_them() {
        let name = |line: &str| name_of(&words_of(line.replace(' ', "\0").as_bytes()));
        assert_eq!(
            name("/usr/bin/brindle serve --ready-json --dir=/d/mdt0 --dir /d/ost1/"),
            "serve mdt0 ost1"
        );
        assert_eq!(name("brindle serve --config /etc/brindle/serve.toml"), "serve");
        assert_eq!(name_of(&["mfsmount (mounted on: /mnt/m)".to_owned()]), "mfsmount");
        let bounds =
            ["serve mdt0 ost1", "mount /mnt/b", "serve", "serve data", "glusterfsd"].map(bytes_max_of);
        assert_eq!(bounds, [Some((1 << 30) + (512 << 20)), Some(512 << 20), None, None, None]);
        let memory = |bytes_max| ProcessMemory {
            process: "mount /mnt/b".to_owned(),
            peak_bytes: (96 << 20) + 1,
            resident_bytes: 0,
            bytes_max,
        };
        assert_eq!([None, Some(512 << 20)].map(|max| memory(max).peak()), ["97 MiB", "97 of 512 MiB"]);
        assert_eq!(name("brindle mount --foreground mgs:/fs /mnt/b"), "mount /mnt/b");
        assert_eq!(name("/usr/sbin/glusterfsd -s host"), "glusterfsd");
        assert_eq!(kib_of("Name:\tx\nVmHWM:\t  1234 kB\nVmRSS:\t 99 kB\n", "VmHWM:"), Some(1234));
    }

    #[test]
    fn processes_that_come_and_go_are_counted_right() {
        let reading = |processes: &[((u32, u64), u64)], machine_ticks| Reading {
            processes: processes.iter().copied().collect(),
            machine_ticks,
        };
        let before = reading(&[((1, 5), 100), ((2, 5), 100)], 1000);
        let after = reading(&[((1, 5), 150), ((3, 9), 50)], 1300);
        let used = after.since(&before);
        let tick = seconds(1);
        assert!((used.watched_seconds.expect("some") - 100.0 * tick).abs() < 1e-9);
        assert!((used.machine_seconds - 300.0 * tick).abs() < 1e-9);
        assert_eq!(reading(&[], 0).since(&before).watched_seconds, None);
    }
}
