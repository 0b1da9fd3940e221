//! Blocks to classes, policies, rules and triggers.
//!
//! Robinhood 2.5 and 3 are read alike. A block or key that is neither carried out nor on the list of ignored ones is refused with its
//! place.

mod define;
mod ignored;
mod rules;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::{Fault, Result};

pub use ignored::{IGNORED_BLOCKS, IGNORED_KEYS};

use crate::condition::{Condition, Field, Test, Value};
use crate::lex::{self, Pos, Source, Token};
use crate::tree::{self, Block, Body, Item};
use crate::trigger::Trigger;
use crate::versions::Versions;

/// Most policies, classes and rules of one text.
pub const PARTS_MAX: usize = 1000;
/// Most actions of a run of a policy that deletes, where the text gives no number.
pub const DELETIONS_MAX: u64 = 10_000;
/// Entries that one run chooses among at most.
pub const CANDIDATES_MAX: usize = 100_000;

/// A text that was read and understood.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where the file system is mounted for the text's paths.
    pub fs_path: Option<String>,
    /// Classes in order of their names, in lower case.
    pub classes: BTreeMap<String, Class>,
    /// Policies that have rules, in order of the text.
    pub policies: Vec<Policy>,
    /// Blocks that were passed over, with their places.
    pub ignored: Vec<(Pos, String)>,
    /// Statements that are carried out, but have an old spelling or probably mean something else.
    pub warnings: Vec<(Pos, String)>,
    /// Extended attributes that conditions ask about.
    pub xattrs: Vec<String>,
    /// Sum over the words of the text.
    pub sum: String,
}

/// A class of files.
#[derive(Clone, Debug)]
pub struct Class {
    /// Name of the class as it was written.
    pub name: String,
    /// Where it is defined.
    pub pos: Pos,
    /// The files of the class.
    pub definition: Condition,
    /// The archive of its files.
    pub archive: Option<u32>,
    /// The newest versions are kept (our own).
    pub versions: Option<Versions>,
}

/// The action on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copy it into an archive.
    Archive,
    /// Let its bytes go.
    Release,
    /// Remove its copy.
    RemoveCopy,
    /// Remove it.
    Unlink,
    /// Remove it if it is an empty directory.
    Rmdir,
    /// Write a line into the log.
    Log,
    /// Start a program.
    Command(Vec<String>),
}

impl Action {
    /// Whether something is lost for good, or may be.
    pub fn deletes(&self) -> bool {
        matches!(self, Action::RemoveCopy | Action::Unlink | Action::Rmdir | Action::Command(_))
    }

    /// Name of the action, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Archive => "archive",
            Action::Release => "release",
            Action::RemoveCopy => "hsm_remove",
            Action::Unlink => "unlink",
            Action::Rmdir => "rmdir",
            Action::Log => "log",
            Action::Command(_) => "cmd",
        }
    }
}

/// By which time entries are ordered; the oldest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Last change of contents.
    LastMod,
    /// Last access.
    LastAccess,
    /// Creation.
    Creation,
    /// Size, the largest first.
    Size,
    /// As they are found.
    None,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Name of the policy, in lower case.
    pub name: String,
    /// Where its rules are.
    pub pos: Pos,
    /// Entries that it is about.
    pub scope: Condition,
    /// The action.
    pub action: Action,
    /// Entries that it leaves alone.
    pub ignore: Vec<Condition>,
    /// Rules of the policy, in order; the one named `default` is last.
    pub rules: Vec<Rule>,
    /// When it runs.
    pub triggers: Vec<Trigger>,
    /// Limits.
    pub parameters: Parameters,
}

