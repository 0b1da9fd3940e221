//! A real source tree: unpack it with tar, look through it with find, add it up with du, pack it with tar, remove it with rm.
//! The commands are the system's own, as users type them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brindle_stdx::cast::bounded_u32;
use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Done, Phase, Spec};
use crate::run::Unit;
use crate::stop::{self, Halt};

/// Interval at which a running command is checked.
const PAUSE: Duration = Duration::from_millis(1);
/// Directories below one another that are followed.
const DEPTH_MAX: u32 = 200;

/// The tree of each rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// A tar file on a local disk.
    pub archive: PathBuf,
    /// Number of copies that are unpacked beside each other.
    pub copies: u32,
    /// Files and directories of one copy.
    pub entries: u64,
    /// Bytes of the files of one copy.
    pub bytes: u64,
}

/// Runs a phase.
pub(crate) fn run(spec: &Spec, job: &Job, phase: Phase, halt: &Halt) -> Result<Done> {
    let top = spec.dir().join(format!("tree.{}", spec.rank));
    let (operations, bytes) = (job.entries * u64::from(job.copies), job.bytes * u64::from(job.copies));
    let mut done = Done { operations, bytes: 0 };
    match phase {
        Phase::Untar => {
            untar(spec, job, &top, halt)?;
            done.bytes = bytes;
        }
        Phase::Find => command(Command::new("find").arg(&top).args(["-type", "f", "-size", "+100k"]), halt)?,
        Phase::Du => command(Command::new("du").arg("-s").arg(&top), halt)?,
        Phase::Tar => {
            done.bytes = pack(&top, halt)?;
            if spec.verify {
                compare_size(&top, done.bytes, bytes)?;
            }
        }
        Phase::Remove => command(Command::new("rm").arg("-rf").arg(&top), halt)?,
        other => return Err(super::no_such_phase(other)),
    }
    Ok(done)
}

fn untar(spec: &Spec, job: &Job, top: &Path, halt: &Halt) -> Result<()> {
    let made = |dir: &Path| {
        std::fs::create_dir(dir).map_err(|e| files::failed("cannot make the directory", dir, &e))
    };
    made(top)?;
    for copy in 0..job.copies {
        let dir = top.join(format!("copy.{copy}"));
        made(&dir)?;
        command(Command::new("tar").arg("-xf").arg(&job.archive).arg("-C").arg(&dir), halt)?;
    }
    if spec.fsync { sync_files(top, halt, DEPTH_MAX) } else { Ok(()) }
}

/// fsync of every file, as the rule for write phases has it; tar itself syncs nothing.
fn sync_files(dir: &Path, halt: &Halt, depth: u32) -> Result<()> {
    for (path, kind) in entries_of(dir)? {
        halt.check()?;
        if kind.is_dir() && depth > 0 {
            sync_files(&path, halt, depth - 1)?;
        } else if kind.is_file() {
            let file = files::open_read(&path, false)?;
            files::sync(&file, &path, true)?;
        }
    }
    Ok(())
}

fn entries_of(dir: &Path) -> Result<Vec<(PathBuf, std::fs::FileType)>> {
    let read = || -> std::io::Result<Vec<_>> {
        std::fs::read_dir(dir)?.map(|entry| entry.and_then(|e| Ok((e.path(), e.file_type()?)))).collect()
    };
    read().map_err(|e| files::failed("cannot list", dir, &e))
}

/// Packs the tree into nothing and returns the bytes of the archive. (tar reads no file when its output is /dev/null, so
/// the output goes through a pipe.)
fn pack(top: &Path, halt: &Halt) -> Result<u64> {
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg("-").arg("-C").arg(top).arg(".").stdout(Stdio::piped());
    let mut child = Running::start(&mut tar)?;
    let mut bytes = 0;
    if let Some(mut out) = child.child.stdout.take() {
        let mut buffer = vec![0; 1 << 20];
        loop {
            if let Err(fault) = halt.check() {
                child.end();
                return Err(fault);
            }
            match out.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => bytes += n as u64,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    child.end();
                    return Err(files::failed("cannot read the output of", Path::new("tar"), &e));
                }
            }
        }
    }
    child.wait(halt)?;
    Ok(bytes)
}

