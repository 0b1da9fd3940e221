//! Benchmarks from the console: `brindle bench quick` in a directory of a mount on the manager's host, its runs kept, two compared.
//!
//! A run is bounded: its sizes are fixed here, one runs at a time, and it has a quarter of an hour. It is a process of its own with the
//! rights of the manager. So it goes into no directory that somebody else could replace meanwhile.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brindle_bench::compare::{Comparison, compare};
use brindle_bench::run::Run;
use brindle_host::child::{self, Why};
use brindle_host::identity::write_secret;
use brindle_host::mounts;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::tasks::Progress;
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};
use crate::policies::on_a_thread;

/// Bytes that each process of a run writes and reads, and files that it makes.
const SIZE: &str = "64MiB";
const SIZE_BYTES: u64 = 64 << 20;
const FILES: &str = "500";
/// Processes of a run at most.
const RANKS_MAX: usize = 8;
/// Longest time of a run.
const LIMIT: Duration = Duration::from_secs(900);
/// Runs that are kept.
pub const RUNS_MAX: usize = 50;
/// Largest run that is read.
const RUN_MAX_BYTES: u64 = 4 << 20;
/// Longest label.
const LABEL_MAX_BYTES: usize = 80;

/// A run that was kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BenchmarkView {
    /// Number.
    pub id: u64,
    /// Who asked for it.
    pub user: String,
    /// The run, as `brindle bench -o json` has it.
    #[serde(flatten)]
    pub run: Run,
}

/// All runs that are kept.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BenchmarksView {
    /// The newest first.
    pub runs: Vec<Arc<BenchmarkView>>,
    /// Where the file system is mounted on the manager's host.
    pub mounts: Vec<String>,
    /// Whether one runs now.
    pub is_running: bool,
}

/// Two runs beside each other.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ComparedView(Comparison);

/// The runs of a manager, and the room for one that runs.
pub struct Benchmarks {
    dir: PathBuf,
    program: PathBuf,
    runs: Mutex<Vec<Arc<BenchmarkView>>>,
    room: Arc<Semaphore>,
}

/// A run that can begin.
pub struct Asked {
    directory: PathBuf,
    label: String,
    ranks: usize,
    /// Told before it begins.
    pub plan: PlanView,
}

fn refused(directory: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot measure")
        .subject(directory.chars().take(200).collect::<String>())
        .data("nothing was changed")
}

impl Benchmarks {
    /// The runs below the manager's directory; `program` is this binary. A file that cannot be read is left out, and the log says so.
    pub fn load(dir: &Path, program: PathBuf) -> Result<Benchmarks> {
        let dir = dir.join("benchmarks");
        let cannot =
            |e: std::io::Error| Fault::io(Code::NotWritable, "cannot use", dir.display().to_string(), &e);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(cannot)?;
        let mut runs: Vec<Arc<BenchmarkView>> = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(cannot)?.flatten() {
            if entry.path().extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            match read(&entry.path()) {
                Ok(run) => runs.push(Arc::new(run)),
                Err(why) => {
                    tracing::warn!(file = %entry.path().display(), why, "a run of a benchmark is left out")
                }
            }
        }
        runs.sort_by_key(|run| run.id);
        Ok(Benchmarks { dir, program, runs: Mutex::new(runs), room: Arc::new(Semaphore::new(1)) })
    }

    /// All runs.
    pub fn view(&self, managed: &Managed) -> BenchmarksView {
        let place = managed.place().ok();
        let points = place.map(|place| managed.mount_points(&place)).unwrap_or_default();
        BenchmarksView {
            runs: self.runs.lock().iter().rev().cloned().collect(),
            mounts: points.into_iter().map(|point| point.display().to_string()).collect(),
            is_running: self.room.available_permits() == 0,
        }
    }

    /// The runs, the oldest first.
    pub fn runs(&self) -> Vec<Arc<BenchmarkView>> {
        self.runs.lock().clone()
    }

    /// Compares two runs.
    pub fn compare(&self, first: &str, second: &str) -> Result<ComparedView> {
        let runs = self.runs();
        let find = |text: &str| {
            let run = text.parse::<u64>().ok().and_then(|id| runs.iter().find(|run| run.id == id));
            run.ok_or_else(|| {
                Fault::new(Code::UnknownResource)
                    .what("there is no run with the number")
                    .subject(text.to_owned())
            })
        };
        Ok(ComparedView(compare(&find(first)?.run, &find(second)?.run)))
    }

