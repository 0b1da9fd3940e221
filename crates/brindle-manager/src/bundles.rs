//! Support bundles from the console: `brindle support bundle` on the manager's host, the last few kept until they are fetched.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use brindle_host::child::{self, Why};
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::tasks::Progress;
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};

/// Bundles that are kept.
pub const KEPT_MAX: usize = 3;
/// Largest bundle that is given out, in bytes.
const BUNDLE_MAX_BYTES: u64 = 1 << 30;
/// Longest time for one.
const LIMIT: Duration = Duration::from_secs(600);
/// Ending of the names.
const ENDING: &str = ".tar.gz";

/// A bundle.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BundleView {
    /// Name; the bundle is fetched from `/api/v1/support-bundles/NAME`.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// When it was made, seconds since 1970.
    pub at_s: i64,
}

/// The bundles that are kept.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BundlesView {
    /// The newest first.
    pub bundles: Vec<BundleView>,
}

/// The bundles of a manager, and the room for one that is made.
pub struct Bundles {
    manager: PathBuf,
    program: PathBuf,
    room: std::sync::Arc<Semaphore>,
}

impl Bundles {
    /// The bundles below the manager's directory; `program` is this binary.
    pub fn new(dir: &Path, program: PathBuf) -> Result<Bundles> {
        let bundles =
            Bundles { manager: dir.to_owned(), program, room: std::sync::Arc::new(Semaphore::new(1)) };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(bundles.dir());
        made.map_err(|e| {
            Fault::io(Code::NotWritable, "cannot make", bundles.dir().display().to_string(), &e)
        })?;
        Ok(bundles)
    }

    fn dir(&self) -> PathBuf {
        self.manager.join("support")
    }

