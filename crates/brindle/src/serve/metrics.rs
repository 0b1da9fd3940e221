//! Numbers of the services, as the registry shows them.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_client::Client;
use brindle_client::control::{Answer, Request};
use brindle_fuse::session::RequestCounts;
use brindle_layout::{Candidate, is_full, usable};
use brindle_mds::hsm::queue::Queue as HsmQueue;
use brindle_net::Fair;
use brindle_net::usage::Usage;
use brindle_stdx::Clock as _;
use brindle_stdx::cast::low_u32;
use brindle_targets::scrub::Scrub;
use brindle_telemetry::{Kind, Registry};
use brindle_types::HsmKind;
use brindle_wire::Op;
use brindle_wire::job::{RuleHeld, UsageBy, UsageReq, UsageRow};
use futures_util::FutureExt;

/// Numbers of an MGS.
pub fn mgs(registry: &Registry, handle: &Arc<brindle_mgs::Handle>) {
    let registry = registry.service("mgs").label("target", handle.name());
    let count = |name: &str, help: &str, get: fn(&brindle_mgs::Stats) -> &AtomicU64| {
        let handle = handle.clone();
        let read = move || get(handle.stats()).load(Ordering::Relaxed) as f64;
        registry.read(name, help, Kind::Counter, read);
    };
    count("registrations", "Registrations that changed the map", |s| &s.registrations);
    count("refusals", "Registrations that were refused", |s| &s.refusals);
    count("heartbeats", "Heartbeats heard", |s| &s.heartbeats);
    count("maps", "Maps given out", |s| &s.maps);
    let map = handle.clone();
    registry.read("map_version", "Version of the map", Kind::Gauge, move || {
        map.map().map_or(0.0, |map| map.version as f64)
    });
    let active = handle.clone();
    let read = move || f64::from(u8::from(active.is_active()));
    registry.read("active", "1 where it is the active MGS, 0 while it stands by", Kind::Gauge, read);
    let server = handle.clone();
    server_stats(&registry, 400..=499, move || server.server_stats());
    let handle = handle.clone();
    refused_callers(&registry, move || handle.gate().refused_callers());
}

