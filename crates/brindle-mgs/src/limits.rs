//! The limits of jobs, users and hosts: key `fs/<name>/limits` of the config store. Rules that have ended go with the next change.

use std::sync::Arc;

use brindle_config::ConfigStore;
use brindle_types::{Code, Fault, FsName, Result};
use brindle_wire::mgs::limit::{LimitChange, LimitList, LimitRule, RULES_MAX, refusal};

use crate::published::Published;

/// The rules.
pub(crate) struct Limits(Published<LimitList>);

impl Limits {
    /// Reads the rules.
    pub(crate) async fn open(store: Arc<dyn ConfigStore>, fs: &FsName) -> Result<Limits> {
        Published::open(store, format!("fs/{fs}/limits"), "the limits").await.map(Limits)
    }

    /// The rules that count, and their version.
    pub(crate) fn now(&self, now_s: i64) -> (u64, Vec<LimitRule>) {
        let (version, list) = self.0.now();
        (version, alive(&list.rules, now_s))
    }

    /// Completes when the version is another one.
    pub(crate) async fn other_than(&self, version: u64) {
        self.0.other_than(version).await;
    }

    /// Makes a change; whether anything changed, and the rule as it is then.
    pub(crate) async fn change(
        &self,
        change: &LimitChange,
        now_s: i64,
        is_dry_run: bool,
    ) -> Result<(bool, Option<LimitRule>)> {
        let next = |list: &LimitList| {
            let rules = decide(&alive(&list.rules, now_s), change)?;
            let rule = rules.iter().find(|rule| rule.name == change.name()).cloned();
            Ok((LimitList { rules }, rule))
        };
        self.0.change(is_dry_run, next).await
    }
}

/// Rules that have not ended.
fn alive(rules: &[LimitRule], now_s: i64) -> Vec<LimitRule> {
    rules.iter().filter(|rule| rule.ends_s.is_none_or(|ends_s| ends_s > now_s)).cloned().collect()
}

/// The rules after a change, by name.
fn decide(rules: &[LimitRule], change: &LimitChange) -> Result<Vec<LimitRule>> {
    let name = change.name();
    let mut rules = rules.to_vec();
    let found = rules.binary_search_by(|rule| rule.name.as_str().cmp(name));
    match (change, found) {
        (LimitChange::Add(rule), Err(at)) => {
            rule.check().map_err(|why| refusal(name, why))?;
            if rules.len() >= RULES_MAX {
                return Err(refusal(name, format!("a file system has at most {RULES_MAX} limits")));
            }
            rules.insert(at, rule.clone());
        }
        (LimitChange::Add(_), Ok(_)) => {
            return Err(Fault::new(Code::LimitExists).subject(name.to_owned()).data("nothing was changed"));
        }
        (LimitChange::Rate { requests_per_s, bytes_per_s, .. }, Ok(at)) => {
            let rule = &mut rules[at];
            rule.requests_per_s = requests_per_s.or(rule.requests_per_s);
            rule.bytes_per_s = bytes_per_s.or(rule.bytes_per_s);
            rule.check().map_err(|why| refusal(name, why))?;
        }
        (LimitChange::Remove(_), Ok(at)) => drop(rules.remove(at)),
        (LimitChange::Rate { .. } | LimitChange::Remove(_), Err(_)) => {
            let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
            let fault = Fault::new(Code::UnknownLimit).subject(name.to_owned()).data("nothing was changed");
            return Err(match names.is_empty() {
                true => fault.why("there is no limit at all"),
                false => fault.why(format!("the limits are: {}", names.join(", "))),
            });
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use brindle_wire::form::{self, FormatLevel};
    use brindle_wire::mgs::limit::{LimitAt, LimitOf};

    use super::*;

    fn rule(name: &str) -> LimitRule {
        LimitRule {
            name: name.to_owned(),
            of: vec![LimitOf::Job("4711".into())],
            at: LimitAt::Everywhere,
            requests_per_s: Some(100),
            bytes_per_s: None,
            ends_s: None,
        }
    }

    #[test]
    fn rules_come_change_and_go() {
        let rules = decide(&[], &LimitChange::Add(rule("b"))).unwrap();
        let rules = decide(&rules, &LimitChange::Add(rule("a"))).unwrap();
        assert_eq!(rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let rate = LimitChange::Rate { name: "b".into(), requests_per_s: Some(7), bytes_per_s: None };
        let rules = decide(&rules, &rate).unwrap();
        assert_eq!(rules[1].requests_per_s, Some(7));
        let code = |change| decide(&rules, &change).unwrap_err().code;
        assert_eq!(code(LimitChange::Add(rule("a"))), Code::LimitExists);
        assert_eq!(code(LimitChange::Remove("c".into())), Code::UnknownLimit);
        assert_eq!(
            code(LimitChange::Add(LimitRule { requests_per_s: Some(0), ..rule("c") })),
            Code::BadLimit
        );
        let left = decide(&rules, &LimitChange::Remove("a".into())).unwrap();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn a_write_whose_answer_was_lost_blocks_no_later_change() {
        crate::testing::run(async {
            let (store, _dir) = crate::testing::Forgetful::new();
            let fs: FsName = "scratch".parse().unwrap();
            let limits = Limits::open(store.clone(), &fs).await.unwrap();
            store.lose_next_answer();
            let add = |name: &str| LimitChange::Add(rule(name));
            let code = limits.change(&add("a"), 0, false).await.unwrap_err().code;
            assert_eq!(code, Code::StoreUnreachable);
            assert!(limits.change(&add("b"), 0, false).await.unwrap().0);
            let (_, rules) = limits.now(0);
            assert_eq!(rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            store.lose_next_answer();
            let code = limits.change(&add("c"), 0, false).await.unwrap_err().code;
            assert_eq!(code, Code::StoreUnreachable);
            let code = limits.change(&add("c"), 0, false).await.unwrap_err().code;
            assert_eq!(code, Code::LimitExists, "it was added after all");
        });
    }

    #[test]
    fn there_are_not_more_than_many() {
        let many: Vec<LimitRule> = (0..RULES_MAX).map(|n| rule(&format!("r{n:04}"))).collect();
        assert_eq!(decide(&many, &LimitChange::Add(rule("x"))).unwrap_err().code, Code::BadLimit);
    }

    #[test]
    fn rules_end() {
        let rules = [LimitRule { ends_s: Some(10), ..rule("a") }, rule("b")];
        assert_eq!((alive(&rules, 9).len(), alive(&rules, 10).len()), (2, 1));
    }

    #[test]
    fn bytes_in_the_store_never_change() {
        let list = LimitList {
            rules: vec![LimitRule { ends_s: Some(5), bytes_per_s: Some(1 << 20), ..rule("slow") }],
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/limits.bin");
        let bytes = form::encode(FormatLevel::NEWEST, &list).unwrap();
        if std::env::var_os("BRINDLE_GOLDEN").is_some() {
            std::fs::write(path, &bytes).unwrap();
        }
        let golden = std::fs::read(path).expect("golden file exists");
        assert_eq!(golden, bytes.to_vec(), "bytes on disk changed; that needs a new format version");
        assert_eq!(form::decode::<LimitList>(&golden).unwrap(), list);
    }
}
