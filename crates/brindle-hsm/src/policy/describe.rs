//! Policies in words: the files of each, its actions and its times. An engine notes the words in its history, for programs
//! that show them.

use std::fmt::Write as _;

use brindle_policy::program::Parameters;
use brindle_policy::trigger::{Level, On, Trigger};
use brindle_policy::values::{duration_text, size_text};
use brindle_policy::{Policy, Program};
use serde::{Deserialize, Serialize};

/// A policy in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the policy.
    pub name: String,
    /// Action of the policy.
    pub action: String,
    /// Whether it deletes.
    pub deletes: bool,
    /// Entries that it is about.
    pub about: String,
    /// Entries that it leaves alone.
    pub never: Vec<String>,
    /// Rules of the policy, in order.
    pub rules: Vec<String>,
    /// When it runs.
    pub when: Vec<String>,
    /// Limits of a run.
    pub limits: String,
}

/// The policies of a program, in order of the text.
pub fn describe(program: &Program) -> Vec<Description> {
    program.policies.iter().map(description).collect()
}

fn description(policy: &Policy) -> Description {
    let rule = |rule: &brindle_policy::program::Rule| {
        let targets = rule.targets.join(", ");
        let of = if targets.is_empty() { String::new() } else { format!(" for {targets}") };
        format!("{}{of}: {}", rule.name, rule.condition)
    };
    Description {
        name: policy.name.clone(),
        action: policy.action.name().to_owned(),
        deletes: policy.deletes(),
        about: policy.scope.to_string(),
        never: policy.ignore.iter().map(ToString::to_string).collect(),
        rules: policy.rules.iter().map(rule).collect(),
        when: when(&policy.triggers, policy.parameters.interval_secs),
        limits: limits(&policy.parameters),
    }
}

/// When a policy runs, in words.
fn when(triggers: &[Trigger], interval_secs: Option<u64>) -> Vec<String> {
    if triggers.is_empty() {
        return vec![interval_secs.map_or_else(
            || "only when asked: it has no trigger and no runtime_interval".to_owned(),
            |secs| format!("every {}", duration_text(secs)),
        )];
    }
    let level = |level: Option<Level>| match level {
        Some(Level::Pct(percent)) => format!("{percent}%"),
        Some(Level::Bytes(bytes)) => size_text(bytes),
        Some(Level::Count(count)) => format!("{count} entries"),
        Some(Level::CountPct(percent)) => format!("{percent}% of the entries"),
        None => String::new(),
    };
    let line = |trigger: &Trigger| {
        let of = match &trigger.on {
            On::Periodic => return format!("every {}", duration_text(trigger.interval_secs)),
            On::Global => "the file system".to_owned(),
            On::Ost => "an OST".to_owned(),
            On::Pool(names) => format!("a pool of {}", names.join(", ")),
            On::User(names) => format!("a user of {}", names.join(", ")),
            On::Group(names) => format!("a group of {}", names.join(", ")),
        };
        let every = duration_text(trigger.interval_secs);
        format!(
            "{of} has more than {}; down to {}; looked at every {every}",
            level(trigger.high),
            level(trigger.low)
        )
    };
    triggers.iter().map(line).collect()
}

fn limits(parameters: &Parameters) -> String {
    let mut text = format!("{} at once", parameters.threads);
    let mut add = |limit: Option<String>| {
        if let Some(limit) = limit {
            // Writing to a String cannot fail.
            let _ = write!(text, ", {limit}");
        }
    };
    add(parameters.count_max.map(|n| format!("{n} a run")));
    add(parameters.bytes_max.map(|n| format!("{} a run", size_text(n))));
    add(parameters.rate_count.map(|n| format!("{n} in {} ms", parameters.period_ms)));
    add(parameters.rate_bytes.map(|n| format!("{} in {} ms", size_text(n), parameters.period_ms)));
    text
}