/// Numbers of an MDT.
pub fn mds(registry: &Registry, handle: &Arc<brindle_mds::Handle>) {
    let registry = registry.service("mds").label("target", handle.name());
    let guarded = handle.clone();
    refused_callers(&registry, move || guarded.gate().refused_callers());
    let kv = |name: &str, help: &str, kind: Kind, get: fn(&brindle_kv::KvStats) -> u64| {
        let handle = handle.clone();
        registry.read(name, help, kind, move || get(&handle.mdt().engine().stats()) as f64);
    };
    kv("log_batches", "Operations appended to the log", Kind::Counter, |s| s.batches);
    kv("log_bytes", "Bytes appended to the log", Kind::Counter, |s| s.log_bytes);
    kv("log_writes", "Group writes to the log", Kind::Counter, |s| s.writes);
    kv("log_syncs", "fdatasyncs of the log", Kind::Counter, |s| s.syncs);
    kv("log_segments", "Log segments that exist", Kind::Gauge, |s| s.segments);
    kv("checkpoints", "Checkpoints made", Kind::Counter, |s| s.checkpoints);
    kv("memtable_bytes", "Changes since the last checkpoint in memory", Kind::Gauge, |s| s.memtable_bytes);
    let live = |name: &str, help: &str, get: fn(&brindle_mds::mdt::Live) -> f64| {
        let handle = handle.clone();
        registry.read(name, help, Kind::Gauge, move || get(&handle.mdt().live()));
    };
    live("sessions", "Sessions that are alive", |l| {
        l.sessions.values().filter(|s| !s.row.ended).count() as f64
    });
    live("open_handles", "Open handles of clients, those that were opened ahead too", |l| {
        l.opens.count() as f64
    });
    let locks = handle.clone();
    registry.read("locks", "File locks held", Kind::Gauge, move || locks.mdt().locks().counts().0 as f64);
    let space = handle.clone();
    registry.read("available_bytes", "Space left for names and inodes", Kind::Gauge, move || {
        space.mdt().engine().space().map_or(0.0, |s| s.available_bytes as f64)
    });
    let space = handle.clone();
    registry.read("total_bytes", "Space for names and inodes in all", Kind::Gauge, move || {
        space.mdt().engine().space().map_or(0.0, |s| s.total_bytes as f64)
    });
    let ended = handle.clone();
    let help =
        "Sessions that the MDT has ended since it started: their clients were silent, or have begun again";
    // The lower half of the version counts the sessions that were ended in this term.
    let read = move || f64::from(low_u32(ended.mdt().fences_version()));
    registry.read("sessions_ended", help, Kind::Counter, read);
    tiering(&registry, handle);
    let osts = |name: &str, help: &str, get: fn(&Candidate, u64) -> bool| {
        let handle = handle.clone();
        registry.read(name, help, Kind::Gauge, move || {
            let osts = handle.mdt().osts();
            osts.candidates().iter().filter(|c| get(c, osts.high_water_percent())).count() as f64
        });
    };
    osts("osts_usable", "OSTs that take new objects", usable);
    osts("osts_above_high_water", "OSTs that are too full for new objects", |c, mark| {
        c.up && is_full(c, mark)
    });
    osts("osts_silent", "OSTs that do not answer this MDT", |c, _| !c.up);
    let leases = handle.clone();
    registry.read("leases", "Leases of directories that clients hold", Kind::Gauge, move || {
        leases.mdt().live().leases.lock().count() as f64
    });
    scrub(&registry, handle, |handle| &handle.mdt().scrub().pace);
    jobs(&registry, handle.usage());
    shares(&registry, handle.fair());
    let server = handle.clone();
    server_stats(&registry, 100..=299, move || server.server_stats());
}

/// A number of the queue of tiering; the other argument is the time, seconds since 1970.
type HsmNumber = fn(&HsmQueue, i64) -> f64;

/// Numbers of tiering at an MDT.
fn tiering(registry: &Registry, handle: &Arc<brindle_mds::Handle>) {
    let add = |registry: &Registry, name: &str, help: &str, kind, get: HsmNumber| {
        let handle = handle.clone();
        registry.read(name, help, kind, move || {
            let now_s = handle.mdt().seams().wall().secs;
            get(&handle.mdt().live().hsm, now_s)
        });
    };
    let help = "Actions of tiering that no agent has yet, by kind";
    let waiting: [(&str, HsmNumber); 3] = [
        ("archive", |q, _| q.waiting(HsmKind::Archive) as f64),
        ("restore", |q, _| q.waiting(HsmKind::Restore) as f64),
        ("remove", |q, _| q.waiting(HsmKind::Remove) as f64),
    ];
    for (kind, get) in waiting {
        add(&registry.label("kind", kind), "hsm_actions_waiting", help, Kind::Gauge, get);
    }
    add(registry, "hsm_actions_running", "Actions of tiering that agents carry out", Kind::Gauge, |q, _| {
        q.running() as f64
    });
    add(registry, "hsm_actions_succeeded", "Actions of tiering that went well", Kind::Counter, |q, _| {
        q.succeeded as f64
    });
    add(registry, "hsm_actions_failed", "Actions of tiering that failed", Kind::Counter, |q, _| {
        q.failed as f64
    });
    add(registry, "hsm_agents", "Agents of tiering that ask for work", Kind::Gauge, |q, _| {
        q.working_agents() as f64
    });
    let help = "Age of the oldest action of tiering that no agent has; 0 where there is none";
    add(registry, "hsm_oldest_waiting_seconds", help, Kind::Gauge, |q, now_s| {
        q.oldest_waiting_s().map_or(0.0, |asked_s| now_s.saturating_sub(asked_s).max(0) as f64)
    });
}

