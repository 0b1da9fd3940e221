//! Which entries a policy acts on, in which order, and why not on the others.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use brindle_types::FileType;
use brindle_types::attr::Time;
use brindle_types::hsm::{
    HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_LOST, HSM_NOARCHIVE, HSM_NORELEASE, HSM_RELEASED,
};
use brindle_types::units::round_down;

use crate::condition::{Condition, Context};
use crate::entry::{Entry, Names};
use crate::program::{Action, CANDIDATES_MAX, Order, Policy, Program, Rule};
use crate::trigger::{Target, Within};
use crate::versions::Seen;

/// The decision about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The action is taken, unless a limit of the run comes first.
    Act {
        /// The rule, by its place among the policy's.
        rule: usize,
    },
    /// The entry is left alone.
    Leave(Leave),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The policy is not about it.
    Scope,
    /// The policy's own `ignore`, or that is not known.
    Ignored(String),
    /// No rule is for it.
    NoRule,
    /// The rule's condition does not hold.
    Condition(usize),
    /// Whether the rule's condition holds is not known.
    Unknown(usize),
    /// The entry belongs to one of the newest versions, which the class keeps.
    Kept(String),
    /// The action would do nothing, or be refused.
    Pointless(&'static str),
}

/// Decides about entries for one policy.
pub struct Judge<'a> {
    program: &'a Program,
    policy: &'a Policy,
    names: &'a dyn Names,
    classes: BTreeMap<String, Condition>,
    seen: &'a BTreeMap<String, Seen>,
}

impl<'a> Judge<'a> {
    /// A judge; `seen` are the versions of the classes that keep some.
    pub fn new(
        program: &'a Program,
        policy: &'a Policy,
        names: &'a dyn Names,
        seen: &'a BTreeMap<String, Seen>,
    ) -> Judge<'a> {
        Judge { program, policy, names, classes: program.definitions(), seen }
    }

    fn context(&self, now: Time, entry: &Entry) -> Context<'_> {
        Context { now, names: self.names, classes: &self.classes, superseded: self.superseded(now, entry) }
    }

    fn plain(&self, now: Time) -> Context<'_> {
        Context { now, names: self.names, classes: &self.classes, superseded: None }
    }

    /// The classes with versions that an entry is in; whether it is in one may not be known.
    fn versioned(&self, now: Time, entry: &Entry) -> impl Iterator<Item = (&'a str, &'a Seen, Option<bool>)> {
        let context = self.plain(now);
        let each = self.seen.iter().map(|(name, seen)| {
            let within = self.classes.get(name).and_then(|definition| definition.eval(entry, &context));
            (name.as_str(), seen, within)
        });
        each.collect::<Vec<_>>().into_iter()
    }

    fn superseded(&self, now: Time, entry: &Entry) -> Option<bool> {
        let mut is_superseded = false;
        for (_, seen, within) in self.versioned(now, entry) {
            match within {
                Some(false) => {}
                Some(true) => is_superseded |= seen.is_superseded(&entry.path)?,
                None => return None,
            }
        }
        Some(is_superseded)
    }

    /// The decision about an entry.
    pub fn judge(&self, entry: &Entry, now: Time) -> Verdict {
        match self.decide(entry, now) {
            Ok(rule) => Verdict::Act { rule },
            Err(leave) => Verdict::Leave(leave),
        }
    }

    fn decide(&self, entry: &Entry, now: Time) -> Result<usize, Leave> {
        let context = self.context(now, entry);
        if self.policy.scope.eval(entry, &context) != Some(true) {
            return Err(Leave::Scope);
        }
        // An entry for which an `ignore` condition may hold is left alone.
        if let Some(ignore) =
            self.policy.ignore.iter().find(|ignore| ignore.eval(entry, &context) != Some(false))
        {
            return Err(Leave::Ignored(ignore.to_string()));
        }
        let index = self.rule_for(entry, &context)?;
        let rule = &self.policy.rules[index];
        let action = rule.action.as_ref().unwrap_or(&self.policy.action);
        match rule.condition.eval(entry, &context) {
            Some(true) => {}
            Some(false) => return Err(Leave::Condition(index)),
            None => return Err(Leave::Unknown(index)),
        }
        if matches!(action, Action::Release | Action::Unlink | Action::RemoveCopy) {
            let kept = self
                .versioned(now, entry)
                .find(|(_, seen, within)| *within != Some(false) && seen.is_kept(&entry.path));
            if let Some((class, ..)) = kept {
                return Err(Leave::Kept(class.to_owned()));
            }
        }
        pointless(action, entry).map_or(Ok(index), |why| Err(Leave::Pointless(why)))
    }

    /// The first rule one of whose classes has the entry, else the default. An entry that may be in a class has no rule.
    fn rule_for(&self, entry: &Entry, context: &Context<'_>) -> Result<usize, Leave> {
        for (index, rule) in self.policy.rules.iter().enumerate() {
            if rule.targets.is_empty() {
                return Ok(index);
            }
            for target in &rule.targets {
                let class = self.classes.get(&target.to_ascii_lowercase());
                match class.and_then(|definition| definition.eval(entry, context)) {
                    Some(true) => return Ok(index),
                    Some(false) => {}
                    None => return Err(Leave::Unknown(index)),
                }
            }
        }
        Err(Leave::NoRule)
    }

    /// The action of a rule: its own, else the policy's.
    pub fn action(&self, rule: usize) -> &'a Action {
        self.policy.rules[rule].action.as_ref().unwrap_or(&self.policy.action)
    }

    /// The archive for an entry: the rule's, else that of its class; `None` for the one that it has, or the first.
    pub fn archive(&self, rule: usize, entry: &Entry, now: Time) -> Option<u32> {
        let own = self.policy.rules[rule].archive;
        own.or_else(|| {
            let context = self.plain(now);
            let mut with_archive =
                self.program.classes.values().filter_map(|class| Some((class, class.archive?)));
            let found = with_archive.find(|(class, _)| class.definition.eval(entry, &context) == Some(true));
            found.map(|(_, archive)| archive)
        })
    }

    /// A verdict in words: the rule, and each criterion with what it says of the entry.
    pub fn explain(&self, entry: &Entry, now: Time) -> Vec<String> {
        let verdict = self.judge(entry, now);
        let context = self.context(now, entry);
        let rule = |index: usize| &self.policy.rules[index];
        let said = |rule: &Rule| -> Vec<String> {
            let line = |leaf: &Condition| {
                let outcome = match leaf.eval(entry, &context) {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "not known",
                };
                format!("    {leaf}: {outcome}")
            };
            rule.condition.leaves().into_iter().map(line).collect()
        };
        let head = format!("{}: ", self.policy.name);
        match &verdict {
            Verdict::Act { rule: index } => {
                let first =
                    format!("{head}{} by the rule '{}'", self.action(*index).name(), rule(*index).name);
                std::iter::once(first).chain(said(rule(*index))).collect()
            }
            Verdict::Leave(leave) => {
                let first = format!("{head}nothing: {}", Shown { leave, policy: self.policy });
                let rest = match leave {
                    Leave::Condition(index) | Leave::Unknown(index) => said(rule(*index)),
                    _ => Vec::new(),
                };
                std::iter::once(first).chain(rest).collect()
            }
        }
    }
}

