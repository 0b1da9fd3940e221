//! The manager's own numbers: what it knows of the cluster, and how it does itself.

use brindle_stdx::cast::to_i64;

use crate::Manager;
use crate::alerts::Severity;
use crate::live::state::StateView;

/// States of targets and hosts that have a series of their own; any other is counted as `other`.
const TARGET_STATES: &[&str] =
    &["active", "standby", "draining", "recovering", "hears few", "full", "failed", "stopped", "unreachable"];
const HOST_STATES: &[&str] = &["up", "silent", "joined"];
/// States of the whole.
const HEALTHS: &[&str] = &["healthy", "warning", "degraded", "unreachable"];

/// All of them, as OpenMetrics text.
pub fn text(manager: &Manager) -> String {
    let state = manager.state();
    let registry = manager.registry.service("manager");
    by_state(&registry, "targets", "Targets of the map, by state", TARGET_STATES, || {
        state.targets.iter().map(|target| target.target.state.as_ref()).collect()
    });
    by_state(&registry, "hosts", "Hosts of servers, by state", HOST_STATES, || {
        state.hosts.iter().map(|host| host.state).collect()
    });
    by_state(&registry, "health", "1 for the state that the cluster is in", HEALTHS, || vec![state.health]);
    space(&registry, &state);
    let last = manager.history.lock().last();
    let daemons = |name, help, count: u32| registry.gauge(name, help).set(count.into());
    daemons("daemons_asked", "Daemons that were asked for their numbers", last.daemons_asked);
    daemons("daemons_heard", "Daemons that told their numbers in time", last.daemons_heard);
    for severity in [Severity::Warning, Severity::Critical] {
        let count = to_i64(manager.alerts.active(severity) as u64);
        registry
            .label("severity", severity.word())
            .gauge("alerts", "Alerts that go on, by urgency")
            .set(count);
    }
    registry.encode()
}

fn space(registry: &brindle_telemetry::Registry, state: &StateView) {
    let gauge =
        |name, help, value: u64| registry.gauge(name, help).set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge("used_bytes", "Bytes in use on the OSTs, each device once", state.used_bytes);
    gauge("total_bytes", "Bytes of the OSTs, each device once", state.total_bytes);
    gauge("inodes_used", "Inodes in use on the MDTs", state.inodes_used);
    gauge("inodes_free", "Inodes that are free on the MDTs", state.inodes_free);
}

fn by_state<'a>(
    registry: &brindle_telemetry::Registry,
    name: &str,
    help: &str,
    known: &[&'static str],
    found: impl FnOnce() -> Vec<&'a str>,
) {
    let found = found();
    for state in known {
        let count = found.iter().filter(|have| *have == state).count();
        registry.label("state", *state).gauge(name, help).set(to_i64(count as u64));
    }
    let other = found.iter().filter(|have| !known.contains(have)).count();
    registry.label("state", "other").gauge(name, help).set(to_i64(other as u64));
}
