//! Predicates: whether an entry matches, decided from its directory entry alone where that is enough.

use brindle_net::Limits;
use brindle_types::attr::Time;
use brindle_types::layout::Component;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::scan::{GLOB_BYTES_MAX, LayoutKind, PermMatch, Stamp, TERMS_MAX, Term, Test};

use super::glob::Glob;
use crate::store::Inode;
use crate::store::dirent::Dirent;

/// Most numbers in one test: OSTs, types.
const LIST_MAX: usize = 4096;

/// A checked predicate.
pub struct Predicate<'a> {
    terms: Vec<Compiled>,
    began: Time,
    /// The host that asks, where owners may have other numbers there.
    host: Option<&'a Limits>,
}

enum Compiled {
    Name(Glob),
    Test(Test),
    Not,
    And,
    Or,
}

fn refused(why: String) -> Fault {
    Fault::new(Code::InvalidArgument).what("cannot use the predicate").why(why)
}

impl<'a> Predicate<'a> {
    /// Checks a predicate; ages are those at `began`.
    pub fn new(terms: &[Term], began: Time) -> Result<Predicate<'a>> {
        if terms.len() > TERMS_MAX {
            return Err(refused(format!("it has {} terms; at most {TERMS_MAX} are allowed", terms.len())));
        }
        let mut depth = 0_usize;
        for term in terms {
            let (takes, what) = match term {
                Term::Test(_) => (0, "a test"),
                Term::Not => (1, "a negation"),
                Term::And | Term::Or => (2, "a conjunction"),
            };
            depth =
                depth.checked_sub(takes).ok_or_else(|| refused(format!("{what} has nothing to work on")))?
                    + 1;
        }
        if depth > 1 {
            return Err(refused(format!("{depth} tests are not joined")));
        }
        Ok(Predicate { terms: terms.iter().map(compile).collect::<Result<_>>()?, began, host: None })
    }

    /// Owners are looked for as a host sees them.
    pub fn seen_by(self, host: Option<&'a Limits>) -> Predicate<'a> {
        Predicate { host, ..self }
    }

    /// Whether an entry matches; `None` if that takes its inode, and there is none.
    pub fn matches(&self, name: &[u8], entry: &Dirent, inode: Option<&Inode>) -> Option<bool> {
        let mut stack: Vec<Option<bool>> = Vec::with_capacity(4);
        for term in &self.terms {
            let value = match term {
                Compiled::Name(glob) => Some(glob.matches(name)),
                Compiled::Test(Test::Kind(kinds)) => Some(kinds.contains(&entry.kind)),
                Compiled::Test(test) => inode.map(|inode| self.test(test, inode)),
                Compiled::Not => stack.pop().flatten().map(|v| !v),
                Compiled::And => join(stack.pop().flatten(), stack.pop().flatten(), false),
                Compiled::Or => join(stack.pop().flatten(), stack.pop().flatten(), true),
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(Some(true))
    }

    fn test(&self, test: &Test, inode: &Inode) -> bool {
        match test {
            // Decided before there is an inode.
            Test::Name { .. } | Test::Kind(_) => true,
            Test::Size(range) => range.holds(inode.size_bytes),
            Test::Age { of, at_least_secs, below_secs } => {
                let age = nanos(self.began) - nanos(stamp(inode, *of));
                at_least_secs.is_none_or(|secs| age >= i128::from(secs) * NANOS)
                    && below_secs.is_none_or(|secs| age < i128::from(secs) * NANOS)
            }
            Test::Newer { of, than } => stamp(inode, *of) > *than,
            Test::Uid(range) => {
                range.holds(self.host.map_or(inode.uid, |host| host.uid_to_host(inode.uid)).into())
            }
            Test::Gid(range) => {
                range.holds(self.host.map_or(inode.gid, |host| host.gid_to_host(inode.gid)).into())
            }
            Test::Links(range) => range.holds(inode.nlink.into()),
            Test::Project(range) => range.holds(inode.project.into()),
            Test::Perm { how, bits } => match how {
                PermMatch::Exact => inode.perm == *bits,
                PermMatch::All => inode.perm & bits == *bits,
                PermMatch::Any => *bits == 0 || inode.perm & bits != 0,
            },
            Test::StripeCount(_)
            | Test::StripeSize(_)
            | Test::StripeIndex(_)
            | Test::Ost(_)
            | Test::Layout(_)
            | Test::Components(_)
            | Test::Pool(_) => test_layout(test, inode),
        }
    }
}

/// Joins two values. One that equals `decisive` decides alone; otherwise both must be known.
fn join(a: Option<bool>, b: Option<bool>, decisive: bool) -> Option<bool> {
    match (a, b) {
        (Some(v), _) | (_, Some(v)) if v == decisive => Some(decisive),
        (Some(_), Some(_)) => Some(!decisive),
        _ => None,
    }
}

fn compile(term: &Term) -> Result<Compiled> {
    let too_long =
        |n: usize, max: usize| refused(format!("{n} values in one test; at most {max} are allowed"));
    Ok(match term {
        Term::Test(Test::Name { glob, .. }) if glob.len() > GLOB_BYTES_MAX => {
            return Err(refused(format!(
                "a pattern of {} bytes; at most {GLOB_BYTES_MAX} are allowed",
                glob.len()
            )));
        }
        Term::Test(Test::Name { glob, fold_case }) => Compiled::Name(Glob::new(glob, *fold_case)),
        Term::Test(Test::StripeIndex(list) | Test::Ost(list)) if list.len() > LIST_MAX => {
            return Err(too_long(list.len(), LIST_MAX));
        }
        Term::Test(Test::Kind(list)) if list.len() > LIST_MAX => return Err(too_long(list.len(), LIST_MAX)),
        Term::Test(test) => Compiled::Test(test.clone()),
        Term::Not => Compiled::Not,
        Term::And => Compiled::And,
        Term::Or => Compiled::Or,
    })
}

/// Nanoseconds in a second.
const NANOS: i128 = 1_000_000_000;

fn nanos(time: Time) -> i128 {
    i128::from(time.secs) * NANOS + i128::from(time.nanos)
}

fn stamp(inode: &Inode, of: Stamp) -> Time {
    match of {
        Stamp::Access => inode.atime,
        Stamp::Modify => inode.mtime,
        Stamp::Change => inode.ctime,
        Stamp::Birth => inode.btime,
    }
}

fn test_layout(test: &Test, inode: &Inode) -> bool {
    let Some(layout) = inode.file.as_ref().map(|file| &file.layout) else { return false };
    let is_in_mdt = layout.inline && inode.size_bytes > 0;
    // The main component is the last one that has objects, else the first, as in lfs.
    let placed = layout.components.iter().rev().find(|c| c.is_placed());
    let Some(main) = placed.or(layout.components.first()) else { return false };
    match test {
        Test::StripeCount(range) => range.holds(stripe_count(main)),
        Test::StripeSize(range) => range.holds(main.stripe_size_bytes.into()),
        Test::StripeIndex(list) => first_ost(main).is_some_and(|ost| list.contains(&ost)),
        Test::Ost(list) => inode.may_have_objects() && layout.stripes().any(|(_, ost)| list.contains(&ost)),
        Test::Layout(LayoutKind::Raid0) => !is_in_mdt,
        Test::Layout(LayoutKind::Mdt) => is_in_mdt,
        Test::Layout(LayoutKind::Composite) => layout.components.len() > 1,
        Test::Components(range) => range.holds(layout.components.len() as u64),
        Test::Pool(name) => layout.components.iter().any(|c| c.asked.pool() == Some(name)),
        _ => false,
    }
}

fn stripe_count(component: &Component) -> u64 {
    if component.is_placed() {
        return component.osts.len() as u64;
    }
    let asked = &component.asked;
    match (asked.osts.len() as u64, asked.count) {
        (0, None | Some(0)) => 1,
        (0, Some(count)) => u64::try_from(count).unwrap_or(u64::MAX),
        (listed, _) => listed,
    }
}

fn first_ost(component: &Component) -> Option<u16> {
    let asked = &component.asked;
    let chosen = component.osts.first().or(asked.osts.first()).copied();
    chosen.or_else(|| asked.start_ost.and_then(|ost| u16::try_from(ost).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{FileType, Ino};
    use brindle_wire::mds::scan::Range;

    fn name(glob: &str) -> Term {
        Term::Test(Test::Name { glob: glob.into(), fold_case: false })
    }

    fn any_size() -> Term {
        Term::Test(Test::Size(Range { min: 0, max: u64::MAX }))
    }

    #[test]
    fn an_inode_is_asked_for_only_where_it_decides() {
        let entry = Dirent { ino: Ino(5), kind: FileType::Regular };
        let matches = |terms: &[Term]| {
            Predicate::new(terms, Time::default()).expect("good").matches(b"a.c", &entry, None)
        };
        assert_eq!(matches(&[]), Some(true));
        assert_eq!(matches(&[name("*.c")]), Some(true));
        assert_eq!(matches(&[name("*.h"), any_size(), Term::And]), Some(false));
        assert_eq!(matches(&[name("*.c"), any_size(), Term::And]), None);
        assert_eq!(matches(&[any_size(), name("*.c"), Term::Or]), Some(true));
        assert_eq!(matches(&[any_size(), Term::Not]), None);
        assert_eq!(matches(&[Term::Test(Test::Kind(vec![FileType::Directory])), Term::Not]), Some(true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let why = |terms: &[Term]| {
            Predicate::new(terms, Time::default()).err().map(|fault| fault.why[0].to_string())
        };
        assert_eq!(why(&[Term::Not]).as_deref(), Some("a negation has nothing to work on"));
        assert_eq!(why(&[name("a"), Term::And]).as_deref(), Some("a conjunction has nothing to work on"));
        assert_eq!(why(&[name("a"), name("b")]).as_deref(), Some("2 tests are not joined"));
        assert!(why(&vec![Term::Not; TERMS_MAX + 1]).is_some());
        assert!(why(&[name(&"x".repeat(GLOB_BYTES_MAX + 1))]).is_some());
    }
}
