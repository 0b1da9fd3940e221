//! Keeps the processors of this machine out of sleep while requests come thick and fast.
//!
//! A request of a file system passes from thread to thread: program, daemon, server, and back. Where a processor has gone to
//! sleep for the microseconds in between, waking it costs more than the work: in a virtual machine, where sleep goes through
//! the hypervisor, 30 to 60 us a time (docs/design/006-processors-awake.md). The kernel has a request for this, the file
//! `/dev/cpu_dma_latency`: as long as a process holds it open, no processor enters a sleep state whose exit latency exceeds
//! the value written there. The request ends with the process, however the process ends.
//!
//! Invariant: the file is held open only while this process takes requests, and for [`LOOK`] after.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_stdx::request_rate::{self, BEATS_PER_WAKE};

/// Device that takes the request: 32 bits in the machine's order, in microseconds, by linux/pm_qos.h.
const REQUEST: &str = "/dev/cpu_dma_latency";
/// Says how processors sleep here.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The idle driver of virtual machines. A sleep by this driver takes time in the hypervisor, whatever latency the driver
/// states.
const VIRTUAL: &str = "haltpoll";
/// Longest time to wake up elsewhere: leaves the lightest sleep (C1), in which processors keep cool, and not those that take
/// a tenth of a millisecond to leave.
const REAL_US: u32 = 5;
/// Busy begins when [`BEATS_PER_WAKE`] requests come within this time.
const BUSY_WITHIN: Duration = Duration::from_millis(50);
/// Interval at which a busy process is checked. Busy ends when fewer than [`BEATS_PER_WAKE`] requests came
/// since the last check.
const LOOK: Duration = Duration::from_millis(100);

static HELD: AtomicBool = AtomicBool::new(false);

/// Latency within which processors have to wake up while this process is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLatency {
    /// Choice by machine: no sleep at all in a virtual machine, the lightest one elsewhere.
    #[default]
    Auto,
    /// No request: the setting of the system.
    System,
    /// Within this many microseconds.
    Micros(u32),
}

impl FromStr for CpuLatency {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuLatency, String> {
        match text {
            "auto" => Ok(CpuLatency::Auto),
            "system" => Ok(CpuLatency::System),
            number => {
                // The number must be positive as the kernel's signed number.
                let us =
                    number.strip_suffix("us").unwrap_or(number).parse().ok().filter(|us| *us <= 1_000_000);
                us.map(CpuLatency::Micros)
                    .ok_or_else(|| "it must be 'auto', 'system', or microseconds, at most 1000000".to_owned())
            }
        }
    }
}

impl std::fmt::Display for CpuLatency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CpuLatency::Auto => f.write_str("auto"),
            CpuLatency::System => f.write_str("system"),
            CpuLatency::Micros(us) => us.fmt(f),
        }
    }
}

/// Starts the thread that watches this process; once.
pub fn watch(latency: CpuLatency) {
    let us = match latency {
        CpuLatency::System => return,
        CpuLatency::Micros(us) => us,
        CpuLatency::Auto => suits(&std::fs::read_to_string(IDLE_DRIVER).unwrap_or_default()),
    };
    let watching = std::thread::Builder::new().name("awake".to_owned());
    if let Err(error) = watching.spawn(move || watch_in(&PathBuf::from(REQUEST), us)) {
        tracing::info!(%error, "processors sleep as the system has it");
    }
}

/// Whether processors are kept awake now.
pub fn is_held() -> bool {
    HELD.load(Ordering::Relaxed)
}

fn suits(idle_driver: &str) -> u32 {
    if idle_driver.contains(VIRTUAL) { 0 } else { REAL_US }
}

fn watch_in(request: &Path, us: u32) {
    let mut woken: Option<Instant> = None;
    loop {
        request_rate::rest();
        let now = Instant::now();
        if woken.replace(now).is_none_or(|before| now - before > BUSY_WITHIN) {
            continue;
        }
        // Closing the file ends the request.
        let held = match ask(request, us) {
            Ok(held) => held,
            Err(error) => {
                tracing::info!(%error, path = REQUEST, "processors sleep as the system has it");
                return;
            }
        };
        HELD.store(true, Ordering::Relaxed);
        let mut seen = request_rate::beats();
        loop {
            std::thread::sleep(LOOK);
            let beats = request_rate::beats();
            if beats - seen < BEATS_PER_WAKE {
                break;
            }
            seen = beats;
        }
        drop(held);
        HELD.store(false, Ordering::Relaxed);
    }
}

fn ask(request: &Path, us: u32) -> std::io::Result<File> {
    let mut file = File::options().write(true).open(request)?;
    file.write_all(&us.to_ne_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than it takes.
    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_busy_process_asks_and_a_quiet_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let request = dir.path().join("request");
        std::fs::write(&request, "").unwrap();
        let path = request.clone();
        std::thread::spawn(move || watch_in(&path, 7));
        assert!(!is_held());
        let since = Instant::now();
        while !is_held() {
            assert!(since.elapsed() < LIMIT, "busy, and nothing is asked");
            request_rate::beat();
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read(&request).unwrap(), 7_u32.to_ne_bytes());
        while is_held() {
            assert!(since.elapsed() < LIMIT, "quiet, and it is still asked");
            std::thread::yield_now();
        }
    }

    #[test]
    fn values_are_understood_and_others_refused() {
        for text in ["auto", "system", "0", "20", "1000000"] {
            assert_eq!(text.parse::<CpuLatency>().unwrap().to_string(), text);
        }
        assert_eq!("20us".parse(), Ok(CpuLatency::Micros(20)));
        for bad in ["", "-1", "1.5", "1000001", "fast", "5ms"] {
            bad.parse::<CpuLatency>().unwrap_err();
        }
        assert_eq!((suits("cpuidle_haltpoll\n"), suits("intel_idle\n"), suits("")), (0, REAL_US, REAL_US));
    }
}
