//! `define_policy`, and the policies that are there without it.

use std::collections::BTreeMap;

use brindle_types::{FileType, Result};

use super::{Action, Definition, Order, Reading, one, one_text, unknown_block, unknown_item};
use crate::condition::{Compare, Condition, Field, Test, Value};
use crate::lex::{Pos, Text, Token};
use crate::tree::{self, Block, Body, Item};

/// How often a policy that archives runs where no trigger says so.
const ARCHIVE_INTERVAL_SECS: u64 = 60;

/// The templates of Robinhood 3 that texts include. The templates define what is built in here, so they are empty here.
const TEMPLATES: [&str; 3] = ["includes/lhsm.inc", "includes/tmpfs.inc", "includes/lhsm_legacy.inc"];

/// The text of a template that is no file.
pub fn template(name: &str) -> Option<Text> {
    let is_known = TEMPLATES.contains(&name);
    is_known.then(|| Text { name: format!("<{name}>"), dir: "includes".to_owned(), text: String::new() })
}

fn type_is(kind: FileType) -> Condition {
    let pos = Pos { file: "built in".into(), line: 1, column: 1 };
    Condition::Test(Test { field: Field::Type, compare: Compare::Equal, value: Value::Kind(kind), pos })
}

/// The policies that every text may give rules for.
pub fn built_in() -> BTreeMap<String, Definition> {
    let file = || type_is(FileType::Regular);
    let or_link = || Condition::Or(Box::new(file()), Box::new(type_is(FileType::Symlink)));
    let of = |scope, action, order, interval_secs| Definition { scope, action, order, interval_secs };
    let archive = || of(file(), Action::Archive, Order::LastMod, Some(ARCHIVE_INTERVAL_SECS));
    let release = || of(file(), Action::Release, Order::LastMod, None);
    let remove = || of(file(), Action::RemoveCopy, Order::LastMod, None);
    BTreeMap::from([
        ("migration".to_owned(), archive()),
        ("lhsm_archive".to_owned(), archive()),
        ("purge".to_owned(), release()),
        ("lhsm_release".to_owned(), release()),
        ("hsm_remove".to_owned(), remove()),
        ("lhsm_remove".to_owned(), remove()),
        ("cleanup".to_owned(), of(or_link(), Action::Unlink, Order::LastMod, None)),
        ("rmdir".to_owned(), of(type_is(FileType::Directory), Action::Rmdir, Order::LastMod, None)),
    ])
}

/// An action as a text names it.
pub fn action(set: &tree::Set) -> Result<Option<Action>> {
    let [value] = &set.values[..] else {
        return Err(set.key.pos.wrong(format!("'{}' has one value", set.key.text)));
    };
    let wrong = |why: String| Err(value.word.pos.wrong(why));
    let name = value.word.text.to_ascii_lowercase();
    if name == "cmd" {
        let [template] = &value.arguments[..] else {
            return wrong("cmd() has one argument: the command line in quotes".to_owned());
        };
        return command(template).map(Some);
    }
    if value.is_call {
        return wrong(format!("'{}(...)' is no action", value.word.text));
    }
    Ok(Some(match name.as_str() {
        "none" => return Ok(None),
        "lhsm.archive" | "archive" => Action::Archive,
        "lhsm.release" | "release" => Action::Release,
        "lhsm.hsm_remove" | "lhsm.remove" | "hsm_remove" => Action::RemoveCopy,
        "common.unlink" | "unlink" => Action::Unlink,
        "common.rmdir" | "rmdir" => Action::Rmdir,
        "common.log" | "log" => Action::Log,
        other => {
            return wrong(format!(
                "the action '{other}' is not carried out by this release; it has lhsm.archive, lhsm.release, lhsm.hsm_remove, \
                 common.unlink, common.rmdir, common.log and cmd()"
            ));
        }
    }))
}

/// A placeholder in a command line.
pub const PLACEHOLDERS: [&str; 5] = ["fullpath", "path", "name", "fid", "archive_id"];

