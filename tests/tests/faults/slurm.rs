//! Burst buffers under a real Slurm: jobs get a file system of their own, and no file that is to be staged out is lost.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::child::output;
use brindle_tests::cluster::{Turn, alone, binary};
use brindle_tests::users::{ANN, run_as};

use crate::dice::{Dice, seed};

mod controller;
mod hosts;
mod resize;
mod storm;
mod swap;

/// User that submits jobs; every Debian has it.
const NOBODY: u32 = 65_534;
/// A second user, and the user's main group.
const GAMES: (u32, u32) = (5, 60);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Jobs of the test that kills.
const JOBS: usize = 4;
/// Most kills of it: afterwards the jobs have to end, however slow the machine is.
const KILLS_MAX: usize = 12;
/// The pool of most tests, in MiB.
const POOL_MIB: u64 = 384;

/// A private Slurm, which is gone without a trace when this is dropped.
struct Slurm {
    dir: PathBuf,
    work: PathBuf,
    nodes: usize,
    pool_mib: u64,
    _alone: Turn,
}

impl Slurm {
    fn up(name: &str) -> Slurm {
        Slurm::up_with(name, "--plugin=datawarp")
    }

    fn up_with(name: &str, plugin: &str) -> Slurm {
        Slurm::up_sized(name, plugin, 2, POOL_MIB)
    }

    fn up_sized(name: &str, plugin: &str, nodes: usize, pool_mib: u64) -> Slurm {
        Slurm::up_as(name, &[plugin], nodes, pool_mib)
    }

