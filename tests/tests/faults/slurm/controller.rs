//! slurmctld: its restart, and what it makes up for then.

use std::process::Stdio;
use std::time::Instant;

use super::{LOOK_AGAIN, PATIENCE, Slurm};

impl Slurm {
    /// Cancels a job that is held. With `burst_buffer/lua` Slurm 22.05 may end the job's teardown together with its other scripts; then the
    /// buffer stays until slurmctld is started anew (docs/operations/slurm.md).
    pub(super) fn cancel_held(&self, job: &str) {
        self.slurm("scancel", &[job]);
        let lost = format!("teardown for JobId={job} terminated by slurmctld");
        let log = self.dir.join("log/slurmctld.log");
        let (since, mut is_restarted) = (Instant::now(), false);
        let is_of = |line: &str| line.split_whitespace().next() == Some(job);
        while self.brindle(&["bb", "list"]).lines().any(is_of) {
            if !is_restarted && std::fs::read_to_string(&log).unwrap_or_default().contains(&lost) {
                self.restart_controller();
                is_restarted = true;
            }
            assert!(since.elapsed() < PATIENCE, "the buffer of job {job} stays:\n{}", self.state());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn restart_controller(&self) {
        let pid = std::fs::read_to_string(self.dir.join("run/slurmctld.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.until(&["ended"], || {
            let runs = rustix::process::test_kill_process(pid).is_ok();
            if runs { String::new() } else { "ended".to_owned() }
        });
        let mut command = self.command("slurmctld");
        command.current_dir(&self.dir).arg("-f").arg(self.dir.join("etc/slurm.conf"));
        command.env("BRINDLE_DACCTL", self.dir.join("bin/dacctl"));
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(quiet.status().unwrap().success(), "slurmctld does not start");
    }
}
