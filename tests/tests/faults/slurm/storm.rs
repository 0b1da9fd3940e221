//! Many short jobs with random modes, sizes, failures and cancels, and an orchestrator that is killed. Afterwards every buffer is accounted
//! for, and no file that was to be staged out is lost. `BRINDLE_STORM_JOBS` sets the number of jobs; `make soak` runs a thousand.

use super::*;

/// Nodes and the pool of the storm.
const NODES: usize = 4;
const STORM_POOL_MIB: u64 = 1024;
/// Jobs, unless told otherwise.
const STORM_JOBS: u64 = 30;
/// Jobs that are in the queue at a time.
const QUEUE_MAX: usize = 24;
/// Longest time of a job, from its turn on.
const JOB_LIMIT: Duration = Duration::from_secs(15);

/// A job of the storm.
struct Job {
    number: u64,
    id: String,
    /// Whether its result is to be staged out.
    stages_out: bool,
}

#[test]
fn a_storm_of_jobs_loses_nothing_and_leaves_nothing() {
    let given = std::env::var("BRINDLE_STORM_JOBS").ok().and_then(|text| text.parse().ok());
    let count: u64 = given.unwrap_or(STORM_JOBS);
    let mut dice = Dice::new(seed("storm"));
    let slurm = Slurm::up_sized("storm", "--plugin=datawarp", NODES, STORM_POOL_MIB);
    for (name, owner) in [("out", NOBODY), ("closed", 0), ("wrote", NOBODY)] {
        let dir = slurm.work.join(name);
        std::fs::create_dir(&dir).unwrap();
        chown(&dir, Some(owner), Some(owner)).unwrap();
    }
    std::fs::write(slurm.work.join("in/numbers"), vec![7; 100_000]).unwrap();
    let made = slurm.brindle(&["bb", "create", "--capacity=64MiB", "--user=65534", "shared"]);
    assert!(made.contains("created"), "{made}");
    let since = Instant::now();
    let limit = PATIENCE + JOB_LIMIT * u32::try_from(count).unwrap();
    let (mut jobs, mut queue): (Vec<Job>, Vec<String>) = (Vec::new(), Vec::new());
    while (jobs.len() as u64) < count || !queue.is_empty() {
        assert!(since.elapsed() < limit, "the storm does not end:\n{}", slurm.state());
        if (jobs.len() as u64) < count && queue.len() < QUEUE_MAX {
            jobs.push(submit(&slurm, &mut dice, jobs.len() as u64));
        }
        if dice.once_in(3)
            && let Some(job) = dice.choose(&jobs)
        {
            let hurry = ["--hurry"].into_iter().take(usize::from(dice.once_in(2)));
            // A job that has ended already is not there any more.
            slurm.slurm("scancel", &hurry.chain([job.id.as_str()]).collect::<Vec<_>>());
        }
        if dice.once_in(20) {
            slurm.restart_orchestrator();
        }
        end_stuck_ones(&slurm);
        queue = slurm.slurm("squeue", &["-h", "-o", "%i"]).lines().map(str::to_owned).collect();
    }
    println!("storm: {count} jobs in {:.1} s", since.elapsed().as_secs_f64());
    all_is_accounted_for(&slurm, &jobs);
}

