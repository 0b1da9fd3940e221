//! Processor time of the processes that make up a file system, from /proc.
//!
//! The kernel counts in ticks (usually 10 ms), so phases should take a second or more for a useful figure.

use std::collections::BTreeMap;

/// Whose processor time is counted; by default nobody's.
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

/// What was used between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Of the watched processes; `None` when there was none.
    pub watched_seconds: Option<f64>,
    /// Of everything on this machine, interrupts included.
    pub machine_seconds: f64,
}

impl Watched {
    /// Reads the counters of every watched process.
    pub fn read(&self) -> Reading {
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let processes = pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            if !self.wants(&arguments) {
                return None;
            }
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (start, ticks) = ticks_of(&stat)?;
            Some(((pid, start), ticks))
        });
        let machine = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Reading { processes: processes.collect(), machine_ticks: busy_ticks(&machine) }
    }

    /// How many processes are watched now.
    pub fn count(&self) -> usize {
        self.read().processes.len()
    }

    fn wants(&self, arguments: &[u8]) -> bool {
        let words: Vec<String> = arguments
            .split(|b| *b == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .filter(|word| !word.is_empty())
            .collect();
        let program = words.first().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
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
    /// What was used since `before`.
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
        assert!(ours.wants(b"/usr/bin/brindle\0serve\0/d/ost0\0"));
        assert!(ours.wants(b"brindle\0mount\0mgs:/fs\0/mnt\0"));
        assert!(!ours.wants(b"brindle\0bench\0ior\0/mnt\0"));
        assert!(!ours.wants(b"/usr/sbin/glusterfsd\0-s\0host\0"));
        let peers = Watched { patterns: vec!["glusterfs".to_owned(), "/d/x/".to_owned()], brindle: false };
        assert!(!Watched::default().wants(b"brindle\0serve\0/d/ost0\0"));
        assert!(peers.wants(b"/usr/sbin/glusterfsd\0-s\0host\0"));
        assert!(peers.wants(b"brindle\0serve\0/d/x/ost0\0"));
        assert!(!peers.wants(b"brindle\0bench\0ior\0--cpu-of\0glusterfs\0"));
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
