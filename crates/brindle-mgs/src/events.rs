//! Events of the cluster, for people who ask the next morning what happened (`brindle events`).
//!
//! Twice a second the MGS looks at what it knows (hosts, targets, who is silent, who is fenced) and compares it with the last look
//! ([`between`], a plain function). Therefore code that changes state need not report the event. The last [`EVENTS_MAX`] lie in one entry
//! of the config store, and outlive the MGS; events of the half second before it died may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use brindle_config::{ConfigStore, Swap};
use brindle_stdx::watch;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::map::TargetState;
use brindle_wire::mgs::{Event, EventLevel};
use brindle_wire::oss::scrub::ScrubPass;
use serde::{Deserialize, Serialize};

use crate::Mgs;
use crate::hosts::rows::HostRow;
use crate::store::ATTEMPTS_MAX;

/// Events that are kept.
pub const EVENTS_MAX: usize = 500;
/// Interval at which the MGS looks for events.
const LOOK_EVERY_MS: u64 = 500;
/// A daemon that was not heard of for this long is silent: daemons ask several times a minute.
const HOST_SILENT_MS: u64 = 15_000;

/// The events in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventsRow {
    /// Events in order of their numbers.
    pub events: Vec<Event>,
}

brindle_wire::first_form!(1 => EventsRow);

/// The journal.
pub(crate) struct Events {
    store: Arc<dyn ConfigStore>,
    key: String,
    /// Version of the entry; looks come one after the other.
    version: tokio::sync::Mutex<u64>,
    kept: watch::Sender<Arc<Vec<Event>>>,
}

impl Events {
    /// Reads the journal.
    pub(crate) async fn open(store: Arc<dyn ConfigStore>, fs: &FsName) -> Result<Events> {
        let key = format!("fs/{fs}/events");
        let (version, row) = read(&*store, &key).await?;
        Ok(Events { store, key, version: version.into(), kept: watch::Sender::new(Arc::new(row.events)) })
    }

    /// Events behind a number.
    pub(crate) fn after(&self, number: u64) -> Vec<Event> {
        self.kept.borrow().iter().filter(|event| event.number > number).cloned().collect()
    }

    /// Completes when there is one behind a number.
    pub(crate) async fn later_than(&self, number: u64) {
        let later = |kept: &Arc<Vec<Event>>| kept.last().is_some_and(|event| event.number > number);
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.kept.subscribe().wait_for(later).await;
    }

