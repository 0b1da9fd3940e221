use std::collections::BTreeMap;

use brindle_types::attr::Time;
use brindle_types::hsm::{HSM_ARCHIVED, HSM_EXISTS};
use brindle_types::{FileType, HsmKind};
use proptest::prelude::*;

use super::*;
use crate::entry::NoNames;
use crate::lex::words_of;

fn read(text: &str) -> Result<Condition> {
    let words = words_of(text)?;
    let mut words = Words::new(&words);
    let condition = parse(&mut words)?;
    match words.peek().kind {
        Kind::End => Ok(condition),
        _ => Err(words.peek().pos.wrong("more follows")),
    }
}

fn holds(text: &str, entry: &Entry) -> Option<bool> {
    let classes = BTreeMap::from([("big".to_owned(), read("size > 1GB").unwrap())]);
    let now = Time { secs: 1_000_000, nanos: 0 };
    let context = Context { now, names: &NoNames, classes: &classes, superseded: None };
    read(text).unwrap().eval(entry, &context)
}

fn file() -> Entry {
    Entry {
        size_bytes: 2 << 30,
        uid: 1042,
        mtime: Time { secs: 999_000, nanos: 0 },
        pools: vec!["flash".to_owned()],
        osts: vec![3, 5],
        xattrs: vec![
            ("user.project".to_owned(), Xattr::Value("climate".to_owned())),
            ("user.long".to_owned(), Xattr::Unknown),
        ],
        ..Entry::new("/runs/a/ckpt.0001")
    }
}

#[test]
fn criteria_are_compared() {
    let yes = [
        "last_mod > 5min",
        "last_mod <= 1000",
        "size >= 2GB and not size > 2GB",
        "owner == 1042",
        "group == 0",
        "tree == \"/runs\"",
        "tree == '/runs/*'",
        "tree == runs",
        "path == \"/runs/**\"",
        "path == /runs/*/ckpt.*",
        "name == \"ckpt.[0-9]*\"",
        "iname == 'CKPT.*'",
        "ost_pool == flash",
        "ost_index == 5 and ost_index != 4",
        "xattr.user.project == \"cli*\"",
        "xattr.user.none != x or true",
        "type == file and type != directory",
        "depth == 3",
        "nlink == 1",
        "status == new",
        "fileclass == big and class == BIG",
        "no_archive == no",
        "false or (true and not false)",
        "LAST_MOD > 5min AND NOT type == symlink",
    ];
    for text in yes {
        assert_eq!(holds(text, &file()), Some(true), "{text}");
    }
    let no = [
        "tree == /run",
        "path == /runs/*",
        "name == ckpt",
        "size < 2GB",
        "ost_pool == disk",
        "last_mod > 1000",
    ];
    for text in no {
        assert_eq!(holds(text, &file()), Some(false), "{text}");
    }
}

#[test]
fn what_is_not_known_is_neither_so_nor_not_so() {
    for text in ["xattr.user.long == x", "not xattr.user.long == x", "xattr.user.other == x", "dircount == 0"]
    {
        assert_eq!(holds(text, &file()), None, "{text}");
    }
    assert_eq!(holds("xattr.user.long == x and false", &file()), Some(false));
    assert_eq!(holds("xattr.user.long == x or true", &file()), Some(true));
    let strange = Entry { is_exact: false, ..file() };
    assert_eq!(holds("not tree == /keep", &strange), None);
    assert_eq!(holds("superseded == yes", &file()), None);
}

#[test]
fn the_status_has_robinhoods_words() {
    let with = |flags, under_way| Entry { flags, under_way, ..file() };
    assert_eq!(holds("status == synchro", &with(HSM_EXISTS | HSM_ARCHIVED, None)), Some(true));
    assert_eq!(holds("status == modified", &with(HSM_EXISTS | HSM_ARCHIVED | HSM_DIRTY, None)), Some(true));
    assert_eq!(
        holds("lhsm.status == released", &with(HSM_EXISTS | HSM_ARCHIVED | HSM_RELEASED, None)),
        Some(true)
    );
    assert_eq!(holds("status == archiving", &with(0, Some(HsmKind::Archive))), Some(true));
    let dir = Entry { kind: FileType::Directory, is_empty_dir: true, ..file() };
    assert_eq!((holds("status != new", &dir), holds("dircount == 0", &dir)), (None, Some(true)));
}

