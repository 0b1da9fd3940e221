//! Swap of jobs: real pages of processes with little memory go into it and come back as they were, or not at all.

use super::*;

/// A process that fills memory in pieces, reports it, and reads all of it when it is told to. The process's memory cgroup is
/// smaller than the memory that it fills.
const PAGER: &str = r#"
sub report { open(my $f, '>', "$_[0].tmp") or die; print $f "$_[1]."; close $f; rename "$_[0].tmp", $_[0]; }
sub wait_for { until (-e $_[0]) { select undef, undef, undef, 0.05 } }
report('pid', $$);
wait_for('limited');
my @pieces;
push @pieces, pack('Q*', map { $n * 8192 + $_ } 0 .. 8191) while ++$n <= 1024;
report('filled', 'all');
wait_for('check');
my $wrong = 0;
for my $n (1 .. 1024) { $wrong++ if $pieces[$n - 1] ne pack('Q*', map { $n * 8192 + $_ } 0 .. 8191) }
report('checked', "$wrong wrong");
"#;
/// Memory limit of the process, which fills 64 MiB.
const MEMORY_BYTES: u64 = 28 << 20;
/// Least part of it that is in swap then, in MiB.
const PAGED_MIB: u64 = 24;

/// The process, which is gone when this is dropped.
struct Pager(std::process::Child);

impl Drop for Pager {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A memory cgroup, which is gone when this is dropped.
struct Cgroup {
    dir: PathBuf,
    limit: &'static str,
}

impl Cgroup {
    /// `None` where this machine has no cgroups for memory; that is said.
    fn new(name: &str) -> Option<Cgroup> {
        let name = format!("brindle-{}-{name}", std::process::id());
        let both = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, limit) in both {
            let dir = Path::new(root).join(&name);
            if std::fs::create_dir(&dir).is_ok() {
                let cgroup = Cgroup { dir, limit };
                if cgroup.limit(MEMORY_BYTES) {
                    return Some(cgroup);
                }
            }
        }
        println!("skipped: PAGING INTO SWAP WAS NOT TESTED: this machine has no memory cgroups");
        None
    }

    fn limit(&self, bytes: u64) -> bool {
        std::fs::write(self.dir.join(self.limit), bytes.to_string()).is_ok()
    }

    fn add(&self, pid: &str) {
        std::fs::write(self.dir.join("cgroup.procs"), pid).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let since = Instant::now();
        // The last process in it may be ending.
        while std::fs::remove_dir(&self.dir).is_err() && since.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Slurm {
    /// Used MiB of each swap of this cluster.
    fn swaps(&self) -> Vec<u64> {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
        let used = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let device = words.first()?.strip_prefix("/dev/")?;
            let file = std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
            let is_ours = Path::new(file.trim_end()).starts_with(&self.dir);
            is_ours.then(|| words[3].parse::<u64>().unwrap() >> 10)
        };
        swaps.lines().filter_map(used).collect()
    }

    fn tell(&self, name: &str) {
        std::fs::write(self.work.join(name), "").unwrap();
    }

    /// Has the process that fills memory begin, in its cgroup, and waits until it is paged out.
    fn page_out(&self, cgroup: &Cgroup) {
        cgroup.add(self.wait_file("pid").trim_end_matches('.'));
        self.tell("limited");
        self.wait_file("filled");
        let paged: u64 = self.swaps().iter().sum();
        assert!(paged >= PAGED_MIB, "{paged} MiB are in swap");
    }

    /// The processes of this cluster whose command line has all of these words.
    fn processes(&self, words: &[&str]) -> Vec<i32> {
        let dir = self.dir.display().to_string();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let is_it = text.contains(&dir) && words.iter().all(|word| text.contains(word));
            is_it.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
        })
        .collect()
    }

    fn kill(&self, words: &[&str]) {
        let found = self.processes(words);
        assert!(!found.is_empty(), "no process has {words:?}");
        for pid in found {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }

    fn no_swap_is_left(&self) {
        self.wait_empty();
        assert_eq!(self.swaps(), [0_u64; 0]);
        let loops = self.say(Command::new("losetup").arg("-a"));
        assert!(!loops.contains(&self.dir.display().to_string()), "{loops}");
    }
}

/// Daemons that pages go through have no pages of their own in swap.
fn memory_is_locked(pid: i32) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    assert!(kib("VmLck:") > 0 && kib("VmSwap:") == 0, "{status}");
}

