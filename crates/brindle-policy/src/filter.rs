//! The part of a condition that the MDT compares itself, so that a scan answers with few entries.
//!
//! A filter passes every entry for which the condition may hold; the condition then decides. A term that the MDT cannot compare is taken
//! to hold, on both sides of a `not`.

use std::collections::BTreeMap;

use brindle_types::FileType;
use brindle_types::hsm::{HSM_ARCHIVED, HSM_NOARCHIVE, HSM_NORELEASE, HSM_RELEASED};
use brindle_wire::mds::policy::{FLAGS_MAX, FlagsMatch};
use brindle_wire::mds::scan::{Range, Stamp, TERMS_MAX, Term, Test as MdtTest};

use crate::condition::{Compare, Condition, Field, Test, Value};
use crate::entry::Names;
use crate::glob;
use crate::program::{Action, Policy, Program};

/// Terms of a filter; `None` for one that lets everything through.
type Terms = Option<Vec<Term>>;

/// Deepest nesting of classes.
const DEPTH_MAX: usize = 64;

/// A condition in the form that the MDT evaluates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The predicate.
    pub predicate: Vec<Term>,
    /// Flags.
    pub flags: Vec<FlagsMatch>,
}

/// A filter for some policies; with `for_versions` also for the files of classes that keep versions.
pub fn filter(program: &Program, policies: &[&Policy], names: &dyn Names, for_versions: bool) -> Filter {
    let classes = program.definitions();
    let make = Make { classes: &classes, names };
    let mut all: Terms = Some(never());
    let mut flags = Vec::new();
    for policy in policies {
        let rules = policy.rules.iter().map(|rule| make.terms(&rule.condition, false, 0));
        let rules = rules.fold(Some(never()), or);
        all = or(all, and(make.terms(&policy.scope, false, 0), rules));
        flags.extend(flags_of(&policy.action));
        flags.extend(policy.rules.iter().filter_map(|rule| rule.action.as_ref()).flat_map(flags_of));
    }
    if for_versions {
        for class in program.classes.values().filter(|class| class.versions.is_some()) {
            all = or(all, make.terms(&class.definition, false, 0));
        }
        flags.push(FlagsMatch { mask: 0, value: 0 });
    }
    let takes_all = flags.iter().any(|flags| flags.mask == 0) || flags.len() > FLAGS_MAX;
    flags.sort_by_key(|flags| (flags.mask, flags.value));
    flags.dedup();
    Filter {
        predicate: all.filter(|terms| terms.len() <= TERMS_MAX).unwrap_or_default(),
        flags: if takes_all { Vec::new() } else { flags },
    }
}

fn flags_of(action: &Action) -> Vec<FlagsMatch> {
    let (mask, value) = match action {
        Action::Archive => (HSM_RELEASED | HSM_NOARCHIVE, 0),
        Action::Release => (HSM_ARCHIVED | HSM_RELEASED | HSM_NORELEASE, HSM_ARCHIVED),
        Action::RemoveCopy => (HSM_RELEASED, 0),
        Action::Unlink | Action::Rmdir | Action::Log | Action::Command(_) => (0, 0),
    };
    vec![FlagsMatch { mask, value }]
}

fn never() -> Vec<Term> {
    vec![Term::Test(MdtTest::Kind(Vec::new()))]
}

fn is_never(terms: &[Term]) -> bool {
    matches!(terms, [Term::Test(MdtTest::Kind(kinds))] if kinds.is_empty())
}

fn or(a: Terms, b: Terms) -> Terms {
    let (mut a, b) = (a?, b?);
    if is_never(&a) {
        return Some(b);
    }
    if !is_never(&b) {
        a.extend(b);
        a.push(Term::Or);
    }
    Some(a)
}

fn and(a: Terms, b: Terms) -> Terms {
    match (a, b) {
        (None, other) | (other, None) => other,
        (Some(mut a), Some(b)) => {
            a.extend(b);
            a.push(Term::And);
            Some(a)
        }
    }
}

struct Make<'a> {
    classes: &'a BTreeMap<String, Condition>,
    names: &'a dyn Names,
}

impl Make<'_> {
    fn terms(&self, condition: &Condition, negated: bool, depth: usize) -> Terms {
        if depth > DEPTH_MAX {
            return None;
        }
        match condition {
            Condition::Constant(value) if *value == negated => Some(never()),
            Condition::Constant(_) => None,
            Condition::Test(test)
                if test.field == Field::LastAccess && !asks_for_old(test.compare, negated) =>
            {
                None
            }
            Condition::Test(test) => {
                let mut terms = vec![Term::Test(self.test(test)?)];
                if negated != is_opposite(test) {
                    terms.push(Term::Not);
                }
                Some(terms)
            }
            Condition::Class(name, _) => {
                self.terms(self.classes.get(&name.to_ascii_lowercase())?, negated, depth + 1)
            }
            Condition::Not(inner) => self.terms(inner, !negated, depth + 1),
            Condition::And(a, b) | Condition::Or(a, b) => {
                let is_and = matches!(condition, Condition::And(..)) != negated;
                let (a, b) = (self.terms(a, negated, depth + 1), self.terms(b, negated, depth + 1));
                if is_and { and(a, b) } else { or(a, b) }
            }
        }
    }

    /// The MDT's test, or that of the opposite ([`is_opposite`]).
    fn test(&self, test: &Test) -> Option<MdtTest> {
        let number = |n: u64| range(test.compare, n);
        Some(match (&test.field, &test.value) {
            (Field::LastMod, Value::Secs(secs)) => age(Stamp::Modify, test.compare, *secs)?,
            (Field::LastChange, Value::Secs(secs)) => age(Stamp::Change, test.compare, *secs)?,
            (Field::LastAccess, Value::Secs(secs)) => age(Stamp::Access, test.compare, *secs)?,
            (Field::Creation, Value::Secs(secs)) => age(Stamp::Birth, test.compare, *secs)?,
            (Field::Size, Value::Bytes(bytes)) => MdtTest::Size(number(*bytes)?),
            (Field::Links, Value::Number(n)) => MdtTest::Links(number(*n)?),
            (Field::Type, Value::Kind(kind)) => MdtTest::Kind(vec![*kind]),
            (Field::DirCount, Value::Number(_)) => MdtTest::Kind(vec![FileType::Directory]),
            (Field::Owner, Value::Text(name)) if !glob::is_pattern(name) => {
                MdtTest::Uid(exactly(self.names.uid(name)?))
            }
            (Field::Group, Value::Text(name)) if !glob::is_pattern(name) => {
                MdtTest::Gid(exactly(self.names.gid(name)?))
            }
            (Field::Name, Value::Text(pattern))
                if !pattern.contains(['[', '\\']) && !pattern.contains("**") =>
            {
                MdtTest::Name { glob: pattern.clone().into_bytes(), fold_case: false }
            }
            (Field::Pool, Value::Text(name)) if !glob::is_pattern(name) => MdtTest::Pool(name.parse().ok()?),
            _ => return None,
        })
        .filter(|_| test.field != Field::DirCount)
    }
}

