//! The arguments that most benchmarks share, and the plans that follow from them.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_bench::cold::Cold;
use brindle_bench::cpu::Watched;
use brindle_bench::plan::{Plan, Setting};
use brindle_bench::run::{Directory, Run};
use brindle_bench::team::Launcher;
use brindle_bench::{driver, stop};
use brindle_stdx::cast::len_u32;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};
use serde_json::{Value, json};

use super::report::Reports;
use crate::exit::Done;
use brindle_host::mounts;

/// File systems whose bytes are on another machine, or pass through another process.
const NOT_LOCAL: &[&str] = &[
    "fuse",
    "nfs",
    "lustre",
    "beegfs",
    "ceph",
    "gpfs",
    "glusterfs",
    "cifs",
    "smb",
    "9p",
    "afs",
    "virtiofs",
    "orangefs",
];
/// Directory for measuring the limit, when the directory for temporary files is in memory.
const ON_DISK: &str = "/var/tmp";
/// Processes at once that one may ask for.
const RANKS_MAX: i64 = 1024;

/// Subject and manner of benchmarks that go through a file system.
#[derive(clap::Args)]
pub struct Common {
    /// Directory to measure, on any file system
    #[arg(value_name = "DIR", required_unless_present = "dirs")]
    dir: Option<PathBuf>,
    /// One more mount of the directory; all are used at once
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]
    #[arg(long, value_name = "DIR")]
    limit_dir: Option<PathBuf>,
    /// Compare with no local directory
    #[arg(long, conflicts_with = "limit_dir")]
    no_limit: bool,
    /// No fsync at the end of write phases: figures may be those of memory
    #[arg(long)]
    no_fsync: bool,
    /// Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]
    #[arg(long, value_name = "TEXT")]
    cpu_of: Vec<String>,
    #[command(flatten)]
    basics: Basics,
}

/// How phases are repeated, checked and shown.
#[derive(clap::Args)]
pub struct Basics {
    /// Repetitions of each phase; the median is shown
    #[arg(long, alias = "repetitions", value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Leave caches as they are before phases that read
    #[arg(long)]
    keep_caches: bool,
    /// Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say
    #[arg(long, value_name = "COMMAND")]
    cold_command: Option<String>,
    /// Do not compare what is read with what was written
    #[arg(long)]
    no_verify: bool,
    /// Seed of the contents of files and of the order of random pieces
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Say on standard error what is done, also where that is no terminal
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    reports: Reports,
}

/// How many processes.
#[derive(clap::Args)]
pub struct Ranks {
    /// Processes at once [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    ranks: Option<u32>,
}

impl Ranks {
    /// Number of ranks: as given, or one for each processor.
    pub fn count(&self) -> u32 {
        self.ranks.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| len_u32(n.get())))
    }
}

/// Parses a size that is not nothing.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be more than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

impl Common {
    /// The setting of a run with this many ranks. From now on Ctrl-C lets the benchmark remove its files.
    pub fn setting(&self, ranks: u32) -> Result<Setting> {
        let dirs = self.dir.iter().chain(&self.dirs).map(|dir| directory(dir)).collect::<Result<Vec<_>>>()?;
        let local = dirs.iter().all(|dir| is_local(&dir.file_system));
        let limit = match &self.limit_dir {
            _ if self.no_limit => None,
            Some(dir) => Some(directory(dir)?),
            None if local => None,
            None => Some(local_dir()?),
        };
        let brindle = self.cpu_of.is_empty() && dirs.iter().any(|dir| dir.file_system == mounts::FUSE_TYPE);
        let watched = Watched { patterns: self.cpu_of.clone(), brindle };
        Ok(Setting { limit, ranks, fsync: !self.no_fsync, watched, ..self.basics.setting(dirs)? })
    }

    /// Runs the plans and shows what came out; `parameters` says how much of what.
    pub fn run(&self, workload: &str, plans: &[Plan], setting: &Setting, parameters: Value) -> Result<Done> {
        self.run_with_notes(workload, plans, setting, parameters, Vec::new())
    }

    /// Like [`Common::run`], with further notes for the reader.
    pub fn run_with_notes(
        &self,
        workload: &str,
        plans: &[Plan],
        setting: &Setting,
        parameters: Value,
        notes: Vec<String>,
    ) -> Result<Done> {
        let mut run = self.measure(workload, plans, setting, parameters)?;
        run.notes.extend(notes);
        self.show(run)
    }

    /// Runs the plans.
    pub fn measure(
        &self,
        workload: &str,
        plans: &[Plan],
        setting: &Setting,
        parameters: Value,
    ) -> Result<Run> {
        driver::run(
            workload,
            plans,
            setting,
            setting_parameters(setting, parameters),
            &mut self.basics.progress(),
        )
    }

    /// Shows a finished run as was asked for.
    pub fn show(&self, run: Run) -> Result<Done> {
        self.basics.show(run)
    }
}