struct Shown<'a> {
    leave: &'a Leave,
    policy: &'a Policy,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |index: &usize| &self.policy.rules[*index].name;
        match self.leave {
            Leave::Scope => write!(f, "the policy is not about it (scope: {})", self.policy.scope),
            Leave::Ignored(what) => write!(f, "it is ignored: {what}"),
            Leave::NoRule => f.write_str("no rule is for it"),
            Leave::Condition(index) => write!(f, "the condition of the rule '{}' does not hold", name(index)),
            Leave::Unknown(index) => write!(f, "it is not known whether the rule '{}' holds", name(index)),
            Leave::Kept(class) => {
                write!(f, "it is one of the newest versions that the class '{class}' keeps")
            }
            Leave::Pointless(why) => f.write_str(why),
        }
    }
}

/// Why an action would do nothing, or be refused; `None` if it can be taken.
pub fn pointless(action: &Action, entry: &Entry) -> Option<&'static str> {
    let has = |flag| entry.flags & flag != 0;
    let is_file = entry.kind == FileType::Regular;
    let tiering = matches!(action, Action::Archive | Action::Release | Action::RemoveCopy);
    if tiering && !is_file {
        return Some("only regular files have copies");
    }
    if tiering && entry.under_way.is_some() {
        return Some("an action on it is queued or under way");
    }
    match action {
        Action::Archive if has(HSM_RELEASED) => Some("it is released"),
        Action::Archive if has(HSM_NOARCHIVE) => Some("it is marked never_archive"),
        Action::Archive if has(HSM_ARCHIVED) && !has(HSM_DIRTY) => Some("it is archived already"),
        Action::Release if has(HSM_RELEASED) => Some("it is released already"),
        Action::Release if !has(HSM_ARCHIVED) => Some("it is not archived"),
        Action::Release if has(HSM_DIRTY) => {
            Some("it has changed since it was archived, or is open for writing")
        }
        Action::Release if has(HSM_NORELEASE) => Some("it is marked never_release"),
        Action::Release if has(HSM_LOST) => Some("its copy is marked as lost"),
        Action::Release if entry.size_bytes == 0 => Some("it is empty"),
        Action::RemoveCopy if has(HSM_RELEASED) => Some("it is released: its copy is the only one"),
        Action::RemoveCopy if !has(HSM_EXISTS) => Some("it has no copy"),
        Action::Unlink if entry.kind == FileType::Directory => Some("it is a directory"),
        Action::Rmdir if entry.kind != FileType::Directory => Some("it is no directory"),
        Action::Rmdir if !entry.is_empty_dir => Some("it is not empty"),
        Action::Rmdir | Action::Unlink if entry.path == "/" => Some("it is the root"),
        Action::Rmdir | Action::Unlink | Action::Command(_) if !entry.is_exact => {
            Some("its name is not UTF-8")
        }
        _ => None,
    }
}

