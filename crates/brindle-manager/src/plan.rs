//! Plans of actions, for people: shown before an action is done, and again while it runs.

use std::collections::VecDeque;

use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

/// An action that would be done, or is being done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanView {
    /// The target, buffer, path, owner or policy that it is done to.
    pub target: String,
    /// Name of the action: `start`, `failover`, `archive`, `destroy` and so on.
    pub action: String,
    /// Effect of the action, in a sentence.
    pub would: String,
    /// Effects that programs notice.
    pub effects: Vec<String>,
    /// Whether anything changes; false where it is so already.
    pub changes: bool,
    /// The command that does the same.
    pub command: String,
    /// The request that does the same.
    pub request: String,
    /// Number of the task that does it; none of a plan, and of what is done at once.
    pub task: Option<u64>,
}

/// Plans that are remembered as shown.
const SHOWN_MAX: usize = 256;

/// Plans that were shown: what loses something is only done as it was shown.
#[derive(Default)]
pub struct Shown(Mutex<VecDeque<(Key, Words)>>);

/// User, action, and object of the action.
type Key = (String, String, String);
/// The action in a sentence, and the effects that programs notice.
type Words = (String, Vec<String>);

impl Shown {
    /// A plan is shown to a user.
    pub fn note(&self, user: &str, plan: &PlanView) {
        let (key, words) = parts(user, plan);
        let mut shown = self.0.lock();
        shown.retain(|(other, _)| *other != key);
        if shown.len() >= SHOWN_MAX {
            shown.pop_front();
        }
        shown.push_back((key, words));
    }

    /// Refuses a plan other than the one that the user was shown last; from now on the new plan counts as shown. A user who asked
    /// for no plan is not refused.
    pub fn check(&self, user: &str, plan: &PlanView) -> Result<()> {
        let (key, words) = parts(user, plan);
        let is_other = self.0.lock().iter().any(|(other, shown)| *other == key && *shown != words);
        if !is_other {
            return Ok(());
        }
        self.note(user, plan);
        Err(plan.effects.iter().cloned().fold(
            Fault::new(Code::WrongPhase)
                .what(format!("cannot {}", plan.action))
                .subject(plan.target.clone())
                .why("it is not as the plan has shown it any more")
                .why(format!("now: {}", plan.would))
                .data("nothing was changed")
                .next("if this is what is wanted, ask again"),
            Fault::why,
        ))
    }
}

fn parts(user: &str, plan: &PlanView) -> (Key, Words) {
    let key = (user.to_owned(), plan.action.clone(), plan.target.clone());
    (key, (plan.would.clone(), plan.effects.clone()))
}

/// A word of a command line, in quotes where a shell would read it otherwise.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A sentence with its first letter as a capital.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_more_than_was_shown_is_refused_once() {
        let plan = |effects: &[&str]| PlanView {
            target: "7.1".to_owned(),
            action: "destroy".to_owned(),
            would: "The buffer of job 7 would be destroyed".to_owned(),
            effects: effects.iter().map(|text| (*text).to_owned()).collect(),
            changes: true,
            command: String::new(),
            request: String::new(),
            task: None,
        };
        let (before, now) = (plan(&["20 GiB are lost"]), plan(&["20 GiB are lost", "the only copy"]));
        let shown = Shown::default();
        shown.check("ann", &now).expect("a program that asked for no plan");
        shown.note("ann", &before);
        shown.check("ann", &before).unwrap();
        shown.check("bob", &now).expect("nothing was shown to him");
        let refused = shown.check("ann", &now).unwrap_err();
        assert!(refused.to_string().contains("the only copy"), "{refused}");
        shown.check("ann", &now).expect("it was shown");
        (0..SHOWN_MAX).for_each(|n| shown.note(&n.to_string(), &before));
        assert_eq!(shown.0.lock().len(), SHOWN_MAX);
    }

    #[test]
    fn words_are_what_a_shell_reads() {
        assert_eq!(quoted("/mnt/b/run1"), "/mnt/b/run1");
        assert_eq!(quoted("/mnt/a b"), "'/mnt/a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
