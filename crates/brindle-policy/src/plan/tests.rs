//! Plans against a model: every entry judged by the plainest reading of the rules, every limit checked.

use std::collections::BTreeMap;

use brindle_types::attr::Time;
use brindle_types::hsm::HSM_EXISTS;
use brindle_types::{FileType, HsmKind, Ino};
use proptest::prelude::*;

use super::*;
use crate::entry::NoNames;
use crate::lex::words_of;
use crate::versions::Versions;

const NOW: Time = Time { secs: 1_000_000, nanos: 0 };

fn program(text: &str) -> Program {
    Program::of(&words_of(text).unwrap()).unwrap()
}

fn file(n: u64, age_secs: i64, mib: u64, flags: u32) -> Entry {
    Entry {
        ino: Ino(n),
        size_bytes: mib << 20,
        allocated_bytes: mib << 20,
        mtime: Time { secs: NOW.secs - age_secs, nanos: n as u32 },
        flags,
        ..Entry::new(&format!("/d/f{n}"))
    }
}

const COPIED: u32 = HSM_EXISTS | HSM_ARCHIVED;

fn plan(program: &Program, policy: usize, target: Target, entries: &[Entry]) -> Plan {
    let seen = BTreeMap::new();
    let judge = Judge::new(program, &program.policies[policy], &NoNames, &seen);
    let mut chooser = Chooser::new(judge, target);
    entries.iter().for_each(|entry| chooser.offer(entry, NOW));
    chooser.finish()
}

fn numbers(plan: &Plan) -> Vec<u64> {
    plan.chosen.iter().map(|chosen| chosen.entry.ino.0).collect()
}

#[test]
fn the_oldest_go_until_the_target_is_reached() {
    let program = program("purge_rules { rule default { condition { last_mod > 1min } } }");
    let entries = [
        file(1, 500, 10, COPIED),
        file(2, 900, 10, COPIED),
        file(3, 700, 10, COPIED | HSM_DIRTY),
        file(4, 800, 10, COPIED),
        file(5, 30, 10, COPIED),
        file(6, 950, 10, COPIED | HSM_RELEASED),
        Entry { under_way: Some(HsmKind::Archive), ..file(7, 960, 10, COPIED) },
    ];
    let free = |mib: u64| Target { free_bytes: Some(mib << 20), ..Target::all("x") };
    let some = plan(&program, 0, free(15), &entries);
    assert_eq!((numbers(&some), some.is_reached, some.matched), (vec![2, 4], true, 3));
    let all = plan(&program, 0, free(100), &entries);
    assert_eq!((numbers(&all), all.is_reached), (vec![2, 4, 1], false));
}

#[test]
fn the_first_rule_that_is_for_a_file_decides() {
    let program = program(
        "fileclass big { definition { size >= 10MB } } fileclass odd { definition { xattr.user.x == y } }
         migration_rules { ignore { name == f4 } rule default { condition { last_mod > 1h } }
           rule late { target_fileclass = big; condition { last_mod > 2h } } rule o { target_fileclass = odd; condition = true; } }",
    );
    let with = |entry: Entry, xattr| Entry { xattrs: vec![("user.x".into(), xattr)], ..entry };
    let none = crate::entry::Xattr::None;
    let judge_of = |entry: &Entry| {
        let seen = BTreeMap::new();
        Judge::new(&program, &program.policies[0], &NoNames, &seen).judge(entry, NOW)
    };
    assert_eq!(judge_of(&with(file(1, 4000, 20, 0), none.clone())), Verdict::Leave(Leave::Condition(0)));
    assert_eq!(judge_of(&with(file(2, 8000, 20, 0), none.clone())), Verdict::Act { rule: 0 });
    assert_eq!(judge_of(&with(file(3, 4000, 1, 0), none.clone())), Verdict::Act { rule: 2 });
    assert!(matches!(judge_of(&with(file(4, 4000, 1, 0), none)), Verdict::Leave(Leave::Ignored(_))));
    // The file may be in a class: the default is not for it.
    let unknown = with(file(5, 4000, 1, 0), crate::entry::Xattr::Unknown);
    assert_eq!(judge_of(&unknown), Verdict::Leave(Leave::Unknown(1)));
}

