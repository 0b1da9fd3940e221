//! The tour: the purposes of a parallel file system, on real files.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{COMMAND_SECS_MAX, Demo, large, screen};
use crate::run::Cmd;

/// Size of the file over four OSTs.
const LARGE_BYTES: u64 = 512 << 20;
/// Size of the file during whose writing an OST dies.
const BROKEN_BYTES: u64 = 384 << 20;
/// The OST that dies.
const VICTIM: &str = "ost2";
/// Time for which the server is dead.
const DEAD: Duration = Duration::from_secs(3);

/// Takes the tour. Everything goes to a directory of its own, made anew each time.
pub fn take(demo: &Demo<'_>) -> Result<(), String> {
    let tour = demo.mount.join("tour");
    if tour.exists() {
        std::fs::remove_dir_all(&tour).map_err(|e| format!("cannot remove {}: {e}", tour.display()))?;
    }
    let striped = tour.join("striped");
    std::fs::create_dir_all(&striped).map_err(|e| format!("cannot make {}: {e}", striped.display()))?;
    large_file(demo, &striped)?;
    sources(demo, &tour.join("sources"))?;
    broken_server(demo, &striped)?;
    policies(demo, &tour)?;
    status(demo)
}

fn large_file(demo: &Demo<'_>, striped: &Path) -> Result<(), String> {
    let step = screen::step(3, "Write a 512 MiB file over four OSTs");
    lfs(demo, &["setstripe", "-c", "4"], striped)?;
    let file = striped.join("large");
    let written = timed(|| large::write(&file, LARGE_BYTES).end())?;
    screen::text(&format!("written and synced: {}", rate(LARGE_BYTES, written)));
    lfs(demo, &["getstripe"], &file)?;
    let read = timed(|| large::compare(&file, LARGE_BYTES).end())?;
    screen::text(&format!("read and compared:  {}", rate(LARGE_BYTES, read)));
    step.end("every byte is as it was written");
    Ok(())
}

/// Unpacks this repository and compares it with a local copy.
fn sources(demo: &Demo<'_>, to: &Path) -> Result<(), String> {
    let step = screen::step(4, "Unpack a source tree and compare it");
    let root = &demo.session.root;
    let local = demo.logs().join("sources");
    let archive = if root.join(".git").exists() {
        "git archive HEAD"
    } else {
        "tar -c --exclude=./target --exclude=./mnt --exclude=./.brindle-dev ."
    };
    shell(
        demo,
        "local copy",
        &format!("rm -rf {0} && mkdir -p {0} && {archive} | tar -x -C {0}", quoted(&local)),
    )?;
    let unpack = format!("mkdir -p {0} && {archive} | tar -x -C {0}", quoted(to));
    let took = timed(|| shell(demo, "unpack", &unpack).map(drop))?;
    screen::command(&format!("{archive} | tar -x -C {}", demo.shown(to)), "");
    let count = shell(
        demo,
        "count",
        &format!("find {0} -type f | wc -l; du -sh --apparent-size {0} | cut -f1", quoted(to)),
    )?;
    let count: Vec<&str> = count.lines().map(str::trim).collect();
    screen::text(&format!(
        "{} files, {} in {took:.1} s",
        count.first().unwrap_or(&"?"),
        count.get(1).unwrap_or(&"?")
    ));
    shell(demo, "compare", &format!("diff -r --no-dereference {} {}", quoted(&local), quoted(to)))?;
    screen::command(&format!("diff -r {} {}", demo.shown(&local), demo.shown(to)), "");
    let _ = std::fs::remove_dir_all(&local);
    step.end("no difference");
    Ok(())
}

/// An OST dies in the middle of a write; the write waits, and goes on by itself when the OST is back.
fn broken_server(demo: &Demo<'_>, striped: &Path) -> Result<(), String> {
    let step = screen::step(5, &format!("Kill {VICTIM} in the middle of a write, and start it again"));
    let file = striped.join("broken");
    let mut job = large::write(&file, BROKEN_BYTES);
    job.watch("", |done| done >= BROKEN_BYTES / 4)?;
    job.clear();
    dev(demo, "kill")?;
    let since = Instant::now();
    job.watch(&format!("({VICTIM} is dead: the write waits)"), |_| since.elapsed() > DEAD / 2)?;
    job.clear();
    let stopped_at = job.done();
    screen::text(&format!("the write waits at {} of {} MiB", stopped_at >> 20, BROKEN_BYTES >> 20));
    screen::command(
        "brindle status -x",
        &problem(&demo.brindle(&["status", "-x", "--dir", &demo.state.display().to_string()]).output()),
    );
    job.watch(&format!("({VICTIM} is dead: the write waits)"), |_| since.elapsed() > DEAD)?;
    job.clear();
    dev(demo, "start")?;
    let back = Instant::now();
    job.watch("", |done| done > stopped_at)?;
    job.clear();
    screen::text(&format!("the write goes on {:.1} s after that", back.elapsed().as_secs_f64()));
    job.end().map_err(|e| format!("the write failed: {e}"))?;
    large::compare(&file, BROKEN_BYTES).end()?;
    step.end("the program noticed nothing, and every byte is as it was written");
    Ok(())
}

