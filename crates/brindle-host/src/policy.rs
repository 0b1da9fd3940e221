//! Policies on this host: texts in its files, users as it knows them, the directory of the engine that runs here, and previews.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::document;
use brindle_client::Client;
use brindle_hsm::policy::describe::{Description, describe};
use brindle_hsm::policy::state::{History, Mark, Run};
use brindle_hsm::policy::{Due, Engine, Options, State};
use brindle_policy::lex::Text;
use brindle_policy::trigger::{Target, Usages};
use brindle_policy::{Names, Plan, Policy, Program, Source};
use brindle_stdx::cast::to_i64;
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::users;

/// Directory of the engine unless told otherwise.
pub const STATE_DEFAULT: &str = "/var/lib/brindle/policy";

/// Reads a file of a text.
pub(crate) fn read(name: &str, from: Option<&str>) -> std::result::Result<Text, String> {
    let path = from.map_or_else(|| PathBuf::from(name), |dir| Path::new(dir).join(name));
    let cannot = |e: std::io::Error| format!("cannot read '{}': {e}", path.display());
    let real = path.canonicalize().map_err(cannot)?;
    let text = std::fs::read_to_string(&real).map_err(cannot)?;
    let dir = real.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    Ok(Text { name: path.display().to_string(), dir, text })
}

/// The text in a file, understood; `defines` are variables of it.
pub fn load(file: &str, defines: &BTreeMap<String, String>) -> Result<Program> {
    let environment = |name: &str| std::env::var(name).ok();
    Program::load(&Source { read: &read, defines, environment: &environment }, file)
}

/// Users and groups as this host knows them. A name service that does not answer knows nobody.
pub struct HostNames;

impl Names for HostNames {
    fn user(&self, uid: u32) -> Option<String> {
        users::user_name(uid).ok().flatten()
    }

    fn group(&self, gid: u32) -> Option<String> {
        users::group_name(gid).ok().flatten()
    }

    fn uid(&self, name: &str) -> Option<u32> {
        users::uid_of(name).ok().flatten().or_else(|| name.parse().ok())
    }

    fn gid(&self, name: &str) -> Option<u32> {
        users::gid_of(name).ok().flatten().or_else(|| name.parse().ok())
    }
}

/// A mark of this user, now.
pub fn mark(file: &Path) -> Mark {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Mark {
        at_secs: to_i64(now.as_secs()),
        uid: rustix::process::getuid().as_raw(),
        file: file.display().to_string(),
    }
}

/// An engine and its runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyStatusView {
    /// Whether it runs now.
    pub is_running: bool,
    /// The text.
    pub file: String,
    /// The sum over its words.
    pub sum: String,
    /// The file system, as it was named.
    pub source: String,
    /// Policies that delete, and are off until the text is confirmed.
    pub unconfirmed: Vec<String>,
    /// Policies that somebody has switched off.
    pub off: Vec<String>,
    /// The policies in order of the text, as the engine understood it; none of an engine of an earlier release.
    pub policies: Vec<PolicyView>,
    /// Mistakes of the text as it is now.
    pub problem: Option<String>,
    /// The run that is under way.
    pub running: Option<RunView>,
    /// The runs that are remembered, the newest last.
    pub runs: Vec<RunView>,
}
document!(PolicyStatusView, "brindle.policy.status", 1);

/// The policies of a text in words; `off` names those that are switched off.
pub fn in_words(program: &Program, off: &[String]) -> Vec<PolicyView> {
    describe(program).iter().map(|policy| PolicyView::new(policy, off)).collect()
}

/// A policy in words.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyView {
    /// Name.
    pub name: String,
    /// Action.
    pub action: String,
    /// Whether it deletes.
    pub deletes: bool,
    /// Whether somebody has switched it off.
    pub is_off: bool,
    /// Entries that it is about.
    pub about: String,
    /// Entries that it leaves alone.
    pub never: Vec<String>,
    /// Rules, in order.
    pub rules: Vec<String>,
    /// When it runs.
    pub when: Vec<String>,
    /// Limits of a run.
    pub limits: String,
}

