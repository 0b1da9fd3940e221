//! Present and past alerts: `alerts.json` in the manager's directory, written at each change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::document;
use brindle_host::identity::write_secret;
use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, Severity};

/// A condition must hold so long before it is an alert.
pub const RAISED_AFTER_MS: u64 = 4_000;
/// A condition must be gone so long before its alert ends.
pub const ENDED_AFTER_MS: u64 = 10_000;
/// Most alerts that are not over.
pub const ACTIVE_MAX: usize = 1_000;
/// Most alerts that are over and still shown.
pub const ENDED_MAX: usize = 500;
/// Most silences.
pub const SILENCES_MAX: usize = 100;
/// Longest silence: whatever is wrong for longer should be mended, or acknowledged.
pub const SILENCE_MAX_S: u64 = 31 * 86_400;
/// Longest text that a person gives.
const TEXT_MAX_CHARS: usize = 400;
/// Name of the file.
const FILE: &str = "alerts.json";
/// Where a file goes that cannot be read.
const DAMAGED: &str = "alerts.json.damaged";
/// Format of the file.
const VERSION: u32 = 1;

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertView {
    /// Number.
    pub id: u64,
    /// Code; `brindle explain` tells more.
    pub code: String,
    /// How urgent it is.
    pub severity: Severity,
    /// The target, host or daemon that it concerns.
    pub subject: String,
    /// Fault, in a sentence.
    pub text: String,
    /// Next step.
    pub next: String,
    /// When it was raised, seconds since 1970.
    pub raised_s: i64,
    /// When it ended, seconds since 1970; none while it goes on.
    pub ended_s: Option<i64>,
    /// Who has acknowledged it.
    pub acknowledged_by: Option<String>,
    /// When, seconds since 1970.
    pub acknowledged_s: Option<i64>,
    /// Whether it is silenced now.
    #[serde(default)]
    pub is_silenced: bool,
    /// Whether the webhook and the mail were given it.
    #[serde(default)]
    pub is_notified: bool,
}

/// A silence: alerts that it is for are shown and told to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SilenceView {
    /// Number.
    pub id: u64,
    /// The code that it is for; empty for any.
    pub code: String,
    /// The subject that it is for; empty for any.
    pub subject: String,
    /// When it ends, seconds since 1970.
    pub until_s: i64,
    /// Who asked for it.
    pub by: String,
    /// Why.
    pub why: String,
}

/// All of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AlertsView {
    /// Alerts: first those that go on, the newest first.
    pub alerts: Vec<AlertView>,
    /// Silences that have not ended.
    pub silences: Vec<SilenceView>,
}
document!(AlertsView, "brindle.alerts", 1);

/// A silence to be made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceReq {
    /// The code that it is for; empty for any.
    #[serde(default)]
    pub code: String,
    /// The subject that it is for; empty for any.
    #[serde(default)]
    pub subject: String,
    /// How long.
    pub seconds: u64,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// Notice for the webhook and for mail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// `raised` or `ended`.
    pub event: &'static str,
    /// Name of the file system.
    pub fs: String,
    /// The alert.
    pub alert: AlertView,
}

/// Changes that a look has made.
#[derive(Debug, Default)]
pub struct Observed {
    /// Whether anything is shown otherwise than before.
    pub has_changed: bool,
    /// Notices that are due.
    pub notices: Vec<Notice>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    last_id: u64,
    alerts: Vec<AlertView>,
    silences: Vec<SilenceView>,
}

type Key = (String, String);

#[derive(Default)]
struct StoredAlerts {
    file: File,
    /// Conditions that are no alerts yet: since when.
    pending: BTreeMap<Key, Mono>,
    /// Alerts whose condition is gone: since when.
    gone: BTreeMap<u64, Mono>,
}

/// The alerts of a manager.
pub struct Alerts {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    kept: Mutex<StoredAlerts>,
}