/// An archive has at least the bytes of its files.
fn compare_size(top: &Path, archive_bytes: u64, bytes: u64) -> Result<()> {
    if archive_bytes >= bytes {
        return Ok(());
    }
    Err(Fault::new(Code::WrongContents)
        .what("wrong contents of")
        .subject(top.display().to_string())
        .why(format!("expected files of {bytes} bytes, found an archive of {archive_bytes} bytes")))
}

/// Runs a command of the system to its end; what it prints goes nowhere.
pub(super) fn command(command: &mut Command, halt: &Halt) -> Result<()> {
    Running::start(command.stdout(Stdio::null()))?.wait(halt)
}

/// A command that runs; what it says on standard error is taken by a thread, so that it never waits for a reader.
struct Running {
    name: String,
    child: Child,
    said: std::thread::JoinHandle<String>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stderr(Stdio::piped()).current_dir("/");
        let mut child =
            command.spawn().map_err(|e| Fault::io(Code::CommandFailed, "cannot run", name.clone(), &e))?;
        let err = child.stderr.take();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            if let Some(mut err) = err {
                // The first bytes of the message are enough; the rest is thrown away.
                let _ = err.by_ref().take(500).read_to_string(&mut said);
                let _ = std::io::copy(&mut err, &mut std::io::sink());
            }
            said
        });
        Ok(Running { name, child, said })
    }

    fn wait(mut self, halt: &Halt) -> Result<()> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {
                    if let Err(fault) = halt.check() {
                        self.end();
                        return Err(fault);
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(e) => return Err(Fault::io(Code::CommandFailed, "cannot wait for", self.name, &e)),
            }
        };
        if status.success() {
            return Ok(());
        }
        let said = self.said.join().unwrap_or_default();
        Err(Fault::new(Code::CommandFailed)
            .what("a command of the benchmark failed:")
            .subject(self.name)
            .why(format!("it ended with {status}: {}", said.trim())))
    }

    fn end(&mut self) {
        // The command may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tree that was packed for the benchmark.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Files and directories.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Counts a source tree.
pub fn count(source: &Path) -> Result<Packed> {
    let mut packed = Packed { entries: 0, bytes: 0 };
    count_below(source, &mut packed, DEPTH_MAX)?;
    Ok(packed)
}

fn count_below(dir: &Path, packed: &mut Packed, depth: u32) -> Result<()> {
    stop::check()?;
    for (path, kind) in entries_of(dir)? {
        packed.entries += 1;
        if kind.is_dir() && depth > 0 {
            count_below(&path, packed, depth - 1)?;
        } else if kind.is_file() {
            let found = std::fs::symlink_metadata(&path);
            packed.bytes += found.map_err(|e| files::failed("cannot stat", &path, &e))?.len();
        }
    }
    Ok(())
}

/// Packs `source` into `archive`.
pub fn archive(source: &Path, archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    command(tar.arg("-cf").arg(archive).arg("-C").arg(source).arg("."), &Halt::default())?;
    File::open(archive).map(drop).map_err(|e| files::failed("cannot read", archive, &e))
}

/// The plan; `job` describes one copy, `entries_min` how many entries the tree must have at least.
pub fn plans(job: Job, entries_min: u64, ranks: u32, setting: &Setting) -> Vec<Plan> {
    let copies = entries_min.div_ceil(job.entries.max(1)).clamp(1, u64::from(u32::MAX));
    let job = Job { copies: bounded_u32(copies), ..job };
    let (entries, mounts) = (job.entries * copies, setting.dirs.len());
    vec![Plan {
        case: setting.case_name(&format!("{entries} entries"), mounts),
        mounts,
        // Small files take a block each.
        bytes: (job.bytes + job.entries * files::ALIGN_BYTES) * copies * u64::from(ranks),
        files: entries * u64::from(ranks),
        steps: vec![
            Step::new(Phase::Untar, if setting.fsync { "untar + fsync" } else { "untar" }, Unit::Seconds),
            Step::cold(Phase::Find, "find -size", Unit::Seconds),
            Step::cold(Phase::Du, "du -s", Unit::Seconds),
            Step::cold(Phase::Tar, "tar (read)", Unit::Seconds),
            Step::cold(Phase::Remove, "rm -rf", Unit::Seconds),
        ],
        ..Plan::new(ranks, rank::Job::Tree(job))
    }]
}