#[test]
fn the_newest_versions_stay_and_superseded_ones_are_archived() {
    let program = program(
        "fileclass ckpt { definition { name == \"ckpt.*\" } keep_newest = 2; version_pattern = \"ckpt.{n}\"; }
         migration_rules { rule default { condition { superseded == yes } } } purge_rules { rule default { condition = true; } }",
    );
    let versions: Versions = program.classes["ckpt"].versions.clone().unwrap();
    let mut seen = Seen::new(versions);
    let named = |n: u64, flags| Entry { path: format!("/r/ckpt.{n}"), ..file(n, 10, 1, flags) };
    (1..=4).for_each(|n| seen.add(&named(n, 0).path));
    let seen = BTreeMap::from([("ckpt".to_owned(), seen)]);
    let judged = |policy: usize, entry: &Entry| {
        matches!(
            Judge::new(&program, &program.policies[policy], &NoNames, &seen).judge(entry, NOW),
            Verdict::Act { .. }
        )
    };
    let archived: Vec<bool> = (1..=4).map(|n| judged(0, &named(n, 0))).collect();
    assert_eq!(archived, [true, true, true, false]);
    let released: Vec<bool> = (1..=4).map(|n| judged(1, &named(n, COPIED))).collect();
    assert_eq!(released, [true, true, false, false]);
}

#[test]
fn a_deletion_has_a_largest_count_and_names_why() {
    let program = program(
        "cleanup_rules { rule default { condition { last_mod > 1d } } } cleanup_parameters { max_action_count = 2; }",
    );
    let old: Vec<Entry> = (1..=5).map(|n| file(n, 100_000 + n as i64, 1, 0)).collect();
    let plan = plan(&program, 0, Target::all("x"), &old);
    assert_eq!((numbers(&plan), plan.matched), (vec![5, 4], 5));
    let seen = BTreeMap::new();
    let judge = Judge::new(&program, &program.policies[0], &NoNames, &seen);
    assert_eq!(
        judge.explain(&old[0], NOW),
        ["cleanup: unlink by the rule 'default'", "    last_mod > 1d: yes"]
    );
    let young = judge.explain(&file(9, 5, 1, 0), NOW);
    assert_eq!(
        young,
        ["cleanup: nothing: the condition of the rule 'default' does not hold", "    last_mod > 1d: no"]
    );
    let dir = Entry { kind: FileType::Directory, ..file(1, 100_000, 0, 0) };
    assert!(judge.explain(&dir, NOW)[0].contains("not about it"));
}

proptest! {
    #[test]
    fn plans_are_those_of_a_model(
        files in prop::collection::vec((0..200i64, 0..20u64, prop::bits::u32::masked(0x7f), 0..3u32), 0..40),
        free_mib in 0..100u64,
        most in 1..30u64,
    ) {
        let text = format!("purge_rules {{ ignore {{ owner == 2 }} rule default {{ condition {{ last_mod > 100 and size > 2MB }} }} }}
                            purge_parameters {{ max_action_count = {most}; }}");
        let program = program(&text);
        let entries: Vec<Entry> = files.iter().enumerate().map(|(n, (age, mib, flags, uid))| {
            Entry { uid: *uid, ..file(n as u64, *age, *mib, *flags) }
        }).collect();
        let plan = plan(&program, 0, Target { free_bytes: Some(free_mib << 20), ..Target::all("x") }, &entries);
        let mut model: Vec<(i64, u64)> = files.iter().enumerate().filter_map(|(n, (age, mib, flags, uid))| {
            let is_good = flags & (HSM_ARCHIVED | HSM_DIRTY | HSM_RELEASED | HSM_NORELEASE | HSM_LOST) == HSM_ARCHIVED;
            // (The nanoseconds make all but the first a little younger.)
            (*age - i64::from(n > 0) > 100 && *mib > 2 && *uid != 2 && is_good).then_some((-*age, n as u64))
        }).collect();
        model.sort_unstable();
        prop_assert_eq!(plan.matched, model.len() as u64);
        let (mut bytes, mut expected) = (0, Vec::new());
        for (_, n) in model {
            if bytes >= free_mib || expected.len() as u64 >= most {
                break;
            }
            bytes += files[n as usize].1;
            expected.push(n);
        }
        prop_assert_eq!(numbers(&plan), expected);
        prop_assert_eq!(plan.is_reached, bytes >= free_mib);
    }
}
