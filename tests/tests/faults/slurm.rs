//! Burst buffers under a real Slurm: jobs get a file system of their own, and nothing that is to be staged out is lost.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use brindle_tests::child::output;
use brindle_tests::cluster::{alone, binary};
use brindle_tests::users::{ANN, run_as};

use crate::dice::{Dice, seed};

/// Whoever submits jobs; every Debian has this user.
const NOBODY: u32 = 65_534;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Jobs of the test that kills.
const JOBS: usize = 4;
/// Most kills of it: afterwards the jobs have to end, however slow the machine is.
const KILLS_MAX: usize = 12;
/// The pool of the tests, as `bb pool` prints it.
const POOL: &str = "384.0 MiB";

/// A private Slurm, which is gone without a trace when this is dropped.
struct Slurm {
    dir: PathBuf,
    work: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Slurm {
    fn up(name: &str) -> Slurm {
        let alone = alone();
        let base = PathBuf::from(format!("/var/tmp/brindle-slurm-{}-{name}", std::process::id()));
        let slurm = Slurm { dir: base.join("slurm"), work: base.join("work"), _alone: alone };
        std::fs::create_dir_all(slurm.work.join("in")).unwrap();
        for dir in [slurm.work.clone(), slurm.work.join("in")] {
            chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let said = slurm.brindle(&[
            "dev",
            "slurm",
            "up",
            "--nodes=2",
            "--bb-pool=384MiB",
            &format!("--dir={}", slurm.dir.display()),
        ]);
        assert!(said.contains("slurm.conf"), "{said}");
        slurm
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("SLURM_CONF", self.dir.join("etc/slurm.conf"))
            .env("BRINDLE_BB_SOCKET", self.dir.join("run/bb.sock"));
        command.current_dir(&self.work);
        command
    }

    /// What a command says; it may fail.
    fn say(&self, command: &mut Command) -> String {
        let out = output(command).unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    }

    fn brindle(&self, args: &[&str]) -> String {
        self.say(self.command(&binary().display().to_string()).args(args))
    }

    fn slurm(&self, program: &str, args: &[&str]) -> String {
        self.say(self.command(program).args(args))
    }

    /// Submits a script as an ordinary user, with a buffer of 64 MiB.
    fn sbatch(&self, lines: &str) -> String {
        let script = self.work.join("job.sh");
        std::fs::write(
            &script,
            format!("#!/bin/bash\n#SBATCH -N2 -o {}/log.%j\n{lines}\n", self.work.display()),
        )
        .unwrap();
        let bb = "capacity=64MiB access_mode=striped type=scratch";
        self.say(self.command("sbatch").args(["--parsable", "--bb", bb]).arg(&script).uid(NOBODY).gid(NOBODY))
    }

    fn submit(&self, lines: &str) -> String {
        let said = self.sbatch(lines);
        assert!(said.trim().parse::<u32>().is_ok(), "{said}");
        said.trim().to_owned()
    }

    /// Waits until a text of `look` has all of `words`; the text.
    fn until(&self, words: &[&str], look: impl Fn() -> String) -> String {
        let since = Instant::now();
        loop {
            let text = look();
            if words.iter().all(|word| text.contains(word)) {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "{words:?} is not in:\n{text}\n{}", self.state());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn state(&self) -> String {
        let queue = self.slurm("squeue", &["-o", "%i %T %r"]);
        let log = std::fs::read_to_string(self.dir.join("log/bb.log")).unwrap_or_default();
        format!("{queue}{}{log}", self.brindle(&["bb", "list"]))
    }

    fn job(&self, id: &str) -> String {
        self.slurm("scontrol", &["show", "job", id])
    }

    fn wait_file(&self, name: &str) -> String {
        let path = self.work.join(name);
        self.until(&["."], || std::fs::read_to_string(&path).unwrap_or_default())
    }

    /// No buffer is left, and the pool has all its room.
    fn wait_empty(&self) {
        self.until(&["no buffers"], || self.brindle(&["bb", "list"]));
        let pool = self.brindle(&["bb", "pool"]);
        assert_eq!(pool.matches(POOL).count(), 2, "{pool}");
        for dir in
            ["brick0/brindle-bb", "brick1/brindle-bb", "bb/buffers", "bb/stage", "nodes/n1", "nodes/n2"]
        {
            let left = std::fs::read_dir(self.dir.join(dir)).map_or(0, |entries| entries.count());
            assert_eq!(left, 0, "something is left in {dir}\n{}", self.state());
        }
    }

    /// Kills the orchestrator and starts it as it was started before.
    fn restart_orchestrator(&self) {
        let socket = format!("--socket={}", self.dir.join("run/bb.sock").display());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let found: Vec<(i32, i32, Vec<String>)> = processes
            .filter_map(|entry| {
                let text = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
                let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
                let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
                let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
                let pid = entry.file_name().to_str()?.parse().ok()?;
                words.contains(&socket).then_some((pid, parent, words))
            })
            .collect();
        // A child that it has just forked has its command line until the exec.
        let is_child = |parent: i32| found.iter().any(|(pid, ..)| *pid == parent);
        let (pid, _, words) =
            found.iter().find(|(_, parent, _)| !is_child(*parent)).expect("the orchestrator runs").clone();
        let still_runs = || Path::new(&format!("/proc/{pid}/stat")).exists();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        let since = Instant::now();
        while still_runs() && since.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let mut command = Command::new("setsid");
        let log = std::fs::OpenOptions::new().append(true).open(self.dir.join("log/bb.log")).unwrap();
        command
            .arg("-f")
            .args(&words)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(log);
        assert!(command.status().unwrap().success());
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.state());
        }
        let said = self.brindle(&["dev", "slurm", "down", &format!("--dir={}", self.dir.display())]);
        let _ = std::fs::remove_dir_all(self.work.parent().unwrap_or(Path::new("/nowhere")));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let dir = self.dir.display().to_string();
        if !std::thread::panicking() {
            assert!(said.contains("down;") && !said.contains("lost with it"), "{said}");
            assert!(!self.dir.exists() && !mounts.contains(&dir), "{said}");
        }
    }
}

/// The two lines of the seed, from `in` to `out` of the working directory.
fn stages(slurm: &Slurm) -> String {
    let work = slurm.work.display();
    format!(
        "#DW stage_in  type=directory source={work}/in/  destination=$DW_JOB_STRIPED/data\n\
         #DW stage_out type=directory source=$DW_JOB_STRIPED/data  destination={work}/out/ "
    )
}

/// A job that tells where its buffer is, and goes on when somebody makes `go`.
const WAITS: &str =
    "echo $DW_JOB_STRIPED. > where.tmp; mv where.tmp where; until [ -e go ]; do sleep 0.05; done";

#[test]
fn the_job_of_the_seed_is_staged_in_worked_on_and_staged_out() {
    let slurm = Slurm::up("seed");
    std::fs::write(slurm.work.join("in/numbers"), "1\n2\n3\n").unwrap();
    std::fs::set_permissions(slurm.work.join("in/numbers"), std::fs::Permissions::from_mode(0o640)).unwrap();
    chown(slurm.work.join("in/numbers"), Some(NOBODY), Some(NOBODY)).unwrap();
    let job = slurm.submit(&format!(
        "{}\n{WAITS}\n\
         srun -N2 --ntasks-per-node=1 bash -c 'wc -l < $DW_JOB_STRIPED/data/numbers > $DW_JOB_STRIPED/data/lines.$SLURMD_NODENAME'\n\
         head -c 256M /dev/zero > $DW_JOB_STRIPED/big 2>/dev/null; echo $? > $DW_JOB_STRIPED/data/full",
        stages(&slurm)
    ));
    let seen = slurm.wait_file("where");
    assert!(seen.contains(&format!("/mnt/{job}/global.")), "{seen}");
    // On both nodes it is a mount of its own, which only the user of the job can enter.
    for node in ["n1", "n2"] {
        let at = slurm.dir.join("nodes").join(node).join(&job);
        assert_eq!(std::fs::read(at.join("global/data/numbers")).unwrap(), b"1\n2\n3\n");
        let refused = run_as(ANN, || std::fs::read_dir(&at).map(|_| ()));
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
    for brick in ["brick0", "brick1"] {
        let images = slurm.dir.join(brick).join("brindle-bb");
        assert!(images.read_dir().unwrap().count() == 1 && run_as(ANN, || images.read_dir().is_err()));
    }
    let shown = slurm.brindle(&["bb", "list", "-o", "json"]);
    assert!(shown.contains("\"state\": \"mounted\"") && shown.contains("\"bytes\": 67108864"), "{shown}");
    // An orchestrator that is killed goes on where it was.
    slurm.restart_orchestrator();
    std::fs::write(slurm.work.join("go"), "").unwrap();
    slurm.until(&["JobState=COMPLETED"], || slurm.job(&job));
    let out = |name: &str| std::fs::read_to_string(slurm.work.join("out").join(name)).unwrap();
    assert_eq!(
        (out("numbers").as_str(), out("lines.n1").as_str(), out("lines.n2").as_str()),
        ("1\n2\n3\n", "3\n", "3\n")
    );
    assert_ne!(out("full"), "0\n", "a buffer of 64 MiB took 256 MiB");
    let meta = slurm.work.join("out/numbers").metadata().unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&meta);
    assert_eq!((meta.permissions().mode() & 0o7777, owner), (0o640, NOBODY));
    slurm.wait_empty();
}

#[test]
fn what_cannot_be_staged_in_is_said_before_the_job_starts() {
    let slurm = Slurm::up("missing");
    let misspelt =
        slurm.sbatch("#DW stage_in type=file sorce=/etc/hostname destination=$DW_JOB_STRIPED/h\ntrue");
    for word in
        ["E7001 line 4, column 24:", "did you mean source=/etc/hostname?", "Burst Buffer request invalid"]
    {
        assert!(misspelt.contains(word), "{misspelt}");
    }
    let job =
        slurm.submit("#DW stage_in type=file source=/nowhere/x destination=$DW_JOB_STRIPED/x\ntouch ran");
    slurm.until(&["E7006", "/nowhere/x", "No_such_file"], || slurm.job(&job).replace(' ', "_"));
    slurm.slurm("scancel", &[&job]);
    slurm.until(&["JobState=CANCELLED"], || slurm.job(&job));
    slurm.wait_empty();
    assert!(!slurm.work.join("ran").exists());
}

#[test]
fn a_cancelled_job_is_staged_out_and_one_that_is_hurried_is_kept() {
    let slurm = Slurm::up("cancel");
    let script = format!("{}\ndate > $DW_JOB_STRIPED/data/begun\n{WAITS}", stages(&slurm));
    let job = slurm.submit(&script);
    slurm.wait_file("where");
    slurm.slurm("scancel", &[&job]);
    slurm.until(&["JobState=CANCELLED"], || slurm.job(&job));
    slurm.wait_empty();
    assert!(slurm.work.join("out/begun").exists());
    for name in ["out/begun", "where"] {
        std::fs::remove_file(slurm.work.join(name)).unwrap();
    }
    let job = slurm.submit(&script);
    slurm.wait_file("where");
    slurm.slurm("scancel", &["--hurry", &job]);
    let kept = slurm.until(&["kept"], || slurm.brindle(&["bb", "list"]));
    assert!(kept.contains(&format!("brindle bb stage --retry {job}.")), "{kept}");
    assert!(!slurm.work.join("out/begun").exists());
    let said = slurm.brindle(&["bb", "stage", "--retry", &job]);
    assert!(said.contains("staged out") && slurm.work.join("out/begun").exists(), "{said}");
    slurm.wait_empty();
}

#[test]
fn a_stage_out_that_fails_is_kept_and_finished_by_a_retry() {
    let slurm = Slurm::up("retry");
    // A directory of root's, in which the user of the job may not write.
    let out = slurm.work.join("out");
    std::fs::create_dir(&out).unwrap();
    let work = slurm.work.display();
    let job = slurm.submit(&format!("#DW stage_out type=file source=$DW_JOB_STRIPED/result destination={work}/out/result\necho 42 > $DW_JOB_STRIPED/result"));
    let kept = slurm.until(&["kept", "cannot write to"], || slurm.brindle(&["bb", "list"]));
    assert!(kept.contains("Permission denied"), "{kept}");
    slurm.until(&["E7006"], || slurm.job(&job));
    let refused = slurm.brindle(&["bb", "destroy", &job]);
    assert!(refused.contains("it holds files that were to be staged out"), "{refused}");
    let again = slurm.brindle(&["bb", "stage", "--retry", &job]);
    assert!(again.contains("Permission denied"), "{again}");
    // An orchestrator that is killed forgets nothing.
    slurm.restart_orchestrator();
    chown(&out, Some(NOBODY), Some(NOBODY)).unwrap();
    slurm.until(&["staged out"], || slurm.brindle(&["bb", "stage", "--retry", &job]));
    assert_eq!(std::fs::read_to_string(out.join("result")).unwrap(), "42\n");
    slurm.slurm("scancel", &["--hurry", &job]);
    slurm.wait_empty();
}

#[test]
fn jobs_go_on_whenever_the_orchestrator_is_killed() {
    let mut dice = Dice::new(seed("slurm"));
    let slurm = Slurm::up("kills");
    std::fs::write(slurm.work.join("in/numbers"), "1\n2\n3\n").unwrap();
    let work = slurm.work.display();
    let jobs: Vec<String> = (0..JOBS)
        .map(|n| {
            slurm.submit(&format!(
                "#DW stage_in type=directory source={work}/in destination=$DW_JOB_STRIPED/d\n\
                 #DW stage_out type=directory source=$DW_JOB_STRIPED/d destination={work}/out{n}\n\
                 sha1sum < $DW_JOB_STRIPED/d/numbers > $DW_JOB_STRIPED/d/sum"
            ))
        })
        .collect();
    let since = Instant::now();
    let runs = || !slurm.slurm("squeue", &["-h"]).trim().is_empty();
    let mut kills = 0;
    while runs() {
        assert!(since.elapsed() < 2 * PATIENCE, "the jobs have not ended:\n{}", slurm.state());
        // The moment of the next kill.
        std::thread::sleep(Duration::from_millis(dice.below(1500)));
        if kills == KILLS_MAX {
            continue;
        }
        kills += 1;
        slurm.restart_orchestrator();
        slurm.until(&["default"], || slurm.brindle(&["bb", "pool"]));
    }
    for (n, job) in jobs.iter().enumerate() {
        let shown = slurm.job(job);
        assert!(shown.contains("JobState=COMPLETED"), "{shown}");
        let sum = std::fs::read_to_string(slurm.work.join(format!("out{n}/sum"))).unwrap();
        assert_eq!(sum.len(), 44, "{sum}");
    }
    slurm.wait_empty();
}