    /// Adds events. Readers see them once they are durable.
    async fn add(&self, at_s: i64, found: &[Happening]) -> Result<()> {
        let mut version = self.version.lock().await;
        let mut rest = found;
        for _ in 0..ATTEMPTS_MAX {
            let mut events = self.kept.borrow().as_ref().clone();
            for happening in rest {
                let number = events.last().map_or(0, |last| last.number) + 1;
                let Happening { name, level, subject, text } = happening.clone();
                events.push(Event { number, at_s, name: name.to_owned(), level, subject, text });
            }
            let from = events.len().saturating_sub(EVENTS_MAX);
            let row = EventsRow { events: events.split_off(from) };
            let value = form::encode(FormatLevel::NEWEST, &row)?;
            match self.store.compare_and_swap(&self.key, *version, Some(&value)).await? {
                Swap::Done(written) => {
                    *version = written;
                    self.kept.send_replace(Arc::new(row.events));
                    return Ok(());
                }
                // Another MGS wrote first, or an earlier write of this one was done although no answer came.
                Swap::Lost(_) => {
                    let (there, known) = read(&*self.store, &self.key).await?;
                    *version = there;
                    let before = self.kept.send_replace(Arc::new(known.events));
                    rest = rest.get(self.written_since(&before, rest)..).unwrap_or_default();
                    if rest.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
        Err(Fault::new(Code::Overloaded)
            .what("cannot write the events")
            .why(format!("others wrote theirs {ATTEMPTS_MAX} times meanwhile")))
    }
}

impl Events {
    /// Number of happenings that are in the journal by now, and were not `before`: an earlier attempt has written them.
    fn written_since(&self, before: &[Event], found: &[Happening]) -> usize {
        let written = self.after(before.last().map_or(0, |last| last.number));
        let is_same = |(event, happening): &(&Event, &Happening)| {
            event.name == happening.name && event.subject == happening.subject && event.text == happening.text
        };
        let count = written.iter().zip(found).take_while(is_same).count();
        if count == written.len() { count } else { 0 }
    }
}

/// The journal as it lies in the store, with its version.
async fn read(store: &dyn ConfigStore, key: &str) -> Result<(u64, EventsRow)> {
    let Some(entry) = store.get(key).await? else { return Ok((0, EventsRow::default())) };
    let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    let row = form::decode(&entry.value).map_err(|why| why.fault("the events", damaged))?;
    Ok((entry.version, row))
}

/// Outcome of fencing a host; `Err` has the reason of the failure.
pub(crate) type FenceOutcome = std::result::Result<(), String>;

/// Event that has no number yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Happening {
    name: &'static str,
    level: EventLevel,
    subject: String,
    text: String,
}

fn happened(level: EventLevel, name: &'static str, subject: impl Into<String>, text: String) -> Happening {
    Happening { name, level, subject: subject.into(), text }
}

/// A look of the MGS at the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    hosts: BTreeMap<String, SeenHost>,
    targets: BTreeMap<TargetId, SeenTarget>,
    sets: BTreeMap<TargetId, SeenSet>,
    scrubs: BTreeMap<TargetId, ScrubPass>,
    /// Hosts that are being fenced, with the outcome where there is one.
    fencing: BTreeMap<String, Option<FenceOutcome>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeenHost {
    key: [u8; 32],
    roles: String,
    /// `None`: the host was not heard of since this MGS began.
    is_silent: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenTarget {
    host: String,
    nids: Vec<Nid>,
    is_up: bool,
    is_draining: bool,
    is_removed: bool,
    /// Owner of a target that two hosts reach.
    owner: Option<String>,
}

/// A replica set: who serves, and which members have everything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenSet {
    primary: String,
    in_sync: BTreeSet<String>,
    members: BTreeSet<String>,
}

/// Events between two looks, in an order in which they can be read.
fn between(fs: &FsName, before: &Seen, now: &Seen) -> Vec<Happening> {
    let mut found = Vec::new();
    let renamed = renamed_between(before, now, &mut found);
    let before = &renamed;
    hosts_between(before, now, &mut found);
    for (host, outcome) in &now.fencing {
        let known = before.fencing.get(host);
        match (known, outcome) {
            (Some(known), outcome) if known == outcome => {}
            (None, None) => found.push(happened(
                EventLevel::Warning,
                "host.fencing",
                host,
                "is switched off, so that its targets can move".to_owned(),
            )),
            (_, Some(Ok(()))) => found.push(happened(
                EventLevel::Warning,
                "host.fenced",
                host,
                "is off, or cannot write any more".to_owned(),
            )),
            (_, Some(Err(why))) => {
                found.push(happened(EventLevel::Error, "host.fence_failed", host, why.clone()));
            }
            (Some(_), None) => {}
        }
    }
    for (id, target) in &now.targets {
        targets_between(&fs.target(*id), before.targets.get(id), target, &mut found);
    }
    for (id, set) in &now.sets {
        sets_between(&fs.target(*id), before.sets.get(id), set, &mut found);
    }
    for (id, pass) in &now.scrubs {
        scrubs_between((&fs.target(*id), id.role), before.scrubs.get(id), pass, &mut found);
    }
    found
}

/// Hosts that have another name: tells of them, and gives what was seen before with their new names.
fn renamed_between(before: &Seen, now: &Seen, found: &mut Vec<Happening>) -> Seen {
    let mut seen = before.clone();
    for (to, host) in now.hosts.iter().filter(|(to, _)| !before.hosts.contains_key(*to)) {
        let was = |(from, was): &(&String, &SeenHost)| was.key == host.key && !now.hosts.contains_key(*from);
        let Some((from, known)) = before.hosts.iter().find(was) else { continue };
        found.push(happened(EventLevel::Info, "host.renamed", to, format!("was {from} before")));
        seen.hosts.remove(from);
        seen.hosts.insert(to.clone(), known.clone());
        let rename = |name: &mut String| {
            if name == from {
                name.clone_from(to);
            }
        };
        for target in seen.targets.values_mut() {
            rename(&mut target.host);
            target.owner.iter_mut().for_each(rename);
        }
        for set in seen.sets.values_mut() {
            rename(&mut set.primary);
            for names in [&mut set.in_sync, &mut set.members] {
                if names.remove(from) {
                    names.insert(to.clone());
                }
            }
        }
    }
    seen
}

fn sets_between(name: &str, before: Option<&SeenSet>, now: &SeenSet, found: &mut Vec<Happening>) {
    let mut tell = |level, event, text: String| found.push(happened(level, event, name, text));
    let Some(before) = before else {
        let hosts: Vec<&str> = now.members.iter().map(String::as_str).collect();
        tell(EventLevel::Info, "replica.added", format!("has copies on {}", hosts.join(", ")));
        return;
    };
    for host in now.members.difference(&before.members) {
        tell(EventLevel::Info, "replica.added", format!("gets a copy on {host}"));
    }
    for host in before.members.difference(&now.members) {
        tell(EventLevel::Info, "replica.removed", format!("has no copy on {host} any more"));
    }
    if before.primary != now.primary {
        let text = format!("{} serves it, before {}", now.primary, before.primary);
        tell(EventLevel::Warning, "replica.primary", text);
    }
    for host in before.in_sync.difference(&now.in_sync).filter(|host| now.members.contains(*host)) {
        tell(EventLevel::Warning, "replica.out_of_sync", format!("goes on without the copy on {host}"));
    }
    for host in now.in_sync.difference(&before.in_sync) {
        tell(EventLevel::Info, "replica.in_sync", format!("the copy on {host} is complete"));
    }
}

/// A pass is told of when it has found more damage, and at its end.
fn scrubs_between(
    (name, role): (&str, Role),
    before: Option<&ScrubPass>,
    now: &ScrubPass,
    found: &mut Vec<Happening>,
) {
    let before = before.filter(|before| before.began_s == now.began_s);
    let level = if now.unmended > 0 { EventLevel::Error } else { EventLevel::Warning };
    let mut tell = |level, event, text: String| found.push(happened(level, event, name, text));
    let ScrubPass { found: places, mended, unmended, .. } = now;
    if before.map_or(0, |before| before.found + before.unmended) < places + unmended {
        let lost = if role == Role::Mdt { Code::KvDamaged } else { Code::ObjectDamaged };
        let code = if *unmended > 0 { lost } else { Code::DamageMended };
        let text = format!(
            "the scrub has found {places} damaged places, {mended} mended from another copy, {unmended} not ({code})"
        );
        tell(level, "scrub.damage", text);
    }
    if now.ended_s != 0 && before.is_none_or(|before| before.ended_s == 0) {
        let things = if role == Role::Mdt { "rows" } else { "objects" };
        let verified = format!("{} in {} {things} verified", format_bytes(now.bytes), now.objects);
        match places {
            0 => tell(EventLevel::Info, "scrub.done", format!("{verified}, no damage")),
            n => tell(level, "scrub.done", format!("{verified}, {n} damaged places, {mended} mended")),
        }
    }
}

fn hosts_between(before: &Seen, now: &Seen, found: &mut Vec<Happening>) {
    let names: BTreeSet<&String> = before.hosts.keys().chain(now.hosts.keys()).collect();
    for name in names {
        match (before.hosts.get(name), now.hosts.get(name)) {
            (None, Some(host)) => {
                let text = format!("joined as {}", host.roles);
                found.push(happened(EventLevel::Info, "host.joined", name, text));
            }
            (Some(_), None) => {
                let text = "was removed from the cluster".to_owned();
                found.push(happened(EventLevel::Warning, "host.removed", name, text));
            }
            (Some(a), Some(b)) if a.is_silent == Some(false) && b.is_silent == Some(true) => {
                let text = format!("its daemon is silent for {} s", HOST_SILENT_MS / 1000);
                found.push(happened(EventLevel::Error, "host.silent", name, text));
            }
            (Some(a), Some(b)) if a.is_silent == Some(true) && b.is_silent == Some(false) => {
                let text = "its daemon is heard again".to_owned();
                found.push(happened(EventLevel::Info, "host.back", name, text));
            }
            _ => {}
        }
    }
}

fn targets_between(name: &str, before: Option<&SeenTarget>, now: &SeenTarget, found: &mut Vec<Happening>) {
    let mut tell = |level, event, text: String| found.push(happened(level, event, name, text));
    let Some(before) = before else {
        if !now.is_removed {
            tell(EventLevel::Info, "target.added", format!("is served by {}", now.host));
        }
        return;
    };
    if now.is_removed {
        if !before.is_removed {
            tell(EventLevel::Warning, "target.removed", "was taken out of the file system".to_owned());
        }
        return;
    }
    if before.owner != now.owner
        && let (Some(from), Some(to)) = (&before.owner, &now.owner)
    {
        tell(EventLevel::Warning, "target.failover", format!("goes from {from} to {to}"));
    }
    if before.host != now.host {
        let text = format!("is served by {}, before by {}", now.host, before.host);
        tell(EventLevel::Warning, "target.moved", text);
    } else if before.nids != now.nids {
        let nids: Vec<String> = now.nids.iter().map(ToString::to_string).collect();
        tell(EventLevel::Info, "target.moved", format!("has another address: {}", nids.join(", ")));
    }
    match (before.is_up, now.is_up) {
        (true, false) => tell(EventLevel::Error, "target.silent", format!("{} does not answer", now.host)),
        (false, true) => tell(EventLevel::Info, "target.back", format!("{} answers again", now.host)),
        _ => {}
    }
    match (before.is_draining, now.is_draining) {
        (false, true) => tell(EventLevel::Info, "target.draining", "gets no new files".to_owned()),
        (true, false) => tell(EventLevel::Info, "target.undrained", "gets new files again".to_owned()),
        _ => {}
    }
}

impl Mgs {
    fn seen(&self) -> Seen {
        let (map, now) = (self.store.current(), self.seams.now());
        let rows = self.hosts.as_ref().map(|hosts| hosts.rows()).unwrap_or_default();
        let silent = |name: &str| {
            let heard = self.hosts.as_ref().and_then(|hosts| hosts.heard.lock().of(name, now).0);
            heard.map(|ms| ms > HOST_SILENT_MS)
        };
        let host = |row: &HostRow| {
            let HostRow { name, key, roles, .. } = row;
            (name.clone(), SeenHost { key: *key, roles: roles.clone(), is_silent: silent(name) })
        };
        let liveness = self.liveness.lock();
        let targets = map.targets.iter().filter(|t| t.id != TargetId::MGT).map(|t| {
            let shared = rows.shared_target(t.id).map(|row| &row.target);
            let seen = SeenTarget {
                host: t.host().to_owned(),
                nids: t.nids.clone(),
                is_up: liveness.state(t.id, now) == TargetState::Up,
                is_draining: map.draining.contains(&t.id.index) && t.id.role == Role::Ost,
                is_removed: map.is_removed(t.id),
                owner: shared.map(|shared| shared.owner.clone()),
            };
            (t.id, seen)
        });
        let sets = rows.replicas().map(|row| {
            let set = &row.set;
            let seen = SeenSet {
                primary: set.primary.clone(),
                in_sync: set.in_sync().map(|member| member.host.clone()).collect(),
                members: set.members.iter().map(|member| member.host.clone()).collect(),
            };
            (set.target, seen)
        });
        Seen {
            targets: targets.collect(),
            sets: sets.collect(),
            scrubs: self.scrubs.lock().clone(),
            hosts: rows.hosts().map(host).collect(),
            fencing: self.shared.fencing_now(),
        }
    }
}

/// Keeps the journal for as long as the MGS runs.
pub(crate) async fn watch(mgs: Weak<Mgs>) {
    let Some(mut before) = mgs.upgrade().map(|mgs| mgs.seen()) else { return };
    let mut found: Vec<Happening> = Vec::new();
    if let Some(mgs) = mgs.upgrade() {
        let text = "answers from now on".to_owned();
        found.push(happened(EventLevel::Info, "mgs.active", mgs.config.host.clone(), text));
    }
    while let Some(mgs) = mgs.upgrade() {
        let now = mgs.seen();
        found.extend(between(&mgs.superblock.fs, &before, &now));
        // While the store is away the newest of them are kept.
        found.drain(..found.len().saturating_sub(EVENTS_MAX));
        before = now;
        if !found.is_empty() && mgs.check_leads().is_ok() {
            match mgs.events.add(mgs.seams.wall().secs, &found).await {
                Ok(()) => found.clear(),
                Err(fault) => {
                    tracing::warn!(code = %fault.code, "cannot write down what has happened: {fault}")
                }
            }
        }
        let seams = mgs.seams.clone();
        drop(mgs);
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_whose_answer_was_lost_is_written_once() {
        crate::testing::run(async {
            let (store, _dir) = crate::testing::Forgetful::new();
            let events = Events::open(store.clone(), &"scratch".parse().unwrap()).await.unwrap();
            let event = |name: &str| happened(EventLevel::Info, "host.joined", name, "has joined".to_owned());
            let (a, b) = (event("a"), event("b"));
            store.lose_next_answer();
            let code = events.add(5, std::slice::from_ref(&a)).await.unwrap_err().code;
            assert_eq!(code, Code::StoreUnreachable);
            events.add(6, &[a, b]).await.unwrap();
            let kept = events.after(0);
            let kept: Vec<(u64, &str)> = kept.iter().map(|e| (e.number, e.subject.as_str())).collect();
            assert_eq!(kept, [(1, "a"), (2, "b")]);
        });
    }

    fn host(is_silent: Option<bool>) -> SeenHost {
        SeenHost { key: [1; 32], roles: "server".to_owned(), is_silent }
    }

    fn target(host: &str) -> SeenTarget {
        SeenTarget {
            host: host.to_owned(),
            nids: vec!["10.0.0.1:9881".parse().unwrap()],
            is_up: true,
            is_draining: false,
            is_removed: false,
            owner: Some(host.to_owned()),
        }
    }

    fn seen(hosts: &[(&str, Option<bool>)], targets: &[SeenTarget]) -> Seen {
        let hosts = hosts.iter().map(|(name, is_silent)| ((*name).to_owned(), host(*is_silent))).collect();
        let targets = targets.iter().enumerate().map(|(n, t)| (TargetId::ost(n as u16), t.clone())).collect();
        Seen { hosts, targets, ..Seen::default() }
    }

    fn set(primary: &str, in_sync: &[&str]) -> Seen {
        let names = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect();
        let set =
            SeenSet { primary: primary.to_owned(), in_sync: names(in_sync), members: names(&["h1", "h2"]) };
        Seen { sets: [(TargetId::ost(0), set)].into(), ..Seen::default() }
    }

    #[test]
    fn a_copy_that_is_lost_and_filled_again_is_told() {
        let (both, one) = (set("h1", &["h1", "h2"]), set("h2", &["h2"]));
        assert_eq!(names(&seen(&[], &[]), &both), ["replica.added scratch-OST0000"]);
        let lost = ["replica.primary scratch-OST0000", "replica.out_of_sync scratch-OST0000"];
        assert_eq!(names(&both, &one), lost);
        assert_eq!(names(&one, &set("h2", &["h1", "h2"])), ["replica.in_sync scratch-OST0000"]);
    }

    #[test]
    fn a_scrub_is_told_of_when_it_finds_damage_and_at_its_end() {
        let pass = |found, unmended, ended_s| {
            let pass = ScrubPass {
                began_s: 5,
                found,
                mended: found - unmended,
                unmended,
                ended_s,
                ..ScrubPass::default()
            };
            Seen { scrubs: [(TargetId::ost(0), pass)].into(), ..Seen::default() }
        };
        let nothing = Seen::default();
        assert!(names(&nothing, &pass(0, 0, 0)).is_empty());
        assert_eq!(names(&pass(0, 0, 0), &pass(1, 0, 0)), ["scrub.damage scratch-OST0000"]);
        assert!(names(&pass(1, 0, 0), &pass(1, 0, 0)).is_empty());
        assert_eq!(names(&pass(1, 0, 0), &pass(1, 0, 9)), ["scrub.done scratch-OST0000"]);
        let both = ["scrub.damage scratch-OST0000", "scrub.done scratch-OST0000"];
        assert_eq!(names(&pass(1, 0, 0), &pass(2, 1, 9)), both);
        assert_eq!(names(&nothing, &pass(0, 0, 9)), ["scrub.done scratch-OST0000"]);
    }

    fn names(before: &Seen, now: &Seen) -> Vec<String> {
        let found = between(&"scratch".parse().unwrap(), before, now);
        found.iter().map(|h| format!("{} {}", h.name, h.subject)).collect()
    }

    #[test]
    fn a_host_that_dies_and_whose_target_moves_is_told_in_order_and_once() {
        let well = seen(&[("h1", Some(false)), ("h2", Some(false))], &[target("h1")]);
        assert!(names(&well, &well).is_empty());
        let mut fencing = well.clone();
        fencing.fencing.insert("h1".to_owned(), None);
        assert_eq!(names(&well, &fencing), ["host.fencing h1"]);
        let mut moved = seen(&[("h1", Some(true)), ("h2", Some(false))], &[target("h2")]);
        moved.fencing.insert("h1".to_owned(), Some(Ok(())));
        let expected = [
            "host.silent h1",
            "host.fenced h1",
            "target.failover scratch-OST0000",
            "target.moved scratch-OST0000",
        ];
        assert_eq!(names(&fencing, &moved), expected);
        assert!(names(&moved, &moved).is_empty());
        let back = seen(&[("h1", Some(false)), ("h2", Some(false))], &[target("h2")]);
        assert_eq!(names(&moved, &back), ["host.back h1"]);
    }

    #[test]
    fn a_host_that_was_never_heard_is_neither_silent_nor_back() {
        let (unheard, heard) = (seen(&[("h1", None)], &[]), seen(&[("h1", Some(false))], &[]));
        assert!(names(&unheard, &heard).is_empty());
        assert!(names(&heard, &unheard).is_empty(), "the MGS was restarted");
        assert_eq!(names(&seen(&[], &[]), &unheard), ["host.joined h1"]);
        assert_eq!(names(&unheard, &seen(&[], &[])), ["host.removed h1"]);
    }

    #[test]
    fn a_host_with_another_name_is_neither_gone_nor_new() {
        let mut before = seen(&[("h1", Some(false)), ("h2", Some(false))], &[target("h1")]);
        before.hosts.get_mut("h2").unwrap().key = [2; 32];
        before.sets = set("h1", &["h1", "h2"]).sets;
        let mut now = before.clone();
        let host = now.hosts.remove("h1").unwrap();
        now.hosts.insert("a1".to_owned(), SeenHost { is_silent: None, ..host });
        now.targets.insert(TargetId::ost(0), target("a1"));
        now.sets = set("a1", &["a1", "h2"]).sets;
        now.sets.get_mut(&TargetId::ost(0)).unwrap().members = ["a1", "h2"].map(str::to_owned).into();
        assert_eq!(names(&before, &now), ["host.renamed a1"]);
        // A host with another key is another host.
        now.hosts.get_mut("a1").unwrap().key = [3; 32];
        let names = names(&before, &now);
        assert!(
            names.contains(&"host.joined a1".to_owned()) && names.contains(&"host.removed h1".to_owned())
        );
    }

    #[test]
    fn targets_come_fall_silent_are_drained_and_go() {
        let none = seen(&[], &[]);
        let there = seen(&[], &[target("h1")]);
        assert_eq!(names(&none, &there), ["target.added scratch-OST0000"]);
        let down = seen(&[], &[SeenTarget { is_up: false, ..target("h1") }]);
        assert_eq!(names(&there, &down), ["target.silent scratch-OST0000"]);
        assert_eq!(names(&down, &there), ["target.back scratch-OST0000"]);
        let drained = seen(&[], &[SeenTarget { is_draining: true, ..target("h1") }]);
        assert_eq!(names(&there, &drained), ["target.draining scratch-OST0000"]);
        let gone = seen(&[], &[SeenTarget { is_removed: true, is_up: false, ..target("h1") }]);
        assert_eq!(names(&drained, &gone), ["target.removed scratch-OST0000"]);
        assert!(names(&none, &gone).is_empty());
    }
}
