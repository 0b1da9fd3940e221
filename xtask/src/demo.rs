//! `make demo`: builds, starts a cluster on this machine, mounts it and takes a tour on real files; `make down` ends it.
//!
//! State lies in `.brindle-dev` (`STATE=DIR` for another place), the mount in `./mnt` (`MNT=DIR`). Invariants: a second run works
//! whatever the first one left; after `down` no process, mount or file is left. The steps are in [`tour`], their look in
//! [`screen`].

pub mod hosts;
mod large;
mod screen;
pub mod slurm;
mod tour;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::run::{Cmd, Finished};
use crate::{Session, setup};

/// Directory of the demo's cluster without `STATE`, below the repository: what `brindle dev` takes without `--dir`.
const STATE: &str = ".brindle-dev";
/// Mount point without `MNT`.
const MOUNT: &str = "mnt";
/// Longest time of one command of the cluster.
const COMMAND_SECS_MAX: u64 = 120;

/// The demo's cluster.
pub struct Demo<'a> {
    session: &'a Session,
    /// Directory of the cluster.
    state: PathBuf,
    /// The mount point.
    mount: PathBuf,
}

/// `cargo xtask demo`.
pub fn run(session: &Session) -> Result<(), String> {
    let demo = Demo::new(session)?;
    let begun = Instant::now();
    screen::title("Brindle, a parallel file system, on this machine");
    screen::text(&format!(
        "State goes to {}, the mount to {}.",
        demo.shown(&demo.state),
        demo.shown(&demo.mount)
    ));
    requirements()?;
    setup::need("demo")?;
    let step = screen::step(1, "Build");
    crate::build(session)?;
    step.end(&format!("{} is there", session.brindle_typed()));
    let step = screen::step(2, "Start 1 MGS, 1 MDT and 4 OSTs, and mount");
    demo.up()?;
    step.end(&format!("mounted at {}", demo.shown(&demo.mount)));
    tour::take(&demo)?;
    screen::title(&format!(
        "That was the tour, in {:.0} s. It stays mounted.",
        begun.elapsed().as_secs_f64()
    ));
    what_next(&demo);
    Ok(())
}

/// `cargo xtask down`.
pub fn down(session: &Session) -> Result<(), String> {
    let demo = Demo::new(session)?;
    if !demo.state.exists() {
        println!("nothing to do: no demo is running");
        return Ok(());
    }
    if !session.brindle().exists() {
        crate::build(session)?;
    }
    let done = demo.dev("down", &["--purge"]);
    if !done.ok() {
        return Err(done.explain());
    }
    let _ = std::fs::remove_dir_all(demo.logs());
    println!("the demo is down: no process, mount or file of it is left");
    Ok(())
}

/// Requirements that would otherwise be missed only after the build.
fn requirements() -> Result<(), String> {
    // SAFETY: geteuid only reads the process's credentials.
    if unsafe { libc::geteuid() } != 0 {
        return Err(
            "the demo mounts a file system, which needs root\n  next: the same command with sudo".to_owned()
        );
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(
            "there is no /dev/fuse\n  next: modprobe fuse; in a container: give it the device".to_owned()
        );
    }
    Ok(())
}

impl<'a> Demo<'a> {
    fn new(session: &'a Session) -> Result<Demo<'a>, String> {
        let place = |variable: &str, usual: &str| {
            let given = std::env::var_os(variable).filter(|dir| !dir.is_empty());
            let place = session.root.join(given.map_or_else(|| PathBuf::from(usual), PathBuf::from));
            std::path::absolute(&place).map_err(|e| format!("{variable}={}: {e}", place.display()))
        };
        let demo = Demo { session, state: place("STATE", STATE)?, mount: place("MNT", MOUNT)? };
        demo.refuse_used_state()?;
        Ok(demo)
    }

    /// Refuses to use or end a cluster that the user has made.
    fn refuse_used_state(&self) -> Result<(), String> {
        let is_ours = |name: &&str| self.state.join(name).exists();
        let is_empty = || std::fs::read_dir(&self.state).is_ok_and(|mut entries| entries.next().is_none());
        if !self.state.exists() || ["lock", "state.json"].iter().any(is_ours) || is_empty() {
            return Ok(());
        }
        Err(format!(
            "STATE={} is there and holds something else than a demo; nothing was changed\n  next: name a directory that \
             does not exist yet",
            self.shown(&self.state)
        ))
    }

    fn logs(&self) -> PathBuf {
        self.session.root.join("target/demo-logs")
    }

    /// A path as a person in the repository would type it.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.session.root).unwrap_or(path).display().to_string()
    }