impl Policy {
    /// Whether any of its actions deletes.
    pub fn deletes(&self) -> bool {
        self.action.deletes()
            || self.rules.iter().any(|rule| rule.action.as_ref().is_some_and(Action::deletes))
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name of the rule.
    pub name: String,
    /// Where it is.
    pub pos: Pos,
    /// Classes that it is for; none for the default.
    pub targets: Vec<String>,
    /// The condition that an entry must meet.
    pub condition: Condition,
    /// Action of the rule, in place of the policy's.
    pub action: Option<Action>,
    /// Archive of the rule, in place of the policy's.
    pub archive: Option<u32>,
}

/// Limits of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Actions at once.
    pub threads: u64,
    /// Most actions of a run; `None` for no limit.
    pub count_max: Option<u64>,
    /// Most bytes of a run.
    pub bytes_max: Option<u64>,
    /// Most actions in `period_ms`.
    pub rate_count: Option<u64>,
    /// Most bytes in `period_ms`.
    pub rate_bytes: Option<u64>,
    /// See the rates.
    pub period_ms: u64,
    /// By what entries are ordered.
    pub order: Order,
    /// Pause between runs of a policy that has no trigger, in seconds; `None`: it runs only when asked.
    pub interval_secs: Option<u64>,
    /// Pause after a run of a trigger by usage, in seconds.
    pub post_wait_secs: Option<u64>,
    /// The run ends if so many percent have failed.
    pub suspend_error_pct: Option<f64>,
    /// But only if so many have failed.
    pub suspend_error_min: u64,
    /// Longest time of a command in seconds.
    pub action_timeout_secs: u64,
}

/// Most actions at once, whatever a text says.
pub const THREADS_MAX: u64 = 64;

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            threads: 4,
            count_max: None,
            bytes_max: None,
            rate_count: None,
            rate_bytes: None,
            period_ms: 1000,
            order: Order::LastMod,
            interval_secs: None,
            post_wait_secs: None,
            suspend_error_pct: None,
            suspend_error_min: 1,
            action_timeout_secs: 7200,
        }
    }
}

impl Program {
    /// Reads a text with everything that it includes.
    pub fn load(source: &Source<'_>, file: &str) -> Result<Program> {
        let read = |name: &str, from: Option<&str>| {
            (source.read)(name, from).or_else(|why| define::template(name).ok_or(why))
        };
        let source = Source { read: &read, defines: source.defines, environment: source.environment };
        Program::of(&lex::words(&source, file)?)
    }

    /// Understands the words of a text.
    pub fn of(words: &[Token]) -> Result<Program> {
        let blocks = tree::blocks(words, &ignored::is_ignored_block)?;
        let mut reading = Reading::new(lex::sum(words));
        for block in &blocks {
            reading.block(block)?;
        }
        reading.finish()
    }

    /// Puts paths in relation to the root of the file system, which is mounted at one of `mounts` (and at the text's own
    /// `fs_path`). A path that lies elsewhere is refused: a rule that can match nothing would protect nothing either.
    pub fn place(&mut self, mounts: &[String]) -> Result<()> {
        let roots: Vec<String> =
            self.fs_path.iter().chain(mounts).map(|m| m.trim_end_matches('/').to_owned()).collect();
        let classes = self.classes.values_mut().map(|class| &mut class.definition);
        let policies = self.policies.iter_mut().flat_map(|policy| {
            let rules = policy.rules.iter_mut().map(|rule| &mut rule.condition);
            std::iter::once(&mut policy.scope).chain(&mut policy.ignore).chain(rules)
        });
        for condition in classes.chain(policies) {
            place(condition, &roots)?;
        }
        Ok(())
    }

    /// Definitions of all classes, as conditions look them up.
    pub fn definitions(&self) -> BTreeMap<String, Condition> {
        self.classes.iter().map(|(name, class)| (name.clone(), class.definition.clone())).collect()
    }

    /// Whether the program uses the time of last access anywhere.
    pub fn goes_by_access(&self) -> bool {
        let is_test =
            |leaf: &Condition| matches!(leaf, Condition::Test(test) if test.field == Field::LastAccess);
        let has_test = |condition: &Condition| condition.leaves().into_iter().any(is_test);
        self.classes.values().any(|class| has_test(&class.definition))
            || self.policies.iter().any(|policy| {
                policy.parameters.order == Order::LastAccess
                    || has_test(&policy.scope)
                    || policy.ignore.iter().any(has_test)
                    || policy.rules.iter().any(|rule| has_test(&rule.condition))
            })
    }

