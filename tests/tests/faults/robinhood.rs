//! Robinhood's commands report the figures of a walk through the mount, in Robinhood's columns.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::users::{ANN, BOB, run_as};

use crate::dice::seed;
use crate::tiering::{archive, release, text, wait};

fn walk(dir: &Path, each: &mut impl FnMut(&Path, &fs::Metadata)) {
    each(dir, &dir.symlink_metadata().unwrap());
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let meta = entry.metadata().unwrap();
        match meta.is_dir() {
            true => walk(&entry.path(), each),
            false => each(&entry.path(), &meta),
        }
    }
}

fn kind(meta: &fs::Metadata) -> &'static str {
    match (meta.is_dir(), meta.is_symlink()) {
        (true, _) => "dir",
        (_, true) => "symlink",
        _ => "file",
    }
}

/// The cells of each line of a table that was printed with `--csv -q`.
fn cells(table: &str) -> Vec<Vec<String>> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn run(cluster: &Cluster, words: &[&str]) -> String {
    let out = cluster.brindle(words);
    assert!(out.ok(), "{}: {out}", words.join(" "));
    out.stdout
}

fn make_tree(cluster: &Cluster) -> PathBuf {
    let top = cluster.a().join("project");
    for (dir, count, user) in [("ann", 12_u64, ANN), ("bob", 3, BOB), ("both/deep", 5, ANN)] {
        let dir = top.join(dir);
        fs::create_dir_all(&dir).unwrap();
        for n in 0..count {
            let path = dir.join(format!("f{n}.dat"));
            fs::write(&path, bytes(n, 1000 * (n as usize + 1) * count as usize)).unwrap();
            std::os::unix::fs::chown(&path, Some(user.uid), Some(user.gid)).unwrap();
        }
    }
    fs::create_dir(top.join("empty")).unwrap();
    symlink("ann/f0.dat", top.join("link")).unwrap();
    fs::hard_link(top.join("ann/f1.dat"), top.join("bob/the same")).unwrap();
    top
}

#[test]
fn reports_and_searches_agree_with_a_walk() {
    seed("robinhood");
    let options = Options { osts: 2, archive: true, ..Options::default() };
    let cluster = Cluster::up("robinhood", &options);
    let top = make_tree(&cluster);
    let path = text(&top);
    // By type: count and sizes. A file with two names counts once.
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    walk(&top, &mut |_, meta| {
        if meta.is_dir() || meta.nlink() == 1 || seen.insert(meta.ino()) {
            let sum = sums.entry(kind(meta)).or_default();
            *sum = (sum.0 + 1, sum.1 + meta.len());
        }
    });
    // The MDT learns of the last write when a file is closed, and closing goes on behind the program.
    wait("the report says what the walk has found", || {
        let rows = cells(&run(&cluster, &["rbh-report", "-i", "--csv", "-q", "-P", path]));
        let is_right = |row: &Vec<String>| {
            let (count, size) = sums[row[0].as_str()];
            row[1..3] == [count.to_string(), size.to_string()]
        };
        rows.len() == sums.len() && rows.iter().all(is_right)
    });
    // Without `-q` the report is in words, with titles and a sum.
    let words = run(&cluster, &["rbh-report", "-i", "-P", path]);
    let titles = "    type,      count,     volume,   spc_used,   min_size,   max_size,   avg_size";
    assert!(words.lines().any(|line| line == titles), "{words}");
    assert!(words.contains("\nTotal: ") && words.contains(" entries, volume: "), "{words}");
    users_and_tops(&cluster, path);
    searches(&cluster, &top);
    cluster.assert_sound();
}

