//! Queries: the words of the command line as paths and a predicate.
//!
//! Words are those of find(1) and of `lfs find`; `-name` and `--name` are the same. Words that the MDT cannot
//! decide are refused by name, never ignored.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::scan::{GLOB_BYTES_MAX, Range, Stamp, TERMS_MAX, Term, Test};

use super::values::{self, Wrong};
use crate::control::path_fault;
use brindle_admin::nearest::nearest;
use brindle_host::users;

/// Deepest nesting of brackets.
const NESTING_MAX: u32 = 64;

/// The predicates, for `--help`.
pub const HELP: &str = "\
Predicates (joined by -a where nothing stands between them, by -o; turned round by !; grouped by '(' and ')'):
  -name GLOB  -iname GLOB          name; -iname: upper and lower case are the same
  -type f|d|l|p|s|b|c[,...]        type
  -size [+-]N[bkMGTPE]             size in bytes or units, rounded up to a whole unit; as the MDT knows it
  -mtime|-atime|-ctime [+-]N[smhdwy]   age, in days without a unit; -mmin, -amin, -cmin: in minutes
  -newer|-anewer|-cnewer FILE      changed (read, its inode changed) after FILE was changed
  -user|-group NAME|ID  -uid|-gid|-projid [+-]ID  -links [+-]N  -perm MODE|-MODE|/MODE
  -stripe-count [+-]N  -stripe-size [+-]N[kMG]  -stripe-index N[,...]  -ost INDEX|UUID[,...]
  -layout raid0|mdt|composite[,...]  -component-count [+-]N
  -maxdepth N  -mindepth N         levels below PATH
  -print0 (-0)                     end each path with a zero byte
Short forms of lfs: -n -t -s -M -A -C -u -g -c -S -i -O -L -D. + is more than N, - is less.
The MDT does the search; of directories that the caller may not read and search it shows nothing.
Example: lfs find /mnt/b -type f -size +1G -mtime +30 -ost 3 -print0";

/// Kind of a word of a predicate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Name {
        fold_case: bool,
    },
    Kind,
    Size,
    Age(Stamp),
    Minutes(Stamp),
    Newer(Stamp),
    User,
    Group,
    Uid,
    Gid,
    Project,
    Links,
    Perm,
    StripeCount,
    StripeSize,
    StripeIndex,
    Ost,
    Layout,
    Components,
    Pool,
    DepthMax,
    DepthMin,
    Print,
    Print0,
    And,
    Or,
    Not,
    /// Known, and not done: why, and what to do.
    Refused(&'static str, &'static str),
}

const LATER: &str = "the search is done in the MDT, which runs no programs";
const PIPE: &str = "pipe the paths: lfs find ... -print0 | xargs -0 ...";

/// Every word, without its dashes.
const WORDS: &[(&str, Word)] = &[
    ("name", Word::Name { fold_case: false }),
    ("n", Word::Name { fold_case: false }),
    ("iname", Word::Name { fold_case: true }),
    ("type", Word::Kind),
    ("t", Word::Kind),
    ("size", Word::Size),
    ("s", Word::Size),
    ("mtime", Word::Age(Stamp::Modify)),
    ("M", Word::Age(Stamp::Modify)),
    ("atime", Word::Age(Stamp::Access)),
    ("A", Word::Age(Stamp::Access)),
    ("ctime", Word::Age(Stamp::Change)),
    ("C", Word::Age(Stamp::Change)),
    ("btime", Word::Age(Stamp::Birth)),
    ("B", Word::Age(Stamp::Birth)),
    ("mmin", Word::Minutes(Stamp::Modify)),
    ("amin", Word::Minutes(Stamp::Access)),
    ("cmin", Word::Minutes(Stamp::Change)),
    ("bmin", Word::Minutes(Stamp::Birth)),
    ("newer", Word::Newer(Stamp::Modify)),
    ("anewer", Word::Newer(Stamp::Access)),
    ("cnewer", Word::Newer(Stamp::Change)),
    ("user", Word::User),
    ("u", Word::User),
    ("group", Word::Group),
    ("g", Word::Group),
    ("uid", Word::Uid),
    ("gid", Word::Gid),
    ("projid", Word::Project),
    ("links", Word::Links),
    ("perm", Word::Perm),
    ("stripe-count", Word::StripeCount),
    ("c", Word::StripeCount),
    ("stripe-size", Word::StripeSize),
    ("S", Word::StripeSize),
    ("stripe-index", Word::StripeIndex),
    ("i", Word::StripeIndex),
    ("ost", Word::Ost),
    ("obd", Word::Ost),
    ("O", Word::Ost),
    ("layout", Word::Layout),
    ("L", Word::Layout),
    ("component-count", Word::Components),
    ("comp-count", Word::Components),
    ("maxdepth", Word::DepthMax),
    ("D", Word::DepthMax),
    ("mindepth", Word::DepthMin),
    ("print", Word::Print),
    ("print0", Word::Print0),
    ("0", Word::Print0),
    ("p", Word::Print0),
    ("a", Word::And),
    ("and", Word::And),
    ("o", Word::Or),
    ("or", Word::Or),
    ("not", Word::Not),
    ("pool", Word::Pool),
    ("exec", Word::Refused(LATER, PIPE)),
    ("execdir", Word::Refused(LATER, PIPE)),
    ("ok", Word::Refused(LATER, PIPE)),
    (
        "delete",
        Word::Refused("the search changes nothing", "pipe the paths: lfs find ... -print0 | xargs -0 rm --"),
    ),
];