/// A random job.
fn submit(slurm: &Slurm, dice: &mut Dice, number: u64) -> Job {
    let work = slurm.work.display();
    let (modes, nodes) = (["striped", "private", "striped,private"], ["-N1", "-N2", "-N3"]);
    let mode = *dice.choose(&modes).unwrap();
    let is_striped = mode != "private";
    let mut lines =
        format!("#DW jobdw capacity={}MiB access_mode={mode} type=scratch", 16 * (1 + dice.below(6)));
    if dice.once_in(4) {
        lines += &format!(" grow=auto:{}MiB", 128 + 16 * dice.below(4));
    }
    if dice.once_in(4) {
        lines += "\n#DW persistentdw name=shared";
    }
    let (mut at, mut work_of_job) = ("$DW_JOB_PRIVATE", String::new());
    let stages_out = is_striped && !dice.once_in(4);
    if is_striped {
        at = "$DW_JOB_STRIPED";
        let source = if dice.once_in(6) { "/nowhere/x" } else { "in" };
        let source = if source == "in" { format!("{work}/in") } else { source.to_owned() };
        lines += &format!("\n#DW stage_in type=directory source={source} destination=$DW_JOB_STRIPED/d");
    }
    if stages_out {
        let to = if dice.once_in(5) { "closed" } else { "out" };
        lines +=
            &format!("\n#DW stage_out type=file source=$DW_JOB_STRIPED/r destination={work}/{to}/{number}");
    }
    if dice.once_in(3) {
        let size = 16 * (4 + dice.below(8));
        work_of_job = format!("{} bb grow {at} {size}MiB\n", binary().display());
    }
    let code = dice.below(2);
    let sleep_ms = dice.below(1500);
    lines += &format!(
        "\nset -e\n{work_of_job}head -c {}K /dev/urandom > {at}/filler\nsleep 0.{sleep_ms:04}\n\
         echo {number} > {at}/r; echo {number} > {work}/wrote/{number}; exit {code}",
        1 + dice.below(12_000)
    );
    // The grown part may be refused, as the pool is full.
    lines = lines.replace("MiB\nhead", "MiB || true\nhead");
    let said = slurm.sbatch_as((NOBODY, NOBODY), &[dice.choose(&nodes).unwrap()], &lines);
    assert!(said.parse::<u32>().is_ok(), "{said}\n{lines}");
    Job { number, id: said, stages_out }
}

/// Ends the jobs that Slurm keeps because a file could not be staged.
fn end_stuck_ones(slurm: &Slurm) {
    for line in slurm.slurm("squeue", &["-h", "-o", "%i %T %r"]).lines() {
        let mut words = line.split(' ');
        let (id, state) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_held = line.contains("E70") || line.contains("pre_run") || line.contains("JobHeld");
        match state {
            "PENDING" if is_held => slurm.slurm("scancel", &[id]),
            "STAGE_OUT" | "COMPLETING" if line.contains("E70") => slurm.slurm("scancel", &["--hurry", id]),
            _ => String::new(),
        };
    }
}

/// Buffers that are left hold files that could not be staged out, or whose job was thrown away: all of them can be finished now.
fn all_is_accounted_for(slurm: &Slurm, jobs: &[Job]) {
    chown(slurm.work.join("closed"), Some(NOBODY), Some(NOBODY)).unwrap();
    slurm.until(&["default"], || slurm.brindle(&["bb", "pool"]));
    let is_kept = |b: &serde_json::Value| b["state"] == "kept" || b["persistent"] == true;
    // Teardowns may still be under way.
    slurm.until(&["1"], || u64::from(slurm.buffers().iter().all(is_kept)).to_string());
    let buffers = slurm.buffers();
    let used: u64 = buffers.iter().map(|b| b["bytes"].as_u64().unwrap() >> 20).sum();
    assert_eq!(used + slurm.free_mib(), STORM_POOL_MIB, "{}", slurm.state());
    for buffer in buffers.iter().filter(|b| b["persistent"] != true) {
        assert!(buffer["stage_out_pending"] == true && buffer["reason"] != "", "{buffer}");
        let name = format!("{}.{}", buffer["job"].as_str().unwrap(), buffer["serial"]);
        slurm.brindle(&["bb", "stage", "--retry", &name]);
    }
    // A job that was cut off before it made its result has nothing to stage out: such a buffer is given up.
    for buffer in slurm.buffers().iter().filter(|b| b["persistent"] != true) {
        let job = jobs.iter().find(|job| buffer["job"] == job.id.as_str()).unwrap();
        let made = slurm.work.join(format!("wrote/{}", job.number)).exists();
        assert!(!made, "the result of job {} cannot be staged out: {buffer}", job.id);
        slurm.brindle(&["bb", "destroy", "--yes", &format!("{}.{}", job.id, buffer["serial"])]);
    }
    for job in jobs.iter().filter(|job| job.stages_out) {
        let result = |dir: &str| std::fs::read_to_string(slurm.work.join(dir).join(job.number.to_string()));
        if let Ok(made) = result("wrote") {
            let staged = result("out").or_else(|_| result("closed"));
            assert_eq!(staged.ok(), Some(made), "the result of job {} is lost\n{}", job.id, slurm.state());
        }
    }
    slurm.brindle(&["bb", "destroy", "--yes", "shared"]);
    slurm.wait_empty();
    let loops = slurm.say(Command::new("losetup").arg("-a"));
    assert!(!loops.contains(&slurm.dir.display().to_string()), "{loops}");
}
