//! Removals of files in a directory that several clients change: a removal removes exactly the present
//! file.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::users::{ANN, BOB, run_as};

use crate::dice::seed;
use crate::leases::{leased, settle};

/// Number of changes of each kind.
const ROUNDS: usize = 4;
/// Far more than it takes where nobody waits for a server that is away.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// Change by another client before this one removes the name, the path that this one removes, and the
/// expected result.
type Replaced = (&'static str, fn(&Path), &'static str, Result<(), Option<i32>>);

const REPLACED: [Replaced; 6] = [
    ("gone", |_| (), "", Err(Some(libc::ENOENT))),
    ("file", |name| fs::write(name, b"another").unwrap(), "", Ok(())),
    ("directory", |name| fs::create_dir(name).unwrap(), "", Err(Some(libc::EISDIR))),
    ("link", |name| symlink("nowhere", name).unwrap(), "", Ok(())),
    ("inner", |name| fill(name, "file"), "file", Ok(())),
    // The name is met twice.
    ("twice", |name| fill(name, "twice"), "twice", Ok(())),
];

fn fill(dir: &Path, name: &str) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join(name), b"inside").unwrap();
}

#[test]
fn a_name_that_another_client_has_given_to_something_else_is_removed_as_what_it_is_now() {
    seed("leases-replaced");
    let cluster = Cluster::up("leases-replaced", &Options { osts: 1, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("x/shared"), cluster.mounts()[1].join("x/shared"));
    fs::create_dir_all(&a).unwrap();
    leased(&cluster, a.parent().unwrap());
    // Neither client has the lease of a directory that both have just changed.
    let contest = || {
        for n in 0..4 {
            let names = [a.join(format!("a{n}")), b.join(format!("b{n}"))];
            names.iter().for_each(|name| drop(File::create(name).unwrap()));
            names.iter().for_each(|name| fs::remove_file(name).unwrap());
        }
    };
    for round in 0..ROUNDS {
        for (kind, replace, inner, expected) in REPLACED {
            contest();
            let name = a.join(kind);
            drop(File::create(&name).unwrap());
            contest();
            fs::remove_file(b.join(kind)).unwrap();
            replace(&b.join(kind));
            let path = if inner.is_empty() { name.clone() } else { name.join(inner) };
            let removed = fs::remove_file(&path).map_err(|fault| fault.raw_os_error());
            assert_eq!(removed, expected, "{kind} in round {round}");
            let left = fs::symlink_metadata(b.join(kind).join(inner)).is_ok();
            assert_eq!(left, kind == "directory", "{kind} in round {round}");
            if fs::symlink_metadata(b.join(kind)).is_ok() {
                fs::remove_dir(b.join(kind)).unwrap();
            }
        }
    }
    // In a directory with the sticky bit its owner counts: of the file that is there now.
    fs::set_permissions(&a, PermissionsExt::from_mode(0o1777)).unwrap();
    leased(&cluster, a.parent().unwrap());
    contest();
    run_as(ANN, || drop(File::create(a.join("kept")).unwrap()));
    contest();
    fs::remove_file(b.join("kept")).unwrap();
    run_as(BOB, || drop(File::create(b.join("kept")).unwrap()));
    let removed = run_as(ANN, || fs::remove_file(a.join("kept")));
    assert_eq!(removed.map_err(|fault| fault.kind()), Err(ErrorKind::PermissionDenied));
    cluster.assert_sound();
}

#[test]
fn files_are_removed_while_the_osts_of_their_objects_are_away() {
    seed("removals-away");
    let cluster = Cluster::up("removals-away", &Options { osts: 2, mounts: 2, ..Options::default() });
    let name = |n: usize| format!("f{n}");
    for n in 0..4 * ROUNDS {
        let mut file = File::create(cluster.a().join(name(n))).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
    }
    settle(&cluster);
    cluster.kill(&["ost0", "ost1"]);
    // A request to an OST would wait until the OST is started again, which happens only after this.
    let (done, is_done) = std::sync::mpsc::channel();
    let paths: Vec<_> = (0..4 * ROUNDS).map(|n| cluster.mounts()[n % 2].join(name(n))).collect();
    let removing = std::thread::spawn(move || {
        paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(REMOVED_WITHIN).expect("they are removed without an OST");
    removing.join().unwrap();
    assert_eq!(fs::read_dir(cluster.b()).unwrap().count(), 0);
    cluster.start(&["ost0", "ost1"]);
    fs::write(cluster.b().join("next"), vec![7; 100_000]).unwrap();
    cluster.assert_sound();
}