/// An action on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The entry.
    pub entry: Entry,
    /// The rule, by its place.
    pub rule: usize,
    /// The action.
    pub action: Action,
    /// The archive for it.
    pub archive: Option<u32>,
    /// Bytes that it moves or frees, as far as they count towards the target.
    pub bytes: u64,
}

/// A candidate: the one that comes last in the order is the largest.
struct Candidate {
    key: (i128, u64),
    chosen: Chosen,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.key == other.key
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// Actions and bounds of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The actions, in order.
    pub chosen: Vec<Chosen>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Entries that match, chosen or not.
    pub matched: u64,
    /// Whether the target is reached, if there is one.
    pub is_reached: bool,
}

/// Chooses among the entries of a scan.
pub struct Chooser<'a> {
    judge: Judge<'a>,
    target: Target,
    candidates: BinaryHeap<Candidate>,
    most: usize,
    matched: u64,
    offered: u64,
}

impl<'a> Chooser<'a> {
    /// A chooser for a target; it remembers [`CANDIDATES_MAX`] entries at most, those that come first in the order.
    pub fn new(judge: Judge<'a>, target: Target) -> Chooser<'a> {
        Chooser { judge, target, candidates: BinaryHeap::new(), most: CANDIDATES_MAX, matched: 0, offered: 0 }
    }

    /// Considers an entry.
    pub fn offer(&mut self, entry: &Entry, now: Time) {
        let Some(share) = share(&self.target.within, entry) else { return };
        let Verdict::Act { rule } = self.judge.judge(entry, now) else { return };
        let action = self.judge.action(rule);
        self.matched += 1;
        self.offered += 1;
        let key = (order(self.judge.policy.parameters.order, entry), self.offered);
        let bytes = match action {
            Action::Archive | Action::RemoveCopy | Action::Log | Action::Command(_) => entry.size_bytes,
            // A file with other names stays.
            Action::Unlink if entry.nlink > 1 => 0,
            Action::Release | Action::Unlink => round_down(entry.allocated_bytes as f64 * share),
            Action::Rmdir => 0,
        };
        let archive = self.judge.archive(rule, entry, now);
        let chosen = Chosen { entry: entry.clone(), rule, action: action.clone(), archive, bytes };
        self.candidates.push(Candidate { key, chosen });
        if self.candidates.len() > self.most {
            self.candidates.pop();
        }
    }

    /// The plan.
    pub fn finish(self) -> Plan {
        let parameters = &self.judge.policy.parameters;
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min().unwrap_or(u64::MAX);
        let count_max = least(parameters.count_max, self.target.count_max);
        let bytes_max = least(parameters.bytes_max, self.target.bytes_max);
        let mut plan = Plan { chosen: Vec::new(), bytes: 0, matched: self.matched, is_reached: false };
        let is_reached = |plan: &Plan| {
            let bytes = self.target.free_bytes.is_some_and(|free| plan.bytes >= free);
            let count = self.target.free_count.is_some_and(|free| plan.chosen.len() as u64 >= free);
            bytes || count
        };
        for Candidate { chosen, .. } in self.candidates.into_sorted_vec() {
            if is_reached(&plan) || plan.chosen.len() as u64 >= count_max {
                break;
            }
            if plan.bytes.saturating_add(chosen.bytes) > bytes_max {
                break;
            }
            plan.bytes = plan.bytes.saturating_add(chosen.bytes);
            plan.chosen.push(chosen);
        }
        let has_target = self.target.free_bytes.is_some() || self.target.free_count.is_some();
        plan.is_reached = !has_target || is_reached(&plan);
        plan
    }
}

/// Which part of an entry's bytes counts towards a target; `None` if it does not.
fn share(within: &Within, entry: &Entry) -> Option<f64> {
    match within {
        Within::All => Some(1.0),
        Within::User(uid) => (entry.uid == *uid).then_some(1.0),
        Within::Group(gid) => (entry.gid == *gid).then_some(1.0),
        Within::Osts(osts) => {
            let there = entry.osts.iter().filter(|ost| osts.contains(ost)).count();
            (there > 0).then(|| there as f64 / entry.osts.len() as f64)
        }
    }
}

fn order(order: Order, entry: &Entry) -> i128 {
    let of = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    match order {
        Order::LastMod => of(entry.mtime),
        // (Whoever runs a text that goes by it knows it.)
        Order::LastAccess => of(entry.unread_since.unwrap_or(entry.mtime)),
        Order::Creation => of(entry.btime),
        Order::Size => -i128::from(entry.size_bytes),
        Order::None => 0,
    }
}

#[cfg(test)]
mod tests;
