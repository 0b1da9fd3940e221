//! Limits of jobs, users and hosts: rules that the MGS keeps and servers follow.

use brindle_types::{Code, Fault, Role};
use serde::{Deserialize, Serialize};

use crate::job::NAME_BYTES_MAX;
use crate::{first_form, message};

/// Longest name of a rule in bytes.
pub const RULE_NAME_BYTES_MAX: usize = 31;
/// Most rules of a file system.
pub const RULES_MAX: usize = 256;
/// Most jobs, users and hosts that one rule names.
pub const SUBJECTS_MAX: usize = 64;
/// Longest name of a host in bytes.
const HOST_BYTES_MAX: usize = 255;

/// A job, user or host that a rule is for. Each has tokens of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LimitOf {
    /// Jobs by name; `*` stands for any characters.
    Job(String),
    /// A user by number.
    User(u32),
    /// Hosts by name or address; `*` stands for any characters.
    Host(String),
}

/// Targets at which a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitAt {
    /// Each target, by itself.
    Everywhere,
    /// MDTs.
    Mdts,
    /// OSTs.
    Osts,
}

impl LimitAt {
    /// Whether a rule counts at a target of this role.
    pub fn counts_at(self, role: Role) -> bool {
        match self {
            LimitAt::Everywhere => role != Role::Mgt,
            LimitAt::Mdts => role == Role::Mdt,
            LimitAt::Osts => role == Role::Ost,
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRule {
    /// Name of the rule.
    pub name: String,
    /// Jobs, users or hosts that the rule is for.
    pub of: Vec<LimitOf>,
    /// Targets at which it counts.
    pub at: LimitAt,
    /// Requests a second that a target serves for each of them.
    pub requests_per_s: Option<u64>,
    /// Bytes of files a second.
    pub bytes_per_s: Option<u64>,
    /// End of the rule, in seconds since 1970.
    pub ends_s: Option<i64>,
}

/// Rules of a file system, as the MGS keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitList {
    /// Rules by name.
    pub rules: Vec<LimitRule>,
}

first_form!(1 => LimitRule, LimitList);

/// Refusal of a limit, or of the text of one.
pub fn refusal(limit: impl Into<String>, why: impl Into<String>) -> Fault {
    let fault =
        Fault::new(Code::BadLimit).what("cannot take the limit").subject(limit.into()).why(why.into());
    fault.data("nothing was changed").next("see the examples: brindle limit add --help")
}

impl LimitRule {
    /// Objection to a rule.
    pub fn check(&self) -> Result<(), String> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name.is_empty() || self.name.len() > RULE_NAME_BYTES_MAX || !self.name.bytes().all(is_word) {
            return Err(format!(
                "the name of a rule has 1 to {RULE_NAME_BYTES_MAX} letters, digits, dots, dashes and underscores"
            ));
        }
        if self.of.is_empty() || self.of.len() > SUBJECTS_MAX {
            return Err(format!(
                "it is for {} jobs, users and hosts, and must be for 1 to {SUBJECTS_MAX} (--job, --user, --host)",
                self.of.len()
            ));
        }
        for of in &self.of {
            let (what, name, longest) = match of {
                LimitOf::Job(name) => ("job", name, NAME_BYTES_MAX),
                LimitOf::Host(name) => ("host", name, HOST_BYTES_MAX),
                LimitOf::User(_) => continue,
            };
            if name.is_empty() || name.len() > longest {
                return Err(format!("the name of a {what} has 1 to {longest} bytes"));
            }
            if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("the name of a {what} has no spaces and no control characters"));
            }
        }
        match (self.requests_per_s, self.bytes_per_s) {
            (None, None) => Err("it limits neither requests nor bytes".to_owned()),
            (Some(0), _) | (_, Some(0)) => {
                Err("a rate of 0 would stop whoever it is for, and everybody who waits for them".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
pub fn glob(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(first) else { return false };
    // The last part ends the name; those between are taken where they come first.
    let Some((middle, last)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    let mut name = name;
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match name.split_once(part) {
            Some((_, after)) => name = after,
            None => return false,
        }
    }
    name.ends_with(last)
}

/// Asks for the rules; answered when they are others than those of `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchLimitsReq {
    /// Version that the caller has; 0 for none.
    pub known_version: u64,
    /// Longest wait for others, in milliseconds.
    pub wait_ms: u32,
}

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchLimitsResp {
    /// Their version.
    pub version: u64,
    /// The rules by name; `None` where the caller has them.
    pub rules: Option<Vec<LimitRule>>,
}
message!(WatchLimitsReq => WatchLimitsResp, WatchLimits);

/// A change of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange {
    /// Makes a rule.
    Add(LimitRule),
    /// Gives a rule other rates; `None` leaves one as it is.
    Rate {
        /// Name of the rule.
        name: String,
        /// Requests a second.
        requests_per_s: Option<u64>,
        /// Bytes a second.
        bytes_per_s: Option<u64>,
    },
    /// Removes a rule.
    Remove(String),
}

impl LimitChange {
    /// Name of the rule.
    pub fn name(&self) -> &str {
        match self {
            LimitChange::Add(rule) => &rule.name,
            LimitChange::Rate { name, .. } | LimitChange::Remove(name) => name,
        }
    }
}

/// Changes the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeLimitReq {
    /// The change.
    pub change: LimitChange,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The rule as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeLimitResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The rule; `None` of one that was removed.
    pub rule: Option<LimitRule>,
}
message!(ChangeLimitReq => ChangeLimitResp, ChangeLimit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_what_they_say() {
        assert!(glob("dd.0", "dd.0") && !glob("dd.0", "dd.00") && !glob("dd", "dd.0"));
        assert!(glob("*", "") && glob("*", "x") && glob("dd.*", "dd.0") && glob("*.0", "dd.0"));
        assert!(!glob("dd.*", "cp.0") && !glob("*.0", "dd.1") && !glob("a*a", "a"));
        assert!(glob("a*b*c", "a-b-c") && glob("a*b*c", "abc") && !glob("a*b*c", "acb"));
        assert!(glob("10.0.*.1*", "10.0.3.17") && !glob("10.0.*.1*", "10.1.3.17"));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let good = LimitRule {
            name: "slow".into(),
            of: vec![LimitOf::Job("a".into())],
            at: LimitAt::Everywhere,
            requests_per_s: Some(1),
            bytes_per_s: None,
            ends_s: None,
        };
        assert_eq!(good.check(), Ok(()));
        let wrong = [
            LimitRule { name: String::new(), ..good.clone() },
            LimitRule { name: "x".repeat(32), ..good.clone() },
            LimitRule { name: "a b".into(), ..good.clone() },
            LimitRule { of: Vec::new(), ..good.clone() },
            LimitRule { of: vec![LimitOf::Job("x".repeat(32))], ..good.clone() },
            LimitRule { of: vec![LimitOf::Job("a b".into())], ..good.clone() },
            LimitRule { requests_per_s: None, ..good.clone() },
            LimitRule { requests_per_s: Some(0), ..good.clone() },
            LimitRule { bytes_per_s: Some(0), ..good },
        ];
        for rule in wrong {
            assert!(rule.check().is_err(), "{rule:?}");
        }
    }
}