fn exactly(n: u32) -> Range {
    Range { min: n.into(), max: n.into() }
}

/// Whether the MDT's test says the opposite of this one.
fn is_opposite(test: &Test) -> bool {
    test.compare == Compare::Unequal
}

/// The numbers that a comparison is true of; those of `==` for `!=`.
fn range(compare: Compare, n: u64) -> Option<Range> {
    Some(match compare {
        Compare::Equal | Compare::Unequal => Range { min: n, max: n },
        Compare::Less => Range { min: 0, max: n.checked_sub(1)? },
        Compare::AtMost => Range { min: 0, max: n },
        Compare::More => Range { min: n.checked_add(1)?, max: u64::MAX },
        Compare::AtLeast => Range { min: n, max: u64::MAX },
    })
}

/// Whether a comparison of ages holds for old entries only. Entries count as read at the time that the MDT has, or later
/// ([`crate::entry::Entry::unread_since`]): the MDT can tell only which ones are not old.
fn asks_for_old(compare: Compare, negated: bool) -> bool {
    match compare {
        Compare::More | Compare::AtLeast => !negated,
        Compare::Less | Compare::AtMost => negated,
        Compare::Equal | Compare::Unequal => false,
    }
}

/// Ages are whole seconds in conditions and exact at the MDT.
fn age(of: Stamp, compare: Compare, secs: u64) -> Option<MdtTest> {
    let next = secs.checked_add(1)?;
    let (at_least_secs, below_secs) = match compare {
        Compare::Equal | Compare::Unequal => (Some(secs), Some(next)),
        Compare::Less => (None, Some(secs)),
        Compare::AtMost => (None, Some(next)),
        Compare::More => (Some(next), None),
        Compare::AtLeast => (Some(secs), None),
    };
    Some(MdtTest::Age { of, at_least_secs, below_secs })
}

#[cfg(test)]
mod tests {
    use brindle_types::attr::Time;

    use super::*;
    use crate::condition::{Context, age_secs};
    use crate::entry::{Entry, NoNames};
    use crate::lex::Pos;

    const NOW: Time = Time { secs: 1_000_000, nanos: 0 };

    /// Answer of the MDT to a filter of ages, by the time that it has.
    fn passes(terms: &Terms, atime: Time) -> bool {
        let Some(terms) = terms else { return true };
        let mut stack: Vec<bool> = Vec::new();
        let age = u64::try_from(age_secs(NOW, atime)).unwrap();
        for term in terms {
            let value = match term {
                Term::Test(MdtTest::Age { of: Stamp::Access, at_least_secs, below_secs }) => {
                    at_least_secs.is_none_or(|least| age >= least)
                        && below_secs.is_none_or(|below| age < below)
                }
                Term::Not => !stack.pop().unwrap(),
                other => panic!("{other:?}"),
            };
            stack.push(value);
        }
        stack == [true]
    }

    #[test]
    fn no_filter_of_access_times_hides_a_file_that_counts_as_read_later_than_the_mdt_has() {
        let compares = [
            Compare::Equal,
            Compare::Unequal,
            Compare::Less,
            Compare::AtMost,
            Compare::More,
            Compare::AtLeast,
        ];
        let classes = BTreeMap::new();
        let make = Make { classes: &classes, names: &NoNames };
        let pos = Pos { file: "t".into(), line: 1, column: 1 };
        let mut narrowed = 0;
        for compare in compares {
            let test = Test { field: Field::LastAccess, compare, value: Value::Secs(100), pos: pos.clone() };
            let plain = Condition::Test(test);
            for condition in [plain.clone(), Condition::Not(Box::new(plain))] {
                let terms = make.terms(&condition, false, 0);
                narrowed += usize::from(terms.is_some());
                for (atime, unread) in (0..6).flat_map(|a| (0..=a).map(move |u| (a * 50, u * 50))) {
                    let at = |age| Time { secs: NOW.secs - age, nanos: 0 };
                    let entry =
                        Entry { atime: at(atime), unread_since: Some(at(unread)), ..Entry::new("/f") };
                    let context = Context { now: NOW, names: &NoNames, classes: &classes, superseded: None };
                    if condition.eval(&entry, &context) == Some(true) {
                        assert!(passes(&terms, entry.atime), "{condition}: {atime} s and {unread} s ago");
                    }
                }
            }
        }
        assert_eq!(narrowed, 4, "what is asked for most, old files, is chosen by the MDT");
    }
}