    fn up_as(name: &str, options: &[&str], nodes: usize, pool_mib: u64) -> Slurm {
        let alone = alone();
        let base = PathBuf::from(format!("/var/tmp/brindle-slurm-{}-{name}", std::process::id()));
        let slurm =
            Slurm { dir: base.join("slurm"), work: base.join("work"), nodes, pool_mib, _alone: alone };
        std::fs::create_dir_all(slurm.work.join("in")).unwrap();
        for dir in [slurm.work.clone(), slurm.work.join("in")] {
            chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let [nodes, pool, dir] = [
            format!("--nodes={nodes}"),
            format!("--bb-pool={pool_mib}MiB"),
            format!("--dir={}", slurm.dir.display()),
        ];
        let said = slurm.brindle(&[&["dev", "slurm", "up", &nodes, &pool, &dir], options].concat());
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

    /// Output of a command, which may fail.
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
        let bb = "capacity=64MiB access_mode=striped type=scratch";
        self.sbatch_as((NOBODY, NOBODY), &["--bb", bb], lines)
    }

    /// Submits a script that has all directives itself.
    fn sbatch_as(&self, (uid, gid): (u32, u32), args: &[&str], lines: &str) -> String {
        let script = self.work.join("job.sh");
        let log = self.work.display();
        let text = format!("#!/bin/bash\n#SBATCH -N2 -o {log}/log.%j\n{lines}\n");
        std::fs::write(&script, text).unwrap();
        let mut sbatch = self.command("sbatch");
        sbatch.arg("--parsable").args(args).arg(&script).uid(uid).gid(gid);
        self.say(&mut sbatch).trim().to_owned()
    }

    fn submit_plain(&self, lines: &str) -> String {
        let said = self.sbatch_as((NOBODY, NOBODY), &[], lines);
        assert!(said.parse::<u32>().is_ok(), "{said}");
        said
    }

    fn completed(&self, job: &str) {
        self.until(&["JobState=COMPLETED"], || self.job(job));
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
        let log = |name: &str| std::fs::read_to_string(self.dir.join("log").join(name)).unwrap_or_default();
        let about_jobs = |line: &&str| line.contains("JobId=") || line.contains("burst_buffer");
        let controller = log("slurmctld.log");
        let controller = controller.lines().filter(about_jobs).collect::<Vec<_>>().join("\n");
        format!("{queue}{}{}\n{controller}", self.brindle(&["bb", "list"]), log("bb.log"))
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
        assert_eq!(self.free_mib(), self.pool_mib);
        let bricks = ["brick0/brindle-bb", "brick1/brindle-bb", "bb/buffers", "bb/stage"].map(str::to_owned);
        let nodes = (1..=self.nodes).map(|n| format!("nodes/n{n}"));
        for dir in bricks.into_iter().chain(nodes) {
            let left = buffers_in(&self.dir.join(&dir));
            assert_eq!(left, 0, "something is left in {dir}\n{}", self.state());
        }
    }

    /// A list of `brindle bb`, from its JSON.
    fn json(&self, what: &str) -> serde_json::Value {
        let said = self.brindle(&["bb", what, "-o", "json"]);
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    }

    /// Room that no buffer has.
    fn free_mib(&self) -> u64 {
        self.json("pool")["pools"][0]["free_bytes"].as_u64().unwrap() >> 20
    }

    /// The buffers, as the list has them.
    fn buffers(&self) -> Vec<serde_json::Value> {
        self.json("list")["buffers"].as_array().unwrap().clone()
    }

    /// Kills the orchestrator and starts it as it was started before.
    fn restart_orchestrator(&self) {
        self.restart_orchestrator_with(&[]);
    }

    /// Restarts the orchestrator with further options.
    fn restart_orchestrator_with(&self, options: &[&str]) {
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
            .args(options)
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

/// Entries of a directory, without the mark that says whose brick it is.
fn buffers_in(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name() != "owner").count()
}

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
        assert_eq!(buffers_in(&images), 1);
        assert!(run_as(ANN, || images.read_dir().is_err()));
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
    // Slurm repeats the teardown, as often as somebody says scancel; that stops no copy that an operator asks for.
    let script = slurm.work.join("job.sh").display().to_string();
    let ended = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let (again, heard) = std::sync::mpsc::channel();
        let teardown = ["dacctl", "teardown", "--token", &job, "--job", &script, "--hurry"];
        scope.spawn({
            let (slurm, ended) = (&slurm, &ended);
            move || {
                while !ended.load(Ordering::Relaxed) {
                    // The listener may have heard enough.
                    let _ = again.send(slurm.brindle(&teardown));
                }
            }
        });
        let first = heard.recv().unwrap();
        assert!(!first.contains("E70"), "{first}");
        let said = slurm.brindle(&["bb", "stage", "--retry", &job]);
        ended.store(true, Ordering::Relaxed);
        said
    });
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
fn a_persistent_buffer_is_shared_by_jobs_and_outlives_them() {
    let slurm = Slurm::up("persistent");
    let work = slurm.work.display();
    std::fs::write(slurm.work.join("in/numbers"), "1\n2\n").unwrap();
    let made = "#BB create_persistent capacity=64MiB access_mode=striped type=scratch";
    slurm.completed(
        &slurm.submit_plain(&format!("{made} name=my-data\n{made} name=shared group=games\ntrue")),
    );
    let again = ["bb", "create", "--capacity=64MiB", "--user=65534", "--group=games", "shared"];
    assert_eq!(slurm.brindle(&again), "created shared\n");
    let shares = "#DW persistentdw name=shared\numask 002; date > $DW_PERSISTENT_STRIPED_shared/by.$(id -u)";
    let member = slurm.sbatch_as(GAMES, &["-o", "/dev/null"], shares);
    let listed = slurm.brindle(&["bb", "show", "my-data"]);
    assert!(listed.contains("ready") && listed.contains("persistent"), "{listed}");
    let life: Vec<&str> = listed.lines().filter(|line| line.starts_with("  +")).collect();
    let states: Vec<&str> = life.iter().filter_map(|line| line.split_whitespace().nth(3)).collect();
    assert_eq!(states, ["allocated", "being", "ready"], "{listed}");
    assert!(life[2].ends_with("until now") && !life[1].contains("until"), "{listed}");
    let taken = slurm.brindle(&["bb", "create", "--capacity=64MiB", "--user=games", "my-data"]);
    assert!(
        taken.contains("E7010") && taken.contains(&format!("user {NOBODY} has one of this name")),
        "{taken}"
    );
    // Two jobs at a time; one of them also has a buffer of its own.
    let uses = "#DW persistentdw name=my-data";
    let stages = format!(
        "#DW stage_in type=file source={work}/in/numbers destination=$DW_PERSISTENT_STRIPED_my_data/n"
    );
    let waits = "until [ -e go ]; do sleep 0.05; done";
    let first = slurm.submit_plain(&format!("{uses}\n{stages}\n: > began\n{waits}\nsrun -N1 -n1 cp $DW_PERSISTENT_STRIPED_my_data/n $BRINDLE_PERSISTENT_STRIPED_my_data/copy"));
    slurm.until(&["began"], || slurm.slurm("ls", &[&work.to_string()]));
    let refused = slurm.brindle(&["bb", "destroy", "--yes", "my-data"]);
    assert!(refused.contains("E7011") && refused.contains(&format!("used by job {first}")), "{refused}");
    let second = slurm.submit_plain(&format!("#DW jobdw capacity=32MiB access_mode=striped type=scratch\n{uses}\n#DW stage_out type=file source=$DW_PERSISTENT_STRIPED_my_data/copy destination={work}/result\n{waits}\nuntil [ -e $DW_PERSISTENT_STRIPED_my_data/copy ]; do sleep 0.05; done; : > $DW_JOB_STRIPED/x"));
    let other = slurm.sbatch_as(GAMES, &[], &format!("{uses}\ntrue"));
    slurm.until(&["E7012", "my-data"], || slurm.job(&other));
    slurm.slurm("scancel", &[&other]);
    slurm.restart_orchestrator();
    std::fs::write(slurm.work.join("go"), "").unwrap();
    slurm.completed(&first);
    slurm.completed(&second);
    assert_eq!(std::fs::read_to_string(slurm.work.join("result")).unwrap(), "1\n2\n");
    slurm.until(&["persistent"], || slurm.brindle(&["bb", "show", "my-data"]));
    slurm.completed(&member);
    the_group_enters(&slurm, "shared");
    let ends = "#BB destroy_persistent name=my-data\n#BB destroy_persistent name=shared\ntrue";
    slurm.completed(&slurm.submit_plain(ends));
    slurm.wait_empty();
}

