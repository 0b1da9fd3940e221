//! `cargo xtask sim` and `sim-teeth`: simulated clusters from seeds, and the planted bugs that they must find.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Session;

/// Seeds of `make sim` without a seed.
const SEEDS_DEFAULT: u64 = 100;
/// Seeds within which a planted bug must be caught.
const TEETH_SEEDS: u64 = 200;
/// End of the row of a bug that was not caught.
const NOT_CAUGHT: &str = "NOT CAUGHT";
/// Text that marks the place of a planted bug.
const MARK: &str = "planted(\"";

/// `cargo xtask sim [--seed N] [--seeds COUNT]`; `SEED` in the environment is a seed too; with `KILLS` it
/// runs as `cargo test` runs it. `SET` is a seed of a replica set.
pub fn sim(session: &Session) -> Result<(), String> {
    let mut seed: Option<u64> = None;
    let mut seeds: Option<u64> = None;
    let mut args = session.args.iter();
    while let Some(arg) = args.next() {
        let place = match arg.as_str() {
            "--seed" => &mut seed,
            "--seeds" => &mut seeds,
            _ => return Err("usage: cargo xtask sim [--seed N] [--seeds COUNT]".into()),
        };
        let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
        *place = Some(value.parse().map_err(|_| format!("{arg}: '{value}' is not a number"))?);
    }
    if seed.is_none()
        && let Ok(text) = std::env::var("SEED")
        && !text.is_empty()
    {
        seed = Some(text.parse().map_err(|_| format!("SEED: '{text}' is not a number"))?);
    }
    let set = std::env::var("SET").ok().filter(|text| !text.is_empty());
    let words = match (seed, seeds) {
        (None, None) if set.is_some() => {
            let text = set.unwrap_or_default();
            let number: u64 = text.parse().map_err(|_| format!("SET: '{text}' is not a number"))?;
            vec!["set".to_owned(), number.to_string()]
        }
        (Some(seed), None) if std::env::var_os("KILLS").is_some() => {
            vec!["kills".to_owned(), seed.to_string(), "1".to_owned()]
        }
        (Some(seed), None) => vec!["seed".to_owned(), seed.to_string()],
        (first, count) => {
            let first = first.unwrap_or_else(|| session.seed());
            let count = count.unwrap_or(SEEDS_DEFAULT);
            vec!["seeds".to_owned(), first.to_string(), count.to_string()]
        }
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "brindle-testkit", "--example", "sim", "--"]);
    run(cargo.args(words).current_dir(&session.root), "sim")
}

/// `cargo xtask sim-teeth [--seeds COUNT] [NAME...]`: all planted bugs, or those named. Ends with a table of them.
pub fn teeth(session: &Session) -> Result<(), String> {
    let mut names = session.args.clone();
    let mut seeds = TEETH_SEEDS;
    if let Some(at) = names.iter().position(|arg| arg == "--seeds") {
        let value = names.get(at + 1).ok_or("--seeds needs a number")?;
        seeds = value.parse().map_err(|_| format!("--seeds: '{value}' is not a number"))?;
        names.drain(at..at + 2);
    }
    let known = planted(&session.root.join("crates"))?;
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        return Err(format!("no bug is planted under the name '{unknown}'"));
    }
    if names.is_empty() {
        names = known.into_iter().collect();
    }
    let (of_log, of_cluster): (Vec<String>, Vec<String>) = names.iter().cloned().partition(|n| is_of_log(n));
    let mut rows = Vec::new();
    if !of_log.is_empty() {
        let mut cargo = Command::new("cargo");
        cargo.arg("test").args(session.profile()).args([
            "--quiet",
            "--package",
            "brindle-kv",
            "--lib",
            "tests::teeth::",
        ]);
        cargo.args(["--", "--nocapture"]);
        rows.extend(search(cargo.current_dir(&session.root), &of_log)?);
    }
    if !of_cluster.is_empty() {
        // The whole workspace: what comes from outside is built with the features that it has already.
        let mut cargo = Command::new("cargo");
        cargo.arg("build").args(session.profile()).args(["--quiet", "--workspace", "--example", "sim"]);
        cargo.args(["--features", "brindle-testkit/teeth"]).current_dir(&session.root);
        let built = cargo.status().map_err(|e| format!("cannot start cargo: {e}"))?;
        if !built.success() {
            return Err(format!("the simulator with planted bugs cannot be built ({built})"));
        }
        let mut sim = Command::new(session.root.join("target").join(&session.profile).join("examples/sim"));
        sim.args(["teeth", &seeds.to_string()]).args(&of_cluster);
        rows.extend(search(sim.current_dir(&session.root), &of_cluster)?);
    }
    println!("\n{:<36} {:<8} {:>5} {:>8}  caught by", "planted bug", "plan", "seeds", "seconds");
    rows.iter().for_each(|row| println!("{row}"));
    let caught = |name: &&String| rows.iter().any(|row| is_row_of(row, name) && !row.ends_with(NOT_CAUGHT));
    let missed: Vec<&str> = names.iter().filter(|n| !caught(n)).map(String::as_str).collect();
    println!("{} caught, {} not caught", names.len() - missed.len(), missed.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {}", missed.join(", "))) }
}

/// Bugs of the metadata log and its store: the crash tests of that crate look for them, which need no cluster.
fn is_of_log(name: &str) -> bool {
    name.starts_with("log_") || name.starts_with("kv_")
}

fn is_row_of(row: &str, name: &str) -> bool {
    row.split_whitespace().next() == Some(name)
}

/// Runs a search and returns its rows, which it shows as they come; the rest of its output is left out.
fn search(command: &mut Command, names: &[String]) -> Result<Vec<String>, String> {
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|e| format!("cannot start cargo: {e}"))?;
    // The search looks for panics; they are shown only if it ends without any row.
    let stderr = child.stderr.take();
    let panics = std::thread::spawn(move || {
        let mut text = String::new();
        // Output that cannot be read is not shown.
        let _ = stderr.map(|mut s| s.read_to_string(&mut text));
        text
    });
    let mut rows = Vec::new();
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(|e| format!("cannot read what the search prints: {e}"))?;
        if names.iter().any(|name| is_row_of(&line, name)) {
            println!("{line}");
            rows.push(line);
        }
    }
    let status = child.wait().map_err(|e| format!("cannot wait for the search: {e}"))?;
    let panics = panics.join().unwrap_or_default();
    if rows.is_empty() {
        return Err(format!("the search failed ({status}):\n{panics}"));
    }
    Ok(rows)
}

fn run(command: &mut Command, name: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed ({status})")),
        Err(e) => Err(format!("cannot start cargo: {e}")),
    }
}

/// Names of the planted bugs in the sources below `dir`, without those of tests.
fn planted(dir: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "tests" | "target" | "examples") {
                names.extend(planted(&path)?);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            for rest in text.split(MARK).skip(1) {
                names.extend(rest.split('"').next().filter(|n| n.contains('_')).map(str::to_owned));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_is_found_by_its_name() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        let names = planted(&crates).unwrap();
        assert!(names.len() >= 12, "at least a dozen bugs are planted: {names:?}");
        assert!(names.contains("log_skip_fdatasync"));
    }
}