    /// Room for one run.
    pub fn room(&self) -> Result<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            Fault::new(Code::ManagerBusy)
                .what("cannot measure")
                .subject("twice at a time")
                .why("a benchmark runs; each would measure the other")
                .data("nothing was changed")
        })
    }

    /// Runs it, and keeps what comes out.
    pub async fn run(&self, asked: Asked, user: String, progress: &Progress) -> Result<String> {
        let new = self.dir.join("new");
        let mut command = tokio::process::Command::new(&self.program);
        command.args(["bench", "quick", "--progress", "--size", SIZE, "--files", FILES, "--ranks"]);
        command.arg(asked.ranks.to_string()).arg("--label").arg(&asked.label).arg("--json").arg(&new);
        command.arg("--").arg(&asked.directory);
        let told = progress.clone();
        let tell = |line: &str| told.tell(line.to_owned());
        let ended = child::run(&mut command, LIMIT, progress.cancelled(), tell).await;
        let failed = |why: String| {
            Fault::new(Code::CommandFailed)
                .what("cannot measure")
                .subject(asked.directory.display().to_string())
                .why(why)
                .data("the benchmark's own files were removed")
        };
        let ended = ended.map_err(|e| failed(format!("{}: {e}", self.program.display())))?;
        match ended.why {
            Why::Itself(Some(0)) => {}
            Why::GivenUp => return Ok("given up; its files were removed, and no result is kept".to_owned()),
            Why::Late => return Err(failed(format!("it has not ended within {} s", LIMIT.as_secs()))),
            Why::Itself(_) => return Err(failed(ended.last_lines.join("; "))),
        }
        let run: Run = read(&new).map_err(failed)?;
        let figures = run.figures.len();
        let id = self.keep(user, run)?;
        let removed = std::fs::remove_file(&new);
        removed.map_err(|e| Fault::io(Code::NotWritable, "cannot remove", new.display().to_string(), &e))?;
        Ok(format!("run {id}: {figures} figures"))
    }

    /// Keeps a run; the oldest goes where there are too many. Its number.
    pub(crate) fn keep(&self, user: String, run: Run) -> Result<u64> {
        let mut runs = self.runs.lock();
        let id = runs.last().map_or(1, |last| last.id + 1);
        let view = BenchmarkView { id, user, run };
        let text = serde_json::to_string(&view).map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?;
        let path = |id: u64| self.dir.join(format!("{id}.json"));
        write_secret(&path(id), &text).map_err(|fault| fault.what("cannot keep the run in"))?;
        runs.push(Arc::new(view));
        while runs.len() > RUNS_MAX {
            let oldest = path(runs.remove(0).id);
            let removed = std::fs::remove_file(&oldest);
            removed.map_err(|e| {
                Fault::io(Code::NotWritable, "cannot remove", oldest.display().to_string(), &e)
            })?;
        }
        Ok(id)
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> std::result::Result<T, String> {
    let length = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > RUN_MAX_BYTES {
        return Err(format!("it has more than {RUN_MAX_BYTES} bytes"));
    }
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

/// Looks whether a run can be in a directory.
pub async fn plan(managed: &Managed, directory: String, label: String) -> Result<Asked> {
    let points = managed.mount_points(&managed.place()?);
    on_a_thread(move || {
        if label.len() > LABEL_MAX_BYTES || label.chars().any(char::is_control) {
            return Err(
                refused(&label).why(format!("a label has at most {LABEL_MAX_BYTES} bytes, in one line"))
            );
        }
        let path = Path::new(&directory);
        let cannot = |e: std::io::Error| refused(&directory).why(e.to_string());
        if !path.is_absolute() {
            return Err(refused(&directory).why("it does not begin with '/'"));
        }
        let real = path.canonicalize().map_err(cannot)?;
        let point =
            mounts::holding(&real).map(|line| line.mount_point).filter(|point| points.contains(point));
        let point = point.ok_or_else(|| {
            refused(&directory)
                .why("it is in no mount of this file system on the manager's host")
                .next("mount it there: brindle mount")
        })?;
        check_safe(&directory, &point, &real)?;
        let ranks = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(RANKS_MAX);
        let plan = plan_view(&real, ranks);
        Ok(Asked { directory: real, label, ranks, plan })
    })
    .await
}

/// Refuses a directory that somebody else could replace while root writes into it.
fn check_safe(asked: &str, point: &Path, real: &Path) -> Result<()> {
    let own = own_uid(point)?;
    for dir in real.ancestors().take_while(|dir| dir.starts_with(point)) {
        let meta = std::fs::metadata(dir).map_err(|e| refused(asked).why(e.to_string()))?;
        if !meta.is_dir() {
            return Err(refused(asked).why("it is not a directory"));
        }
        let is_own = meta.uid() == 0 || meta.uid() == own;
        if !is_own || meta.mode() & 0o022 != 0 {
            return Err(refused(asked).why(format!("others than root may change {}", dir.display())).next(
                "take a directory of root that nobody else may write to, such as the root of the mount",
            ));
        }
    }
    Ok(())
}

fn own_uid(point: &Path) -> Result<u32> {
    std::fs::metadata("/proc/self")
        .map(|meta| meta.uid())
        .map_err(|e| refused(&point.display().to_string()).why(e.to_string()))
}

fn plan_view(directory: &Path, ranks: usize) -> PlanView {
    let shown = directory.display().to_string();
    let most = brindle_types::units::format_bytes(SIZE_BYTES * ranks as u64);
    PlanView {
        would: format!("brindle bench quick would run in {shown}, and in a local directory to compare with"),
        effects: vec![
            format!(
                "It writes and reads {most} and {FILES} files for each of {ranks} processes, several times, for about a minute."
            ),
            "Users of the file system share it with the benchmark meanwhile.".to_owned(),
            "Everything happens in a new directory, which is removed afterwards.".to_owned(),
        ],
        changes: true,
        command: format!(
            "brindle bench quick --size {SIZE} --files {FILES} --ranks {ranks} {}",
            quoted(&shown)
        ),
        request: "POST /api/v1/benchmarks {\"directory\": \"...\", \"dry_run\": false}".to_owned(),
        target: shown,
        action: "benchmark".to_owned(),
        task: None,
    }
}