/// Files that a member of the group has made in a persistent buffer belong to the group, and no other user
/// gets in.
fn the_group_enters(slurm: &Slurm, name: &str) {
    let listed = slurm.brindle(&["bb", "show", name]);
    let serial = listed.lines().find(|line| line.starts_with(name)).and_then(|l| l.split_whitespace().nth(1));
    let dir = slurm.dir.join("bb/stage").join(serial.unwrap()).join("global");
    let made = dir.join(format!("by.{}", GAMES.0)).metadata().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&made), GAMES.1);
    let entered = run_as(ANN, || std::fs::read_dir(&dir).map(|_| ()));
    assert_eq!(entered.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn each_node_has_a_private_directory_that_the_others_do_not_see() {
    let slurm = Slurm::up("private");
    let job = slurm.submit_plain(
        "#DW jobdw capacity=64MiB access_mode=striped,private type=scratch\n\
         srun -N2 -n2 bash -c 'echo $SLURMD_NODENAME > $DW_JOB_PRIVATE/name; ls -a ${DW_JOB_STRIPED%/global}/private > $DW_JOB_STRIPED/seen.$SLURMD_NODENAME 2>&1'\n\
         srun -N2 -n2 bash -c 'cat $BRINDLE_JOB_PRIVATE/name; ls $DW_JOB_PRIVATE; stat -c %a:%u $DW_JOB_PRIVATE; cat $DW_JOB_STRIPED/seen.$SLURMD_NODENAME' > said",
    );
    let only = slurm.submit_plain("#DW jobdw capacity=32MiB access_mode=private type=scratch\necho ${DW_JOB_STRIPED-none} > only; date > $DW_JOB_PRIVATE/x");
    slurm.completed(&job);
    let said = std::fs::read_to_string(slurm.work.join("said")).unwrap();
    for line in ["n1\n", "n2\n", "700:65534\n"] {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!((said.matches("name\n").count(), said.matches("Permission denied").count()), (2, 2), "{said}");
    slurm.completed(&only);
    assert_eq!(std::fs::read_to_string(slurm.work.join("only")).unwrap(), "none\n");
    slurm.wait_empty();
}

#[test]
fn what_was_thrown_away_is_kept_for_its_time_and_then_destroyed() {
    let slurm = Slurm::up("discarded");
    let job = slurm.submit(&format!("{}\ndate > $DW_JOB_STRIPED/data/begun\n{WAITS}", stages(&slurm)));
    slurm.wait_file("where");
    slurm.slurm("scancel", &["--hurry", &job]);
    slurm.until(&["kept", "thrown away with --hurry, it is destroyed in 23 h 59 min"], || {
        slurm.brindle(&["bb", "list"])
    });
    slurm.restart_orchestrator_with(&["--keep-discarded=1s"]);
    slurm.wait_empty();
    assert!(!slurm.work.join("out").exists());
}

#[test]
fn jobs_live_the_same_under_the_plug_in_lua() {
    let slurm = Slurm::up_with("lua", "--plugin=lua");
    std::fs::write(slurm.work.join("in/numbers"), "1\n2\n3\n").unwrap();
    let dw = "#DW jobdw capacity=64MiB access_mode=striped,private type=scratch pool=default";
    let misspelt = "#DW stage_in type=file sorce=/etc/hostname destination=$DW_JOB_STRIPED/h\ntrue";
    let said = slurm.sbatch_as((NOBODY, NOBODY), &[], &format!("{dw}\n{misspelt}"));
    assert!(
        said.contains("burst_buffer/lua: E7001 line 4, column 24:") && said.contains("did you mean source="),
        "{said}"
    );
    let whole = slurm.submit_plain(&format!("{dw}\n{}\nsrun -N2 -n2 bash -c 'wc -l < $DW_JOB_STRIPED/data/numbers > $DW_JOB_STRIPED/data/lines.$SLURMD_NODENAME; date > $DW_JOB_PRIVATE/x'", stages(&slurm)));
    let missing = slurm.submit_plain(&format!(
        "{dw}\n#DW stage_in type=file source=/nowhere/x destination=$DW_JOB_STRIPED/x\ntrue"
    ));
    slurm.completed(&whole);
    let out = |name: &str| std::fs::read_to_string(slurm.work.join("out").join(name)).unwrap();
    assert_eq!((out("lines.n1").as_str(), out("lines.n2").as_str()), ("3\n", "3\n"));
    slurm.until(&["E7006", "/nowhere/x"], || slurm.job(&missing));
    slurm.cancel_held(&missing);
    // Persistent buffers are the orchestrator's alone here.
    let failed = slurm.submit_plain(&format!("{dw}\n#DW create_persistent name=shared capacity=32MiB pool=default\n#DW persistentdw name=shared\n#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=/root/r\ndate > $DW_PERSISTENT_STRIPED_shared/x; cp $DW_PERSISTENT_STRIPED_shared/x $DW_JOB_STRIPED/r"));
    slurm.until(&["E7006 cannot write to /root/r"], || slurm.job(&failed));
    let refused = slurm.brindle(&["bb", "destroy", "--yes", "shared"]);
    assert!(refused.contains("E7011") && refused.contains(&format!("used by job {failed}")), "{refused}");
    slurm.slurm("scancel", &["--hurry", &failed]);
    slurm.until(&["thrown away with --hurry"], || slurm.brindle(&["bb", "list"]));
    slurm.brindle(&["bb", "destroy", "--yes", &failed]);
    slurm.completed(&slurm.submit_plain("#DW destroy_persistent name=shared\ntrue"));
    slurm.until(&["no buffers"], || slurm.slurm("scontrol", &["show", "bbstat"]));
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