impl Alerts {
    /// The alerts in a directory. An unreadable file is set aside: present conditions are raised anew.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>) -> Result<Alerts> {
        let path = dir.join(FILE);
        let cannot = |what: &'static str, e: &std::io::Error| {
            Fault::io(Code::NotWritable, what, path.display().to_string(), e)
        };
        let file = match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => File::default(),
            Err(e) => return Err(cannot("cannot read", &e)),
            Ok(bytes) => match serde_json::from_slice::<File>(&bytes) {
                Ok(file) if file.version == VERSION => file,
                other => {
                    let why = other.map_or_else(|e| e.to_string(), |file| format!("format {}", file.version));
                    tracing::warn!(path = %path.display(), why, "the alerts cannot be read; they are set aside as {DAMAGED}");
                    std::fs::rename(&path, dir.join(DAMAGED)).map_err(|e| cannot("cannot rename", &e))?;
                    File::default()
                }
            },
        };
        Ok(Alerts { path, clock, kept: Mutex::new(StoredAlerts { file, ..StoredAlerts::default() }) })
    }

    /// Takes in the present conditions. `is_whole`: there are no others; if it is false, earlier conditions may still
    /// hold.
    pub fn observe(&self, fs: &str, conditions: &[Condition], is_whole: bool) -> Observed {
        let (now, now_s) = (self.clock.now(), self.clock.wall().secs);
        let mut kept = self.kept.lock();
        let mut observed = Observed::default();
        let mut present = BTreeSet::new();
        for condition in conditions {
            let key = (condition.code.to_string(), condition.subject.clone());
            if present.insert(key.clone()) {
                observed.has_changed |= kept.holds(key, condition, now, now_s);
            }
        }
        if is_whole {
            kept.pending.retain(|key, _| present.contains(key));
            observed.has_changed |= kept.end(&present, now, now_s);
        }
        let silences = kept.file.silences.len();
        kept.file.silences.retain(|silence| silence.until_s > now_s);
        observed.has_changed |= silences != kept.file.silences.len();
        observed.notices = kept.notices(fs);
        if observed.has_changed || !observed.notices.is_empty() {
            kept.forget_old();
            self.save(&kept.file);
        }
        observed
    }

    /// Acknowledges an alert, which is not told any more. Returns the alert.
    pub fn acknowledge(&self, id: u64, user: &str) -> Result<AlertView> {
        let now_s = self.clock.wall().secs;
        let mut kept = self.kept.lock();
        let alert = kept.file.alerts.iter_mut().find(|alert| alert.id == id).ok_or_else(|| unknown(id))?;
        if alert.acknowledged_by.is_none() {
            alert.acknowledged_by = Some(user.to_owned());
            alert.acknowledged_s = Some(now_s);
        }
        let alert = alert.clone();
        self.save(&kept.file);
        Ok(alert)
    }

    /// Silences alerts for a while.
    pub fn silence(&self, request: &SilenceReq, user: &str) -> Result<SilenceView> {
        let bad = |why: String| {
            Fault::new(Code::BadArgument)
                .what("cannot silence alerts:")
                .subject(why)
                .data("nothing was changed")
        };
        if request.code.is_empty() && request.subject.is_empty() {
            return Err(bad("a code or a subject is needed".to_owned()));
        }
        if !request.code.is_empty() && request.code.parse::<Code>().is_err() {
            return Err(bad(format!("there is no code {}", request.code)).next("list them: brindle explain"));
        }
        if !(1..=SILENCE_MAX_S).contains(&request.seconds) {
            return Err(bad(format!("it can last 1 to {SILENCE_MAX_S} seconds")));
        }
        let mut kept = self.kept.lock();
        if kept.file.silences.len() >= SILENCES_MAX {
            return Err(bad(format!("there are {SILENCES_MAX} silences already")).next("remove one"));
        }
        kept.file.last_id += 1;
        let silence = SilenceView {
            id: kept.file.last_id,
            code: request.code.clone(),
            subject: shortened(&request.subject),
            until_s: self.clock.wall().secs.saturating_add_unsigned(request.seconds),
            by: user.to_owned(),
            why: shortened(&request.why),
        };
        kept.file.silences.push(silence.clone());
        self.save(&kept.file);
        Ok(silence)
    }

    /// Ends a silence.
    pub fn unsilence(&self, id: u64) -> Result<()> {
        let mut kept = self.kept.lock();
        let before = kept.file.silences.len();
        kept.file.silences.retain(|silence| silence.id != id);
        if kept.file.silences.len() == before {
            return Err(unknown(id).what("there is no silence with the number"));
        }
        self.save(&kept.file);
        Ok(())
    }

    /// All of them.
    pub fn view(&self) -> AlertsView {
        let now_s = self.clock.wall().secs;
        let kept = self.kept.lock();
        let silences: Vec<SilenceView> =
            kept.file.silences.iter().filter(|silence| silence.until_s > now_s).cloned().collect();
        let mut alerts = kept.file.alerts.clone();
        for alert in &mut alerts {
            alert.is_silenced = is_silenced(&silences, alert);
        }
        alerts.sort_by_key(|alert| (alert.ended_s.is_some(), std::cmp::Reverse((alert.raised_s, alert.id))));
        AlertsView { alerts, silences }
    }

    /// How many go on, of this urgency.
    pub fn active(&self, severity: Severity) -> usize {
        let kept = self.kept.lock();
        kept.file.alerts.iter().filter(|alert| alert.ended_s.is_none() && alert.severity == severity).count()
    }

    /// Writes the file. Alerts are raised and told whether it can be written or not.
    fn save(&self, file: &File) {
        let text = serde_json::to_string(&File {
            version: VERSION,
            last_id: file.last_id,
            alerts: file.alerts.clone(),
            silences: file.silences.clone(),
        });
        let text = text.expect("plain fields always serialise");
        if let Err(fault) = write_secret(&self.path, &text) {
            let fault = fault.what("cannot write the alerts to");
            tracing::warn!(code = %fault.code, why = fault.why.join(": "), "{fault}");
        }
    }
}

