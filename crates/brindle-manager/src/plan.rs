//! What an action would do, for people: shown before it is done, and again while it is.

use schemars::JsonSchema;
use serde::Serialize;

/// What would be done, or is being done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanView {
    /// The target, buffer, path, owner or policy that it is done to.
    pub target: String,
    /// What was asked for: `start`, `failover`, `archive`, `destroy` and so on.
    pub action: String,
    /// What happens, in a sentence.
    pub would: String,
    /// What programs notice of it.
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

/// A word of a command line, in quotes where a shell would read it otherwise.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_a_shell_reads() {
        assert_eq!(quoted("/mnt/b/run1"), "/mnt/b/run1");
        assert_eq!(quoted("/mnt/a b"), "'/mnt/a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
