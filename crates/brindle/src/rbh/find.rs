//! `rbh-find`: entries by their attributes, in Robinhood's options: all of them must hold, in any order; `-not` negates the next one.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brindle_admin::nearest::nearest;
use brindle_admin::osts::ost_list;
use brindle_policy::{Names, glob};
use brindle_types::units::{size_unit, time_unit};
use brindle_types::{Code, Fault, FileType, Result};
use brindle_wire::mds::scan::{GLOB_BYTES_MAX, Range, Stamp, Term, Test};
use winnow::Parser;
use winnow::ascii::Caseless;
use winnow::combinator::{alt, eof};
use winnow::error::ContextError;

use super::{Known, Scan, ScannedEntry, not_here, start, status_of, type_of};
use crate::exit::Done;
use crate::find::values::{DAY_S, Sign, count, range, signed};
use crate::format::runtime;
use crate::policy::text::HostNames;
use crate::print;
use brindle_host::users;

/// The options, for `--help`.
pub const HELP: &str = "\
Usage: rbh-find [PATH]... [OPTION]...
All options must hold; -not (-!) turns the next one round.
  -user NAME|ID  -group NAME|ID  -nouser  -nogroup
  -type f|d|l|b|c|p|s
  -size [+-]N[KMGT]       bytes, more than, less than
  -name GLOB  -iname GLOB  -links [+-]N
  -mtime|-ctime|-crtime|-atime [+-]N[smhdy]   age, in days without a unit; -mmin, -amin: minutes; -msec: seconds
  -status lhsm:new|modified|archiving|synchro|released|retrieving
  -class NAME             of the policy text given by -f FILE
  -ost N[,N-M]  -pool NAME
  -ls                     type, mode, links, owner, group, size, time of the last change, path
  -lsost  -lsclass  -lsstatus    OSTs, class, status of each
  -print  -print0
Root only; brindle file find is for everybody, and has -perm, -newer, -o and brackets. Not here: -exec, -printf, -projid.";

/// Arguments of `rbh-find`.
#[derive(clap::Args)]
#[command(disable_version_flag = true, disable_help_flag = true, after_help = HELP)]
pub struct Args {
    /// Where to look, then what for
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PATH|OPTION")]
    words: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    User,
    Group,
    NoUser,
    NoGroup,
    Kind,
    Size,
    Name { fold_case: bool },
    Links,
    Age(Stamp),
    Minutes(Stamp),
    Seconds(Stamp),
    Class,
    Status,
    Ost,
    Pool,
    Config,
    Level,
    Ls,
    LsOst,
    LsClass,
    LsStatus,
    Print,
    Print0,
    Not,
    NoBulk,
    Help,
    Refused(&'static str),
}

impl Word {
    /// Whether it says what to print, or how to search.
    fn is_no_test(self) -> bool {
        matches!(
            self,
            Word::Config
                | Word::Level
                | Word::Ls
                | Word::LsOst
                | Word::LsClass
                | Word::LsStatus
                | Word::Print
                | Word::Print0
                | Word::NoBulk
        )
    }
}

const PIPE: &str = "pipe the paths: rbh-find ... -print0 | xargs -0 ...";

const WORDS: &[(&str, Word)] = &[
    ("user", Word::User),
    ("u", Word::User),
    ("group", Word::Group),
    ("g", Word::Group),
    ("nouser", Word::NoUser),
    ("U", Word::NoUser),
    ("nogroup", Word::NoGroup),
    ("G", Word::NoGroup),
    ("type", Word::Kind),
    ("t", Word::Kind),
    ("size", Word::Size),
    ("s", Word::Size),
    ("name", Word::Name { fold_case: false }),
    ("n", Word::Name { fold_case: false }),
    ("iname", Word::Name { fold_case: true }),
    ("links", Word::Links),
    ("mtime", Word::Age(Stamp::Modify)),
    ("M", Word::Age(Stamp::Modify)),
    ("mmin", Word::Minutes(Stamp::Modify)),
    ("m", Word::Minutes(Stamp::Modify)),
    ("msec", Word::Seconds(Stamp::Modify)),
    ("z", Word::Seconds(Stamp::Modify)),
    ("crtime", Word::Age(Stamp::Birth)),
    ("c", Word::Age(Stamp::Birth)),
    ("ctime", Word::Age(Stamp::Change)),
    ("C", Word::Age(Stamp::Change)),
    ("atime", Word::Age(Stamp::Access)),
    ("A", Word::Age(Stamp::Access)),
    ("amin", Word::Minutes(Stamp::Access)),
    ("class", Word::Class),
    ("F", Word::Class),
    ("status", Word::Status),
    ("S", Word::Status),
    ("ost", Word::Ost),
    ("o", Word::Ost),
    ("pool", Word::Pool),
    ("P", Word::Pool),
    ("config-file", Word::Config),
    ("f", Word::Config),
    ("debug-level", Word::Level),
    ("d", Word::Level),
    ("ls", Word::Ls),
    ("l", Word::Ls),
    ("lsost", Word::LsOst),
    ("O", Word::LsOst),
    ("lsclass", Word::LsClass),
    ("lsstatus", Word::LsStatus),
    ("print", Word::Print),
    ("print0", Word::Print0),
    ("not", Word::Not),
    ("!", Word::Not),
    ("nobulk", Word::NoBulk),
    ("b", Word::NoBulk),
    ("help", Word::Help),
    ("h", Word::Help),
    ("exec", Word::Refused(PIPE)),
    ("E", Word::Refused(PIPE)),
    ("printf", Word::Refused("-ls prints what there is; brindle file find -o json is for programs")),
    ("projid", Word::Refused("quota of projects: lfs quota -p")),
    ("p", Word::Refused("quota of projects: lfs quota -p")),
];

/// A test that is made here, since the scan cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Late {
    NoUser,
    NoGroup,
    Class(String),
    Status(String),
}

