//! Metrics of daemons that need attention: counters that rise, daemons that are silent, clocks that are wrong, archives that are behind.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::Mono;
use brindle_types::Code;
use brindle_types::units::round_down;

use crate::cluster::Daemon;
use crate::live::metrics::{Series, parse};

/// Times in a row that a daemon is not heard before it counts as silent; it is asked once a second.
const MISSED_MAX: u32 = 10;
/// Most counters that are remembered.
const COUNTERS_MAX: usize = 20_000;
/// Most parts of hosts that are told of.
const PARTS_MAX: usize = 1_000;
const MINUTE_MS: u64 = 60_000;

/// A counter whose rise is an alert.
struct Watched {
    name: &'static str,
    code: Code,
    /// How long the alert stays after the last rise.
    stays_ms: u64,
    /// Whether a counter that is not 0 when it is seen first has risen: nobody has told of it yet.
    counts_at_first: bool,
}

const WATCHED: &[Watched] = &[
    Watched {
        name: "brindle_oss_damaged_blocks_total",
        code: Code::ObjectDamaged,
        stays_ms: 60 * MINUTE_MS,
        counts_at_first: true,
    },
    Watched {
        name: "brindle_oss_missing_objects_total",
        code: Code::ObjectMissing,
        stays_ms: 60 * MINUTE_MS,
        counts_at_first: true,
    },
    Watched {
        name: "brindle_mds_sessions_ended_total",
        code: Code::ClientsEvicted,
        stays_ms: 10 * MINUTE_MS,
        counts_at_first: false,
    },
    Watched {
        name: "brindle_mds_hsm_actions_failed_total",
        code: Code::TieringFails,
        stays_ms: 10 * MINUTE_MS,
        counts_at_first: false,
    },
];

/// A counter that has risen not long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risen {
    /// Code of the alert that the rise raises.
    pub code: Code,
    /// Full name of the target.
    pub target: String,
    /// The count, since the daemon was started.
    pub count: u64,
}

/// The queue of tiering at an MDT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tiering {
    /// Agents that ask for work.
    pub agents: u64,
    /// Age of the oldest action that no agent has; 0 where there is none.
    pub oldest_seconds: f64,
}

/// A fault of a part of a host; the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A file system has met errors.
    FileSystem,
    /// A disk has sectors that it cannot read.
    Unreadable,
    /// An array is without a disk.
    Degraded,
    /// A disk says of itself that it fails.
    Failing,
}

/// Numbers of hardware that are well at 0: with the label that names the part.
const HARDWARE: &[(&str, &str, Wrong)] = &[
    ("brindle_host_ext4_errors", "device", Wrong::FileSystem),
    ("brindle_host_disk_unreadable_sectors", "disk", Wrong::Unreadable),
    ("brindle_host_array_missing_disks", "array", Wrong::Degraded),
    ("brindle_host_disk_failing", "disk", Wrong::Failing),
];

/// Last numbers of the daemons, as far as alerts are concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Daemons that do not tell their numbers.
    pub silent: Vec<String>,
    /// Counters that have risen.
    pub risen: Vec<Risen>,
    /// By MDT.
    pub tiering: BTreeMap<String, Tiering>,
    /// Faults of the hardware of hosts, by part: `sda of oss1`.
    pub hardware: BTreeMap<String, Wrong>,
    /// By daemon: how far its clock is ahead of the manager's.
    pub clocks_ahead_seconds: BTreeMap<String, f64>,
}

/// A counter as it was seen last.
struct Seen {
    value: f64,
    rose: Option<Mono>,
}

