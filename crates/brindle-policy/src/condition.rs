//! Conditions: criteria joined by `and`, `or` and `not`, and classes joined by `union`, `inter` and `not`.
//!
//! The result of a condition is yes, no, or unknown. `not` of unknown is unknown, and a policy never acts on an unknown result.

use std::collections::BTreeMap;
use std::fmt;

use brindle_types::attr::Time;
use brindle_types::hsm::{HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_NOARCHIVE, HSM_NORELEASE, HSM_RELEASED};
use brindle_types::{FileType, HsmKind, Result};

use crate::entry::{Entry, Names, Xattr};
use crate::glob;
use crate::lex::{Kind, Pos, Token};
use crate::tree::Words;
use crate::values;

/// Deepest nesting of a condition.
const DEPTH_MAX: usize = 64;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always, or never.
    Constant(bool),
    /// A criterion.
    Test(Test),
    /// The entry is in this class.
    Class(String, Pos),
    /// The opposite.
    Not(Box<Condition>),
    /// Conjunction: holds if both conditions hold.
    And(Box<Condition>, Box<Condition>),
    /// Disjunction: holds if at least one condition holds.
    Or(Box<Condition>, Box<Condition>),
}

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `==`
    Equal,
    /// `!=`, `<>`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// The property of an entry that a criterion compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Time since the last change of contents.
    LastMod,
    /// Time since the last change of the inode.
    LastChange,
    /// Time since the last access.
    LastAccess,
    /// Time since the creation.
    Creation,
    /// Size in bytes.
    Size,
    /// How deep it lies.
    Depth,
    /// Number of names.
    Links,
    /// OST of any stripe.
    OstIndex,
    /// Archive.
    ArchiveId,
    /// Name of the owner, or the number.
    Owner,
    /// Name of the group, or the number.
    Group,
    /// Where it lies: in this directory, at any depth, or the directory itself.
    Tree,
    /// Path of the entry.
    Path,
    /// Name of the entry.
    Name,
    /// Name of the entry, without regard to upper and lower case.
    NameNoCase,
    /// Type of the entry.
    Type,
    /// Pool of the entry's layout.
    Pool,
    /// An extended attribute.
    Xattr(String),
    /// How it stands with the archive.
    Status,
    /// Marked `never_archive`.
    NoArchive,
    /// Marked `never_release`.
    NoRelease,
    /// Entries of a directory: 0, or more.
    DirCount,
    /// A newer version of the checkpoint exists (our own).
    Superseded,
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Seconds.
    Secs(u64),
    /// Bytes.
    Bytes(u64),
    /// A number.
    Number(u64),
    /// A text or pattern.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// A type.
    Kind(FileType),
}

/// A criterion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The property that is compared.
    pub field: Field,
    /// How.
    pub compare: Compare,
    /// With what.
    pub value: Value,
    /// Where it stands.
    pub pos: Pos,
}

/// The words for types.
const TYPES: [(&str, FileType); 8] = [
    ("file", FileType::Regular),
    ("directory", FileType::Directory),
    ("symlink", FileType::Symlink),
    ("chr", FileType::CharDevice),
    ("blk", FileType::BlockDevice),
    ("fifo", FileType::Fifo),
    ("sock", FileType::Socket),
    ("dir", FileType::Directory),
];
/// The words for the status.
pub const STATUSES: [&str; 6] = ["new", "modified", "archiving", "retrieving", "synchro", "released"];

/// The surroundings of an entry that a condition may ask about.
pub struct Context<'a> {
    /// The clock by which ages are meant.
    pub now: Time,
    /// Names of users and groups.
    pub names: &'a dyn Names,
    /// The definitions of classes, in lower case.
    pub classes: &'a BTreeMap<String, Condition>,
    /// Whether a newer version of the entry exists; `None` where nothing is known.
    pub superseded: Option<bool>,
}

/// Reads an expression up to what ends it.
pub fn parse(words: &mut Words<'_>) -> Result<Condition> {
    either(words, 0)
}

fn either(words: &mut Words<'_>, depth: usize) -> Result<Condition> {
    if depth > DEPTH_MAX {
        return Err(words.peek().pos.wrong(format!("the condition is nested deeper than {DEPTH_MAX}")));
    }
    let mut left = both(words, depth)?;
    while words.peek().is_word("or") || words.peek().is_word("union") {
        words.take();
        left = Condition::Or(Box::new(left), Box::new(both(words, depth)?));
    }
    Ok(left)
}

