//! Policies of the engine whose directory is on this host: their runs, their switches, and previews of their
//! text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_host::control::MountHere;
use brindle_host::policy::{self, PolicyStatusView, PreviewView};
use brindle_host::policy_text;
use brindle_hsm::policy::State;
use brindle_policy::Program;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::tasks::Progress;
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};

/// Entries of a policy that a preview keeps.
const ENTRIES_MAX: usize = 100;

/// The engine of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PoliciesView {
    /// Directory on the manager's host.
    pub state_dir: String,
    /// As `brindle policy status -o json` has it.
    #[serde(flatten)]
    pub status: PolicyStatusView,
    /// Whether exactly the text that the engine carries out was confirmed.
    pub is_confirmed: bool,
    /// The command that starts an engine.
    pub start: String,
}

/// Preview of a text, as it was at some moment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PreviewedView {
    /// When, seconds since 1970.
    pub at_s: i64,
    /// The text.
    pub file: String,
    /// Whether it is what the engine carries out: the same words, after variables and includes.
    pub is_engines: bool,
    /// Whether everything in it that deletes was confirmed.
    pub is_confirmed: bool,
    /// As `brindle policy preview -o json` has it, with the first 100 entries of each policy.
    #[serde(flatten)]
    pub preview: PreviewView,
    /// Entries that are chosen, policy by policy; more than are shown, perhaps.
    pub chosen: Vec<u64>,
    /// The command that does the same.
    pub command: String,
    /// The command that allows what deletes.
    pub confirm: String,
}

/// The last preview.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LastPreviewView {
    /// None since the manager was started.
    pub preview: Option<Arc<PreviewedView>>,
}

/// The last preview, kept.
#[derive(Default)]
pub struct Previews(Mutex<Option<Arc<PreviewedView>>>);

impl Previews {
    /// The last one.
    pub fn last(&self) -> LastPreviewView {
        LastPreviewView { preview: self.0.lock().clone() }
    }
}

pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?
}

/// The variables of an engine's text, as a command has them.
pub(crate) fn defines(state: &State) -> String {
    let defines = state.history.defines.iter();
    defines.map(|(name, value)| format!(" -D {}", quoted(&format!("{name}={value}")))).collect()
}

/// The command that allows what an engine's text deletes.
pub(crate) fn confirm_command(dir: &Path, state: &State) -> String {
    let file = quoted(&state.history.file);
    format!("brindle policy confirm{}{} {file}", state_option(dir), defines(state))
}

fn state_option(dir: &Path) -> String {
    match dir == Path::new(policy::STATE_DEFAULT) {
        true => String::new(),
        false => format!(" --state {}", quoted(&dir.display().to_string())),
    }
}

/// State and history of the engine.
pub async fn view(managed: &Managed) -> Result<PoliciesView> {
    let dir = managed.policy_state()?;
    let mount = managed.mount_word(&managed.place()?);
    on_a_thread(move || {
        let state = State::look(&dir)?;
        let status = policy::view(&state);
        let file = if status.file.is_empty() { "/etc/brindle/policy.conf" } else { &status.file };
        let start = format!("brindle policy run{} {} {mount} --daemon", state_option(&dir), quoted(file));
        let is_confirmed = state.is_confirmed(&status.sum);
        Ok(PoliciesView { state_dir: dir.display().to_string(), status, is_confirmed, start })
    })
    .await
}

/// Whether a policy deletes; one that the engine has not noted may.
fn deletes(state: &State, name: &str) -> bool {
    state.history.policies.iter().find(|policy| policy.name == name).is_none_or(|policy| policy.deletes)
}

/// Whether a policy deletes, or may.
pub async fn may_delete(managed: &Managed, name: &str) -> Result<bool> {
    let (dir, name) = (managed.policy_state()?, name.to_owned());
    on_a_thread(move || Ok(deletes(&State::look(&dir)?, &name))).await
}

/// Switches a policy on or off; with `dry_run` only says what would be.
pub async fn switch(managed: &Managed, name: &str, is_on: bool, dry_run: bool) -> Result<PlanView> {
    let dir = managed.policy_state()?;
    let name = name.to_owned();
    on_a_thread(move || {
        let switched = policy::switch(&dir, &name, is_on, dry_run)?;
        let verb = if is_on { "enable" } else { "disable" };
        let effects = match is_on {
            true if deletes(&State::look(&dir)?, &name) => vec![
                "It deletes. If its text is confirmed and its time has come, it begins within a second."
                    .to_owned(),
                "If its text is not confirmed, it deletes nothing until somebody confirms it.".to_owned(),
            ],
            true => vec!["If its time has come, it begins within a second.".to_owned()],
            false => vec![
                "Files that it would have archived, released or removed stay as they are until it is on again."
                    .to_owned(),
                "What it has asked for already goes on.".to_owned(),
            ],
        };
        Ok(PlanView {
            command: format!("brindle policy {verb}{} {}", state_option(&dir), quoted(&name)),
            request: format!("POST /api/v1/policies/{name}/{verb} {{\"dry_run\": false}}"),
            target: name,
            action: verb.to_owned(),
            would: switched.says,
            effects,
            changes: switched.changes,
            task: None,
        })
    })
    .await
}

