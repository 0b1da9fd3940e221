//! Present alert conditions: a pure function of all that the manager knows.

use brindle_types::{Code, Fault};

use super::numbers::{Numbers, Risen, Wrong};
use super::{Condition, Severity};
use crate::live::state::{StateView, sentence};

const DAY_S: i64 = 86_400;
/// Full within so long at the pace of the last hours: a warning, and what is urgent.
const FULL_WARNING_S: f64 = 7.0 * DAY_S as f64;
const FULL_CRITICAL_S: f64 = DAY_S as f64;
/// Free part of the inodes below which there are few.
const INODES_FREE_MIN: f64 = 0.1;
/// A certificate that ends sooner raises an alert.
const CERTIFICATE_WARNING_S: i64 = 14 * DAY_S;
const CERTIFICATE_CRITICAL_S: i64 = 2 * DAY_S;
/// Actions of tiering may wait so long.
const ARCHIVE_WAITS_MAX_S: f64 = 3_600.0;
/// Actions of tiering may wait so long where no agent asks for work.
const NO_AGENT_MAX_S: f64 = 20.0;
/// Seconds that a clock may differ; reading it over HTTP takes up to one.
const CLOCK_DIFFERS_MAX_S: f64 = 5.0;

/// All that the manager knows.
pub struct Inputs<'a> {
    /// When, seconds since 1970.
    pub now_s: i64,
    /// The state of the cluster.
    pub state: &'a StateView,
    /// Problems of `brindle status`.
    pub problems: &'a [Fault],
    /// Warnings of `brindle status`.
    pub warnings: &'a [Fault],
    /// Numbers of the daemons.
    pub numbers: &'a Numbers,
    /// At the pace of the last hours the OSTs are full in so many seconds; none where they do not fill up, or it is too soon to say.
    pub full_in_s: Option<f64>,
    /// Certificates: whose, and when they end, seconds since 1970.
    pub certificates: &'a [(String, i64)],
    /// Why the last notification could not be sent.
    pub not_sent: Option<String>,
}

/// Finds all present conditions.
pub fn find(inputs: &Inputs) -> Vec<Condition> {
    let mut found = Vec::new();
    told(&mut found, inputs);
    hosts(&mut found, inputs.state);
    space(&mut found, inputs);
    numbers(&mut found, inputs.numbers);
    certificates(&mut found, inputs);
    if let Some(why) = &inputs.not_sent {
        let text = format!("An alert could not be sent: {why}.");
        found.push(condition(Code::NotificationFailed, Severity::Warning, "notifications", text));
    }
    found
}

fn condition(code: Code, severity: Severity, subject: &str, text: String) -> Condition {
    Condition { code, severity, subject: subject.to_owned(), text, next: code.advice().to_owned() }
}

fn of_fault(fault: &Fault, severity: Severity) -> Condition {
    let next = if fault.next.is_empty() { fault.code.advice() } else { &fault.next };
    Condition {
        code: fault.code,
        severity,
        subject: fault.subject.trim().to_owned(),
        text: sentence(fault),
        next: next.to_owned(),
    }
}

/// Conditions that `brindle status` reports, which have codes already.
fn told(found: &mut Vec<Condition>, inputs: &Inputs) {
    found.extend(inputs.problems.iter().map(|fault| of_fault(fault, Severity::Critical)));
    found.extend(inputs.warnings.iter().map(|fault| of_fault(fault, Severity::Warning)));
}

fn hosts(found: &mut Vec<Condition>, state: &StateView) {
    for host in state.hosts.iter().filter(|host| host.state == "silent") {
        let serves = match host.targets.as_slice() {
            [] => String::new(),
            targets => format!(" It served {}.", targets.join(", ")),
        };
        let text = format!("Nothing is heard of the host {}.{serves}", host.name);
        found.push(condition(Code::HostSilent, Severity::Critical, &host.name, text));
    }
    for target in &state.targets {
        let Some(shared) = &target.shared else { continue };
        if shared.owner != shared.preferred && !shared.owner.is_empty() {
            let text = format!(
                "{} is served by {}; its preferred host is {}.",
                shared.name, shared.owner, shared.preferred
            );
            found.push(condition(Code::FailedOver, Severity::Warning, &shared.name, text));
        }
    }
}

