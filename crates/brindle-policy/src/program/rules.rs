//! Classes and rules.

use brindle_types::Result;
use brindle_types::hsm::ARCHIVE_ID_MAX;

use super::{Class, PARTS_MAX, Reading, Rule, define, one, one_as, unknown_item};
use crate::condition::{Compare, Condition, Field, Test, Value};
use crate::tree::{self, Block, Body, Item};
use crate::values;
use crate::versions::Versions;

/// The number of an archive.
fn archive_id(set: &tree::Set) -> Result<u32> {
    let number = one_as(set, values::count)?;
    match u32::try_from(number).ok().filter(|n| (1..=ARCHIVE_ID_MAX).contains(n)) {
        Some(number) => Ok(number),
        None => Err(set.key.pos.wrong(format!("archives have the numbers 1 to {ARCHIVE_ID_MAX}"))),
    }
}

impl Reading {
    /// `FileClass NAME { definition { ... } ... }`.
    pub(super) fn class(&mut self, block: &Block, items: &[Item]) -> Result<()> {
        let title = block.title.as_ref().ok_or_else(|| block.key.pos.wrong("the class has no name"))?;
        let (mut definition, mut archive, mut keep, mut pattern) = (None, None, None, None);
        for item in items {
            match item {
                Item::Block(inner) if inner.key.is_word("definition") => match &inner.body {
                    Body::Condition(condition) => definition = Some(condition.clone()),
                    _ => return Err(unknown_item(item, "a class")),
                },
                Item::Block(inner) if inner.key.text.to_ascii_lowercase().ends_with("_action_params") => {
                    archive = self.action_params(inner)?.or(archive);
                }
                Item::Set(set) => match set.key.text.to_ascii_lowercase().as_str() {
                    "archive_id" => archive = Some(archive_id(set)?),
                    "keep_newest" => keep = Some(one_as(set, values::count)?),
                    "version_pattern" => pattern = Some(one(set)?.clone()),
                    "report" | "migration_hints" => {
                        self.ignore(&set.key.pos, format!("class {}: {}", title.text, set.key.text))
                    }
                    _ => return Err(unknown_item(item, "a class")),
                },
                Item::Block(_) => return Err(unknown_item(item, "a class")),
            }
        }
        let definition = definition
            .ok_or_else(|| title.pos.wrong(format!("the class '{}' has no definition", title.text)))?;
        let versions = match (keep, pattern) {
            (keep, Some(pattern)) => Some(Versions::new(keep.unwrap_or(0), &pattern)?),
            (Some(_), None) => {
                return Err(title.pos.wrong("keep_newest needs a version_pattern, such as \"ckpt.{n}\""));
            }
            (None, None) => None,
        };
        let class = Class { name: title.text.clone(), pos: title.pos.clone(), definition, archive, versions };
        if self.program.classes.len() >= PARTS_MAX {
            return Err(title.pos.wrong(format!("a text has more than {PARTS_MAX} classes")));
        }
        match self.program.classes.insert(title.text.to_ascii_lowercase(), class) {
            None => Ok(()),
            Some(other) => {
                Err(title.pos.wrong(format!("the class '{}' is defined at {}, too", title.text, other.pos)))
            }
        }
    }

    /// `action_params { archive_id = 2; }`.
    fn action_params(&mut self, block: &Block) -> Result<Option<u32>> {
        let Body::Items(items) = &block.body else { return Ok(None) };
        let mut archive = None;
        for item in items {
            match item {
                Item::Set(set) if set.key.is_word("archive_id") => archive = Some(archive_id(set)?),
                other => return Err(unknown_item(other, "the parameters of an action")),
            }
        }
        Ok(archive)
    }

    /// `NAME_policies { ... }`: the spelling of 2.5.
    pub(super) fn old_policies(&mut self, name: &str, block: &Block, items: &[Item]) -> Result<()> {
        if !["migration", "purge"].contains(&name) {
            self.warn(&block.key.pos, format!("'{}' is the old spelling of {name}_rules", block.key.text));
        }
        self.rules(name, block, items)
    }

    /// `NAME_rules { ... }`.
    pub(super) fn rules(&mut self, name: &str, block: &Block, items: &[Item]) -> Result<()> {
        if self.parts(name, &block.key.pos).has_rules {
            return Err(block.key.pos.wrong(format!("the policy '{name}' has rules already")));
        }
        self.parts(name, &block.key.pos).has_rules = true;
        for item in items {
            match item {
                Item::Block(inner) => match (&inner.body, inner.key.text.to_ascii_lowercase().as_str()) {
                    (Body::Condition(condition), "ignore") => {
                        self.parts(name, &inner.key.pos).ignore.push(condition.clone());
                    }
                    (Body::Items(items), "rule" | "policy") => {
                        let rule = self.rule(name, inner, items)?;
                        self.parts(name, &inner.key.pos).rules.push(rule);
                    }
                    _ => return Err(unknown_item(item, &block.key.text)),
                },
                Item::Set(set) if set.key.is_word("ignore_fileclass") => {
                    for value in &set.values {
                        let class = Condition::Class(value.word.text.clone(), value.word.pos.clone());
                        self.parts(name, &set.key.pos).ignore.push(class);
                    }
                }
                other => return Err(unknown_item(other, &block.key.text)),
            }
        }
        let rules = &self.parts(name, &block.key.pos).rules;
        if rules.len() > PARTS_MAX {
            return Err(block.key.pos.wrong(format!("a policy has more than {PARTS_MAX} rules")));
        }
        match rules.iter().filter(|rule| rule.targets.is_empty()).nth(1) {
            Some(second) => Err(second.pos.wrong("a policy has one rule without a class, the default")),
            None => Ok(()),
        }
    }