impl PolicyView {
    fn new(policy: &Description, off: &[String]) -> PolicyView {
        PolicyView {
            name: policy.name.clone(),
            action: policy.action.clone(),
            deletes: policy.deletes,
            is_off: off.contains(&policy.name),
            about: policy.about.clone(),
            never: policy.never.clone(),
            rules: policy.rules.clone(),
            when: policy.when.clone(),
            limits: policy.limits.clone(),
        }
    }
}

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunView {
    /// The policy.
    pub policy: String,
    /// Why it ran.
    pub why: String,
    /// When it began, in seconds since 1970.
    pub began_secs: i64,
    /// When it ended; 0 for one that has not.
    pub ended_secs: i64,
    /// Entries that matched.
    pub matched: u64,
    /// Actions that were taken.
    pub done: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that had changed or were busy.
    pub left: u64,
    /// Actions that failed.
    pub failed: u64,
    /// Sentence for people.
    pub notes: Vec<String>,
}

impl From<&Run> for RunView {
    fn from(run: &Run) -> RunView {
        RunView {
            policy: run.policy.clone(),
            why: run.why.clone(),
            began_secs: run.began_secs,
            ended_secs: run.ended_secs,
            matched: run.matched,
            done: run.done,
            bytes: run.bytes,
            left: run.left,
            failed: run.failed,
            notes: run.notes.clone(),
        }
    }
}

/// The engine of a directory.
pub fn view(state: &State) -> PolicyStatusView {
    let History { file, sum, source, unconfirmed, problem, running, runs, policies, .. } = &state.history;
    let (is_running, off) = (state.is_running(), state.off());
    PolicyStatusView {
        is_running,
        file: file.clone(),
        sum: sum.clone(),
        source: source.clone(),
        unconfirmed: if state.is_confirmed(sum) { Vec::new() } else { unconfirmed.clone() },
        policies: policies.iter().map(|policy| PolicyView::new(policy, &off)).collect(),
        off,
        problem: problem.clone(),
        running: running.as_ref().filter(|_| is_running).map(RunView::from),
        runs: runs.iter().map(RunView::from).collect(),
    }
}

/// Effect of switching a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switched {
    /// Whether it was the other way before.
    pub changes: bool,
    /// Effect, in a sentence.
    pub says: String,
}

/// Switches a policy of the engine of a directory on or off; with `dry_run` only says what would be.
pub fn switch(dir: &Path, name: &str, is_on: bool, dry_run: bool) -> Result<Switched> {
    let state = State::look(dir)?;
    let was_off = state.is_off(name);
    if !was_off && !state.history.policies.iter().any(|policy| policy.name == name) {
        return Err(unknown(&state, dir, name));
    }
    let changes = was_off == is_on;
    if changes && !dry_run {
        match is_on {
            true => state.turn_on(name)?,
            false => state.turn_off(name, &mark(Path::new(&state.history.file)))?,
        }
    }
    let says = match (is_on, changes) {
        (true, true) => {
            format!("{name} is on: it runs within a second if its time has come, or else when it comes")
        }
        (true, false) => format!("{name} is on already"),
        (false, true) => {
            format!("{name} is off: its next runs do not begin; one that is under way goes on to its end")
        }
        (false, false) => format!("{name} is off already"),
    };
    Ok(Switched { changes, says })
}

fn unknown(state: &State, dir: &Path, name: &str) -> Fault {
    let names: Vec<&str> = state.history.policies.iter().map(|policy| policy.name.as_str()).collect();
    let why = match (names.is_empty(), state.history.file.is_empty()) {
        (true, true) => format!("no engine has run in {}", dir.display()),
        (true, false) => "the engine that ran last has noted no policies".to_owned(),
        (false, _) => format!("the policies of {} are {}", state.history.file, names.join(", ")),
    };
    Fault::new(Code::BadArgument)
        .what("the engine has no policy")
        .subject(name.to_owned())
        .why(why)
        .data("nothing was changed")
        .next("see which there are: brindle policy status")
}

/// Actions that a text would take.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PreviewView {
    /// The sum over its words, which a confirmation is about.
    pub sum: String,
    /// Start of the file system's access times, in seconds since 1970, if the text goes by them: no file counts as unused before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_times_since_secs: Option<i64>,
    /// The policies, in order of the text.
    pub policies: Vec<PreviewedPolicy>,
}
document!(PreviewView, "brindle.policy.preview", 1);

