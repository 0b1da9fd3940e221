//! Small runs of every workload on a temporary directory.

use super::*;
use crate::cold::Cold;
use crate::cpu::Watched;
use crate::run::Directory;
use crate::workload::{ior, list, mdtest, quick, random, threads, tree};
use brindle_types::Code;

struct Ground {
    dir: tempfile::TempDir,
    limit: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let dir = || tempfile::tempdir().expect("temporary directory");
        Ground { dir: dir(), limit: dir() }
    }

    /// Two ranks that are threads, two repetitions, warm caches (dropping them takes long on a busy machine).
    fn setting(&self) -> Setting {
        let directory = |dir: &tempfile::TempDir| Directory {
            path: dir.path().display().to_string(),
            file_system: "tmpfs".to_owned(),
        };
        Setting {
            dirs: vec![directory(&self.dir)],
            limit: Some(directory(&self.limit)),
            ranks: 2,
            repeat: 2,
            cold: Cold { keep: true, command: None },
            fsync: true,
            verify: true,
            seed: 42,
            watched: Watched::default(),
            launcher: Launcher::Threads,
        }
    }

    fn run(&self, plans: &[Plan], setting: &Setting) -> Result<Run> {
        let run = run("test", plans, setting, BTreeMap::new(), &mut |_| {});
        for dir in [&self.dir, &self.limit] {
            assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0, "nothing stays behind");
        }
        run
    }
}

fn phases(run: &Run) -> Vec<&str> {
    for figure in &run.figures {
        assert_eq!(figure.samples.len(), 2, "{}", figure.phase);
        assert!(figure.summary.min > 0.0);
        assert_eq!(figure.limits[0].name, "disk");
        assert!(figure.limits[0].fraction > 0.0);
    }
    run.figures.iter().map(|f| f.phase.as_str()).collect()
}

#[test]
fn ior_writes_and_reads_in_every_layout() {
    let ground = Ground::new();
    let setting = ground.setting();
    let cases = vec![ior::Case::Easy, ior::Case::Segmented, ior::Case::Strided, ior::Case::Hard];
    let options =
        ior::Options { cases, bytes: 2 << 20, transfer_bytes: 1 << 20, read_own: false, direct: false };
    let run = ground.run(&ior::plans(&options, &setting), &setting).expect("runs");
    assert_eq!(phases(&run), ["write", "read"].repeat(4));
    assert_eq!(run.figures[0].samples[0].bytes, 4 << 20);
    assert_eq!(
        run.figures[6].samples[0].operations,
        2 * 44,
        "hard: 44 transfers of 47,008 bytes fit in 2 MiB"
    );
}

#[test]
fn shared_files_run_on_one_mount_and_on_two() {
    let ground = Ground::new();
    let mut setting = ground.setting();
    setting.dirs.push(setting.dirs[0].clone());
    let cases = vec![ior::Case::Easy, ior::Case::Hard];
    let options =
        ior::Options { cases, bytes: 1 << 20, transfer_bytes: 1 << 20, read_own: true, direct: false };
    let run = ground.run(&ior::plans(&options, &setting), &setting).expect("runs");
    let cases: Vec<&str> = run.figures.iter().step_by(2).map(|f| f.case.as_str()).collect();
    assert_eq!(
        cases,
        [
            "easy: file per process, 2 mounts",
            "hard: shared file, 47008 B in turns, 1 mount",
            "hard: shared file, 47008 B in turns, 2 mounts",
        ]
    );
}

#[test]
fn mdtest_makes_looks_at_reads_and_removes() {
    let ground = Ground::new();
    let setting = ground.setting();
    let options = mdtest::Options { easy: true, hard: true, files: 20 };
    let run = ground.run(&mdtest::plans(&options, &setting), &setting).expect("runs");
    assert_eq!(phases(&run), ["create", "stat", "remove", "create", "stat", "read", "remove"]);
    let limits: Vec<&str> = run.figures[0].limits.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(limits, ["disk", "loopback"]);
    assert_eq!(run.figures[3].samples[0].bytes, 2 * 20 * 3901);
}

#[test]
fn a_directory_is_listed_by_one() {
    let ground = Ground::new();
    let setting = ground.setting();
    let run = ground.run(&list::plans(list::Job { files: 25 }, &setting), &setting).expect("runs");
    assert_eq!(phases(&run), ["ls -l"]);
    assert_eq!(run.figures[0].samples[0].operations, 25);
}