#[test]
fn nothing_is_known_of_the_last_access_where_none_is_kept() {
    let at = |secs| Some(Time { secs, nanos: 0 });
    let with = |unread_since| Entry { atime: Time::default(), unread_since, ..file() };
    for text in ["last_access > 30d", "not last_access > 30d", "last_access < 1h or last_access >= 1h"] {
        assert_eq!(holds(text, &with(None)), None, "{text}");
    }
    assert_eq!(holds("last_access >= 1000", &with(at(999_000))), Some(true));
    assert_eq!(holds("last_access > 1000", &with(at(999_000))), Some(false));
    assert_eq!(holds("last_access > 0", &with(at(2_000_000))), Some(false), "a time to come");
}

#[test]
fn what_is_wrong_is_named_with_line_and_column() {
    let cases = [
        ("last_mode > 5min", "t.conf:1:1", "did you mean 'last_mod'"),
        ("size > 1GB and\n  last_mod > 5mins", "t.conf:2:14", "no duration"),
        ("size", "t.conf:1:1", "comparison is missing"),
        ("size >", "t.conf:1:6", "value for 'size' is missing"),
        ("(size > 1", "t.conf:1:9", "')' is missing"),
        ("owner > bob", "t.conf:1:1", "== or !="),
        ("type == fish", "t.conf:1:9", "no type"),
        ("status == odd", "t.conf:1:11", "no status"),
        ("external_command(\"x\")", "t.conf:1:1", "not carried out"),
        ("rm_time > 1d", "t.conf:1:1", "not known of files"),
        ("dircount > 5", "t.conf:1:12", "whether it is empty"),
    ];
    for (text, place, why) in cases {
        let fault = read(text).unwrap_err().to_string();
        assert!(fault.contains(place) && fault.contains(why), "{text}: {fault}");
    }
    assert!(read(&"not ".repeat(100)).is_err() && read(&"(".repeat(100)).is_err());
}

fn leaf() -> impl Strategy<Value = String> {
    let sign = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let equal = prop_oneof![Just("=="), Just("<>")];
    prop_oneof![
        (
            prop_oneof![Just("last_mod"), Just("creation"), Just("last_mdchange"), Just("last_access")],
            sign.clone(),
            0..1_000_000u64
        )
            .prop_map(|(key, sign, n)| format!("{key} {sign} {n}")),
        (sign.clone(), any::<u32>()).prop_map(|(sign, n)| format!("size {sign} {n}")),
        (sign, 0..9u8).prop_map(|(sign, n)| format!("depth {sign} {n}")),
        (
            prop_oneof![Just("tree"), Just("name"), Just("owner"), Just("xattr.user.a")],
            equal,
            "[a-z/*?.$ ']{1,8}"
        )
            .prop_map(|(key, equal, text)| format!("{key} {equal} \"{text}\"")),
        Just("type == dir".to_owned()),
        Just("no_release == off".to_owned()),
        Just("true".to_owned()),
        Just("(some_class)".to_owned()),
    ]
}

fn any_condition() -> impl Strategy<Value = String> {
    leaf().prop_recursive(5, 40, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| format!("not ({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} and {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} OR ({b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a}) union {b}")),
        ]
    })
}

/// A condition without its places.
fn shape(condition: &Condition) -> Condition {
    let pos = Pos { file: "".into(), line: 0, column: 0 };
    match condition {
        Condition::Test(test) => Condition::Test(Test { pos, ..test.clone() }),
        Condition::Class(name, _) => Condition::Class(name.clone(), pos),
        Condition::Not(inner) => Condition::Not(Box::new(shape(inner))),
        Condition::And(a, b) => Condition::And(Box::new(shape(a)), Box::new(shape(b))),
        Condition::Or(a, b) => Condition::Or(Box::new(shape(a)), Box::new(shape(b))),
        Condition::Constant(value) => Condition::Constant(*value),
    }
}

proptest! {
    #[test]
    fn a_printed_condition_is_read_as_the_same(text in any_condition()) {
        // (A `$` in front of a letter is a variable.)
        let text = text.replace('$', "");
        let once = read(&text).unwrap();
        let again = read(&once.to_string()).unwrap();
        prop_assert_eq!(shape(&once), shape(&again), "{} -> {}", text, once);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z_ =<>!(){}\"'0-9%;,.$#\n]{0,80}") {
        if let Ok(words) = words_of(&text) {
            // The outcome does not matter; it ends, and panics nowhere.
            let _ = crate::Program::of(&words);
        }
    }
}