fn both(words: &mut Words<'_>, depth: usize) -> Result<Condition> {
    let mut left = one(words, depth)?;
    while words.peek().is_word("and") || words.peek().is_word("inter") {
        words.take();
        left = Condition::And(Box::new(left), Box::new(one(words, depth)?));
    }
    Ok(left)
}

fn one(words: &mut Words<'_>, depth: usize) -> Result<Condition> {
    if depth > DEPTH_MAX {
        return Err(words.peek().pos.wrong(format!("the condition is nested deeper than {DEPTH_MAX}")));
    }
    if words.peek().is_word("not") {
        words.take();
        return Ok(Condition::Not(Box::new(one(words, depth + 1)?)));
    }
    if words.has_sign("(") {
        let inner = either(words, depth + 1)?;
        words.sign(")", "behind the condition in parentheses")?;
        return Ok(inner);
    }
    let key = words.value("a criterion")?;
    let sign = words.peek();
    if sign.is_sign("(") {
        return Err(key
            .pos
            .wrong(format!("'{}(...)' in a condition is not carried out by this release", key.text)));
    }
    let Some(compare) = compare(sign) else {
        if key.kind == Kind::Word && (key.is_word("true") || key.is_word("false")) {
            return Ok(Condition::Constant(key.is_word("true")));
        }
        let ends = sign.is_sign("}")
            || sign.is_sign(")")
            || ["union", "inter", "and", "or"].iter().any(|w| sign.is_word(w));
        return match ends {
            true => Ok(Condition::Class(key.text.clone(), key.pos.clone())),
            false => Err(sign.pos.wrong(format!(
                "a comparison is missing behind '{}'; here is {}",
                key.text,
                sign.shown()
            ))),
        };
    };
    words.take();
    let value = words.value(&format!("a value for '{}'", key.text))?;
    test(key, compare, value)
}

fn compare(sign: &Token) -> Option<Compare> {
    if sign.kind != Kind::Sign {
        return None;
    }
    Some(match sign.text.as_str() {
        "==" => Compare::Equal,
        "!=" | "<>" => Compare::Unequal,
        "<" => Compare::Less,
        "<=" => Compare::AtMost,
        ">" => Compare::More,
        ">=" => Compare::AtLeast,
        _ => return None,
    })
}

fn test(key: &Token, compare: Compare, word: &Token) -> Result<Condition> {
    let name = key.text.to_ascii_lowercase();
    let name = name.strip_prefix("lhsm.").unwrap_or(&name);
    if name == "fileclass" || name == "class" {
        let class = Condition::Class(word.text.clone(), word.pos.clone());
        return match compare {
            Compare::Equal => Ok(class),
            Compare::Unequal => Ok(Condition::Not(Box::new(class))),
            _ => Err(key.pos.wrong("a class is compared with == or !=")),
        };
    }
    let field = field(name, key)?;
    let bad = |why: String| word.pos.wrong(why);
    let value = match field {
        Field::LastMod | Field::LastChange | Field::LastAccess | Field::Creation => {
            Value::Secs(values::duration(&word.text).map_err(bad)?)
        }
        Field::Size => Value::Bytes(values::size(&word.text).map_err(bad)?),
        Field::Depth | Field::Links | Field::OstIndex | Field::ArchiveId => {
            Value::Number(values::count(&word.text).map_err(bad)?)
        }
        Field::DirCount => Value::Number(dir_count(compare, word)?),
        Field::NoArchive | Field::NoRelease | Field::Superseded => {
            Value::Bool(values::boolean(&word.text).map_err(bad)?)
        }
        Field::Type => Value::Kind(kind(word)?),
        Field::Status => match STATUSES.contains(&word.text.to_ascii_lowercase().as_str()) {
            true => Value::Text(word.text.to_ascii_lowercase()),
            false => {
                return Err(bad(format!("'{}' is no status; they are {}", word.text, STATUSES.join(", "))));
            }
        },
        _ if word.text.len() > glob::PATTERN_MAX => {
            return Err(bad(format!("a pattern has more than {} characters", glob::PATTERN_MAX)));
        }
        _ => Value::Text(word.text.clone()),
    };
    let is_ordered = matches!(value, Value::Secs(_) | Value::Bytes(_) | Value::Number(_));
    if !is_ordered && !matches!(compare, Compare::Equal | Compare::Unequal) {
        return Err(key.pos.wrong(format!("'{}' is compared with == or !=", key.text)));
    }
    Ok(Condition::Test(Test { field, compare, value, pos: key.pos.clone() }))
}