    /// Bundles that are kept.
    pub fn view(&self) -> Result<BundlesView> {
        let dir = self.dir();
        let cannot =
            |e: std::io::Error| Fault::io(Code::NotWritable, "cannot list", dir.display().to_string(), &e);
        let mut bundles = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let meta = entry.metadata().map_err(cannot)?;
            if meta.is_file() && name.ends_with(ENDING) {
                let at = meta.modified().map_err(cannot)?.duration_since(UNIX_EPOCH).unwrap_or_default();
                bundles.push(BundleView { name, bytes: meta.len(), at_s: at.as_secs().cast_signed() });
            }
        }
        bundles.sort_by(|a, b| b.name.cmp(&a.name));
        Ok(BundlesView { bundles })
    }

    /// The file of a bundle, by its name.
    pub fn file(&self, name: &str) -> Result<(PathBuf, u64)> {
        let found = self.view()?.bundles.into_iter().find(|bundle| bundle.name == name);
        let bundle = found.ok_or_else(|| {
            Fault::new(Code::UnknownResource).what("there is no bundle").subject(name.to_owned())
        })?;
        match bundle.bytes > BUNDLE_MAX_BYTES {
            true => Err(Fault::new(Code::BadArgument)
                .what("cannot send")
                .subject(name.to_owned())
                .why(format!("it has {} bytes", bundle.bytes))
                .next(format!("it lies in {} on the manager's host", self.dir().display()))),
            false => Ok((self.dir().join(bundle.name), bundle.bytes)),
        }
    }

    /// Room for one that is made.
    pub fn room(&self) -> Result<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            Fault::new(Code::ManagerBusy)
                .what("cannot make")
                .subject("a bundle")
                .why("one is being made")
                .data("nothing was changed")
        })
    }

    fn arguments(&self, managed: &Managed, with_names: bool) -> Result<Vec<String>> {
        let mut all = vec!["support".to_owned(), "bundle".to_owned()];
        match managed.dev_dir() {
            Some(dir) => all.extend(["--dir".to_owned(), dir.display().to_string()]),
            None => {
                let place = managed.place()?;
                let mgs: Vec<String> = place.mgs.iter().map(ToString::to_string).collect();
                all.extend(["--mgs".to_owned(), mgs.join(",")]);
                all.extend(["--manager".to_owned(), self.manager.display().to_string()]);
            }
        }
        let ports = [("--port", managed.scrape_port), ("--client-port", managed.client_scrape_port)];
        let given = ports.into_iter().filter_map(|(option, port)| Some((option, port?)));
        all.extend(given.flat_map(|(option, port)| [option.to_owned(), port.to_string()]));
        all.extend(with_names.then(|| "--with-names".to_owned()));
        Ok(all)
    }

    /// The plan of a bundle.
    pub fn plan(&self, managed: &Managed, with_names: bool) -> Result<PlanView> {
        let words: Vec<String> =
            self.arguments(managed, with_names)?.iter().map(|word| quoted(word)).collect();
        let names = match with_names {
            true => "Lines of logs are whole: names of files may be in them.",
            false => {
                "Names of files are left out: of each line of a log there is the time, the level, the part and the code."
            }
        };
        Ok(PlanView {
            target: "support bundle".to_owned(),
            action: "make".to_owned(),
            would: "States, numbers, versions and logs would be collected in one file on the manager's host"
                .to_owned(),
            effects: vec![names.to_owned(), format!("The last {KEPT_MAX} are kept.")],
            changes: true,
            command: format!("brindle {}", words.join(" ")),
            request: format!(
                "POST /api/v1/support-bundles {{\"with_names\": {with_names}, \"dry_run\": false}}"
            ),
            task: None,
        })
    }

    /// Makes one.
    pub async fn make(
        &self,
        managed: &Managed,
        with_names: bool,
        stamp: &str,
        progress: &Progress,
    ) -> Result<String> {
        let digits: String = stamp.chars().take(19).filter(char::is_ascii_digit).collect();
        let name = format!("brindle-support-{digits}{ENDING}");
        // A directory of its own, which goes with whatever a program that was killed has left. A bundle is kept once it is whole.
        let (work, file) = (self.dir().join("work"), self.dir().join(&name));
        let new = work.join("new");
        begin_anew(&work)?;
        let mut command = tokio::process::Command::new(&self.program);
        command.args(self.arguments(managed, with_names)?).arg("--to").arg(&new).current_dir(&work);
        let told = progress.clone();
        let tell = |line: &str| told.tell(line.to_owned());
        let failed =
            |why: String| Fault::new(Code::CommandFailed).what("cannot make").subject("the bundle").why(why);
        let ended = child::run(&mut command, LIMIT, progress.cancelled(), tell).await;
        let ended = ended.map_err(|e| failed(format!("{}: {e}", self.program.display())))?;
        match ended.why {
            Why::GivenUp => return Ok("given up; nothing is kept of it".to_owned()),
            Why::Late => return Err(failed(format!("it has not ended within {} s", LIMIT.as_secs()))),
            // The bundle notes what it lacks, and is made all the same.
            Why::Itself(_) if new.exists() => {}
            Why::Itself(_) => return Err(failed(ended.last_lines.join("; "))),
        }
        std::fs::rename(&new, &file)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot keep", file.display().to_string(), &e))?;
        for old in self.view()?.bundles.iter().skip(KEPT_MAX) {
            let old = self.dir().join(&old.name);
            std::fs::remove_file(&old)
                .map_err(|e| Fault::io(Code::NotWritable, "cannot remove", old.display().to_string(), &e))?;
        }
        Ok(format!("{name} is ready"))
    }
}

/// An empty directory in the place of one that may be there.
fn begin_anew(work: &Path) -> Result<()> {
    let cannot =
        |e: std::io::Error| Fault::io(Code::NotWritable, "cannot use", work.display().to_string(), &e);
    match std::fs::remove_dir_all(work) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(cannot(e)),
        _ => std::fs::DirBuilder::new().mode(0o700).create(work).map_err(cannot),
    }
}