/// Predicate and starting points of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct Query {
    /// Starting points.
    pub paths: Vec<PathBuf>,
    /// Postfix.
    pub predicate: Vec<Term>,
    /// Entries above this depth do not match.
    pub depth_min: u32,
    /// Entries below this depth are not looked at.
    pub depth_max: u32,
    /// End each path with a zero byte.
    pub print0: bool,
}

impl Query {
    /// Query for all entries below these paths.
    pub fn everything(paths: Vec<PathBuf>) -> Query {
        Query { paths, predicate: Vec::new(), depth_min: 0, depth_max: u32::MAX, print0: false }
    }

    /// Reads a command line.
    pub fn parse(words: &[OsString]) -> Result<Query> {
        let mut parser = Parser { words, at: 0, nesting: 0, query: Query::everything(Vec::new()) };
        let mut predicate = parser.either()?;
        if let Some(word) = parser.peek() {
            return Err(refused(word, "it closes no bracket"));
        }
        let mut query = parser.query;
        if predicate.len() > TERMS_MAX {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot search")
                .why(format!("{} terms; at most {TERMS_MAX} are possible", predicate.len())));
        }
        query.predicate.append(&mut predicate);
        if query.paths.is_empty() {
            query.paths.push(PathBuf::from("."));
        }
        Ok(query)
    }
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    nesting: u32,
    query: Query,
}

fn refused(word: &OsStr, why: impl Into<String>) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot search with")
        .subject(word.to_string_lossy().into_owned())
        .why(why.into())
}

/// The word's meaning; `None` for one that is no option.
fn meaning(word: &OsStr) -> Option<Result<Word>> {
    if word == "!" {
        return Some(Ok(Word::Not));
    }
    let bytes = word.as_bytes();
    let long = bytes.strip_prefix(b"--").filter(|name| name.len() > 1);
    let name = long.or(bytes.strip_prefix(b"-")).filter(|name| !name.is_empty())?;
    let known = WORDS.iter().find(|(known, _)| known.as_bytes() == name);
    Some(known.map(|(_, meaning)| *meaning).ok_or_else(|| unknown(word, name)))
}

