//! `make demo-slurm`: a real Slurm with four nodes on this machine runs a job that asks for a burst buffer, and a time line shows
//! the buffer's states. All is removed at the end.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{requirements, screen};
use crate::{Session, setup};

/// Base directory: a path that every user can enter.
const BASE: &str = "/var/tmp";
/// Steps of the tour.
const STEPS: u32 = 4;
/// User that submits the job: Slurm gives no burst buffers to root.
const NOBODY: u32 = 65_534;
/// Longest time of the job.
const JOB_LIMIT: Duration = Duration::from_secs(120);
/// Time between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

struct Tour {
    brindle: PathBuf,
    dir: PathBuf,
    work: PathBuf,
}

/// `cargo xtask demo-slurm`.
pub fn run(session: &Session) -> Result<(), String> {
    let base = Path::new(BASE).join(format!("brindle-demo-slurm-{}", std::process::id()));
    let tour = Tour { brindle: session.brindle(), dir: base.join("slurm"), work: base.join("work") };
    screen::title("A job of Slurm gets a file system of its own");
    requirements()?;
    setup::need("demo-slurm")?;
    let step = screen::step_of(1, STEPS, "Build");
    crate::build(session)?;
    step.end(&format!("{} is there", session.brindle_typed()));
    let toured = tour.take();
    let down = tour.ok(Command::new(&tour.brindle).args(["dev", "slurm", "down", "--dir"]).arg(&tour.dir));
    let removed =
        std::fs::remove_dir_all(&base).map_err(|e| format!("cannot remove {}: {e}", base.display()));
    toured.and(down.map(drop)).and(removed)?;
    screen::title("That was the tour. No process, mount or file of it is left.");
    screen::text(
        "To have one that stays: brindle dev slurm up --dir /tmp/s --nodes 4 --bb-pool 1GiB; then docs/operations/slurm.md.",
    );
    Ok(())
}

impl Tour {
    fn take(&self) -> Result<(), String> {
        let step = screen::step_of(2, STEPS, "Start munge, slurmctld, four nodes and a pool of bricks");
        let mut up = Command::new(&self.brindle);
        up.args(["dev", "slurm", "up", "--nodes=4", "--bb-pool=1GiB", "--dir"]).arg(&self.dir);
        self.ok(&mut up)?;
        screen::command("sinfo", &self.ok(&mut self.slurm("sinfo"))?);
        step.end("the nodes are idle");
        let step = screen::step_of(3, STEPS, "Submit the job");
        let job = self.submit()?;
        let script = std::fs::read_to_string(self.work.join("job.sh")).map_err(|e| e.to_string())?;
        screen::command("sbatch --bb \"capacity=64MiB access_mode=striped type=scratch\" job.sh", &script);
        self.follow(&job)?;
        step.end("the job is complete");
        let step = screen::step_of(4, STEPS, "See what it left");
        let log = self.work.join(format!("log.{job}"));
        screen::command("cat log", &std::fs::read_to_string(log).map_err(|e| e.to_string())?);
        screen::command(
            "ls -l data-out",
            &self.ok(Command::new("ls").arg("-l").arg(self.work.join("data-out")))?,
        );
        let mut list = Command::new(&self.brindle);
        screen::command(
            "brindle bb list",
            &self.ok(list.args(["bb", "list"]).env("BRINDLE_BB_SOCKET", self.dir.join("run/bb.sock")))?,
        );
        step.end("the buffer is gone, its files are here");
        Ok(())
    }

    fn submit(&self) -> Result<String, String> {
        let input = self.work.join("data-in");
        let made = std::fs::create_dir_all(&input)
            .and_then(|()| std::fs::write(input.join("numbers"), "1\n2\n3\n"))
            .and_then(|()| chown(&self.work, Some(NOBODY), Some(NOBODY)));
        made.map_err(|e| format!("cannot make {}: {e}", input.display()))?;
        let work = self.work.display();
        let script = format!(
            "#!/bin/bash\n#SBATCH -N 4 -o {work}/log.%j\n\
             #DW stage_in  type=directory source={work}/data-in/  destination=$DW_JOB_STRIPED/data\n\
             #DW stage_out type=directory source=$DW_JOB_STRIPED/data  destination={work}/data-out/\n\
             echo \"the buffer is at $DW_JOB_STRIPED\"; df -h $DW_JOB_STRIPED\n\
             srun -N4 --ntasks-per-node=1 bash -c 'wc -l < $DW_JOB_STRIPED/data/numbers > $DW_JOB_STRIPED/data/from.$SLURMD_NODENAME'\n"
        );
        let path = self.work.join("job.sh");
        std::fs::write(&path, script).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let mut sbatch = self.slurm("sbatch");
        sbatch.args(["--parsable", "--bb", "capacity=64MiB access_mode=striped type=scratch"]).arg(&path);
        Ok(self.ok(sbatch.uid(NOBODY).gid(NOBODY))?.trim().to_owned())
    }

    /// Shows each state of the job and its buffer, with the time since it was submitted.
    fn follow(&self, job: &str) -> Result<(), String> {
        let since = Instant::now();
        let mut last = String::new();
        while since.elapsed() < JOB_LIMIT {
            let shown = self.ok(self.slurm("scontrol").args(["-o", "show", "job", job]))?;
            let field = |name: &str| {
                shown.split(' ').find_map(|w| w.strip_prefix(name)).unwrap_or_default().to_owned()
            };
            let state = field("JobState=");
            let buffer = self.ok(self.slurm("scontrol").args(["show", "bbstat", "job", job]))?;
            let line = format!("{state:<12} {:<28} {}", field("Reason="), buffer.trim());
            if line != last {
                screen::line(&format!("{:6.2} s  {line}", since.elapsed().as_secs_f64()));
                last = line;
            }
            match state.as_str() {
                "COMPLETED" if buffer.trim() == "no buffers" => return Ok(()),
                "FAILED" | "CANCELLED" => return Err(format!("the job ended as {state}:\n{shown}")),
                _ => std::thread::sleep(LOOK_AGAIN),
            }
        }
        Err(format!("the job has not ended within {} s: {last}", JOB_LIMIT.as_secs()))
    }

    fn slurm(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("SLURM_CONF", self.dir.join("etc/slurm.conf"))
            .current_dir(self.work.parent().unwrap_or(Path::new("/")));
        command
    }

    fn ok(&self, command: &mut Command) -> Result<String, String> {
        let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() {
            return Ok(said);
        }
        Err(format!("{command:?}\n{said}{}", String::from_utf8_lossy(&out.stderr)))
    }
}