#[test]
fn random_blocks_are_written_over_and_read_back() {
    let ground = Ground::new();
    let setting = Setting { repeat: 1, limit: None, ..ground.setting() };
    let options = random::Options { set_bytes: 2 << 20, seconds: 0, direct: false };
    let mut plans = random::plans(&options, &setting);
    let run = ground.run(&plans, &setting).expect("runs");
    assert_eq!(run.figures.len(), 2);
    if let crate::rank::Job::Random(job) = &mut plans[0].job {
        job.seconds = 1;
    }
    plans[0].steps.truncate(1);
    plans[0].steps.push(Step::new(Phase::RandomRead, "read", Unit::OpsPerSecond));
    plans[0].loopback = false;
    let run = ground.run(&plans, &setting).expect("what was written is read");
    assert!(run.figures[1].samples[0].operations > 100);
}

#[test]
fn threads_divide_the_same_bytes() {
    let ground = Ground::new();
    let setting = ground.setting();
    let options = threads::Options {
        threads: threads::doubling(4),
        bytes: 1 << 20,
        record_bytes: 64 << 10,
        direct: false,
    };
    let run = ground.run(&threads::plans(&options, &setting), &setting).expect("runs");
    assert_eq!(phases(&run), ["write", "rewrite", "read"].repeat(3));
    let last = run.figures.last().expect("figures");
    assert_eq!(last.x.as_ref().map(|x| x.value), Some(4.0));
    assert!(run.figures.iter().all(|f| f.samples[0].bytes == 1 << 20));
}

#[test]
fn quick_has_four_figures_beside_disk_and_loopback() {
    let ground = Ground::new();
    let setting = ground.setting();
    let run = ground.run(&quick::plans(&quick::Options { bytes: 1 << 20, files: 10 }, &setting), &setting);
    let run = run.expect("runs");
    assert_eq!(phases(&run), ["write", "read", "create", "stat"]);
    assert!(run.figures.iter().all(|f| f.limits.len() == 2));
}

#[test]
fn a_tree_is_unpacked_searched_and_removed() {
    let ground = Ground::new();
    let setting = ground.setting();
    let source = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir(source.path().join("sub")).expect("makes");
    for n in 0..20 {
        std::fs::write(source.path().join(format!("sub/file{n}.c")), vec![b'x'; n * 100]).expect("writes");
    }
    let packed = tree::count(source.path()).expect("counts");
    assert_eq!((packed.entries, packed.bytes), (21, 19_000));
    let packed_into = tempfile::tempdir().expect("temporary directory");
    let archive = packed_into.path().join("tree.tar");
    tree::archive(source.path(), &archive).expect("packs");
    let job = tree::Job { archive, copies: 1, entries: packed.entries, bytes: packed.bytes };
    let run = ground.run(&tree::plans(job, 60, 1, &setting), &setting);
    let run = run.expect("runs");
    assert_eq!(phases(&run), ["untar + fsync", "find -size", "du -s", "tar (read)", "rm -rf"]);
    assert_eq!(run.figures[0].case, "63 entries");
    assert_eq!(run.figures[0].samples[0].bytes, 57_000);
}

#[test]
fn damage_is_found_and_everything_is_removed() {
    let ground = Ground::new();
    let setting = Setting { repeat: 1, ..ground.setting() };
    let options = ior::Options {
        cases: vec![ior::Case::Easy],
        bytes: 1 << 20,
        transfer_bytes: 1 << 20,
        read_own: true,
        direct: false,
    };
    // Between the phases somebody else writes into a file: the command that makes caches cold.
    let pattern = format!("{}/brindle-bench-*/case.0/data.1", ground.dir.path().display());
    let command =
        format!("for f in {pattern}; do printf XX | dd of=\"$f\" bs=1 seek=4100 conv=notrunc; done");
    let cold = Cold { keep: true, command: Some(command) };
    let plans = ior::plans(&options, &setting);
    let fault = ground.run(&plans, &Setting { cold, ..setting }).expect_err("damaged");
    assert_eq!(fault.code, Code::WrongContents);
    assert!(fault.subject.ends_with("case.0/data.1"), "{}", fault.subject);
    assert!(fault.why[0].starts_with("at offset 4096: expected "), "{:?}", fault.why);
}

#[test]
fn nothing_begins_without_room() {
    let ground = Ground::new();
    let setting = ground.setting();
    let options = random::Options { set_bytes: 1 << 60, seconds: 1, direct: false };
    let fault = ground.run(&random::plans(&options, &setting), &setting).expect_err("no room");
    assert_eq!(fault.code, Code::NoRoom);
}
