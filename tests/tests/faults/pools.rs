//! Pools on a real cluster: files lie on the OSTs of their pool, also after servers that know the
//! pool were killed.

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;

/// Files of each look.
const FILES: usize = 6;

/// The OSTs of new files in a directory.
fn osts_of_new_files(cluster: &Cluster, dir: &str, run: usize) -> Vec<String> {
    let mut osts = Vec::new();
    for n in 0..FILES {
        let path = cluster.a().join(dir).join(format!("{run}-{n}"));
        std::fs::write(&path, vec![7; 64 << 10]).unwrap();
        let said = cluster.lfs(&["getstripe", "-i", &path.display().to_string()]);
        osts.push(said.trim().to_owned());
    }
    osts.sort();
    osts.dedup();
    osts
}

#[test]
fn files_stay_in_their_pool_through_kills() {
    seed("pools");
    let cluster = Cluster::up("pools", &Options { osts: 4, mounts: 2, ..Options::default() });
    let state = cluster.dir().display().to_string();
    let pool = |words: &[&str]| {
        let said = cluster.brindle(&[&["pool"], words, &["--dir", &state]].concat());
        assert!(said.ok(), "brindle pool {words:?}: {said}");
    };
    pool(&["create", "flash", "1", "3"]);
    let dir = cluster.a().join("d");
    std::fs::create_dir(&dir).unwrap();
    cluster.lfs(&["setstripe", "-c", "1", "-p", "flash", &dir.display().to_string()]);
    assert_eq!(osts_of_new_files(&cluster, "d", 0), ["1", "3"]);
    cluster.kill(&["mgs", "mdt0"]);
    cluster.start(&["mgs", "mdt0"]);
    assert_eq!(osts_of_new_files(&cluster, "d", 1), ["1", "3"]);

    let in_pool = cluster.lfs(&["find", &cluster.b().display().to_string(), "-type", "f", "-pool", "flash"]);
    assert_eq!(in_pool.lines().count(), 2 * FILES, "{in_pool}");
    let none = cluster.lfs(&[
        "find",
        &cluster.b().display().to_string(),
        "-pool",
        "disk",
        "-o",
        "!",
        "-type",
        "d",
        "!",
        "-pool",
        "flash",
    ]);
    // The search finds nothing, and says that one of the pools does not exist.
    assert!(none.starts_with("warning: no such pool dev.disk\n") && !none.contains('/'), "{none}");

    // A change of the pool concerns the next file.
    pool(&["add", "flash", "0"]);
    pool(&["remove", "flash", "3"]);
    assert_eq!(osts_of_new_files(&cluster, "d", 2), ["0", "1"]);
    let said = cluster.lfs(&["df", "-p", "flash", &cluster.b().display().to_string()]);
    assert!(said.contains("dev-OST0000_UUID") && !said.contains("dev-OST0003_UUID"), "{said}");

    // Without OSTs it refuses; destroyed, it is as if it had not been named.
    pool(&["remove", "flash", "0-1"]);
    let refused = std::fs::write(dir.join("none"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "{refused}");
    assert!(!dir.join("none").exists());
    pool(&["destroy", "flash"]);
    assert_eq!(osts_of_new_files(&cluster, "d", 3).len(), 4);
    cluster.assert_sound();
}