/// Columns of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Show {
    ls: bool,
    osts: bool,
    class: bool,
    status: bool,
    print0: bool,
}

/// A command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    paths: Vec<PathBuf>,
    terms: Vec<Vec<Term>>,
    late: Vec<(Late, bool)>,
    text: Option<PathBuf>,
    show: Show,
    is_help: bool,
}

fn refused(word: &OsStr, why: impl Into<String>) -> Fault {
    let subject = word.to_string_lossy().into_owned();
    Fault::new(Code::BadArgument).what("cannot search with").subject(subject).why(why.into())
}

/// The numbers of a user or group.
pub fn id_of(option: &str, text: &str, of: fn(&str) -> std::io::Result<Option<u32>>) -> Result<Range> {
    let option = OsString::from(format!("{option} {text}"));
    let found = of(text).map_err(|e| refused(&option, format!("names cannot be looked up: {e}")))?;
    let id = found.or_else(|| text.parse().ok()).ok_or_else(|| refused(&option, "nobody has this name"))?;
    Ok(Range { min: id.into(), max: id.into() })
}

/// All of these terms, in postfix order.
pub fn all_of(terms: Vec<Vec<Term>>) -> Vec<Term> {
    let ands = terms.len().saturating_sub(1);
    terms.into_iter().flatten().chain(std::iter::repeat_n(Term::And, ands)).collect()
}

/// Seconds of a year, as Robinhood counts them.
const YEAR_S: u64 = 31_557_600;

/// A number with a sign and a unit, which `unit` reads; `units` are those that a message names.
fn measured<'a, U>(unit: U, text: &'a str, units: &str) -> std::result::Result<(Sign, u64, u64), String>
where
    U: Parser<&'a str, u64, ContextError>,
{
    let ((sign, n), unit) =
        (signed, unit).parse(text).map_err(|wrong| match text.split_at(wrong.offset()) {
            (number, unit) if number.ends_with(|c: char| c.is_ascii_digit()) => {
                format!("'{unit}' is no unit: {units}")
            }
            _ => format!("'{text}' is not a number such as 4, +4 or -4"),
        })?;
    Ok((sign, n, unit))
}

/// Bytes exactly, as Robinhood compares them.
fn size(text: &str) -> std::result::Result<Range, String> {
    let (sign, n, unit) = measured(alt((size_unit, eof.value(1))), text, "K, M, G, T or P")?;
    let bytes = n.checked_mul(unit).ok_or("it is larger than any file")?;
    Ok(range((sign, bytes)))
}