/// Actions that a policy would take.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PreviewedPolicy {
    /// Name.
    pub policy: String,
    /// Action.
    pub action: &'static str,
    /// Whether it deletes.
    pub deletes: bool,
    /// Why it would run; or what it would do if it ran, since nothing starts it now.
    pub why: String,
    /// Whether something starts it now.
    pub is_due: bool,
    /// Entries that match.
    pub matched: u64,
    /// Bytes of the entries that are chosen.
    pub bytes: u64,
    /// Whether its target is reached.
    pub is_reached: bool,
    /// The entries that are chosen, in order.
    pub entries: Vec<PreviewedEntry>,
}

/// An entry.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PreviewedEntry {
    /// From the root of the file system.
    pub path: String,
    /// The action.
    pub action: &'static str,
    /// The rule.
    pub rule: String,
    /// Bytes that it moves or frees.
    pub bytes: u64,
}

/// Runs that would begin now; a policy that nothing starts is shown with all that matches.
fn dues(program: &Program, engine: &Engine, usages: &Usages) -> Vec<(Due, bool)> {
    let mut all = Vec::new();
    for (index, policy) in program.policies.iter().enumerate() {
        let targets: Vec<Target> =
            policy.triggers.iter().flat_map(|trigger| trigger.targets(usages, engine.names())).collect();
        if !targets.is_empty() {
            all.extend(targets.into_iter().map(|target| (Due { policy: index, target }, true)));
            continue;
        }
        let by_interval = policy.triggers.is_empty() && policy.parameters.interval_secs.is_some();
        let why = match by_interval {
            true => "its interval",
            false => "nothing starts it now; if it ran without a target",
        };
        all.push((Due { policy: index, target: Target::all(why) }, by_interval));
    }
    all
}

/// Preview of the actions that a text would take now.
pub async fn preview(client: Arc<Client>, program: &Program) -> Result<PreviewView> {
    let engine = Engine::new(client, Arc::new(HostNames), Options::default());
    let since = engine.access_times(program).await?;
    let usages = engine.usages(program).await?;
    let (due, is_due): (Vec<Due>, Vec<bool>) = dues(program, &engine, &usages).into_iter().unzip();
    let planned = engine.plan(program, &due).await?;
    let lines = due.iter().zip(is_due).zip(&planned.plans);
    let policies = lines.map(|((due, is_due), plan)| line(program, due, is_due, plan)).collect();
    let access_times_since_secs = since.map(|since| since.secs);
    Ok(PreviewView { sum: program.sum.clone(), access_times_since_secs, policies })
}

fn line(program: &Program, due: &Due, is_due: bool, plan: &Plan) -> PreviewedPolicy {
    let policy: &Policy = &program.policies[due.policy];
    let entries = plan.chosen.iter().map(|chosen| PreviewedEntry {
        path: chosen.entry.path.clone(),
        action: chosen.action.name(),
        rule: policy.rules[chosen.rule].name.clone(),
        bytes: chosen.bytes,
    });
    PreviewedPolicy {
        policy: policy.name.clone(),
        action: policy.action.name(),
        deletes: policy.deletes(),
        why: due.target.why.clone(),
        is_due,
        matched: plan.matched,
        bytes: plan.bytes,
        is_reached: plan.is_reached,
        entries: entries.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_of_the_engine_are_switched() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = switch(dir.path(), "purge", false, false).expect_err("nothing has run");
        assert!(refused.to_string().contains("no engine has run in"), "{refused}");
        let mut state = State::take(dir.path()).expect("taken");
        state.history.file = "/etc/p.conf".to_owned();
        state.history.policies = vec![Description { name: "purge".to_owned(), ..Description::default() }];
        state.save().expect("saved");
        let refused = switch(dir.path(), "pruge", false, false).expect_err("misspelt");
        assert!(refused.to_string().contains("the policies of /etc/p.conf are purge"), "{refused}");
        assert!(switch(dir.path(), "purge", false, true).expect("planned").changes);
        assert!(!state.is_off("purge"), "a plan changes nothing");
        assert!(switch(dir.path(), "purge", false, false).expect("switched").changes);
        assert!(state.is_off("purge") && view(&state).policies[0].is_off);
        assert!(!switch(dir.path(), "purge", false, false).expect("as it was").changes);
        // The text may have changed since.
        state.history.policies.clear();
        state.save().expect("saved");
        assert!(switch(dir.path(), "purge", true, false).expect("switched").changes);
        assert_eq!(view(&state).off, Vec::<String>::new());
    }
}
