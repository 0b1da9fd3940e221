//! Slurm on hosts of their own: hosts of nodes die under their jobs, and come back.

use super::*;

/// Bytes of the pool: a brick of 128 MiB on each of two hosts.
const POOL_MIB: u64 = 256;
/// Longest wait for what begins when Slurm or the orchestrator has heard nothing of a host for a while.
const SILENT_LIMIT: Duration = Duration::from_secs(90);

impl Slurm {
    fn on_hosts(name: &str) -> Slurm {
        Slurm::up_as(name, &["--hosts=2", "--rate=1gbit"], 2, POOL_MIB)
    }

    /// `brindle dev host VERB NAME`.
    fn host(&self, verb: &str, name: &str) {
        let dir = format!("--dir={}", self.dir.display());
        let mut command = self.command(&binary().display().to_string());
        let out = output(command.args(["dev", "host", verb, name, &dir])).unwrap();
        assert!(out.status.success(), "{verb} {name}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// Network namespaces of the hosts.
    fn namespaces(&self) -> Vec<PathBuf> {
        let dir = format!("--dir={}", self.dir.display());
        let said = self.brindle(&["dev", "host", "list", &dir, "-o", "json"]);
        let listed: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        let hosts = listed["hosts"].as_array().unwrap();
        hosts.iter().map(|host| host["namespace"].as_str().unwrap().into()).collect()
    }

    /// Mounts of buffers on a host.
    fn mounted_on(&self, host: &str) -> String {
        let dir = format!("--dir={}", self.dir.display());
        let script = "grep ' /run/brindle/jobs/' /proc/mounts; echo end";
        let said = self.brindle(&["dev", "host", "run", &dir, host, "--", "sh", "-c", script]);
        said.strip_suffix("end\n").unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    /// The buffer of a job; `Null` where there is none.
    fn buffer(&self, job: &str) -> serde_json::Value {
        self.buffers().into_iter().find(|buffer| buffer["job"] == job).unwrap_or_default()
    }

    /// Waits for a buffer to come to a state; the buffer.
    fn until_state(&self, job: &str, state: &str) -> serde_json::Value {
        let since = Instant::now();
        loop {
            let buffer = self.buffer(job);
            if buffer["state"] == state {
                return buffer;
            }
            assert!(since.elapsed() < SILENT_LIMIT, "it is not {state}: {buffer}\n{}", self.state());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until Slurm has a node in a state.
    fn until_node(&self, node: &str, state: &str) {
        let since = Instant::now();
        let look = || self.slurm("sinfo", &["-h", "-n", node, "-o", "%T"]);
        while look().trim() != state {
            assert!(since.elapsed() < SILENT_LIMIT, "{node} is not {state}: {}", look());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// No buffer is left, its slices are free, and nothing lies in a brick or is mounted on a node.
    fn nothing_is_left(&self) {
        self.until(&["no buffers"], || self.brindle(&["bb", "list"]));
        assert_eq!(self.free_mib(), POOL_MIB);
        for host in ["oss1", "oss2"] {
            let brick = self.dir.join("hosts").join(host).join("lib/brick/brindle-bb");
            assert!(brick.join("owner").exists(), "{} is no brick", brick.display());
            assert_eq!(buffers_in(&brick), 0, "something is left in the brick of {host}\n{}", self.state());
        }
        for node in ["n1", "n2"] {
            assert_eq!(self.mounted_on(node), "", "{node}");
        }
    }
}

#[test]
fn nodes_that_die_under_their_jobs_lose_nothing_that_was_synced() {
    let slurm = Slurm::on_hosts("hosts");
    a_node_dies_while_its_job_runs(&slurm);
    a_node_dies_while_its_buffer_is_mounted(&slurm);
    let namespaces = slurm.namespaces();
    assert_eq!(namespaces.len(), 5, "{namespaces:?}");
    drop(slurm);
    assert!(namespaces.iter().all(|path| !path.exists()), "{namespaces:?}");
}

/// Slurm takes the node for dead and ends the job. The buffer waits for the node, and its files come out when it is back.
fn a_node_dies_while_its_job_runs(slurm: &Slurm) {
    let writes = "srun -N2 --ntasks-per-node=1 bash -c 'cd $DW_JOB_STRIPED/data; echo $SLURMD_NODENAME > $SLURMD_NODENAME; sync $SLURMD_NODENAME'";
    std::fs::write(slurm.work.join("in/numbers"), "1\n2\n3\n").unwrap();
    let script = format!("#SBATCH --no-requeue\n{}\n{writes}\n{WAITS}", stages(slurm));
    let job = slurm.submit(&script);
    slurm.wait_file("where");
    slurm.host("kill", "n2");
    slurm.until_node("n2", "down*");
    slurm.until(&["Reason=burst_buffer/datawarp:_dws_post_run:_E7018_waiting_for_node_n2"], || {
        slurm.job(&job)
    });
    assert!(!slurm.work.join("out").exists(), "nothing is staged out under a node");
    let buffer = slurm.buffer(&job);
    assert_eq!((&buffer["state"], &buffer["nodes"]), (&"being unmounted".into(), &serde_json::json!(["n2"])));
    assert!(buffer["reason"].as_str().unwrap().contains("waiting for node n2"), "{buffer}");
    assert_eq!((slurm.free_mib(), slurm.mounted_on("n1")), (POOL_MIB - 64, String::new()));
    slurm.host("start", "n2");
    slurm.until_node("n2", "idle");
    let buffer = slurm.until_state(&job, "unmounted");
    assert_eq!(
        (&buffer["nodes"], slurm.mounted_on("n2")),
        (&serde_json::json!([]), String::new()),
        "{buffer}"
    );
    let staged = slurm.brindle(&["bb", "stage", "--retry", &job]);
    assert!(staged.contains("its files are staged out"), "{staged}");
    slurm.slurm("scancel", &["--hurry", &job]);
    slurm.until(&["JobState=NODE_FAIL"], || slurm.job(&job));
    for (file, text) in [("numbers", "1\n2\n3\n"), ("n1", "n1\n"), ("n2", "n2\n")] {
        assert_eq!(std::fs::read_to_string(slurm.work.join("out").join(file)).unwrap(), text);
    }
    slurm.nothing_is_left();
}

/// The job never runs there: its buffer goes when the node is back.
fn a_node_dies_while_its_buffer_is_mounted(slurm: &Slurm) {
    slurm.host("freeze", "n2");
    let job = slurm.submit("touch ran");
    slurm.until_state(&job, "being mounted");
    slurm.host("kill", "n2");
    slurm.until(&["pre_run: E7018 waiting for node n2"], || slurm.job(&job));
    let buffer = slurm.until_state(&job, "being unmounted");
    assert!(buffer["nodes"].as_array().unwrap().contains(&"n2".into()), "{buffer}");
    assert_eq!(slurm.free_mib(), POOL_MIB - 64);
    slurm.host("start", "n2");
    slurm.slurm("scancel", &[&job]);
    slurm.until(&["JobState=CANCELLED"], || slurm.job(&job));
    slurm.nothing_is_left();
    assert!(!slurm.work.join("ran").exists());
}