    fn rule(&mut self, policy: &str, block: &Block, items: &[Item]) -> Result<Rule> {
        let title = block.title.as_ref().ok_or_else(|| block.key.pos.wrong("the rule has no name"))?;
        let mut rule = Rule {
            name: title.text.clone(),
            pos: title.pos.clone(),
            targets: Vec::new(),
            condition: Condition::Constant(true),
            action: None,
            archive: None,
        };
        let mut has_condition = false;
        for item in items {
            match item {
                Item::Block(inner) => match (&inner.body, inner.key.text.to_ascii_lowercase().as_str()) {
                    (Body::Condition(condition), "condition") => {
                        rule.condition = condition.clone();
                        has_condition = true;
                    }
                    (_, "action_params" | "migration_action_params" | "lhsm_archive_action_params") => {
                        rule.archive = self.action_params(inner)?.or(rule.archive);
                    }
                    _ => return Err(unknown_item(item, "a rule")),
                },
                Item::Set(set) => match set.key.text.to_ascii_lowercase().as_str() {
                    "target_fileclass" => {
                        rule.targets.extend(set.values.iter().map(|value| value.word.text.clone()))
                    }
                    "condition" => {
                        rule.condition = define::constant(set)?;
                        has_condition = true;
                    }
                    "action" => rule.action = define::action(set)?,
                    "archive_id" => rule.archive = Some(archive_id(set)?),
                    "migration_hints" | "hints" => {
                        self.ignore(&set.key.pos, format!("rule {}: {}", title.text, set.key.text))
                    }
                    _ => return Err(unknown_item(item, "a rule")),
                },
            }
        }
        let is_default = title.text.eq_ignore_ascii_case("default");
        if is_default != rule.targets.is_empty() {
            let why = match is_default {
                true => {
                    "the default rule is for all files that no other rule is for, and has no target_fileclass"
                }
                false => "the rule has no target_fileclass; only the one named 'default' needs none",
            };
            return Err(title.pos.wrong(why));
        }
        if !has_condition {
            return Err(title.pos.wrong(format!(
                "the rule '{}' of {policy} has no condition; for all files: condition = true;",
                title.text
            )));
        }
        Ok(rule)
    }

    /// `hsm_remove_policy { ... }` of 2.5 is about copies of files that are gone, which stay here.
    pub(super) fn deferred_remove(&mut self, block: &Block, items: &[Item]) -> Result<()> {
        for item in items {
            let Item::Set(set) = item else { return Err(unknown_item(item, "hsm_remove_policy")) };
            match set.key.text.to_ascii_lowercase().as_str() {
                "hsm_remove" => drop(one_as(set, values::boolean)?),
                "deferred_remove_delay" => drop(one_as(set, values::duration)?),
                _ => return Err(unknown_item(item, "hsm_remove_policy")),
            }
        }
        self.ignore(
            &block.key.pos,
            "hsm_remove_policy: copies of files that were removed stay in the archive in this release",
        );
        Ok(())
    }

    /// `rmdir_policy { age_rm_empty_dirs = 1d; ignore { ... } }` of 2.5.
    pub(super) fn rmdir_policy(&mut self, block: &Block, items: &[Item]) -> Result<()> {
        let pos = block.key.pos.clone();
        let (mut age, mut ignore) = (None, Vec::new());
        for item in items {
            match item {
                Item::Set(set) if set.key.is_word("age_rm_empty_dirs") => {
                    age = Some((one_as(set, values::duration)?, set.key.pos.clone()))
                }
                Item::Block(inner) if inner.key.is_word("ignore") => {
                    if let Body::Condition(condition) = &inner.body {
                        ignore.push(condition.clone());
                    }
                }
                other => return Err(unknown_item(other, "rmdir_policy")),
            }
        }
        let Some((secs, at)) = age.filter(|(secs, _)| *secs > 0) else {
            self.ignore(&pos, "rmdir_policy: without age_rm_empty_dirs nothing is removed");
            return Ok(());
        };
        let condition = Condition::Test(Test {
            field: Field::LastMod,
            compare: Compare::More,
            value: Value::Secs(secs),
            pos: at,
        });
        let rule = Rule {
            name: "default".into(),
            pos: pos.clone(),
            targets: Vec::new(),
            condition,
            action: None,
            archive: None,
        };
        let parts = self.parts("rmdir", &pos);
        if parts.has_rules {
            return Err(pos.wrong("the policy 'rmdir' has rules already"));
        }
        parts.has_rules = true;
        parts.ignore = ignore;
        parts.rules = vec![rule];
        Ok(())
    }
}