/// Numbers of an OST.
pub fn oss(registry: &Registry, handle: &Arc<brindle_oss::Handle>) {
    let registry = registry.service("oss").label("target", handle.name());
    let guarded = handle.clone();
    refused_callers(&registry, move || guarded.oss().gate.refused_callers());
    for (at, (name, help, _)) in handle.oss().store.stats().list().into_iter().enumerate() {
        let handle = handle.clone();
        let read = move || handle.oss().store.stats().list().get(at).map_or(0, |(_, _, n)| *n) as f64;
        registry.read(name, help.trim_end_matches('.'), Kind::Counter, read);
    }
    scrub(&registry, handle, |handle| &handle.oss().scrub);
    let term = handle.clone();
    registry.read("boot_term", "Boot term", Kind::Gauge, move || f64::from(term.oss().store.boot_term()));
    let marked = handle.clone();
    let help = "Objects that may differ between the copies of the target, for changes that not all have synced; 0 where there is one copy";
    registry.read("replica_marked_objects", help, Kind::Gauge, move || {
        marked.oss().store.marked_objects().len() as f64
    });
    let (space, granted) = (handle.clone(), handle.clone());
    registry.read(
        "granted_bytes",
        "Space promised to clients for what they have yet to send",
        Kind::Gauge,
        move || granted.oss().store.granted_bytes() as f64,
    );
    registry.read("available_bytes", "Space left for objects", Kind::Gauge, move || {
        space.oss().store.space().map_or(0.0, |s| s.available_bytes as f64)
    });
    let space = handle.clone();
    registry.read("total_bytes", "Space for objects in all", Kind::Gauge, move || {
        space.oss().store.space().map_or(0.0, |s| s.total_bytes as f64)
    });
    jobs(&registry, handle.usage());
    shares(&registry, handle.fair());
    let server = handle.clone();
    server_stats(&registry, 300..=399, move || server.server_stats());
}

/// Numbers of the scrub of a target.
fn scrub<H: Send + Sync + 'static>(registry: &Registry, handle: &Arc<H>, of: fn(&H) -> &Scrub) {
    for (at, (name, help, _)) in of(handle).totals().into_iter().enumerate() {
        let handle = handle.clone();
        let read = move || of(&handle).totals().get(at).map_or(0, |(_, _, n)| *n) as f64;
        registry.read(name, help, Kind::Counter, read);
    }
    let done = handle.clone();
    let help = "Part of the scrub's present pass that is done; 0 while there is none";
    registry.read("scrub_progress_ratio", help, Kind::Gauge, move || of(&done).gauges().0);
    let last = handle.clone();
    let help = "End of the scrub's last pass, seconds since 1970; 0 before the first one";
    registry.read("scrub_last_pass_timestamp_seconds", help, Kind::Gauge, move || of(&last).gauges().1);
}

/// Numbers of what a target holds back.
fn shares(registry: &Registry, fair: Option<&Arc<Fair>>) {
    let Some(fair) = fair else { return };
    let add = |name: &str, help: &str, kind, get: fn(&Fair) -> f64| {
        let fair = fair.clone();
        registry.read(name, help, kind, move || get(&fair));
    };
    let help = "Requests of jobs that are being served; 0 where jobs take no turns";
    add("requests_in_service", help, Kind::Gauge, |fair| f64::from(fair.answer().in_service));
    let help = "Requests that wait for the turn of their job";
    add("requests_queued", help, Kind::Gauge, |fair| f64::from(fair.answer().queued));
    add("requests_held", "Requests that a limit holds", Kind::Gauge, |fair| f64::from(fair.answer().held));
    let help = "Requests that have waited for the turn of their job";
    add("turns_waited_for", help, Kind::Counter, |fair| fair.totals().queued as f64);
    let help = "Time that requests have waited for the turn of their job";
    add("turn_wait_seconds", help, Kind::Counter, |fair| fair.totals().queued_micros as f64 / 1e6);
    let by_limit = |name: &str, help: &str, get: fn(&RuleHeld) -> f64| {
        let fair = fair.clone();
        let list = move || fair.answer().rules.iter().map(|rule| (rule.name.clone(), get(rule))).collect();
        registry.list(name, help, Kind::Counter, "limit", list);
    };
    by_limit("limited_requests", "Requests that a limit counts for, by limit", |rule| rule.requests as f64);
    by_limit("limit_held_requests", "Requests that a limit has held, by limit", |rule| rule.held as f64);
    let help = "Time that a limit has held requests, side by side ones each, by limit";
    by_limit("limit_held_seconds", help, |rule| rule.held_micros as f64 / 1e6);
}

