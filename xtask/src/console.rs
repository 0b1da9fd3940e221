//! The console: the committed build equals a build of its sources, and a walk through the console in a real browser on a real cluster.
//!
//! Needs node, npm and chromium, which `setup` brings. Packages of npm come from its registry, as `console/package-lock.json` fixes them.

use std::path::{Path, PathBuf};

use crate::Session;
use crate::report::Report;
use crate::run::Cmd;

/// Longest time for getting packages, of one build, and of the walk.
const NPM_SECS_MAX: u64 = 300;
const BUILD_SECS_MAX: u64 = 120;
const WALK_SECS_MAX: u64 = 900;
/// Answers of the program in place of `smartctl`, and of the site's own program: this machine may have neither.
const SMARTCTL: &str = r#"#!/bin/sh
echo '{"model_name": "Disk of a test", "serial_number": "T3ST", "smart_status": {"passed": true}, "temperature": {"current": 41}}'
"#;
const SITE_PROGRAM: &str = "#!/bin/sh\necho '{\"fan_1\": \"turns\"}'\n";
/// Size of each target.
const TARGET_SIZE: &str = "1GiB";
const DEV_SECS_MAX: u64 = 120;
/// Largest console, compressed: everything that a browser loads at first.
const LOADED_MAX_BYTES: usize = 200_000;
/// Base directory, on a disk: a memory file system has no direct I/O.
const BASE: &str = "/var/tmp";

/// The step.
pub fn run(session: &Session) -> Report {
    let console = session.root.join("console");
    let logs = session.logs().join("console");
    if let Err(e) = std::fs::create_dir_all(&logs) {
        return Report::fail("console::logs", format!("{}: {e}", logs.display()));
    }
    let npm = Cmd::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]);
    let installed = npm.dir(&console).limit_secs(NPM_SECS_MAX).run(&logs.join("npm.log"));
    if !installed.ok() {
        return Report::fail("console::npm", installed.explain());
    }
    let mut report = Report::check("console::dist", same_as_built(session, &console, &logs));
    report.add(Report::check("console::size", is_small(&console.join("dist"))));
    report.add(walk(session, &console, &logs));
    report
}

/// Builds the console elsewhere and compares it with what is committed.
fn same_as_built(session: &Session, console: &Path, logs: &Path) -> Result<(), String> {
    let built = session.root.join("target/console-dist");
    let vite = Cmd::new("node").args(["node_modules/vite/bin/vite.js", "build", "--emptyOutDir", "--outDir"]);
    let done = vite.arg(&built).dir(console).limit_secs(BUILD_SECS_MAX).run(&logs.join("build.log"));
    if !done.ok() {
        return Err(done.explain());
    }
    let diff = Cmd::new("diff").arg("-rq").arg(console.join("dist")).arg(&built);
    let diff = diff.limit_secs(BUILD_SECS_MAX).run(&logs.join("diff.log"));
    if diff.ok() {
        return Ok(());
    }
    Err(format!(
        "console/dist is not what its sources build; run: cd console && npm ci && npm run build\n{}",
        diff.explain()
    ))
}

/// The size of what a browser loads, as gzip would send it.
fn is_small(dist: &Path) -> Result<(), String> {
    let mut bytes = 0;
    for file in ["index.html", "icon.svg", "assets/console.js", "assets/console.css"] {
        let packed = std::process::Command::new("gzip").arg("-9c").arg(dist.join(file)).output();
        let packed = packed.map_err(|e| format!("gzip: {e}"))?;
        if !packed.status.success() {
            return Err(format!("gzip {file}: {}", String::from_utf8_lossy(&packed.stderr)));
        }
        bytes += packed.stdout.len();
    }
    if bytes <= LOADED_MAX_BYTES {
        return Ok(());
    }
    Err(format!("a browser loads {bytes} bytes (compressed); {LOADED_MAX_BYTES} are allowed"))
}

/// Writes a program.
fn program(path: &Path, text: &str) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let written = std::fs::write(path, text)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)));
    written.map(|()| path.to_owned()).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// A directory with the disk and the link of a host, as the kernel shows them.