impl Basics {
    /// The setting of a run in these directories, with one rank and nothing to compare with. From now on Ctrl-C lets the
    /// benchmark remove its files.
    pub fn setting(&self, dirs: Vec<Directory>) -> Result<Setting> {
        self.reports.check()?;
        stop::listen();
        let program = std::env::current_exe()
            .map_err(|e| Fault::io(Code::CommandFailed, "cannot find", "this program", &e))?;
        Ok(Setting {
            dirs,
            limit: None,
            ranks: 1,
            repeat: self.repeat,
            cold: Cold { keep: self.keep_caches, command: self.cold_command.clone() },
            fsync: true,
            verify: !self.no_verify,
            seed: self.seed,
            watched: Watched::default(),
            launcher: Launcher::Processes { program, arguments: vec!["bench".into(), "rank".into()] },
        })
    }

    /// Says what is done to whoever watches.
    pub fn progress(&self) -> impl FnMut(&str) + use<> {
        progress(self.progress)
    }

    /// Shows a finished run as was asked for.
    pub fn show(&self, run: Run) -> Result<Done> {
        self.reports.show(run)
    }
}

/// Says what is done to whoever watches.
pub fn progress(always: bool) -> impl FnMut(&str) {
    let watched = always || std::io::stderr().is_terminal();
    move |what| {
        if watched {
            eprintln!("{what}");
        }
    }
}

/// Parameters of a run: those of the setting and those of the workload.
pub fn setting_parameters(setting: &Setting, own: Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::from([
        ("ranks".to_owned(), json!(setting.ranks)),
        ("repeat".to_owned(), json!(setting.repeat)),
        ("fsync".to_owned(), json!(setting.fsync)),
        ("verify".to_owned(), json!(setting.verify)),
        ("keep_caches".to_owned(), json!(setting.cold.keep)),
        ("seed".to_owned(), json!(setting.seed)),
    ]);
    if let Value::Object(own) = own {
        all.extend(own);
    }
    all
}

/// A directory with the type of its file system.
pub fn directory(path: &Path) -> Result<Directory> {
    let shown = || path.display().to_string();
    let resolved = resolved(path).map_err(|e| Fault::io(Code::BadArgument, "cannot measure", shown(), &e))?;
    if !resolved.is_dir() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot measure")
            .subject(shown())
            .why("it is not a directory"));
    }
    let text = crate::cli::text(&resolved)?;
    let file_system = mounts::type_of(&resolved).unwrap_or_else(|| "unknown".to_owned());
    Ok(Directory { path: text, file_system })
}

/// A path without symbolic links. One through the root directory of another process stays: `/proc/PID/root/...` leads to a mount of a host of
/// `brindle dev up`, and would lead elsewhere without its links.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let file = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let wanted = file(path)?;
    match std::fs::canonicalize(path) {
        Ok(found) if file(&found).is_ok_and(|found| found == wanted) => Ok(found),
        // Whatever is there is not the directory that was named.
        Ok(_) | Err(_) => {
            let target = std::fs::read_link(path).ok().filter(|target| target.is_absolute());
            std::path::absolute(target.as_deref().unwrap_or(path))
        }
    }
}

/// Whether what is written there stays in this kernel and its disks.
fn is_local(file_system: &str) -> bool {
    !NOT_LOCAL.iter().any(|name| file_system.starts_with(name)) || file_system == "fuseblk"
}

/// A directory on a local disk.
pub fn local_dir() -> Result<Directory> {
    let temporary = directory(&std::env::temp_dir())?;
    if temporary.file_system == "tmpfs" { directory(Path::new(ON_DISK)) } else { Ok(temporary) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_from_disks() {
        assert!(is_local("ext4") && is_local("xfs") && is_local("tmpfs") && is_local("fuseblk"));
        assert!(
            !is_local("fuse.brindle")
                && !is_local("nfs4")
                && !is_local("ceph")
                && !is_local("fuse.glusterfs")
        );
    }

    #[test]
    fn directories_of_other_mount_namespaces_can_be_measured() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs none \"$1\" && mkdir \"$1/d\" && echo mounted && read end";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(dir.path());
        let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let inside = format!("/proc/{}/root{}/d", host.id(), dir.path().display());
        let (link, missing) = (dir.path().with_extension("link"), format!("{inside}/missing"));
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        let found = [Path::new(&inside), &link].map(|path| directory(path).map(|d| (d.path, d.file_system)));
        let missing = directory(Path::new(&missing));
        drop(host.stdin.take());
        host.wait().unwrap();
        std::fs::remove_file(&link).unwrap();
        assert_eq!(said, "mounted\n");
        for found in found {
            assert_eq!(found.unwrap(), (inside.clone(), "tmpfs".to_owned()));
        }
        assert!(missing.is_err());
    }

    #[test]
    fn sizes_are_more_than_nothing() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("0"), Err("must be more than 0".to_owned()));
        assert!(size("much").is_err());
    }
}