fn users_and_tops(cluster: &Cluster, path: &str) {
    let (ann, bob) = (ANN.uid.to_string(), BOB.uid.to_string());
    let users = cells(&run(cluster, &["rbh-report", "--user-info", "--csv", "-q", "-P", path]));
    let of = |who: &str, kind: &str| {
        users.iter().find(|row| row[0] == who && row[1] == kind).map(|row| row[2].clone())
    };
    assert_eq!(
        (of(&ann, "file"), of(&bob, "file")),
        (Some("17".to_owned()), Some("3".to_owned())),
        "{users:?}"
    );
    let one = cells(&run(cluster, &["rbh-report", "-u", &bob, "-S", "--csv", "-q", "-P", path]));
    assert!(
        one.len() == 1
            && one[0][..4] == [bob.clone(), BOB.gid.to_string(), "file".to_owned(), "3".to_owned()],
        "{one:?}"
    );
    let top = cells(&run(cluster, &["rbh-report", "--top-users=1", "--csv", "-q", "-P", path]));
    assert_eq!((top.len(), top[0][..2].to_vec()), (1, vec!["1".to_owned(), ann]), "{top:?}");
    let dirs = cells(&run(cluster, &["rbh-report", "-d", "2", "--csv", "-q", "-P", path]));
    assert_eq!(dirs[0][1..3], [format!("{path}/ann"), "12".to_owned()], "{dirs:?}");
    assert_eq!(dirs[1][2], "5", "{dirs:?}");
    let size = cells(&run(cluster, &["rbh-report", "--top-size=1", "--csv", "-q", "-P", path]));
    assert_eq!(size[0][1..3], [format!("{path}/ann/f11.dat"), "144000".to_owned()], "{size:?}");
    // Times to come protect files: these three are due first, whichever names the scan has found before.
    let last = ["bob/f2.dat", "both/deep/f4.dat", "ann/f7.dat"].map(|name| Path::new(path).join(name));
    let now = SystemTime::now();
    walk(Path::new(path), &mut |file, meta| {
        if meta.is_file() {
            let rank = last.iter().position(|other| other == file).unwrap_or(last.len()) as u32 + 1;
            let times = FileTimes::new().set_accessed(now + rank * Duration::from_secs(3600));
            File::open(file).unwrap().set_times(times).unwrap();
        }
    });
    let oldest = cells(&run(cluster, &["rbh-report", "-o", "3", "--csv", "-q", "-P", path]));
    let times: Vec<&String> = oldest.iter().map(|row| &row[4]).collect();
    assert!(oldest.len() == 3 && times.is_sorted(), "{oldest:?}");
    let names: Vec<&Path> = oldest.iter().map(|row| Path::new(&row[1])).collect();
    assert_eq!(names, last.each_ref().map(PathBuf::as_path), "{oldest:?}");
    let empty = cells(&run(cluster, &["rbh-report", "--oldest-empty-dirs", "--csv", "-q", "-P", path]));
    assert_eq!((empty.len(), empty[0][1].clone()), (1, format!("{path}/empty")), "{empty:?}");
    // Classes of a policy text.
    let conf = cluster.outside().join("classes.conf");
    fs::write(&conf, "fileclass big { definition { size > 100KB } }\nfileclass ann { definition { tree == \"project/ann\" } }\n").unwrap();
    let classes =
        cells(&run(cluster, &["rbh-report", "--class-info", "-f", text(&conf), "--csv", "-q", "-P", path]));
    let count = |class: &str| classes.iter().find(|row| row[0] == class).map(|row| row[1].clone());
    assert!(count("[none]").is_some() && classes.iter().any(|row| row[0].contains("ann+big")), "{classes:?}");
}

fn searches(cluster: &Cluster, top: &Path) {
    let path = text(top);
    let find = |words: &[&str]| -> Vec<String> {
        let mut found: Vec<String> =
            run(cluster, &[&["rbh-find", path], words].concat()).lines().map(str::to_owned).collect();
        found.sort();
        found
    };
    let mut large = Vec::new();
    walk(top, &mut |path, meta| {
        if meta.is_file() && meta.len() > 50_000 {
            large.push(path.display().to_string());
        }
    });
    large.sort();
    assert_eq!(find(&["-type", "f", "-size", "+50000"]), large);
    assert_eq!(find(&["-name", "f1*.dat", "-user", &ANN.uid.to_string(), "-not", "-size", "+20K"]).len(), 1);
    assert_eq!(find(&["-type", "d"]).len(), 6);
    assert_eq!(find(&["-mtime", "+1d"]), [""; 0]);
    let line = find(&["-type", "l", "-ls"]).remove(0);
    assert!(line.starts_with("[0x") && line.contains(" link rwxrwxrwx   1  root "), "{line}");
    assert!(line.ends_with(&format!("{path}/link -> ann/f0.dat")), "{line}");
    // By status, through a link of the tool's name.
    let archived = top.join("ann/f3.dat");
    archive(cluster, &archived);
    assert_eq!(find(&["-status", "lhsm:synchro", "-print"]).len(), 1);
    release(cluster, &archived);
    let tool = cluster.outside().join("rbh-find");
    symlink(binary(), &tool).unwrap();
    let done = Command::new(&tool).args([path, "-status", "lhsm:released"]).output().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && shown.contains(" released ") && shown.trim_end().ends_with("ann/f3.dat"),
        "{shown}"
    );
    let status = cells(&run(cluster, &["rbh-report", "--status-info", "lhsm", "--csv", "-q", "-P", path]));
    assert!(status.iter().any(|row| row[..3] == ["released", "file", "1"]), "{status:?}");
    // Sizes of the tree.
    let count = run(cluster, &["rbh-du", "-c", "-t", "f", path]);
    assert_eq!(count, format!("20\t{path}\n"));
    let details = run(cluster, &["policy", "du", "-d", path]);
    assert!(
        details.contains("\n\tdir count:6, size:") && details.contains("\n\tsymlink count:1, "),
        "{details}"
    );
    assert!(run(cluster, &["rbh-du", "-s", "-H", path]).ends_with("\ttotal\n"));
    // Refusals: unknown words, and entries that the user may not see.
    let unknown = cluster.brindle(&["rbh-find", path, "-nmae", "x"]);
    assert!(
        !unknown.ok() && unknown.text.contains("did you mean -name?") && unknown.text.contains("-lsstatus"),
        "{unknown}"
    );
    let refused = run_as(BOB, || Command::new(binary()).args(["rbh-report", "-i", path]).output().unwrap());
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
}