/// Numbers of earlier looks.
#[derive(Default)]
pub struct Watcher {
    missed: BTreeMap<String, u32>,
    counters: BTreeMap<(&'static str, String), Seen>,
}

/// How a daemon is called: by its name and host where they are known.
pub fn called(daemon: &Daemon) -> String {
    let label = |key: &str| daemon.labels.get(key).map(String::as_str).filter(|text| !text.is_empty());
    match (label("daemon"), label("host")) {
        (Some(name), Some(host)) if name != host => format!("{name} on {host}"),
        (Some(name), _) => name.to_owned(),
        (None, Some(host)) => format!("{host} ({})", daemon.url),
        (None, None) => daemon.url.clone(),
    }
}

impl Watcher {
    /// Takes the metrics of the daemons, each with the address of its daemon; `clock_s` is the manager's time.
    pub fn take(
        &mut self,
        daemons: &[Daemon],
        texts: &[(String, String)],
        now: Mono,
        clock_s: f64,
    ) -> Numbers {
        let mut numbers = Numbers::default();
        let mut heard = BTreeMap::new();
        for (url, text) in texts {
            heard.insert(url.as_str(), text.as_str());
        }
        let known: BTreeSet<&str> = daemons.iter().map(|daemon| daemon.url.as_str()).collect();
        self.missed.retain(|url, _| known.contains(url.as_str()));
        for daemon in daemons {
            let missed = self.missed.entry(daemon.url.clone()).or_default();
            match heard.get(daemon.url.as_str()) {
                None => *missed = missed.saturating_add(1),
                Some(text) => {
                    *missed = 0;
                    parse(text).for_each(|series| self.one(&mut numbers, daemon, &series, now, clock_s));
                }
            }
            if self.missed.get(&daemon.url).is_some_and(|missed| *missed >= MISSED_MAX) {
                numbers.silent.push(called(daemon));
            }
        }
        self.risen(&mut numbers, now);
        numbers
    }

    fn one(&mut self, numbers: &mut Numbers, daemon: &Daemon, series: &Series, now: Mono, clock_s: f64) {
        let target = || series.label("target").unwrap_or_default().to_owned();
        match series.name {
            "brindle_process_clock_seconds" => {
                numbers.clocks_ahead_seconds.insert(called(daemon), series.value - clock_s);
            }
            "brindle_mds_hsm_agents" => {
                numbers.tiering.entry(target()).or_default().agents = round_down(series.value);
            }
            "brindle_mds_hsm_oldest_waiting_seconds" => {
                numbers.tiering.entry(target()).or_default().oldest_seconds = series.value;
            }
            name => {
                if let Some((_, label, wrong)) = HARDWARE.iter().find(|(of, ..)| *of == name) {
                    hardware(numbers, daemon, series.label(label).unwrap_or_default(), *wrong, series.value);
                }
                if let Some(watched) = WATCHED.iter().find(|watched| watched.name == name) {
                    self.count(watched, target(), series.value, now);
                }
            }
        }
    }

    fn count(&mut self, watched: &Watched, target: String, value: f64, now: Mono) {
        let key = (watched.name, target);
        let has_room = self.counters.len() < COUNTERS_MAX;
        match self.counters.get_mut(&key) {
            Some(seen) => {
                // A daemon that has started again counts from 0.
                let before = if value < seen.value { 0.0 } else { seen.value };
                if value > before {
                    seen.rose = Some(now);
                }
                seen.value = value;
            }
            None if has_room => {
                let rose = (watched.counts_at_first && value > 0.0).then_some(now);
                self.counters.insert(key, Seen { value, rose });
            }
            None => {}
        }
    }