fn disk(base: &Path) -> Result<PathBuf, String> {
    let root = base.join("root");
    for (path, text) in [
        ("sys/block/sda/device/model", "TEST"),
        ("sys/block/sda/size", "2048"),
        ("sys/class/net/eth0/statistics/rx_errors", "0"),
        ("sys/class/net/eth0/operstate", "up"),
        ("sys/fs/ext4/sda1/errors_count", "0"),
    ] {
        let file = root.join(path);
        let parent = file.parent().unwrap_or(&root);
        let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&file, text));
        written.map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    Ok(root)
}

/// A cluster with its manager, taken down whatever happens.
struct Cluster {
    base: PathBuf,
    brindle: PathBuf,
    logs: PathBuf,
}

impl Cluster {
    fn up(session: &Session, logs: &Path) -> Result<(Cluster, String), String> {
        let base = PathBuf::from(BASE).join(format!("brindle-console-{}", std::process::id()));
        std::fs::create_dir(&base).map_err(|e| format!("cannot make {}: {e}", base.display()))?;
        let cluster = Cluster { base, brindle: session.brindle(), logs: logs.to_owned() };
        let smartctl = program(&cluster.base.join("smartctl"), SMARTCTL)?;
        let site = program(&cluster.base.join("site"), SITE_PROGRAM)?;
        let root = disk(&cluster.base)?;
        // Images of their own: how full the disk of this machine is changes nothing.
        let size = ["--ost-size", TARGET_SIZE, "--mdt-size", TARGET_SIZE];
        let up = Cmd::new(&cluster.brindle).args(["dev", "up", "--osts", "2"]).args(size);
        let up = up.args(["--manager", "--dir"]).arg(cluster.state()).arg("--mount").arg(cluster.mount());
        let up = up.arg("--archive").arg(cluster.base.join("archive"));
        // Where the manager looks for an orchestrator of burst buffers; the walk starts one there.
        let up = up.env("BRINDLE_BB_SOCKET", cluster.bb_socket()).limit_secs(DEV_SECS_MAX);
        let up = up.env("BRINDLE_SMARTCTL", smartctl).env("BRINDLE_HARDWARE_PROGRAM", site);
        let done = up.env("BRINDLE_HARDWARE_ROOT", root).run(&logs.join("up.log"));
        if !done.ok() {
            return Err(done.explain());
        }
        let output = done.output();
        let found = output.lines().find_map(|line| line.strip_prefix("first log-in")?.split_once("https:"));
        let (_, rest) =
            found.ok_or_else(|| format!("no address of a first log-in was printed:\n{output}"))?;
        let url = format!("https:{rest}");
        Ok((cluster, url))
    }

    fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    fn mount(&self) -> PathBuf {
        self.base.join("mnt")
    }

    fn bb_socket(&self) -> PathBuf {
        self.base.join("bb.sock")
    }

    fn down(&self) -> Result<(), String> {
        let down = Cmd::new(&self.brindle).args(["dev", "down", "--purge", "--dir"]).arg(self.state());
        let done = down.limit_secs(DEV_SECS_MAX).even_when_interrupted().run(&self.logs.join("down.log"));
        if done.ok() { Ok(()) } else { Err(done.explain()) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let log = self.state().join("log/manager.log");
        if let Err(e) = std::fs::copy(&log, self.logs.join("manager.log")) {
            eprintln!("cannot keep {}: {e}", log.display());
        }
        let down = self.down();
        let removed =
            std::fs::remove_dir_all(&self.base).map_err(|e| format!("{}: {e}", self.base.display()));
        if let Err(why) = down.and(removed) {
            eprintln!("{why}");
        }
    }
}

/// The walk; each of its lines is a check.
fn walk(session: &Session, console: &Path, logs: &Path) -> Report {
    let (cluster, url) = match Cluster::up(session, logs) {
        Ok(up) => up,
        Err(why) => return Report::fail("console::up", why),
    };
    let walk = Cmd::new("node").arg("tests/console.mjs").arg(&url).arg(cluster.mount()).arg(logs);
    let walk = walk.env("BRINDLE", &cluster.brindle).env("CLUSTER", cluster.state());
    let walk = walk.env("BRINDLE_BB_SOCKET", cluster.bb_socket()).dir(console);
    let done = walk.limit_secs(WALK_SECS_MAX).run(&logs.join("walk.log"));
    let mut report = Report::default();
    for _ in done.output().lines().filter(|line| line.starts_with("ok ")) {
        report.add(Report::pass());
    }
    if !done.ok() {
        report.add_failure("console::walk", done.explain());
    }
    report
}