    /// The policy of a name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name.eq_ignore_ascii_case(name))
    }
}

fn place(condition: &mut Condition, roots: &[String]) -> Result<()> {
    match condition {
        Condition::Not(inner) => place(inner, roots),
        Condition::And(a, b) | Condition::Or(a, b) => {
            place(a, roots)?;
            place(b, roots)
        }
        Condition::Test(Test { field: Field::Tree | Field::Path, value: Value::Text(text), pos, .. }) => {
            if !text.starts_with('/') || text.starts_with("/**") {
                return Ok(());
            }
            let below = |root: &String| {
                let rest = text.strip_prefix(root.as_str())?;
                (rest.is_empty() || rest.starts_with('/'))
                    .then(|| if rest.is_empty() { "/" } else { rest }.to_owned())
            };
            match roots.iter().find_map(below) {
                Some(rest) => *text = rest,
                None if roots.is_empty() => {
                    return Err(pos
                        .wrong(format!("it is not known where '{text}' lies in the file system"))
                        .next("say where it is mounted: General { fs_path = \"/MNT\"; }"));
                }
                None => {
                    return Err(pos
                        .wrong(format!("'{text}' does not lie in the file system, which is at {}", roots.join(" and ")))
                        .next("write the path below the mount point, or without a slash in front from the root of the file system"));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Definitions by `define_policy`, the built-in ones included.
#[derive(Clone, Debug)]
struct Definition {
    scope: Condition,
    action: Action,
    order: Order,
    interval_secs: Option<u64>,
}

/// Rules, triggers and parameters that wait for their policy's definition.
#[derive(Default)]
struct Parts {
    pos: Option<Pos>,
    ignore: Vec<Condition>,
    rules: Vec<Rule>,
    triggers: Vec<Trigger>,
    parameters: Option<Parameters>,
    has_rules: bool,
}

struct Reading {
    program: Program,
    definitions: BTreeMap<String, Definition>,
    parts: BTreeMap<String, Parts>,
    order: Vec<String>,
    given: BTreeSet<String>,
}

impl Reading {
    fn new(sum: String) -> Reading {
        let program = Program {
            fs_path: None,
            classes: BTreeMap::new(),
            policies: Vec::new(),
            ignored: Vec::new(),
            warnings: Vec::new(),
            xattrs: Vec::new(),
            sum,
        };
        Reading {
            program,
            definitions: define::built_in(),
            parts: BTreeMap::new(),
            order: Vec::new(),
            given: BTreeSet::new(),
        }
    }

    fn ignore(&mut self, pos: &Pos, what: impl Into<String>) {
        self.program.ignored.push((pos.clone(), what.into()));
    }

    fn warn(&mut self, pos: &Pos, what: impl Into<String>) {
        self.program.warnings.push((pos.clone(), what.into()));
    }

    /// The parts of a policy, by its name in lower case.
    fn parts(&mut self, name: &str, pos: &Pos) -> &mut Parts {
        if !self.parts.contains_key(name) {
            self.order.push(name.to_owned());
        }
        let parts = self.parts.entry(name.to_owned()).or_default();
        parts.pos.get_or_insert_with(|| pos.clone());
        parts
    }

    fn block(&mut self, block: &Block) -> Result<()> {
        let key = block.key.text.to_ascii_lowercase();
        let items = match &block.body {
            Body::Skipped => {
                self.ignore(&block.key.pos, format!("block {}", block.key.text));
                return Ok(());
            }
            Body::Condition(_) => return Err(unknown_block(block)),
            Body::Items(items) => items,
        };
        match key.as_str() {
            "general" => return self.general(items),
            "filesets" => return self.filesets(items),
            "fileclass" => return self.class(block, items),
            "define_policy" => return self.define(block, items),
            "hsm_remove_policy" => return self.deferred_remove(block, items),
            "rmdir_policy" => return self.rmdir_policy(block, items),
            _ => {}
        }
        match key.rsplit_once('_') {
            Some(("", _)) | None => Err(unknown_block(block)),
            Some((name, "rules")) => self.rules(name, block, items),
            Some((name, "policies")) => self.old_policies(name, block, items),
            Some((name, "trigger" | "triggers")) => self.trigger(name, block, items),
            Some((name, "parameters" | "params")) => self.parameters(name, block, items),
            Some(_) => Err(unknown_block(block)),
        }
    }

    fn general(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            let Item::Set(set) = item else { return Err(unknown_item(item, "General")) };
            match set.key.text.to_ascii_lowercase().as_str() {
                "fs_path" => self.program.fs_path = Some(one_text(set)?.to_owned()),
                "fs_type"
                | "fs_key"
                | "stay_in_fs"
                | "check_mounted"
                | "lock_file"
                | "direct_mds_stat"
                | "last_access_only_atime"
                | "uid_gid_as_numbers" => {
                    self.ignore(&set.key.pos, format!("General: {}", set.key.text));
                }
                _ => return Err(unknown_item(item, "General")),
            }
        }
        Ok(())
    }

    fn filesets(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            match item {
                Item::Block(block) if block.key.is_word("fileclass") => match &block.body {
                    Body::Items(items) => self.class(block, items)?,
                    _ => return Err(unknown_block(block)),
                },
                other => return Err(unknown_item(other, "Filesets")),
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Program> {
        self.check_classes()?;
        for name in std::mem::take(&mut self.order) {
            let parts = self.parts.remove(&name).unwrap_or_default();
            let pos = parts.pos.clone().unwrap_or_else(|| Pos { file: "".into(), line: 1, column: 1 });
            let definition = self.definitions.get(&name).cloned().ok_or_else(|| {
                let known: Vec<&str> = self.definitions.keys().map(String::as_str).collect();
                pos.wrong(format!("there is no policy '{name}'"))
                    .next(format!("define it with define_policy, or use one of {}", known.join(", ")))
            })?;
            if !parts.has_rules && (definition.action != Action::Release || parts.triggers.is_empty()) {
                self.warn(&pos, format!("the policy '{name}' has no rules, so it does nothing"));
                continue;
            }
            let mut parts = parts;
            if !parts.has_rules {
                self.warn(
                    &pos,
                    format!("'{name}' has a trigger and no rules: whatever is archived may be released"),
                );
                parts.rules.push(rule_for_all(&pos));
            }
            let policy = policy(name, pos, definition, parts);
            self.check_policy(&policy)?;
            self.program.policies.push(policy);
        }
        self.collect_xattrs()?;
        Ok(self.program)
    }

    fn check_classes(&mut self) -> Result<()> {
        let classes = &self.program.classes;
        for (name, class) in classes {
            let mut seen = BTreeSet::new();
            let mut open = vec![name.clone()];
            while let Some(at) = open.pop() {
                for leaf in classes[&at].definition.leaves() {
                    let Condition::Class(other, pos) = leaf else { continue };
                    let other = other.to_ascii_lowercase();
                    if other == *name {
                        return Err(pos.wrong(format!("the class '{}' is defined by itself", class.name)));
                    }
                    if !classes.contains_key(&other) {
                        return Err(pos.wrong(format!("there is no class '{other}'")));
                    }
                    if seen.insert(other.clone()) {
                        open.push(other);
                    }
                }
            }
        }
        Ok(())
    }

    fn check_policy(&self, policy: &Policy) -> Result<()> {
        let known =
            |name: &str, pos: &Pos| match self.program.classes.contains_key(&name.to_ascii_lowercase()) {
                true => Ok(()),
                false => Err(pos.wrong(format!("there is no class '{name}'"))),
            };
        let conditions = std::iter::once(&policy.scope).chain(&policy.ignore);
        for leaf in
            conditions.chain(policy.rules.iter().map(|rule| &rule.condition)).flat_map(Condition::leaves)
        {
            if let Condition::Class(name, pos) = leaf {
                known(name, pos)?;
            }
        }
        for rule in &policy.rules {
            rule.targets.iter().try_for_each(|name| known(name, &rule.pos))?;
        }
        Ok(())
    }

    fn collect_xattrs(&mut self) -> Result<()> {
        let mut names: BTreeMap<String, Pos> = BTreeMap::new();
        let classes = self.program.classes.values().map(|class| &class.definition);
        let policies = self.program.policies.iter().flat_map(|policy| {
            let rules = policy.rules.iter().map(|rule| &rule.condition);
            std::iter::once(&policy.scope).chain(&policy.ignore).chain(rules)
        });
        for leaf in classes.chain(policies).flat_map(Condition::leaves) {
            if let Condition::Test(Test { field: Field::Xattr(name), pos, .. }) = leaf {
                names.insert(name.clone(), pos.clone());
            }
        }
        let most = brindle_wire::mds::policy::XATTRS_MAX;
        if let Some((_, pos)) = names.iter().nth(most) {
            return Err(pos.wrong(format!("a text asks about {most} extended attributes at most")));
        }
        self.program.xattrs = names.into_keys().collect();
        Ok(())
    }
}

/// A release loses nothing, so its trigger alone is enough: the oldest archived files go first.
fn rule_for_all(pos: &Pos) -> Rule {
    Rule {
        name: "default".to_owned(),
        pos: pos.clone(),
        targets: Vec::new(),
        condition: Condition::Constant(true),
        action: None,
        archive: None,
    }
}

fn policy(name: String, pos: Pos, definition: Definition, parts: Parts) -> Policy {
    let mut parameters =
        parts.parameters.unwrap_or(Parameters { order: definition.order, ..Parameters::default() });
    if parts.triggers.is_empty() {
        parameters.interval_secs = parameters.interval_secs.or(definition.interval_secs);
    }
    let mut rules = parts.rules;
    // Stable: the default comes last, the others stay in order.
    rules.sort_by_key(|rule| rule.targets.is_empty());
    let mut policy = Policy {
        name,
        pos,
        scope: definition.scope,
        action: definition.action,
        ignore: parts.ignore,
        rules,
        triggers: parts.triggers,
        parameters,
    };
    if policy.deletes() {
        policy.parameters.count_max.get_or_insert(DELETIONS_MAX);
    }
    policy
}

/// The one value of a setting, without arguments.
fn one(set: &tree::Set) -> Result<&Token> {
    match &set.values[..] {
        [value] if !value.is_call => Ok(&value.word),
        _ => Err(set.key.pos.wrong(format!("'{}' has one value", set.key.text))),
    }
}

fn one_text(set: &tree::Set) -> Result<&str> {
    one(set).map(|word| word.text.as_str())
}

/// The one value of a setting, understood.
fn one_as<T>(set: &tree::Set, read: fn(&str) -> std::result::Result<T, String>) -> Result<T> {
    let word = one(set)?;
    read(&word.text).map_err(|why| word.pos.wrong(why))
}

fn unknown_block(block: &Block) -> Fault {
    block.key.pos.wrong(format!("there is no block '{}'", block.key.text)).next(
        "blocks are General, FileClass, Filesets, define_policy, NAME_rules, NAME_policies, NAME_trigger, NAME_parameters; \
         docs/operations/policies.md lists those that are ignored",
    )
}

fn unknown_item(item: &Item, within: &str) -> Fault {
    let key = match item {
        Item::Set(set) => &set.key,
        Item::Block(block) => &block.key,
    };
    key.pos.wrong(format!("'{}' is neither carried out nor ignored in {within}", key.text))
}

#[cfg(test)]
mod tests;