fn space(found: &mut Vec<Condition>, inputs: &Inputs) {
    let state = inputs.state;
    let fs = state.fs.as_ref().map_or("", |fs| fs.fs.as_str());
    if let Some(full_in_s) = inputs.full_in_s.filter(|full_in_s| *full_in_s < FULL_WARNING_S) {
        let is_urgent = full_in_s < FULL_CRITICAL_S;
        let severity = if is_urgent { Severity::Critical } else { Severity::Warning };
        let within = if is_urgent { "a day" } else { "a week" };
        let text = format!("At the pace of the last hours the OSTs are full within {within}.");
        found.push(condition(Code::FullSoon, severity, fs, text));
    }
    let inodes = state.inodes_free.saturating_add(state.inodes_used);
    if inodes > 0 && (state.inodes_free as f64) < INODES_FREE_MIN * inodes as f64 {
        let percent = INODES_FREE_MIN * 100.0;
        let text = format!("Less than {percent:.0} % of the inodes are free.");
        found.push(condition(Code::InodesLow, Severity::Warning, fs, text));
    }
}

fn numbers(found: &mut Vec<Condition>, numbers: &Numbers) {
    found.extend(numbers.risen.iter().map(risen));
    for daemon in &numbers.silent {
        let text = format!("{daemon} does not tell its numbers.");
        found.push(condition(Code::DaemonSilent, Severity::Warning, daemon, text));
    }
    for (target, tiering) in &numbers.tiering {
        if tiering.agents == 0 && tiering.oldest_seconds > NO_AGENT_MAX_S {
            let text = format!("Actions of tiering wait at {target}, and no agent asks for work.");
            found.push(condition(Code::ArchiveUnreachable, Severity::Critical, target, text));
        } else if tiering.oldest_seconds > ARCHIVE_WAITS_MAX_S {
            let text = format!("An action of tiering has waited at {target} for more than an hour.");
            found.push(condition(Code::ArchiveBehind, Severity::Warning, target, text));
        }
    }
    found.extend(numbers.hardware.iter().map(|(part, wrong)| hardware(part, *wrong)));
    for (daemon, ahead) in &numbers.clocks_ahead_seconds {
        if ahead.abs() > CLOCK_DIFFERS_MAX_S {
            let way = if *ahead > 0.0 { "ahead of" } else { "behind" };
            let text =
                format!("The clock of {daemon} is more than {CLOCK_DIFFERS_MAX_S:.0} s {way} the manager's.");
            found.push(condition(Code::ClockWrong, Severity::Warning, daemon, text));
        }
    }
}

fn hardware(part: &str, wrong: Wrong) -> Condition {
    use Severity::{Critical, Warning};
    let (code, severity, what) = match wrong {
        Wrong::Failing => (Code::DiskFailing, Critical, "says of itself that it fails"),
        Wrong::Unreadable => (Code::DiskFailing, Warning, "has sectors that it cannot read"),
        Wrong::FileSystem => (Code::DiskFailing, Warning, "has a file system that has met errors"),
        Wrong::Degraded => (Code::ArrayDegraded, Critical, "works without one of its disks"),
    };
    condition(code, severity, part, format!("{part} {what}."))
}

fn risen(risen: &Risen) -> Condition {
    let Risen { code, target, .. } = risen;
    let (severity, what) = match code {
        Code::ObjectDamaged => (Severity::Critical, "has met blocks with a wrong checksum"),
        Code::ObjectMissing => (Severity::Critical, "misses objects that must exist"),
        Code::ClientsEvicted => (Severity::Warning, "has ended sessions of clients that were silent"),
        _ => (Severity::Warning, "is told of actions of tiering that fail"),
    };
    condition(*code, severity, target, format!("{target} {what}."))
}