fn field(name: &str, key: &Token) -> Result<Field> {
    Ok(match name {
        "last_mod" => Field::LastMod,
        "last_mdchange" => Field::LastChange,
        "creation" => Field::Creation,
        "size" => Field::Size,
        "depth" => Field::Depth,
        "nlink" => Field::Links,
        "ost_index" => Field::OstIndex,
        "archive_id" => Field::ArchiveId,
        "owner" => Field::Owner,
        "group" => Field::Group,
        "tree" => Field::Tree,
        "path" => Field::Path,
        "name" => Field::Name,
        "iname" => Field::NameNoCase,
        "type" => Field::Type,
        "ost_pool" => Field::Pool,
        "status" => Field::Status,
        "no_archive" => Field::NoArchive,
        "no_release" => Field::NoRelease,
        "dircount" => Field::DirCount,
        "superseded" => Field::Superseded,
        "last_access" => Field::LastAccess,
        "last_archive" | "last_restore" | "last_check" | "rm_time" | "projid" => {
            return Err(key.pos.wrong(format!("'{name}' is not known of files in this release")));
        }
        _ if name.starts_with("xattr.") && name.len() > 6 => Field::Xattr(key.text[6..].to_owned()),
        _ => return Err(key.pos.wrong(format!("there is no criterion '{}'", key.text)).next(nearest(name))),
    })
}

const CRITERIA: [&str; 21] = [
    "last_mod",
    "last_access",
    "last_mdchange",
    "creation",
    "size",
    "depth",
    "nlink",
    "ost_index",
    "archive_id",
    "owner",
    "group",
    "tree",
    "path",
    "name",
    "iname",
    "type",
    "ost_pool",
    "status",
    "no_archive",
    "no_release",
    "dircount",
];

fn nearest(name: &str) -> String {
    let common = |other: &str| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    match CRITERIA.iter().max_by_key(|other| common(other)).filter(|other| common(other) > 1) {
        Some(near) => format!("did you mean '{near}'? All: {}, superseded, xattr.NAME", CRITERIA.join(", ")),
        None => format!("they are {}, superseded, xattr.NAME", CRITERIA.join(", ")),
    }
}

fn dir_count(compare: Compare, word: &Token) -> Result<u64> {
    let n = values::count(&word.text).map_err(|why| word.pos.wrong(why))?;
    let is_known = match compare {
        Compare::Equal | Compare::Unequal | Compare::More | Compare::AtMost => n == 0,
        Compare::Less | Compare::AtLeast => n == 1,
    };
    match is_known {
        true => Ok(n),
        false => Err(word
            .pos
            .wrong("of a directory it is known whether it is empty (dircount == 0), and no number")),
    }
}

fn kind(word: &Token) -> Result<FileType> {
    let found = TYPES.iter().find(|(name, _)| word.text.eq_ignore_ascii_case(name));
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let all: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        word.pos.wrong(format!("'{}' is no type; they are {}", word.text, all.join(", ")))
    })
}

/// The status of a file, in Robinhood's words; `None` if the entry is no file.
pub fn status(entry: &Entry) -> Option<&'static str> {
    if entry.kind != FileType::Regular {
        return None;
    }
    let has = |flag| entry.flags & flag != 0;
    Some(match entry.under_way {
        Some(HsmKind::Archive) => "archiving",
        Some(HsmKind::Restore) => "retrieving",
        _ if has(HSM_RELEASED) => "released",
        _ if !has(HSM_EXISTS) => "new",
        _ if has(HSM_DIRTY) || !has(HSM_ARCHIVED) => "modified",
        _ => "synchro",
    })
}

impl Compare {
    fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Compare::Equal => a == b,
            Compare::Unequal => a != b,
            Compare::Less => a < b,
            Compare::AtMost => a <= b,
            Compare::More => a > b,
            Compare::AtLeast => a >= b,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Compare::Equal => "==",
            Compare::Unequal => "!=",
            Compare::Less => "<",
            Compare::AtMost => "<=",
            Compare::More => ">",
            Compare::AtLeast => ">=",
        }
    }
}