/// A command line, cut into arguments at blanks. No shell reads it: a placeholder is (part of) one argument, whatever is in the name.
fn command(template: &Token) -> Result<Action> {
    let words: Vec<String> = template.text.split_whitespace().map(str::to_owned).collect();
    let Some(program) = words.first() else {
        return Err(template.pos.wrong("the command line is empty"));
    };
    if !program.starts_with('/') {
        return Err(template.pos.wrong(format!(
            "the program '{program}' has no path from the root: which one is meant must not depend on PATH"
        )));
    }
    for word in &words {
        if word.contains(['\'', '"', '`', '|', ';', '<', '>', '&', '\\']) {
            return Err(template.pos.wrong(format!(
                "'{word}' is for a shell, and none reads this: write a script and call that"
            )));
        }
        let mut rest = word.as_str();
        while let Some(open) = rest.find('{') {
            let name = rest[open + 1..].split('}').next().unwrap_or_default();
            if !PLACEHOLDERS.contains(&name) || !rest[open..].contains('}') {
                return Err(template.pos.wrong(format!(
                    "'{{{name}}}' stands for nothing; there are {}",
                    PLACEHOLDERS.join(", ")
                )));
            }
            rest = &rest[open + name.len() + 2..];
        }
    }
    Ok(Action::Command(words))
}

/// The property that entries are sorted by.
pub fn order(word: &Token) -> Result<Order> {
    Ok(match word.text.to_ascii_lowercase().as_str() {
        "last_mod" => Order::LastMod,
        "creation" => Order::Creation,
        "size" => Order::Size,
        "none" => Order::None,
        "last_access" => Order::LastAccess,
        other => {
            return Err(word.pos.wrong(format!(
                "entries are ordered by last_mod, last_access, creation, size or none, not by '{other}'"
            )));
        }
    })
}

impl Reading {
    /// `define_policy NAME { ... }`.
    pub(super) fn define(&mut self, block: &Block, items: &[Item]) -> Result<()> {
        let title = block.title.as_ref().ok_or_else(|| block.key.pos.wrong("the policy has no name"))?;
        let name = title.text.to_ascii_lowercase();
        if !self.given.insert(format!("define {name}")) {
            return Err(title.pos.wrong(format!("the policy '{name}' is defined twice")));
        }
        let (mut scope, mut done, mut sorted) = (None, None, Order::LastMod);
        for item in items {
            match item {
                Item::Block(inner) if inner.key.is_word("scope") => match &inner.body {
                    Body::Condition(condition) => scope = Some(condition.clone()),
                    _ => return Err(unknown_block(inner)),
                },
                Item::Set(set) => match set.key.text.to_ascii_lowercase().as_str() {
                    "scope" => scope = Some(constant(set)?),
                    "default_action" => done = Some(action(set)?.unwrap_or(Action::Log)),
                    "default_lru_sort_attr" => sorted = order(one(set)?)?,
                    "status_manager" | "status_current" => status_manager(set)?,
                    _ => return Err(unknown_item(item, "define_policy")),
                },
                Item::Block(_) => return Err(unknown_item(item, "define_policy")),
            }
        }
        let missing = |what: &str| title.pos.wrong(format!("the policy '{name}' has no {what}"));
        let action = done.ok_or_else(|| missing("default_action"))?;
        let definition = Definition {
            scope: scope.ok_or_else(|| missing("scope"))?,
            interval_secs: (action == Action::Archive).then_some(ARCHIVE_INTERVAL_SECS),
            action,
            order: sorted,
        };
        self.definitions.insert(name, definition);
        Ok(())
    }
}

/// `condition = true;`
pub fn constant(set: &tree::Set) -> Result<Condition> {
    let word = one(set)?;
    crate::values::boolean(&word.text).map(Condition::Constant).map_err(|why| word.pos.wrong(why))
}

/// The keeper of an entry's status: tiering, or nobody.
fn status_manager(set: &tree::Set) -> Result<()> {
    let [value] = &set.values[..] else { return one_text(set).map(drop) };
    match value.word.text.to_ascii_lowercase().as_str() {
        "lhsm" | "none" | "basic" | "archive" | "release" | "released" | "removed" => Ok(()),
        other => Err(value
            .word
            .pos
            .wrong(format!("the status manager '{other}' is not there; there are lhsm, basic and none"))),
    }
}