/// Policy of the tour: archive and release the files in its directory.
const POLICY: &str = "\
migration_rules { rule default { condition { tree == tour/tiering } } }
purge_rules     { rule default { condition { tree == tour/tiering } } }
purge_trigger   { trigger_on = periodic; check_interval = 1h; }
";
/// Size of the file that is archived.
const ARCHIVED_BYTES: u64 = 64 << 20;
/// Longest time until a file is in the archive, or released.
const TIERED_LIMIT: Duration = Duration::from_secs(60);
/// Interval at which the file is checked.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A file is archived, released and opened again, by policy.
fn policies(demo: &Demo<'_>, tour: &Path) -> Result<(), String> {
    let step = screen::step(6, "Let a policy archive and release a file, and open it again");
    let dir = tour.join("tiering");
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let file = dir.join("results");
    large::write(&file, ARCHIVED_BYTES).end()?;
    let text = demo.state.join("tour.conf");
    std::fs::write(&text, POLICY).map_err(|e| format!("cannot write {}: {e}", text.display()))?;
    POLICY.lines().for_each(screen::text);
    let state = demo.state.join("tour-policy");
    let mount = demo.mount.display().to_string();
    let state = format!("--state={}", state.display());
    let run = || {
        let done = demo.brindle(&["policy", "run", "--once", &state, &text.display().to_string(), &mount]);
        if done.ok() { Ok(()) } else { Err(done.explain()) }
    };
    let seen = |word: &str| Ok::<_, String>(hsm_state(demo, &file)?.contains(word));
    until("the file is archived", || run().and_then(|()| seen("archived")))?;
    until("the file is released", || run().and_then(|()| seen("released")))?;
    lfs(demo, &["hsm_state"], &file)?;
    let read = timed(|| large::compare(&file, ARCHIVED_BYTES).end())?;
    screen::text(&format!("opened, fetched and compared in {read:.1} s"));
    step.end("it came back when it was opened, and every byte is as it was written");
    Ok(())
}

fn hsm_state(demo: &Demo<'_>, file: &Path) -> Result<String, String> {
    let done = demo.brindle(&["lfs", "hsm_state", &file.display().to_string()]);
    if done.ok() { Ok(done.output()) } else { Err(done.explain()) }
}

/// Looks until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let since = Instant::now();
    while !is_so()? {
        if since.elapsed() > TIERED_LIMIT {
            return Err(format!("{what}: not within {} s", TIERED_LIMIT.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn status(demo: &Demo<'_>) -> Result<(), String> {
    let step = screen::step(7, "See how it is");
    let done = demo.brindle(&["status", "--dir", &demo.state.display().to_string()]);
    if !done.ok() {
        return Err(done.explain());
    }
    screen::command("brindle status", &done.output());
    step.end("all servers answer");
    Ok(())
}

/// Problems and next steps, without the tree of targets.
fn problem(page: &str) -> String {
    page.lines().take_while(|line| !line.starts_with("config:")).collect::<Vec<_>>().join("\n")
}

fn lfs(demo: &Demo<'_>, words: &[&str], path: &Path) -> Result<(), String> {
    let shown = demo.shown(path);
    let args: Vec<&str> =
        std::iter::once("lfs").chain(words.iter().copied()).chain([shown.as_str()]).collect();
    let done = demo.brindle(&args);
    if !done.ok() {
        return Err(done.explain());
    }
    screen::command(&format!("brindle {}", args.join(" ")), &done.output());
    Ok(())
}

fn dev(demo: &Demo<'_>, verb: &str) -> Result<(), String> {
    let done = demo.dev(verb, &[VICTIM]);
    if !done.ok() {
        return Err(done.explain());
    }
    screen::command(&format!("brindle dev {verb} {VICTIM}"), &done.output());
    Ok(())
}

/// Runs a line of shell and gives what it printed.
fn shell(demo: &Demo<'_>, name: &str, line: &str) -> Result<String, String> {
    let command = Cmd::new("sh").args(["-ec", line]).dir(&demo.session.root);
    let done = command.limit_secs(COMMAND_SECS_MAX).run(&demo.logs().join(format!("{name}.log")));
    if done.ok() { Ok(done.output()) } else { Err(done.explain()) }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Seconds that something takes.
fn timed(work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let since = Instant::now();
    work()?;
    Ok(since.elapsed().as_secs_f64())
}

fn rate(bytes: u64, seconds: f64) -> String {
    let mib = (bytes >> 20) as f64;
    format!("{mib:.0} MiB in {seconds:.1} s, {:.0} MiB/s", mib / seconds.max(0.001))
}