    /// Runs `brindle ARGS`.
    fn brindle(&self, args: &[&str]) -> Finished {
        let log =
            self.logs().join(format!("{}.log", args.iter().take(2).copied().collect::<Vec<_>>().join("-")));
        let command = Cmd::new(self.session.brindle()).args(args).dir(&self.session.root);
        command.limit_secs(COMMAND_SECS_MAX).run(&log)
    }

    /// Runs `brindle dev VERB ARGS` on the demo's cluster.
    fn dev(&self, verb: &str, args: &[&str]) -> Finished {
        let dir = format!("--dir={}", self.state.display());
        let words: Vec<&str> = ["dev", verb, &dir].into_iter().chain(args.iter().copied()).collect();
        self.brindle(&words)
    }

    /// Starts the cluster and mounts it, unless exactly that is there already.
    fn up(&self) -> Result<(), String> {
        match self.found() {
            FoundState::Nothing => {}
            FoundState::Running => {
                screen::text("It is running already, from an earlier run.");
                return Ok(());
            }
            FoundState::Other => {
                screen::text("An earlier run left something else; it is stopped first. Its files stay.");
                let down = self.dev("down", &[]);
                if !down.ok() {
                    return Err(down.explain());
                }
            }
        }
        self.refuse_used_mount_point()?;
        let mount = format!("--mount={}", self.mount.display());
        let archive = format!("--archive={}", self.state.join("archive").display());
        let up = self.dev("up", &["--osts=4", &mount, &archive]);
        if !up.ok() {
            return Err(up.explain());
        }
        // Progress of the start is shown, without its summary: this tour ends with its own.
        let shown = up.output();
        shown.lines().filter(|line| line.contains(" s  ") && !line.contains("ready")).for_each(screen::line);
        Ok(())
    }

    /// Cluster that an earlier run left.
    fn found(&self) -> FoundState {
        if !self.state.exists() {
            return FoundState::Nothing;
        }
        let status = self.dev("status", &["-o", "json"]);
        let json: serde_json::Value = serde_json::from_str(&status.output()).unwrap_or_default();
        let all = json["processes"].as_array().cloned().unwrap_or_default();
        let running = all.iter().filter(|p| p["state"] == "running").count();
        let here = all.iter().any(|p| p["mount"].as_str().is_some_and(|m| Path::new(m) == self.mount));
        match running {
            0 if status.ok() => FoundState::Nothing,
            n if n == all.len() && here => FoundState::Running,
            _ => FoundState::Other,
        }
    }

    fn refuse_used_mount_point(&self) -> Result<(), String> {
        let mut entries = match std::fs::read_dir(&self.mount) {
            Ok(entries) => entries,
            Err(_) => return Ok(()),
        };
        if entries.next().is_none() {
            return Ok(());
        }
        let shown = self.shown(&self.mount);
        Err(format!(
            "{shown} is not empty; the mount would hide what is in it\n  next: make demo MNT=DIR with another one"
        ))
    }
}

enum FoundState {
    /// No cluster, or a stopped one.
    Nothing,
    /// The wanted cluster runs.
    Running,
    /// Half of one, or one that is mounted elsewhere.
    Other,
}

fn what_next(demo: &Demo<'_>) {
    let mount = demo.shown(&demo.mount);
    let state = demo.shown(&demo.state);
    let (dir, given) = match state.as_str() {
        STATE => (String::new(), String::new()),
        _ => (format!(" --dir {state}"), format!(" STATE={state}")),
    };
    let again = format!("break something and look (brindle dev start{dir} ost1)");
    let rows = [
        (
            "export PATH=$PWD/target/release:$PATH".to_owned(),
            "so that the following can be typed as it stands",
        ),
        (format!("cp -a /usr/include {mount}/"), "it is an ordinary directory: use it"),
        (format!("brindle lfs getstripe {mount}/tour/striped/large"), "where a file lies"),
        (format!("brindle lfs df -h {mount}"), "space of each target"),
        (format!("brindle dev kill{dir} ost1; brindle status{dir}"), &again),
        (format!("brindle dev status{dir}"), "processes, logs, metrics"),
        (format!("make down{given}"), "end it; no process, mount or file stays"),
    ];
    screen::text("What to type next:");
    let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, about) in rows {
        println!("    {command:<width$}  {about}");
    }
}