fn unknown(word: &OsStr, name: &[u8]) -> Fault {
    let fault =
        Fault::new(Code::BadArgument).what("unknown predicate").subject(word.to_string_lossy().into_owned());
    let long = WORDS.iter().map(|(known, _)| *known).filter(|known| known.len() > 1);
    match nearest(&String::from_utf8_lossy(name), long) {
        Some(near) => fault.why(format!("did you mean -{near}?")),
        None => fault,
    }
    .next("list them: lfs find --help")
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a OsStr> {
        self.words.get(self.at).map(OsString::as_os_str)
    }

    /// The next word's meaning, if it is one of these.
    fn take(&mut self, wanted: Word) -> bool {
        let is_it = self.peek().and_then(meaning).is_some_and(|m| m.is_ok_and(|m| m == wanted));
        self.at += usize::from(is_it);
        is_it
    }

    /// Terms joined by -o.
    fn either(&mut self) -> Result<Vec<Term>> {
        let mut terms = self.both()?;
        while self.take(Word::Or) {
            let or = self.words[self.at - 1].as_os_str();
            if self.peek().is_some_and(|word| word == "json" || word == "table") {
                let fault = refused(or, "among predicates it means 'or'");
                return Err(
                    fault.next("how to print comes before the paths: brindle file find -o json DIR ...")
                );
            }
            let right = self.both()?;
            if terms.is_empty() || right.is_empty() {
                return Err(refused(or, "it needs a predicate on either side"));
            }
            terms.extend(right);
            terms.push(Term::Or);
        }
        Ok(terms)
    }

    /// Terms joined by -a or by nothing.
    fn both(&mut self) -> Result<Vec<Term>> {
        let mut terms: Vec<Term> = Vec::new();
        loop {
            let and = self.take(Word::And).then(|| self.words[self.at - 1].as_os_str());
            let is_over = match self.peek() {
                None => true,
                Some(word) => word == ")" || meaning(word).is_some_and(|m| m.is_ok_and(|m| m == Word::Or)),
            };
            if let Some(and) = and.filter(|_| is_over || terms.is_empty()) {
                return Err(refused(and, "it needs a predicate on either side"));
            }
            if is_over {
                return Ok(terms);
            }
            let right = self.one()?;
            let joins = !terms.is_empty() && !right.is_empty();
            terms.extend(right);
            if joins {
                terms.push(Term::And);
            }
        }
    }

    /// A predicate, a bracket, or nothing (a path, an option).
    fn one(&mut self) -> Result<Vec<Term>> {
        let word = self.words[self.at].as_os_str();
        self.at += 1;
        if word == "(" {
            return self.nested(word, Parser::bracket);
        }
        match meaning(word).transpose()? {
            None if word.is_empty() => Err(refused(OsStr::new("''"), "it is empty")),
            None => {
                self.query.paths.push(PathBuf::from(word));
                Ok(Vec::new())
            }
            Some(Word::Not) => self.nested(word, Parser::negated),
            Some(Word::Refused(why, next)) => Err(refused(word, why).next(next)),
            Some(Word::Print) => Ok(Vec::new()),
            Some(Word::Print0) => {
                self.query.print0 = true;
                Ok(Vec::new())
            }
            Some(meaning) => self.valued(word, meaning),
        }
    }

    fn nested(
        &mut self,
        word: &'a OsStr,
        inner: fn(&mut Parser<'a>, &'a OsStr) -> Result<Vec<Term>>,
    ) -> Result<Vec<Term>> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(refused(word, format!("brackets and negations go deeper than {NESTING_MAX}")));
        }
        let terms = inner(self, word)?;
        self.nesting -= 1;
        Ok(terms)
    }

    fn bracket(&mut self, word: &'a OsStr) -> Result<Vec<Term>> {
        let terms = self.either()?;
        if self.peek() != Some(OsStr::new(")")) {
            return Err(refused(word, "its ')' is missing"));
        }
        self.at += 1;
        Ok(terms)
    }

    fn negated(&mut self, word: &'a OsStr) -> Result<Vec<Term>> {
        let is_there = self.peek().is_some_and(|next| next != ")");
        let mut terms = if is_there { self.one()? } else { Vec::new() };
        if terms.is_empty() {
            return Err(refused(word, "a predicate must follow"));
        }
        terms.push(Term::Not);
        Ok(terms)
    }

    /// A predicate with its value.
    fn valued(&mut self, word: &'a OsStr, meaning: Word) -> Result<Vec<Term>> {
        let Some(value) = self.peek() else { return Err(refused(word, "its value is missing")) };
        self.at += 1;
        let wrong = |why: Wrong| {
            let whole = format!("{} {}", word.to_string_lossy(), value.to_string_lossy());
            refused(OsStr::new(&whole), why)
        };
        if let Word::Name { fold_case } = meaning {
            let glob = value.as_bytes().to_vec();
            if glob.len() > GLOB_BYTES_MAX {
                return Err(wrong(format!("a pattern has at most {GLOB_BYTES_MAX} bytes")));
            }
            return Ok(vec![Term::Test(Test::Name { glob, fold_case })]);
        }
        if let Word::Newer(of) = meaning {
            let path = std::path::Path::new(value);
            let meta = std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
            let than = Time { secs: meta.mtime(), nanos: u32::try_from(meta.mtime_nsec()).unwrap_or(0) };
            return Ok(vec![Term::Test(Test::Newer { of, than })]);
        }
        let text = value.to_str().ok_or_else(|| wrong("it is not UTF-8".to_owned()))?;
        match meaning {
            Word::DepthMax => self.query.depth_max = values::depth(text).map_err(wrong)?,
            Word::DepthMin => self.query.depth_min = values::depth(text).map_err(wrong)?,
            _ => return tests(meaning, text).map_err(wrong),
        }
        Ok(Vec::new())
    }
}