impl StoredAlerts {
    /// A condition holds. Whether anything is shown otherwise than before.
    fn holds(&mut self, key: Key, condition: &Condition, now: Mono, now_s: i64) -> bool {
        let same =
            |alert: &&mut AlertView| alert.ended_s.is_none() && alert.code == key.0 && alert.subject == key.1;
        if let Some(alert) = self.file.alerts.iter_mut().find(same) {
            self.gone.remove(&alert.id);
            let has_changed = alert.text != condition.text || alert.severity != condition.severity;
            if has_changed {
                if condition.severity > alert.severity {
                    // Somebody who knew of a warning may not know that it is urgent now.
                    (alert.is_notified, alert.acknowledged_by, alert.acknowledged_s) = (false, None, None);
                }
                alert.severity = condition.severity;
                alert.text.clone_from(&condition.text);
                alert.next.clone_from(&condition.next);
            }
            return has_changed;
        }
        let since = *self.pending.entry(key.clone()).or_insert(now);
        let active = self.file.alerts.iter().filter(|alert| alert.ended_s.is_none()).count();
        if now.ms_since(since) < RAISED_AFTER_MS || active >= ACTIVE_MAX {
            return false;
        }
        self.pending.remove(&key);
        self.file.last_id += 1;
        tracing::warn!(code = key.0, subject = key.1, "alert: {}", condition.text);
        self.file.alerts.push(AlertView {
            id: self.file.last_id,
            code: key.0,
            severity: condition.severity,
            subject: key.1,
            text: condition.text.clone(),
            next: condition.next.clone(),
            raised_s: now_s,
            ended_s: None,
            acknowledged_by: None,
            acknowledged_s: None,
            is_silenced: false,
            is_notified: false,
        });
        true
    }

    /// Ends the alerts whose condition is gone for long enough. Whether there were some.
    fn end(&mut self, present: &BTreeSet<Key>, now: Mono, now_s: i64) -> bool {
        let mut has_changed = false;
        for alert in self.file.alerts.iter_mut().filter(|alert| alert.ended_s.is_none()) {
            if present.contains(&(alert.code.clone(), alert.subject.clone())) {
                continue;
            }
            let since = *self.gone.entry(alert.id).or_insert(now);
            if now.ms_since(since) >= ENDED_AFTER_MS {
                self.gone.remove(&alert.id);
                alert.ended_s = Some(now_s);
                has_changed = true;
                tracing::info!(code = alert.code, subject = alert.subject, "alert ended: {}", alert.text);
            }
        }
        has_changed
    }