#[test]
fn pages_go_into_the_swap_of_a_job_and_come_back_as_they_were() {
    let slurm = Slurm::up("swap");
    let refused = |lines: &str| slurm.sbatch_as((NOBODY, NOBODY), &[], lines);
    let misspelt = refused("#DW swap 64MX\ntrue");
    assert!(misspelt.contains("E7001 line 3, column 10: 64MX"), "{misspelt}");
    assert!(misspelt.contains("did you mean swap 64MiB?"), "{misspelt}");
    let large = refused("#DW swap 1TiB\ntrue");
    assert!(large.contains("E7003 line 3, column 10: 1TiB") && large.contains("384.0 MiB"), "{large}");
    std::fs::write(slurm.work.join("pager.pl"), PAGER).unwrap();
    // The directory of the job is filled first: no page needs room then.
    let job = slurm.submit_plain(
        "#DW jobdw capacity=64MiB access_mode=striped type=scratch\n#DW swap 96MiB\n\
         head -c 300M /dev/zero > $DW_JOB_STRIPED/full 2>/dev/null; echo $?. > full\n\
         perl pager.pl; until [ -e go ]; do sleep 0.05; done",
    );
    assert_eq!(slurm.wait_file("full"), "1.\n", "{}", slurm.state());
    assert_eq!((slurm.swaps().len(), slurm.free_mib()), (2, POOL_MIB - 64 - 2 * 96));
    let daemons = slurm.processes(&["mount", "--lock-memory", &format!("{job}_swap")]);
    let servers = slurm.processes(&["serve", "--lock-memory", "/ost"]);
    assert!(daemons.len() == 2 && !servers.is_empty(), "{daemons:?} {servers:?}");
    let seen =
        run_as(ANN, || std::fs::read_dir(slurm.dir.join(format!("nodes/n1/{job}_swap/swap"))).is_err());
    assert!(seen, "a user sees the swap of others");
    if let Some(cgroup) = Cgroup::new("job") {
        slurm.page_out(&cgroup);
        daemons.iter().chain(&servers).for_each(|pid| memory_is_locked(*pid));
        // A process that needs a page of a killed server waits until the server is there again.
        slurm.kill(&["serve", "/ost0"]);
        slurm.restart_orchestrator();
        slurm.tell("check");
        assert_eq!(slurm.wait_file("checked"), "0 wrong.", "{}", slurm.state());
        slurm.tell("go");
        slurm.completed(&job);
    } else {
        slurm.slurm("scancel", &[&job]);
    }
    slurm.no_swap_is_left();
}

#[test]
fn swap_that_lost_its_server_is_kept_and_a_page_that_is_lost_is_an_error() {
    let slurm = Slurm::up("swap-lost");
    std::fs::write(slurm.work.join("pager.pl"), PAGER).unwrap();
    let script = "#DW swap 96MiB\necho .$DW_JOB_STRIPED > dir; until [ -e go ]; do sleep 0.05; done";
    let submit = || {
        for name in ["pid", "limited", "filled", "check", "checked", "go", "dir"] {
            let _ = std::fs::remove_file(slurm.work.join(name));
        }
        let job = slurm.sbatch_as((NOBODY, NOBODY), &["-N1"], script);
        // A job with swap only has no directory.
        assert_eq!(slurm.wait_file("dir"), ".\n", "{job}\n{}", slurm.state());
        assert_eq!((slurm.swaps().len(), slurm.free_mib()), (1, POOL_MIB - 96));
        job
    };
    let job = submit();
    let Some(cgroup) = Cgroup::new("host") else { return };
    // A process that outlives the job, such as a daemon of the node, has pages in its swap.
    let pager = || Pager(slurm.command("perl").arg("pager.pl").spawn().unwrap());
    let mut process = pager();
    slurm.page_out(&cgroup);
    let serial = slurm.buffers()[0]["serial"].to_string();
    let image = slurm.dir.join(format!("brick0/brindle-bb/{serial}/ost0.img"));
    let image =
        if image.exists() { image } else { slurm.dir.join(format!("brick1/brindle-bb/{serial}/ost0.img")) };
    let away = image.with_extension("away");
    std::fs::rename(&image, &away).unwrap();
    std::fs::create_dir(&image).unwrap();
    slurm.kill(&["serve", "/ost0"]);
    // A target whose process dies starts again in its mount, perhaps before this test has unmounted it: the disk has to be gone, too.
    let disk = image.with_extension("");
    let unmount = || {
        if !slurm.processes(&["serve", "/ost0"]).is_empty() {
            slurm.kill(&["serve", "/ost0"]);
        }
        std::process::Command::new("umount").arg(&disk).output().unwrap().status.success()
    };
    slurm.until(&["gone"], || if unmount() { "gone" } else { "" }.to_owned());
    slurm.tell("go");
    slurm.until(&["E7016", "of_pages_are_in_it"], || slurm.job(&job).replace(' ', "_"));
    let listed = slurm.brindle(&["bb", "list"]);
    assert!(listed.contains("being unmounted") && listed.contains("swap stays on"), "{listed}");
    assert_eq!(slurm.swaps().len(), 1);
    // The storage is back: nobody has to do anything, and the process has lost nothing.
    assert!(cgroup.limit(1 << 30));
    std::fs::remove_dir(&image).unwrap();
    std::fs::rename(&away, &image).unwrap();
    slurm.until(&["unmounted"], || slurm.brindle(&["bb", "list"]).replace("being unmounted", ""));
    // Slurm does not ask again by itself.
    slurm.slurm("scancel", &["--hurry", &job]);
    slurm.no_swap_is_left();
    slurm.tell("check");
    assert_eq!(slurm.wait_file("checked"), "0 wrong.");
    assert!(process.0.wait().unwrap().success());
    // A process whose pages were behind a dead daemon gets a signal, and never other bytes.
    assert!(cgroup.limit(MEMORY_BYTES));
    let job = submit();
    let mut process = pager();
    slurm.page_out(&cgroup);
    slurm.kill(&["mount", &format!("{job}_swap")]);
    slurm.tell("check");
    let ended = process.0.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(7), "{ended}");
    slurm.tell("go");
    slurm.completed(&job);
    slurm.no_swap_is_left();
}