/// An age in units of `unit_s`; in a unit that the text may name where there is none.
fn age(of: Stamp, text: &str, unit_s: Option<u64>) -> std::result::Result<Test, String> {
    let (sign, n, unit_s) = match unit_s {
        Some(unit_s) => measured(eof.value(unit_s), text, "this option has its unit")?,
        None => {
            let year = Caseless("y").value(YEAR_S);
            measured(alt((year, time_unit, eof.value(DAY_S))), text, "s, m, h, d or y")?
        }
    };
    let age = n.checked_mul(unit_s).ok_or("it is longer than anything")?;
    let next = age.saturating_add(1);
    let (at_least_secs, below_secs) = match sign {
        Sign::More => (Some(next), None),
        Sign::Less => (None, Some(age)),
        Sign::Equal => (Some(age), Some(next)),
    };
    Ok(Test::Age { of, at_least_secs, below_secs })
}

struct QueryParser<'a> {
    words: std::slice::Iter<'a, OsString>,
    query: Query,
    is_not: bool,
}

impl Query {
    fn parse(words: &[OsString]) -> Result<Query> {
        let mut parser = QueryParser { words: words.iter(), query: Query::default(), is_not: false };
        while let Some(word) = parser.words.next() {
            parser.word(word)?;
        }
        match parser.is_not {
            false => Ok(parser.query),
            true => Err(refused(OsStr::new("-not"), "nothing follows it")),
        }
    }
}

impl QueryParser<'_> {
    fn word(&mut self, word: &OsStr) -> Result<()> {
        let text = word.to_string_lossy();
        if text == "!" {
            self.is_not = !self.is_not;
            return Ok(());
        }
        let Some(option) =
            text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|rest| !rest.is_empty())
        else {
            self.query.paths.push(PathBuf::from(word));
            return Ok(());
        };
        let (option, given) = match option.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (option, None),
        };
        let Some((_, known)) = WORDS.iter().find(|(name, _)| *name == option) else {
            let known: Vec<&str> =
                WORDS.iter().map(|(name, _)| *name).filter(|name| name.len() > 1).collect();
            let near = nearest(option, known.iter().copied())
                .map(|near| format!("did you mean -{near}? "))
                .unwrap_or_default();
            return Err(refused(word, "there is no such option")
                .next(format!("{near}There are -{}", known.join(" -"))));
        };
        self.known(word, *known, given)
    }

    fn value(&mut self, word: &OsStr, given: Option<String>) -> Result<String> {
        let next = given.map(OsString::from).or_else(|| self.words.next().cloned());
        let value = next.ok_or_else(|| refused(word, "a value must follow"))?;
        value.into_string().map_err(|_| refused(word, "its value is not UTF-8"))
    }

    fn known(&mut self, word: &OsStr, known: Word, given: Option<String>) -> Result<()> {
        if self.is_not && known.is_no_test() {
            return Err(refused(word, "-not turns the test behind it round, and this is none")
                .next("put -not before the test itself"));
        }
        let show = &mut self.query.show;
        match known {
            Word::Not => self.is_not = !self.is_not,
            Word::Ls => show.ls = true,
            Word::LsOst => show.osts = true,
            Word::LsClass => show.class = true,
            // The word may be followed by the name of a policy; there is only one.
            Word::LsStatus => show.status = true,
            Word::Print0 => show.print0 = true,
            Word::Print | Word::NoBulk => {}
            Word::Help => self.query.is_help = true,
            Word::NoUser => self.late(Late::NoUser),
            Word::NoGroup => self.late(Late::NoGroup),
            Word::Refused(next) => {
                return Err(not_here(&word.to_string_lossy(), "the search is done in the MDT", next));
            }
            Word::Config => self.query.text = Some(PathBuf::from(self.value(word, given)?)),
            Word::Level => drop(self.value(word, given)?),
            Word::Class => {
                let class = self.value(word, given)?;
                self.late(Late::Class(class));
            }
            Word::Status => {
                let value = self.value(word, given)?;
                let status = status_of(&value).map_err(|why| refused(word, why))?;
                self.query.show.status = true;
                self.late(Late::Status(status));
            }
            _ => {
                let value = self.value(word, given)?;
                let test = test(known, &value)?.map_err(|why| {
                    refused(&OsString::from(format!("{} {value}", word.to_string_lossy())), why)
                })?;
                self.test(test);
            }
        }
        Ok(())
    }

    fn test(&mut self, test: Test) {
        let mut term = vec![Term::Test(test)];
        if std::mem::take(&mut self.is_not) {
            term.push(Term::Not);
        }
        self.query.terms.push(term);
    }

    fn late(&mut self, late: Late) {
        let is_not = std::mem::take(&mut self.is_not);
        self.query.late.push((late, is_not));
    }
}

