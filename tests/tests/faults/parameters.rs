//! `lctl` on a real cluster: values that it reads are true, values that it sets have their effect,
//! and a dead OST is reported.

use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;

/// Files that are made to see where they go.
const FILES: usize = 8;
/// Longest time until a mount finds out that an OST has gone, or is back.
const SEEN_LIMIT: Duration = Duration::from_secs(10);

/// `lctl ...` in this cluster.
fn lctl(cluster: &Cluster, words: &[&str]) -> String {
    let dir = cluster.dir().display().to_string();
    let said = cluster.brindle(&[&["lctl"], words, &["--dir", &dir]].concat());
    assert!(said.ok(), "{said}");
    said.stdout
}

fn await_state(cluster: &Cluster, state: &str) {
    let since = Instant::now();
    while !lctl(cluster, &["get_param", "-n", "osc.*OST0001*.ost_server_uuid"])
        .ends_with(&format!("\t{state}\n"))
    {
        assert!(since.elapsed() < SEEN_LIMIT, "the connection to OST0001 is not {state}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn lctl_tells_what_is_so_and_sets_what_has_an_effect() {
    seed("parameters");
    let cluster = Cluster::up("parameters", &Options { osts: 2, mounts: 1, ..Options::default() });
    let a = cluster.a().to_owned();
    let numbers =
        lctl(&cluster, &["get_param", "-n", "lov.*.numobd", "lov.*.stripecount", "mdt.*.num_exports"]);
    assert_eq!(numbers, "2\n1\n1\n");
    let total = lctl(&cluster, &["get_param", "-n", "llite.*.kbytestotal"]);
    let df = cluster.lfs(&["df", &a.display().to_string()]);
    assert!(df.contains(&format!("{:<20} {:>11} ", "filesystem_summary:", total.trim())), "{total}{df}");

    lctl(&cluster, &["set_param", "llite.*.max_read_ahead_mb=2"]);
    assert_eq!(lctl(&cluster, &["get_param", "-n", "llite.*.max_read_ahead_mb"]), "2\n");
    lctl(&cluster, &["set_param", "obdfilter.*OST0001.no_create=1"]);
    for n in 0..FILES {
        let path = a.join(format!("f{n}"));
        std::fs::write(&path, vec![7; 64 << 10]).unwrap();
        assert_eq!(cluster.lfs(&["getstripe", "-i", &path.display().to_string()]), "0\n");
    }
    lctl(&cluster, &["set_param", "obdfilter.*OST0001.no_create=0"]);

    await_state(&cluster, "FULL");
    cluster.kill(&["ost1"]);
    await_state(&cluster, "DISCONN");
    assert!(lctl(&cluster, &["get_param", "osc.*OST0001*.import"]).contains("\n    state: DISCONN\n"));
    assert!(lctl(&cluster, &["get_param", "health_check"]).ends_with("unhealthy\nNOT HEALTHY\n"));
    cluster.start(&["ost1"]);
    await_state(&cluster, "FULL");
    cluster.assert_sound();
}