    fn risen(&self, numbers: &mut Numbers, now: Mono) {
        for ((name, target), seen) in &self.counters {
            let Some(watched) = WATCHED.iter().find(|watched| watched.name == *name) else { continue };
            if seen.rose.is_some_and(|rose| now.ms_since(rose) < watched.stays_ms) {
                let count = round_down(seen.value);
                numbers.risen.push(Risen { code: watched.code, target: target.clone(), count });
            }
        }
    }
}

/// Notes a part of a host that is not well. Several daemons of a host tell the same.
fn hardware(numbers: &mut Numbers, daemon: &Daemon, part: &str, wrong: Wrong, value: f64) {
    if value > 0.0 && numbers.hardware.len() < PARTS_MAX {
        let host = daemon.labels.get("host").cloned().unwrap_or_else(|| called(daemon));
        let known = numbers.hardware.entry(format!("{part} of {host}")).or_insert(wrong);
        *known = wrong.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(name: &str) -> Daemon {
        let labels =
            [("daemon", name), ("host", "h1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        Daemon { url: format!("http://{name}:1/metrics"), labels: labels.into() }
    }

    fn told(name: &str, text: &str) -> (String, String) {
        (format!("http://{name}:1/metrics"), text.to_owned())
    }

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn a_counter_that_rises_is_told_for_a_while() {
        let mut watcher = Watcher::default();
        let daemons = [daemon("ost0")];
        let mut take = |damaged: u64, ended: u64, ms: u64| {
            let text = format!(
                "brindle_oss_damaged_blocks_total{{target=\"x-OST0000\"}} {damaged}\n\
                 brindle_mds_sessions_ended_total{{target=\"x-MDT0000\"}} {ended}\n"
            );
            let risen = watcher.take(&daemons, &[told("ost0", &text)], at(ms), 0.0).risen;
            risen.iter().map(|risen| (risen.code, risen.count)).collect::<Vec<_>>()
        };
        assert_eq!(take(0, 7, 0), [], "sessions that ended before the manager came are no news");
        assert_eq!(take(2, 7, 1), [(Code::ObjectDamaged, 2)]);
        assert_eq!(take(2, 8, 2), [(Code::ClientsEvicted, 8), (Code::ObjectDamaged, 2)]);
        assert_eq!(take(2, 8, 11 * MINUTE_MS), [(Code::ObjectDamaged, 2)]);
        assert_eq!(take(2, 8, 61 * MINUTE_MS), []);
        assert_eq!(
            take(1, 0, 62 * MINUTE_MS),
            [(Code::ObjectDamaged, 1)],
            "it has started again and met one"
        );
        assert_eq!(take(1, 0, 200 * MINUTE_MS), []);
    }

    #[test]
    fn damage_that_was_met_before_the_manager_came_is_told() {
        let text = "brindle_oss_damaged_blocks_total{target=\"x-OST0000\"} 1\n";
        let numbers = Watcher::default().take(&[daemon("ost0")], &[told("ost0", text)], at(0), 0.0);
        assert_eq!(numbers.risen.len(), 1);
    }

    #[test]
    fn a_daemon_is_silent_after_some_tries_and_forgotten_when_it_is_gone() {
        let mut watcher = Watcher::default();
        let (a, b) = (daemon("a"), daemon("b"));
        for round in 1..=MISSED_MAX {
            let numbers = watcher.take(&[a.clone(), b.clone()], &[told("b", "")], at(0), 0.0);
            assert_eq!(numbers.silent.is_empty(), round < MISSED_MAX, "{round}");
        }
        let heard = watcher.take(&[a.clone(), b.clone()], &[told("a", ""), told("b", "")], at(0), 0.0);
        assert!(heard.silent.is_empty());
        watcher.take(&[b], &[], at(0), 0.0);
        assert_eq!(watcher.missed.len(), 1);
    }

    #[test]
    fn clocks_and_archives_are_read() {
        let text = "brindle_process_clock_seconds 130.5\nbrindle_mds_hsm_agents{target=\"x-MDT0000\"} 2\n\
                    brindle_mds_hsm_oldest_waiting_seconds{target=\"x-MDT0000\"} 9.5\n";
        let numbers = Watcher::default().take(&[daemon("mdt0")], &[told("mdt0", text)], at(0), 100.0);
        assert_eq!(numbers.clocks_ahead_seconds["mdt0 on h1"], 30.5);
        assert_eq!(numbers.tiering["x-MDT0000"], Tiering { agents: 2, oldest_seconds: 9.5 });
    }

    #[test]
    fn the_worst_of_a_part_is_told_once() {
        let text = "brindle_host_disk_failing{disk=\"sda\"} 1\nbrindle_host_disk_failing{disk=\"sdb\"} 0\n\
                    brindle_host_disk_unreadable_sectors{disk=\"sda\"} 7\nbrindle_host_disk_unreadable_sectors{disk=\"sdc\"} 7\n\
                    brindle_host_array_missing_disks{array=\"md0\"} 1\nbrindle_host_ext4_errors{device=\"sdb1\"} 0\n";
        let daemons = [daemon("ost0"), daemon("ost1")];
        let texts = [told("ost0", text), told("ost1", text)];
        let found = Watcher::default().take(&daemons, &texts, at(0), 0.0).hardware;
        let wrong = [("md0", Wrong::Degraded), ("sda", Wrong::Failing), ("sdc", Wrong::Unreadable)];
        assert_eq!(found, wrong.map(|(part, wrong)| (format!("{part} of h1"), wrong)).into());
    }
}