/// Most jobs of a target that have series: those that take most of its time.
const JOBS_SHOWN_MAX: usize = 20;

/// Numbers of the busiest jobs of a target. A job that is idle for ten minutes is forgotten, and with it its series.
fn jobs(registry: &Registry, usage: &Arc<Usage>) {
    let add = |name: &str, help: &str, get: fn(&UsageRow) -> f64| {
        let usage = usage.clone();
        let list = move || {
            let found = usage.answer(&UsageReq { by: UsageBy::Job, clear: None });
            let shown = found.rows.into_iter().take(JOBS_SHOWN_MAX);
            shown.map(|row| (row.name.clone(), get(&row))).collect()
        };
        // (`job` is a label of Prometheus itself.)
        registry.list(name, help, Kind::Counter, "job_id", list);
    };
    add("job_operations", "Requests answered, by job; the busiest jobs only", |row| {
        row.ops.iter().map(|(_, tally)| tally.count).sum::<u64>() as f64
    });
    add("job_read_bytes", "Bytes of files read, by job; the busiest jobs only", |row| row.read.sum as f64);
    add("job_written_bytes", "Bytes of files written, by job; the busiest jobs only", |row| {
        row.written.sum as f64
    });
    let help = "Time that requests took at the server, side by side ones each, by job; the busiest jobs only";
    add("job_seconds", help, |row| row.ops.iter().map(|(_, tally)| tally.sum).sum::<u64>() as f64 / 1e6);
}

/// Numbers of a mount.
pub fn client(registry: &Registry, client: &Arc<Client>) {
    let registry = registry.service("client").label("fs", client.config().fs.to_string());
    let add = |name: &str, help: &str, get: fn(&ClientStats) -> u64| {
        let client = client.clone();
        registry.read(name, help, Kind::Gauge, move || get(&client_stats(&client)) as f64);
    };
    add("open_files", "Open files", |s| s.open_files);
    add("targets_connected", "Targets that this client is connected to", |s| s.connected);
    add("targets_disconnected", "Targets that do not answer; calls to them wait", |s| s.disconnected);
    add("requests_in_flight", "Requests without an answer", |s| s.in_flight);
}

/// Requests of the kernel at a mount.
pub fn kernel(registry: &Registry, client: &Arc<Client>, counts: &Arc<RequestCounts>) {
    let registry = registry.service("client").label("fs", client.config().fs.to_string());
    let read = counts.clone();
    let help =
        "Bytes that reads of files were answered with; what the kernel has cached is read without the mount";
    registry.read("read_bytes", help, Kind::Counter, move || read.read_bytes() as f64);
    let written = counts.clone();
    let help = "Bytes that came with writes to files";
    registry.read("written_bytes", help, Kind::Counter, move || written.written_bytes() as f64);
    for (code, name) in brindle_fuse::session::counts::counted() {
        let counts = counts.clone();
        let labelled = registry.label("op", name);
        let help = "Requests of the kernel, by operation";
        labelled.read("operations", help, Kind::Counter, move || counts.of(code) as f64);
    }
}

/// Numbers of a mount.
#[derive(Default)]
struct ClientStats {
    open_files: u64,
    connected: u64,
    disconnected: u64,
    in_flight: u64,
}