fn certificates(found: &mut Vec<Condition>, inputs: &Inputs) {
    for (whose, ends_s) in inputs.certificates {
        let left_s = ends_s - inputs.now_s;
        if left_s < CERTIFICATE_WARNING_S {
            let severity =
                if left_s < CERTIFICATE_CRITICAL_S { Severity::Critical } else { Severity::Warning };
            let text = if left_s <= 0 {
                format!("The certificate of {whose} has ended.")
            } else {
                format!("The certificate of {whose} ends within {} days.", left_s / DAY_S + 1)
            };
            found.push(condition(Code::CertificateExpiring, severity, whose, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::alerts::numbers::Tiering;
    use crate::live::state::unreachable;

    fn healthy() -> StateView {
        let mut state = unreachable(0, &Fault::new(Code::NoMgs));
        (state.inodes_free, state.inodes_used) = (90, 10);
        state
    }

    fn found(
        state: &StateView,
        numbers: &Numbers,
        full_in_s: Option<f64>,
        ends_s: i64,
    ) -> Vec<(Code, Severity)> {
        let certificates = [("the manager".to_owned(), ends_s)];
        let inputs = Inputs {
            now_s: 0,
            state,
            problems: &[],
            warnings: &[],
            numbers,
            full_in_s,
            certificates: &certificates,
            not_sent: None,
        };
        find(&inputs).into_iter().map(|condition| (condition.code, condition.severity)).collect()
    }

    #[test]
    fn nothing_is_wrong_where_nothing_is() {
        let numbers = Numbers {
            tiering: BTreeMap::from([("m".to_owned(), Tiering { agents: 0, oldest_seconds: 0.0 })]),
            clocks_ahead_seconds: BTreeMap::from([("a".to_owned(), -1.5)]),
            ..Numbers::default()
        };
        assert_eq!(found(&healthy(), &numbers, Some(FULL_WARNING_S), CERTIFICATE_WARNING_S), []);
        assert_eq!(found(&healthy(), &Numbers::default(), None, i64::MAX), []);
    }

    #[test]
    fn each_bound_is_kept() {
        use Severity::{Critical, Warning};
        let (none, well) = (Numbers::default(), healthy());
        let days = |n: i64| n * DAY_S;
        assert_eq!(found(&well, &none, Some(FULL_WARNING_S - 1.0), i64::MAX), [(Code::FullSoon, Warning)]);
        assert_eq!(found(&well, &none, Some(100.0), i64::MAX), [(Code::FullSoon, Critical)]);
        assert_eq!(found(&well, &none, None, days(13)), [(Code::CertificateExpiring, Warning)]);
        assert_eq!(found(&well, &none, None, -5), [(Code::CertificateExpiring, Critical)]);
        let few = StateView { inodes_free: 9, inodes_used: 91, ..healthy() };
        assert_eq!(found(&few, &none, None, i64::MAX), [(Code::InodesLow, Warning)]);
        let tiering = |agents, oldest_seconds| Numbers {
            tiering: BTreeMap::from([("m".to_owned(), Tiering { agents, oldest_seconds })]),
            ..Numbers::default()
        };
        assert_eq!(found(&well, &tiering(0, 21.0), None, i64::MAX), [(Code::ArchiveUnreachable, Critical)]);
        assert_eq!(found(&well, &tiering(1, 21.0), None, i64::MAX), []);
        assert_eq!(found(&well, &tiering(1, 3601.0), None, i64::MAX), [(Code::ArchiveBehind, Warning)]);
        for ahead in [-6.0, 6.0] {
            let clocks = BTreeMap::from([("a".to_owned(), ahead)]);
            let wrong = Numbers { clocks_ahead_seconds: clocks, ..Numbers::default() };
            assert_eq!(found(&well, &wrong, None, i64::MAX), [(Code::ClockWrong, Warning)]);
        }
        for (wrong, expected) in [
            (Wrong::Failing, (Code::DiskFailing, Critical)),
            (Wrong::Unreadable, (Code::DiskFailing, Warning)),
            (Wrong::FileSystem, (Code::DiskFailing, Warning)),
            (Wrong::Degraded, (Code::ArrayDegraded, Critical)),
        ] {
            let hardware = BTreeMap::from([("sda of h1".to_owned(), wrong)]);
            assert_eq!(found(&well, &Numbers { hardware, ..Numbers::default() }, None, i64::MAX), [expected]);
        }
        let silent = Numbers { silent: vec!["a".to_owned()], ..Numbers::default() };
        assert_eq!(found(&well, &silent, None, i64::MAX), [(Code::DaemonSilent, Warning)]);
    }
}
