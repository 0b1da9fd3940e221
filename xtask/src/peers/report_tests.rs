//! Tables from made-up samples.

use super::*;

fn described(name: &'static str, role: Role) -> Described {
    Described { name, role, version: "1".to_owned(), settings: "as shipped".to_owned() }
}

fn record(system: &'static str, repetition: u32, group: &'static str, mounts: u32, value: f64) -> Record {
    let case = if group == "easy" { "easy: file per process" } else { "hard: shared file, 47008 B in turns" };
    let sample = Sample { value, bytes: 1 << 30, cpu_seconds: Some(2.0), ..Sample::default() };
    let unit = Unit::MibPerSecond;
    let (case, phase) = (case.to_owned(), "write".to_owned());
    Record { system, repetition, group, case, mounts, phase, unit, sample, load: 1.0 }
}

fn systems() -> Vec<Described> {
    vec![
        described("brindle", Role::Ours),
        described("gluster", Role::Peer),
        described("moosefs", Role::Peer),
        described("passthrough", Role::Passthrough),
        described("ext4", Role::Local),
    ]
}

#[test]
fn a_row_names_the_best_peer_and_its_floor() {
    let mut records = Vec::new();
    for repetition in 1..=3 {
        for (system, value) in [("brindle", 700.0), ("gluster", 300.0), ("moosefs", 200.0), ("ext4", 1000.0)]
        {
            records.push(record(system, repetition, "easy", 1, value));
        }
    }
    let systems = systems();
    let lines = Table { systems: &systems, records: &records }.lines();
    assert_eq!(lines.len(), 1, "only what was measured");
    assert_eq!(lines[0].peer, Some("gluster"));
    assert_eq!(lines[0].judged.verdict, Verdict::Pass);
    let table = ratios(&lines);
    let row = table.lines().nth(2).unwrap();
    assert!(
        row.contains("| gluster 300 | 2.33 [2.33-2.33] of 2 | ext4   | 0.70 [0.70-0.70] of 0.8 |"),
        "{row}"
    );
    assert!(row.contains("| 700 MiB/s | 2.00 s/GiB |") && row.ends_with("| 1.17     | pass    |"), "{row}");
    assert_eq!(count(&lines), "1 pass, 0 fail, 0 undecided, 0 not measured");
}

#[test]
fn two_mounts_are_a_row_of_their_own_and_the_passthrough_has_one() {
    let records = [
        record("brindle", 1, "hard", 1, 100.0),
        record("brindle", 1, "hard", 2, 50.0),
        record("gluster", 1, "hard", 1, 100.0),
        record("gluster", 1, "hard", 2, 40.0),
        record("passthrough", 1, "hard", 1, 100.0),
    ];
    let systems = systems();
    let lines = Table { systems: &systems, records: &records }.lines();
    assert_eq!(lines.iter().map(|l| l.mounts).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(lines[0].judged.verdict, Verdict::Pass, "0.8 of the passthrough");
    assert_eq!(
        lines[1].judged.to_floor.unwrap().median,
        50.0 / 80.0,
        "2 of gluster and 0.8 of the passthrough"
    );
    assert_eq!(lines[1].judged.verdict, Verdict::Fail);
}

#[test]
fn a_row_without_its_yardstick_is_not_judged() {
    let records = [record("brindle", 1, "hard", 1, 100.0), record("gluster", 1, "hard", 1, 10.0)];
    let systems = systems();
    let lines = Table { systems: &systems, records: &records }.lines();
    assert_eq!(lines[0].judged.verdict, Verdict::Missing);
    assert_eq!(lines[0].judged.to_peer.unwrap().median, 10.0);
}

#[test]
fn failures_are_told_in_short_and_name_no_directory_of_this_machine() {
    let about = About {
        root: "/home/x/brindle".to_owned(),
        date: String::new(),
        commit: String::new(),
        changed: false,
        machine: Value::Null,
        load_before: 0.0,
        load_after: 0.0,
    };
    let why = "error: cannot write /mnt/data\n  why:  File exists\n  next: look\n(exit code 1; whole log: /home/x/brindle/log)";
    assert_eq!(about.in_short(why), "error: cannot write /mnt/data; why:  File exists");
    assert_eq!(about.in_short("'/home/x/brindle/a' failed\nmore"), "'./a' failed");
}

#[test]
fn a_run_does_not_replace_another() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(free_stem(dir.path(), "run"), "run");
    std::fs::write(dir.path().join("run.json"), "").unwrap();
    std::fs::write(dir.path().join("run-2.md"), "").unwrap();
    assert_eq!(free_stem(dir.path(), "run"), "run-3");
}

#[test]
fn systems_with_copies_are_beside_those_with_as_many() {
    let mut records = Vec::new();
    for repetition in 1..=3 {
        for (system, value) in [
            ("brindle-1", 700.0),
            ("brindle-2", 350.0),
            ("brindle-3", 200.0),
            ("ceph-2", 100.0),
            ("gluster-2", 150.0),
            ("gluster-3", 190.0),
        ] {
            records.push(record(system, repetition, "easy", 1, value));
        }
    }
    let names = ["brindle-1", "brindle-2", "brindle-3", "ceph-2", "gluster-2", "gluster-3"];
    let with_copies = names.map(|name| described(name, Role::Shown));
    let table = Table { systems: &with_copies, records: &records };
    let told = copies::ratios(&table, &table.lines()).unwrap();
    let row = |n: usize| told.lines().nth(n).unwrap().split('|').map(str::trim).collect::<Vec<_>>();
    assert_eq!(row(2)[2..8], ["2", "350 MiB/s", "gluster-2 150", "2.33 [2.33-2.33] of 2", "pass", "1.00"]);
    assert_eq!(row(3)[2..8], ["3", "200 MiB/s", "gluster-3 190", "1.05 [1.05-1.05] of 2", "fail", "0.86"]);
    let plain = systems();
    assert_eq!(copies::ratios(&Table { systems: &plain, records: &[] }, &[]), None);
}
