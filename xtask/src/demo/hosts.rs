//! `make demo-cluster`: six hosts and two clients on this machine, each with an address and a link of its own; hosts die and lose
//! their links under work, and the programs go on.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{COMMAND_SECS_MAX, large, requirements, screen};
use crate::run::{Cmd, Finished};
use crate::{Session, setup};

/// Directory of the cluster, below the repository.
const STATE: &str = ".brindle-hosts";
/// Steps of the tour.
const STEPS: u32 = 6;
/// Size of the file that is written while a host is dead.
const COPY_BYTES: u64 = 384 << 20;
/// Time for which a host is away: the length of the fault that is shown; no step waits by it.
const AWAY: Duration = Duration::from_secs(2);

struct Tour<'a> {
    session: &'a Session,
    state: PathBuf,
}

/// `cargo xtask demo-cluster`.
pub fn run(session: &Session) -> Result<(), String> {
    let tour = Tour { session, state: session.root.join(STATE) };
    let begun = Instant::now();
    screen::title(
        "Brindle, a parallel file system, on eight hosts that are network namespaces of this machine",
    );
    screen::text(&format!("Everything lies in {STATE}; the clients mount at {STATE}/mnt/c1 and c2."));
    requirements()?;
    setup::need("demo-cluster")?;
    let step = screen::step_of(1, STEPS, "Build");
    crate::build(session)?;
    step.end(&format!("{} is there", session.brindle_typed()));
    tour.start()?;
    tour.dead_oss()?;
    tour.dead_mds()?;
    tour.pulled_cable()?;
    let step = screen::step_of(6, STEPS, "See how it is");
    screen::command("brindle status", &tour.ok(&["status", "--dir", STATE])?);
    step.end("all servers answer");
    screen::title(&format!("That was the tour, in {:.0} s. It stays up.", begun.elapsed().as_secs_f64()));
    screen::text("What to type next (with target/release in PATH):");
    for line in [
        format!("cp -a /usr/include {STATE}/mnt/c1/; ls {STATE}/mnt/c2/"),
        format!("brindle dev host kill --dir {STATE} oss3; brindle status --dir {STATE}"),
        format!("brindle dev host shape --dir {STATE} c1 100mbit"),
        format!("brindle dev down --dir {STATE} --purge     # nothing stays"),
    ] {
        screen::line(&line);
    }
    Ok(())
}

impl Tour<'_> {
    fn start(&self) -> Result<(), String> {
        let step = screen::step_of(2, STEPS, "Start 6 servers and 2 clients, each on a host of its own");
        if self.state.join("state.json").exists() {
            screen::text("An earlier run left something; it is stopped first. Its files stay.");
            self.ok(&["dev", "down", "--dir", STATE])?;
        }
        self.ok(&["dev", "up", "--dir", STATE, "--hosts=6", "--clients=2"])?;
        screen::command("brindle dev host list", &self.ok(&["dev", "host", "list", "--dir", STATE])?);
        step.end("mounted on both clients");
        Ok(())
    }

    fn dead_oss(&self) -> Result<(), String> {
        let step = screen::step_of(3, STEPS, "The power of an OSS host fails while a client writes");
        let dir = self.mount("c1").join("striped");
        std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let shown = format!("{STATE}/mnt/c1/striped");
        self.ok(&["lfs", "setstripe", "-c", "-1", &shown])?;
        let file = dir.join("file");
        let mut job = large::write(&file, COPY_BYTES);
        job.watch("", |done| done >= COPY_BYTES / 4)?;
        job.clear();
        self.host("kill", &["oss2"])?;
        let since = Instant::now();
        job.watch("(oss2 is dead: the write waits)", |_| since.elapsed() > AWAY)?;
        job.clear();
        screen::text(&format!("the write waits at {} of {} MiB", job.done() >> 20, COPY_BYTES >> 20));
        self.status()?;
        self.host("start", &["oss2"])?;
        job.end().map_err(|e| format!("the write failed: {e}"))?;
        large::compare(&self.mount("c2").join("striped/file"), COPY_BYTES).end()?;
        step.end("the program noticed nothing, and the other client reads every byte as it was written");
        Ok(())
    }

    fn dead_mds(&self) -> Result<(), String> {
        let step =
            screen::step_of(4, STEPS, "The power of the MDS host fails while a client unpacks an archive");
        let archive = "tar -c --exclude=./target --exclude=./mnt --exclude='./.brindle-*' --exclude=./.git .";
        let to = self.mount("c2").join("sources");
        let line = format!("mkdir -p '{0}' && {archive} | tar -x -C '{0}'", to.display());
        let mut unpacking = Command::new("sh")
            .args(["-ec", &line])
            .current_dir(&self.session.root)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot run tar: {e}"))?;
        self.host("kill", &["mds2"])?;
        std::thread::sleep(AWAY);
        self.status()?;
        self.host("start", &["mds2"])?;
        let done = unpacking.wait().map_err(|e| format!("tar cannot be waited for: {e}"))?;
        if !done.success() {
            return Err(format!("tar ended with {done}"));
        }
        let from = self.mount("c1").join("sources");
        let compare = format!("{archive} | tar -d -C '{}'", from.display());
        let compared = Cmd::new("sh").args(["-ec", &compare]).dir(&self.session.root);
        let compared = compared.limit_secs(COMMAND_SECS_MAX).run(&self.log("compare"));
        if !compared.ok() {
            return Err(compared.explain());
        }
        step.end("tar noticed nothing, and the other client finds no difference");
        Ok(())
    }

    fn pulled_cable(&self) -> Result<(), String> {
        let step = screen::step_of(5, STEPS, "A cable is pulled, and put in again");
        let file = self.mount("c1").join("striped/file");
        let mut job = large::compare(&file, COPY_BYTES);
        self.host("cut", &["oss1"])?;
        let since = Instant::now();
        job.watch("(oss1 is cut off: the read waits)", |_| since.elapsed() > AWAY)?;
        job.clear();
        self.status()?;
        self.host("heal", &["oss1"])?;
        job.end().map_err(|e| format!("the read failed: {e}"))?;
        step.end("what was read is what was written");
        Ok(())
    }

    fn mount(&self, client: &str) -> PathBuf {
        self.state.join("mnt").join(client)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.session.root.join("target/demo-logs").join(format!("hosts-{name}.log"))
    }

    fn brindle(&self, args: &[&str]) -> Finished {
        let log = self.log(&args.iter().take(3).copied().collect::<Vec<_>>().join("-"));
        Cmd::new(self.session.brindle())
            .args(args)
            .dir(&self.session.root)
            .limit_secs(COMMAND_SECS_MAX)
            .run(&log)
    }

    /// Runs `brindle ARGS`, which has to succeed; what it printed.
    fn ok(&self, args: &[&str]) -> Result<String, String> {
        let done = self.brindle(args);
        if done.ok() { Ok(done.output()) } else { Err(done.explain()) }
    }

    fn host(&self, verb: &str, args: &[&str]) -> Result<(), String> {
        let words: Vec<&str> =
            ["dev", "host", verb, "--dir", STATE].into_iter().chain(args.iter().copied()).collect();
        let said = self.ok(&words)?;
        screen::command(&format!("brindle dev host {verb} {}", args.join(" ")), &said);
        Ok(())
    }

    /// Problems and next steps, without the tree of targets.
    fn status(&self) -> Result<(), String> {
        let page = self.ok(&["status", "-x", "--dir", STATE])?;
        let wrong: Vec<&str> = page.lines().take_while(|line| !line.starts_with("config:")).collect();
        screen::command("brindle status -x", &wrong.join("\n"));
        Ok(())
    }
}