fn client_stats(client: &Client) -> ClientStats {
    // Asking for the status waits for nothing, so one poll answers.
    let ctx = brindle_client::Ctx::root();
    let answer = client.control(&ctx, Request::Status).now_or_never();
    let Some(Ok(Answer::Status { open_files, targets, .. })) = answer else { return ClientStats::default() };
    let connected = targets.iter().filter(|t| t.connected).count() as u64;
    ClientStats {
        open_files,
        connected,
        disconnected: targets.len() as u64 - connected,
        in_flight: targets.iter().map(|t| t.requests_in_flight).sum(),
    }
}

fn refused_callers(registry: &Registry, count: impl Fn() -> u64 + Send + Sync + 'static) {
    let help = "Requests refused because their caller may not ask for them";
    registry.read("refused_callers", help, Kind::Counter, move || count() as f64);
}

/// Numbers of the connections of a service.
///
/// `ops` are the numbers of the service's own operations.
pub fn server_stats(
    registry: &Registry,
    ops: RangeInclusive<u16>,
    stats: impl Fn() -> brindle_net::ServerStats + Send + Sync + 'static,
) {
    let stats = Arc::new(stats);
    let add = |name: &str, help: &str, kind, get: fn(&brindle_net::ServerStats) -> f64| {
        let stats = stats.clone();
        registry.read(name, help, kind, move || get(&stats()));
    };
    add("connections", "Connections that exist", Kind::Gauge, |s| s.connections as f64);
    add("connections_accepted", "Connections accepted", Kind::Counter, |s| s.accepted as f64);
    add("connections_refused", "Connections refused because there were too many", Kind::Counter, |s| {
        s.refused as f64
    });
    add("requests", "Requests begun", Kind::Counter, |s| s.requests as f64);
    for op in Op::ALL.iter().copied().filter(|op| ops.contains(&(*op as u16))) {
        let stats = stats.clone();
        let count = move || stats().requests_by_op.get(&op).map_or(0.0, |n| *n as f64);
        let labelled = registry.label("op", op.name());
        labelled.read("operations", "Requests begun, by operation", Kind::Counter, count);
    }
    add("bad_peers", "Connections closed for what they sent", Kind::Counter, |s| {
        s.bad.values().sum::<u64>() as f64
    });
}

/// Numbers of the process itself.
pub fn process(registry: &Registry) {
    let registry = registry.service("process");
    let release = registry.label("version", env!("CARGO_PKG_VERSION"));
    release.read("info", "1, with the release of the program as a label", Kind::Gauge, || 1.0);
    let started = wall_seconds();
    registry.read(
        "start_time_seconds",
        "When the process was started, seconds since 1970",
        Kind::Gauge,
        move || started,
    );
    registry.read(
        "clock_seconds",
        "What this host takes the time to be, seconds since 1970",
        Kind::Gauge,
        wall_seconds,
    );
    registry.read("resident_bytes", "Memory in use", Kind::Gauge, || status_kib("VmRSS:") * 1024.0);
    registry.read("threads", "Threads", Kind::Gauge, || status_kib("Threads:"));
    registry.read("cpu_seconds", "Processor time used", Kind::Counter, cpu_seconds);
    registry.read("log_lines_lost", "Lines of the log that could not be written", Kind::Counter, || {
        brindle_telemetry::log::lost_lines() as f64
    });
    registry.read("open_files", "Open file descriptors", Kind::Gauge, || {
        std::fs::read_dir("/proc/self/fd").map_or(0.0, |d| d.count() as f64)
    });
    registry.read("cpus_kept_awake", "1 while this process keeps processors from sleep", Kind::Gauge, || {
        f64::from(u8::from(crate::cpu_latency::is_held()))
    });
}

/// A number of /proc/self/status.
fn status_kib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

fn wall_seconds() -> f64 {
    let now = brindle_stdx::real::RealClock.wall();
    now.secs as f64 + f64::from(now.nanos) / 1e9
}

fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