/// The terms of a predicate with a value of text.
fn tests(meaning: Word, text: &str) -> std::result::Result<Vec<Term>, Wrong> {
    let test = match meaning {
        Word::Kind => Test::Kind(values::kinds(text)?),
        Word::Size => Test::Size(values::size(text)?),
        Word::Age(of) => values::age(of, text)?,
        Word::Minutes(of) => values::minutes(of, text)?,
        Word::User => Test::Uid(id(text, "user", users::uid_of)?),
        Word::Group => Test::Gid(id(text, "group", users::gid_of)?),
        Word::Uid => Test::Uid(values::count(text)?),
        Word::Gid => Test::Gid(values::count(text)?),
        Word::Project => Test::Project(values::count(text)?),
        Word::Links => Test::Links(values::count(text)?),
        Word::Perm => values::perm(text)?,
        Word::StripeCount => Test::StripeCount(values::stripe_count(text)?),
        Word::StripeSize => Test::StripeSize(values::size(text)?),
        Word::StripeIndex => Test::StripeIndex(values::osts(text)?),
        Word::Ost => Test::Ost(values::osts(text)?),
        Word::Components => Test::Components(values::count(text)?),
        Word::Pool => Test::Pool(text.parse()?),
        Word::Layout => {
            let kinds = values::layouts(text)?.into_iter();
            let mut terms = Vec::new();
            for (index, kind) in kinds.enumerate() {
                terms.push(Term::Test(Test::Layout(kind)));
                terms.extend((index > 0).then_some(Term::Or));
            }
            return Ok(terms);
        }
        _ => return Err("it takes no value".to_owned()),
    };
    Ok(vec![Term::Test(test)])
}

/// A user or group by name or number.
fn id(
    text: &str,
    what: &str,
    of: fn(&str) -> std::io::Result<Option<u32>>,
) -> std::result::Result<Range, Wrong> {
    let found = of(text).map_err(|e| format!("cannot look up the {what}: {e}"))?;
    let number = found.or_else(|| text.parse().ok());
    let id = number.ok_or_else(|| format!("there is no {what} of this name"))?;
    Ok(Range { min: id.into(), max: id.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::FileType;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parse(line: &str) -> Query {
        Query::parse(&words(line)).unwrap_or_else(|fault| panic!("{line}: {fault}"))
    }

    fn message(line: &str) -> String {
        Query::parse(&words(line)).expect_err(line).to_string()
    }

    fn kind(kind: FileType) -> Term {
        Term::Test(Test::Kind(vec![kind]))
    }

    fn name(glob: &str) -> Term {
        Term::Test(Test::Name { glob: glob.into(), fold_case: false })
    }

    #[test]
    fn words_of_find_and_of_lfs_mean_the_same() {
        let query = parse("/a /b -name x* --type f -maxdepth 3 -mindepth 1 -print0");
        assert_eq!(query.paths, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(query.predicate, [name("x*"), kind(FileType::Regular), Term::And]);
        assert_eq!((query.depth_min, query.depth_max, query.print0), (1, 3, true));
        assert_eq!(parse("-t f -n x /a -0").predicate, parse("/a -type f --name x").predicate);
        assert_eq!(parse("").paths, [PathBuf::from(".")]);
        assert_eq!(parse("-user root").predicate, parse("-uid 0").predicate);
    }

    #[test]
    fn and_binds_closer_than_or_and_brackets_closest() {
        let (f, d, x) = (kind(FileType::Regular), kind(FileType::Directory), name("x"));
        let of = |line: &str| parse(line).predicate;
        assert_eq!(of("-type f -o -type d -name x"), [f.clone(), d.clone(), x.clone(), Term::And, Term::Or]);
        assert_eq!(
            of("( -type f -o -type d ) -a -name x"),
            [f.clone(), d.clone(), Term::Or, x.clone(), Term::And]
        );
        assert_eq!(of("! -type f -name x"), [f.clone(), Term::Not, x, Term::And]);
        assert_eq!(of("! ! -type f"), [f.clone(), Term::Not, Term::Not]);
        assert_eq!(of("-layout raid0,mdt").len(), 3);
    }

    #[test]
    fn refusals_name_what_is_wrong_and_what_is_possible() {
        check_beginnings(&[
            ("-nmae x", "unknown predicate -nmae"),
            ("-size 5Q", "cannot search with -size 5Q"),
            ("-type x", "cannot search with -type x"),
            ("-pool fl/ash", "cannot search with -pool fl/ash"),
            ("-exec rm", "cannot search with -exec"),
            ("( -type f", "cannot search with ("),
            ("-type f )", "cannot search with )"),
            ("-type f -o", "cannot search with -o"),
            ("-a -type f", "cannot search with -a"),
            ("!", "cannot search with !"),
            ("-name", "cannot search with -name"),
            ("-user nobody-of-this-name", "cannot search with -user nobody-of-this-name"),
        ]);
    }

    fn check_beginnings(cases: &[(&str, &str)]) {
        for (line, begins) in cases {
            let text = message(line);
            assert!(text.starts_with(begins), "{line}: {text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let line = format!("{} -type f", "! ".repeat(NESTING_MAX as usize + 1));
        assert!(message(&line).contains("deeper"), "{}", message(&line));
    }
}