/// Whole seconds between two times; negative where the second one is later.
pub fn age_secs(now: Time, then: Time) -> i64 {
    now.secs.saturating_sub(then.secs).saturating_sub(i64::from(now.nanos < then.nanos))
}

impl Condition {
    /// Whether an entry is as this says; `None` where that is not known.
    pub fn eval(&self, entry: &Entry, context: &Context<'_>) -> Option<bool> {
        self.eval_within(entry, context, 0)
    }

    fn eval_within(&self, entry: &Entry, context: &Context<'_>, depth: usize) -> Option<bool> {
        match self {
            Condition::Constant(value) => Some(*value),
            Condition::Test(test) => test.eval(entry, context),
            // Classes that name each other in a circle are refused when the text is read.
            Condition::Class(name, _) if depth < DEPTH_MAX => {
                context.classes.get(&name.to_ascii_lowercase())?.eval_within(entry, context, depth + 1)
            }
            Condition::Class(..) => None,
            Condition::Not(inner) => inner.eval_within(entry, context, depth).map(|value| !value),
            Condition::And(a, b) => {
                match (a.eval_within(entry, context, depth), b.eval_within(entry, context, depth)) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Condition::Or(a, b) => {
                match (a.eval_within(entry, context, depth), b.eval_within(entry, context, depth)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }
            }
        }
    }

    /// Every criterion and class in it, in order.
    pub fn leaves(&self) -> Vec<&Condition> {
        match self {
            Condition::Not(inner) => inner.leaves(),
            Condition::And(a, b) | Condition::Or(a, b) => [a.leaves(), b.leaves()].concat(),
            leaf => vec![leaf],
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Condition::Or(..) => 0,
            Condition::And(..) => 1,
            _ => 2,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        if self.rank() < least {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            Condition::Constant(value) => write!(f, "{value}"),
            Condition::Test(test) => write!(f, "{test}"),
            Condition::Class(name, _) => write!(f, "fileclass == {}", quoted(name)),
            Condition::Not(inner) => {
                f.write_str("not ")?;
                inner.write(f, 2)
            }
            Condition::And(a, b) => {
                a.write(f, 1)?;
                f.write_str(" and ")?;
                b.write(f, 2)
            }
            Condition::Or(a, b) => {
                a.write(f, 0)?;
                f.write_str(" or ")?;
                b.write(f, 1)
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn quoted(text: &str) -> String {
    if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.field, self.compare.text(), self.value)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::LastMod => "last_mod",
            Field::LastChange => "last_mdchange",
            Field::LastAccess => "last_access",
            Field::Creation => "creation",
            Field::Size => "size",
            Field::Depth => "depth",
            Field::Links => "nlink",
            Field::OstIndex => "ost_index",
            Field::ArchiveId => "archive_id",
            Field::Owner => "owner",
            Field::Group => "group",
            Field::Tree => "tree",
            Field::Path => "path",
            Field::Name => "name",
            Field::NameNoCase => "iname",
            Field::Type => "type",
            Field::Pool => "ost_pool",
            Field::Status => "status",
            Field::NoArchive => "no_archive",
            Field::NoRelease => "no_release",
            Field::DirCount => "dircount",
            Field::Superseded => "superseded",
            Field::Xattr(name) => return write!(f, "xattr.{name}"),
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Secs(secs) => f.write_str(&values::duration_text(*secs)),
            Value::Bytes(bytes) => f.write_str(&values::size_text(*bytes)),
            Value::Number(n) => write!(f, "{n}"),
            Value::Text(text) => f.write_str(&quoted(text)),
            Value::Bool(value) => f.write_str(if *value { "yes" } else { "no" }),
            Value::Kind(kind) => f.write_str(kind_word(*kind)),
        }
    }
}

/// The word for a type.
pub fn kind_word(kind: FileType) -> &'static str {
    TYPES.iter().find(|(_, other)| *other == kind).map_or("?", |(word, _)| word)
}

impl Test {
    /// Whether an entry is as this says; `None` where that is not known.
    pub fn eval(&self, entry: &Entry, context: &Context<'_>) -> Option<bool> {
        let is_equal = self.compare == Compare::Equal;
        Some(match (&self.field, &self.value) {
            (Field::LastMod | Field::LastChange | Field::LastAccess | Field::Creation, Value::Secs(secs)) => {
                let age = age_secs(context.now, self.time(entry)?);
                self.compare.holds(i128::from(age), i128::from(*secs))
            }
            (Field::Size, Value::Bytes(bytes)) => self.compare.holds(entry.size_bytes, *bytes),
            (Field::Depth, Value::Number(n)) => self.compare.holds(entry.depth(), *n),
            (Field::Links, Value::Number(n)) => self.compare.holds(entry.nlink.into(), *n),
            (Field::ArchiveId, Value::Number(n)) => self.compare.holds(entry.archive.into(), *n),
            (Field::OstIndex, Value::Number(n)) => match self.compare {
                Compare::Unequal => !entry.osts.iter().any(|ost| u64::from(*ost) == *n),
                compare => entry.osts.iter().any(|ost| compare.holds(u64::from(*ost), *n)),
            },
            (Field::DirCount, Value::Number(n)) => {
                if entry.kind != FileType::Directory {
                    return None;
                }
                self.compare.holds(u64::from(!entry.is_empty_dir), *n)
            }
            (Field::NoArchive, Value::Bool(value)) => {
                (entry.flags & HSM_NOARCHIVE != 0) == (*value == is_equal)
            }
            (Field::NoRelease, Value::Bool(value)) => {
                (entry.flags & HSM_NORELEASE != 0) == (*value == is_equal)
            }
            (Field::Superseded, Value::Bool(value)) => context.superseded? == (*value == is_equal),
            (Field::Type, Value::Kind(kind)) => (entry.kind == *kind) == is_equal,
            (Field::Status, Value::Text(wanted)) => (status(entry)? == wanted) == is_equal,
            (_, Value::Text(pattern)) => self.text_matches(pattern, entry, context)? == is_equal,
            _ => return None,
        })
    }

    /// The time that it is about; `None` where that is not known.
    pub fn time(&self, entry: &Entry) -> Option<Time> {
        Some(match self.field {
            Field::LastChange => entry.ctime,
            Field::LastAccess => entry.unread_since?,
            Field::Creation => entry.btime,
            _ => entry.mtime,
        })
    }

    fn text_matches(&self, pattern: &str, entry: &Entry, context: &Context<'_>) -> Option<bool> {
        if !entry.is_exact
            && matches!(self.field, Field::Tree | Field::Path | Field::Name | Field::NameNoCase)
        {
            return None;
        }
        Some(match &self.field {
            Field::Owner => is_named(pattern, entry.uid, context.names.user(entry.uid)),
            Field::Group => is_named(pattern, entry.gid, context.names.group(entry.gid)),
            Field::Name => glob::matches(pattern, entry.name()),
            Field::NameNoCase => glob::matches(&pattern.to_lowercase(), &entry.name().to_lowercase()),
            Field::Path => glob::matches(&from_root(pattern), &entry.path),
            Field::Tree => in_tree(&from_root(pattern), &entry.path),
            Field::Pool => entry.pools.iter().any(|pool| glob::matches(pattern, pool)),
            Field::Xattr(name) => {
                match entry.xattrs.iter().find(|(other, _)| other == name).map(|(_, value)| value)? {
                    Xattr::None => false,
                    Xattr::Value(value) => glob::matches(pattern, value),
                    Xattr::Unknown => return None,
                }
            }
            _ => return None,
        })
    }
}

fn is_named(pattern: &str, number: u32, name: Option<String>) -> bool {
    pattern == number.to_string() || name.is_some_and(|name| glob::matches(pattern, &name))
}

/// A pattern of paths as it is compared with paths from the root.
fn from_root(pattern: &str) -> String {
    match pattern.trim_end_matches('/') {
        "" => "/".to_owned(),
        path if path.starts_with('/') || path.starts_with('*') => path.to_owned(),
        path => format!("/{path}"),
    }
}

fn in_tree(pattern: &str, path: &str) -> bool {
    if pattern == "/" || glob::matches(pattern, path) {
        return true;
    }
    let above = path.match_indices('/').filter(|(at, _)| *at > 0).map(|(at, _)| &path[..at]);
    above.into_iter().any(|above| glob::matches(pattern, above))
}

#[cfg(test)]
mod tests;