/// Text of an engine, or one that may become it, to be previewed.
#[derive(Debug)]
pub struct Text {
    dir: PathBuf,
    state: State,
    program: Program,
    /// The file that commands name: the engine's, or one that holds a text which is not saved.
    file: String,
    mount: String,
}

/// The file of the engine that has run in a directory.
pub(crate) fn file_of(dir: &Path, state: &State) -> Result<PathBuf> {
    match state.history.file.is_empty() {
        false => Ok(PathBuf::from(&state.history.file)),
        true => Err(Fault::new(Code::BadArgument)
            .what("there is no text:")
            .subject(format!("no engine has run in {}", dir.display()))
            .data("nothing was changed")
            .next("start one: brindle policy run FILE MNT --daemon")),
    }
}

/// Puts the paths of a text below where the engine has the file system, as it does itself.
pub(crate) fn place(state: &State, program: &mut Program) -> Result<()> {
    let source = &state.history.source;
    let mounts = match source.contains(":/") {
        true => Vec::new(),
        false => vec![brindle_host::text(&MountHere::of(Path::new(source))?.line().mount_point)?],
    };
    program.place(&mounts)
}

/// File of a text that is not saved, as commands name it.
pub(crate) fn unsaved(file: &str) -> String {
    format!("{file}.new")
}

impl Text {
    /// Text of the engine that has run in the directory; or another one, as if it stood in the engine's file.
    pub async fn of(managed: &Managed, other: Option<String>) -> Result<Text> {
        let dir = managed.policy_state()?;
        let mount = managed.mount_word(&managed.place()?);
        on_a_thread(move || {
            let state = State::look(&dir)?;
            file_of(&dir, &state)?;
            let history = &state.history;
            let (mut program, file) = match other {
                None => (policy::load(&history.file, &history.defines)?, history.file.clone()),
                Some(text) => {
                    (policy_text::load(&history.file, &text, &history.defines)?, unsaved(&history.file))
                }
            };
            place(&state, &mut program)?;
            Ok(Text { dir, state, program, file, mount })
        })
        .await
    }

    /// The plan of a preview.
    pub fn plan(&self) -> PlanView {
        PlanView {
            target: self.file.clone(),
            action: "preview".to_owned(),
            would: "All names of the file system would be looked at, and nothing changed".to_owned(),
            effects: vec!["It takes a part of the MDT's time for as long as it goes on.".to_owned()],
            changes: true,
            command: self.command(),
            request: "POST /api/v1/policies/preview {\"dry_run\": false}".to_owned(),
            task: None,
        }
    }

    fn command(&self) -> String {
        let (file, mount) = (quoted(&self.file), quoted(&self.mount));
        format!("brindle policy preview{}{} {file} {mount}", state_option(&self.dir), defines(&self.state))
    }

    /// Looks at the file system, and keeps what it comes to.
    pub async fn preview(self, progress: &Progress) -> Result<String> {
        let manager = progress.manager();
        let (managed, previews, at_s) = (&manager.managed, &manager.previews, manager.seams.wall().secs);
        let place = managed.place()?;
        let program = &self.program;
        let look = async |client| {
            tokio::select! {
                preview = policy::preview(client, program) => preview.map(Some),
                () = progress.cancelled() => Ok(None),
            }
        };
        let Some(mut preview) = managed.with_client(&place, look).await? else {
            return Ok("given up; the last preview is shown as it was".to_owned());
        };
        let chosen: Vec<u64> = preview.policies.iter().map(|policy| policy.entries.len() as u64).collect();
        preview.policies.iter_mut().for_each(|policy| policy.entries.truncate(ENTRIES_MAX));
        let sum = &self.program.sum;
        // A file named without its directory may be another one than the engine's.
        let is_meant = self.state.history.sum == *sum || Path::new(&self.state.history.file).is_absolute();
        if is_meant && preview.policies.iter().any(|policy| policy.deletes) {
            self.state.previewed(sum, &policy::mark(Path::new(&self.state.history.file)))?;
        }
        let entries: u64 = chosen.iter().sum();
        let policies = preview.policies.len();
        let view = PreviewedView {
            at_s,
            file: self.file.clone(),
            is_engines: self.state.history.sum == *sum,
            is_confirmed: self.state.is_confirmed(sum),
            command: self.command(),
            confirm: confirm_command(&self.dir, &self.state),
            chosen,
            preview,
        };
        *previews.0.lock() = Some(Arc::new(view));
        Ok(format!("{policies} policies would act on {entries} entries"))
    }
}