/// The test of an option with a value.
fn test(word: Word, value: &str) -> Result<std::result::Result<Test, String>> {
    Ok(match word {
        Word::User => Ok(Test::Uid(id_of("-user", value, users::uid_of)?)),
        Word::Group => Ok(Test::Gid(id_of("-group", value, users::gid_of)?)),
        Word::Kind => type_of(value).map(|kind| Test::Kind(vec![kind])),
        Word::Size => size(value).map(Test::Size),
        Word::Name { .. } if value.len() > GLOB_BYTES_MAX => {
            Err(format!("more than {GLOB_BYTES_MAX} letters"))
        }
        Word::Name { fold_case } => Ok(Test::Name { glob: value.as_bytes().to_vec(), fold_case }),
        Word::Links => count(value).map(Test::Links),
        Word::Age(of) => age(of, value, None),
        Word::Minutes(of) => age(of, value, Some(60)),
        Word::Seconds(of) => age(of, value, Some(1)),
        Word::Ost => ost_list(value).map(Test::Ost),
        Word::Pool => value.parse().map(Test::Pool),
        _ => Err("it takes no value".to_owned()),
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let mut query = Query::parse(&args.words)?;
    if query.is_help {
        println!("{HELP}");
        return Ok(Done::Ok);
    }
    let by_class = query.show.class || query.late.iter().any(|(late, _)| matches!(late, Late::Class(_)));
    if by_class && query.text.is_none() {
        return Err(not_here(
            "class",
            "classes stand in a policy text, and none is given",
            "give it: -f FILE",
        ));
    }
    if query.paths.is_empty() {
        query.paths.push(start(None)?);
    }
    let predicate = all_of(std::mem::take(&mut query.terms));
    let mut out = std::io::BufWriter::new(std::io::stdout());
    runtime()?.block_on(async {
        let mut known = Known::default();
        for path in &query.paths {
            let mut scan = Scan::begin(path, predicate.clone(), query.text.as_deref()).await?;
            let printed = async {
                while let Some(page) = scan.next().await? {
                    for found in page
                        .iter()
                        .filter(|found| query.late.iter().all(|(late, is_not)| late.holds(found) != *is_not))
                    {
                        let target = match query.show.ls && found.attr.kind == FileType::Symlink {
                            true => Some(scan.client.readlink(found.attr.ino).await?),
                            false => None,
                        };
                        let line = query.show.line(found, target.as_deref(), &mut known);
                        out.write_all(&line).map_err(|e| print::fault(&e))?;
                    }
                    out.flush().map_err(|e| print::fault(&e))?;
                }
                Ok::<_, Fault>(())
            };
            let printed = printed.await;
            scan.client.unmount().await;
            printed?;
        }
        Ok(Done::Ok)
    })
}

impl Late {
    fn holds(&self, found: &ScannedEntry) -> bool {
        match self {
            Late::NoUser => HostNames.user(found.attr.uid).is_none(),
            Late::NoGroup => HostNames.group(found.attr.gid).is_none(),
            Late::Status(status) => found.status_text() == status,
            Late::Class(class) => {
                let classes = found.class.as_deref().unwrap_or_default().to_lowercase();
                classes.split('+').any(|known| glob::matches(&class.to_lowercase(), known))
            }
        }
    }
}

/// The word for a type in a line of -ls.
fn short_type(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "link",
        FileType::CharDevice => "char",
        other => super::type_name(other),
    }
}

/// `rwxr-xr-x`, with set-id and sticky bits.
fn mode_text(mode: u16) -> String {
    let mut text = String::new();
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

impl Show {
    fn line(self, found: &ScannedEntry, target: Option<&[u8]>, known: &mut Known) -> Vec<u8> {
        let attr = &found.attr;
        let mut line = String::new();
        // Writing to a String cannot fail.
        if self.ls {
            let (user, group) = (known.user(attr.uid).to_owned(), known.group(attr.gid).to_owned());
            let _ = write!(
                line,
                "{} {:<4} {} {:>3}  {user:<10} {group:<10} {:>15} {:>20} ",
                attr.ino.fid(),
                short_type(attr.kind),
                mode_text(attr.perm),
                attr.nlink,
                attr.size_bytes,
                super::date(attr.mtime.secs)
            );
        } else if self.osts || self.class || self.status {
            let _ = write!(line, "{} {:<4} {:>15} ", attr.ino.fid(), short_type(attr.kind), attr.size_bytes);
        }
        if self.status {
            let _ = write!(line, " {:<15} ", found.status_text());
        }
        if self.class {
            let _ = write!(line, " {:<20} ", found.class_text());
        }
        let mut line = line.into_bytes();
        line.extend_from_slice(found.path.as_os_str().as_bytes());
        if let Some(target) = target {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(target);
        }
        if self.osts && !found.entry.osts.is_empty() {
            let osts: Vec<String> = found.entry.osts.iter().map(|ost| format!("ost{ost}")).collect();
            line.extend_from_slice(format!("  {}", osts.join(",")).as_bytes());
        }
        line.push(if self.print0 { 0 } else { b'\n' });
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(line: &str) -> Query {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Query::parse(&words).unwrap_or_else(|fault| panic!("{line}: {fault}"))
    }

    fn message(line: &str) -> String {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Query::parse(&words).expect_err(line).to_string()
    }

    #[test]
    fn options_are_taken_in_any_order_and_all_must_hold() {
        let found = query("/mnt/a -type f -size +1K /mnt/b -not -user root -status lhsm:released -ls");
        assert_eq!(found.paths, [PathBuf::from("/mnt/a"), PathBuf::from("/mnt/b")]);
        let uid = vec![Term::Test(Test::Uid(Range { min: 0, max: 0 })), Term::Not];
        let size = vec![Term::Test(Test::Size(Range { min: 1025, max: u64::MAX }))];
        assert_eq!(found.terms, [vec![Term::Test(Test::Kind(vec![FileType::Regular]))], size, uid]);
        assert_eq!(all_of(found.terms).iter().filter(|term| **term == Term::And).count(), 2);
        assert_eq!(found.late, [(Late::Status("released".to_owned()), false)]);
        assert!(found.show.ls && found.show.status);
        assert_eq!(query("! -class=big -f x").late, [(Late::Class("big".to_owned()), true)]);
    }

    #[test]
    fn ages_and_sizes_are_compared_as_robinhood_does() {
        let age = |text: &str| match age(Stamp::Modify, text, None) {
            Ok(Test::Age { at_least_secs, below_secs, .. }) => (at_least_secs, below_secs),
            other => panic!("{other:?}"),
        };
        assert_eq!(age("+1d"), (Some(86_401), None));
        assert_eq!(age("-2h"), (None, Some(7200)));
        assert_eq!(age("3s"), (Some(3), Some(4)));
        assert_eq!(size("-1M"), Ok(Range { min: 0, max: (1 << 20) - 1 }));
        assert_eq!(size("5"), Ok(Range { min: 5, max: 5 }));
        assert_eq!(ost_list("3,5-7"), Ok(vec![3, 5, 6, 7]));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        let unknown = message("-nmae x");
        assert!(unknown.contains("did you mean -name?") && unknown.contains("-lsstatus"), "{unknown}");
        assert!(message("-exec rm").contains("xargs"));
        assert!(message("-status lhsm:gone").contains("lhsm:released"));
        assert!(message("-size 5Q").contains("no unit"));
        assert!(message("-type").contains("value must follow"));
        assert!(message("-mmin 5d").contains("has its unit"));
        assert!(message("-not").contains("nothing follows"));
        assert!(message("-not -ls -user root").contains("before the test"));
    }

    #[test]
    fn modes_are_shown_as_ls_shows_them() {
        assert_eq!(mode_text(0o644), "rw-r--r--");
        assert_eq!(mode_text(0o4751), "rwsr-x--x");
        assert_eq!(mode_text(0o1766), "rwxrw-rwT");
    }
}