    /// Notices that are due: alerts that nobody was told of, unless they are silenced or acknowledged; ends of alerts that
    /// somebody was told of.
    fn notices(&mut self, fs: &str) -> Vec<Notice> {
        let silences = &self.file.silences;
        let mut notices = Vec::new();
        for alert in &mut self.file.alerts {
            let event = match (alert.ended_s, alert.is_notified) {
                (None, false) if alert.acknowledged_by.is_none() && !is_silenced(silences, alert) => "raised",
                (Some(_), true) => "ended",
                _ => continue,
            };
            alert.is_notified = event == "raised";
            notices.push(Notice { event, fs: fs.to_owned(), alert: alert.clone() });
        }
        notices
    }

    /// Forgets the oldest of those that are over.
    fn forget_old(&mut self) {
        let ended = self.file.alerts.iter().filter(|alert| alert.ended_s.is_some()).count();
        let mut surplus = ended.saturating_sub(ENDED_MAX);
        self.file.alerts.retain(|alert| {
            let goes = surplus > 0 && alert.ended_s.is_some();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

fn is_silenced(silences: &[SilenceView], alert: &AlertView) -> bool {
    let matches = |pattern: &str, text: &str| pattern.is_empty() || pattern == text;
    silences.iter().any(|s| matches(&s.code, &alert.code) && matches(&s.subject, &alert.subject))
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_MAX_CHARS).collect()
}

fn unknown(id: u64) -> Fault {
    Fault::new(Code::UnknownAlert).what("there is no alert with the number").subject(id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    fn down(subject: &str) -> Condition {
        Condition {
            code: Code::TargetDown,
            severity: Severity::Critical,
            subject: subject.to_owned(),
            text: format!("{subject} does not answer."),
            next: "start it".to_owned(),
        }
    }

    struct Rig {
        dir: tempfile::TempDir,
        hand: Arc<Hand>,
        alerts: Alerts,
    }

    impl Rig {
        fn new() -> Rig {
            let (dir, hand) = (tempfile::tempdir().unwrap(), Hand::new());
            let alerts = Alerts::load(dir.path(), hand.clone()).unwrap();
            Rig { dir, hand, alerts }
        }

        fn again(mut self) -> Rig {
            self.alerts = Alerts::load(self.dir.path(), self.hand.clone()).unwrap();
            self
        }

        /// Looks every second for this long; returns the notices.
        fn look(&self, conditions: &[Condition], ms: u64) -> Vec<&'static str> {
            let mut told = Vec::new();
            for _ in 0..=ms / 1000 {
                let observed = self.alerts.observe("x", conditions, true);
                told.extend(observed.notices.iter().map(|notice| notice.event));
                self.hand.forward_ms(1000);
            }
            told
        }
    }

    #[test]
    fn an_alert_is_raised_once_and_ended_once_also_over_restarts() {
        let rig = Rig::new();
        assert_eq!(rig.look(&[down("a")], RAISED_AFTER_MS - 1000), [""; 0], "it may be a restart");
        assert_eq!(rig.look(&[], 1000), [""; 0]);
        assert_eq!(rig.look(&[down("a"), down("a")], RAISED_AFTER_MS), ["raised"]);
        let rig = rig.again();
        assert_eq!(rig.look(&[down("a")], 60_000), [""; 0], "it was told before the restart");
        assert_eq!(rig.look(&[], ENDED_AFTER_MS - 1000), [""; 0], "it may come back");
        assert_eq!(rig.look(&[down("a")], 1000), [""; 0]);
        assert_eq!(rig.alerts.active(Severity::Critical), 1);
        assert_eq!(rig.look(&[], ENDED_AFTER_MS + 5000), ["ended"]);
        let rig = rig.again();
        assert_eq!(rig.look(&[], ENDED_AFTER_MS * 2), [""; 0]);
        let view = rig.alerts.view();
        assert_eq!(view.alerts.len(), 1);
        assert!(view.alerts[0].ended_s.is_some());
        assert_eq!(rig.look(&[down("a")], RAISED_AFTER_MS), ["raised"], "another one");
        assert_eq!(rig.alerts.view().alerts.len(), 2);
    }

    #[test]
    fn what_is_not_known_ends_nothing() {
        let rig = Rig::new();
        rig.look(&[down("a")], RAISED_AFTER_MS);
        for _ in 0..100 {
            rig.hand.forward_ms(1000);
            assert!(rig.alerts.observe("x", &[], false).notices.is_empty());
        }
        assert_eq!(rig.alerts.active(Severity::Critical), 1);
    }

    #[test]
    fn silenced_and_acknowledged_alerts_are_told_to_nobody() {
        let rig = Rig::new();
        let silence =
            SilenceReq { code: "E5005".into(), subject: "a".into(), seconds: 60, why: "work".into() };
        let silence = rig.alerts.silence(&silence, "ada").unwrap();
        assert_eq!(rig.look(&[down("a"), down("b")], RAISED_AFTER_MS), ["raised"], "that of b");
        let view = rig.alerts.view();
        let of = |name: &str| view.alerts.iter().find(|alert| alert.subject == name).unwrap().clone();
        assert!(of("a").is_silenced && !of("b").is_silenced);
        rig.alerts.unsilence(silence.id).unwrap();
        assert_eq!(rig.alerts.unsilence(silence.id).unwrap_err().code, Code::UnknownAlert);
        assert_eq!(rig.look(&[down("a"), down("b")], 1000), ["raised"], "the silence is over");
        let urgent = Condition { severity: Severity::Warning, ..down("c") };
        let c = [down("a"), down("b"), urgent];
        rig.alerts
            .silence(
                &SilenceReq { code: String::new(), subject: "c".into(), seconds: 60, why: String::new() },
                "ada",
            )
            .unwrap();
        rig.look(&c, RAISED_AFTER_MS);
        let id = rig.alerts.view().alerts.iter().find(|alert| alert.subject == "c").unwrap().id;
        rig.alerts.acknowledge(id, "ada").unwrap();
        for silence in rig.alerts.view().silences {
            rig.alerts.unsilence(silence.id).unwrap();
        }
        assert_eq!(rig.look(&c, 5000), [""; 0], "somebody knows");
        assert_eq!(rig.look(&[down("a"), down("b"), down("c")], 1000), ["raised"], "it is urgent now");
        assert_eq!(rig.alerts.acknowledge(999, "ada").unwrap_err().code, Code::UnknownAlert);
    }

    #[test]
    fn bad_silences_change_nothing() {
        let rig = Rig::new();
        for (code, subject, seconds) in
            [("", "", 60), ("E5005", "", 0), ("E5005", "", SILENCE_MAX_S + 1), ("E0", "", 60)]
        {
            let request =
                SilenceReq { code: code.into(), subject: subject.into(), seconds, why: String::new() };
            assert_eq!(rig.alerts.silence(&request, "ada").unwrap_err().code, Code::BadArgument);
        }
        assert!(rig.alerts.view().silences.is_empty());
    }

    #[test]
    fn the_file_is_bounded_and_a_damaged_one_is_set_aside() {
        let rig = Rig::new();
        let many: Vec<Condition> = (0..ACTIVE_MAX + 5).map(|n| down(&n.to_string())).collect();
        rig.look(&many, RAISED_AFTER_MS);
        assert_eq!(rig.alerts.active(Severity::Critical), ACTIVE_MAX);
        rig.look(&[], ENDED_AFTER_MS + 1000);
        assert_eq!(rig.alerts.view().alerts.len(), ENDED_MAX);
        std::fs::write(rig.dir.path().join(FILE), "{\"version\":").unwrap();
        let rig = rig.again();
        assert!(rig.alerts.view().alerts.is_empty() && rig.dir.path().join(DAMAGED).exists());
        assert_eq!(rig.look(&[down("a")], RAISED_AFTER_MS), ["raised"]);
    }
}
