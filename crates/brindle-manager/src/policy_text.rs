//! The text of the policy engine on the manager's host: shown, checked as it is written, saved, and confirmed where it deletes.
//!
//! A text that is saved is in force within a second. What of it deletes stays off until exactly these words were previewed and
//! confirmed: the engine asks for the marks, and [`Confirming`] sets the second one only where the first one is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_host::policy::{self, PolicyView};
use brindle_host::policy_text::{self, EDITED_MAX_BYTES, Edited, MistakeView};
use brindle_hsm::policy::State;
use brindle_policy::Program;
use brindle_policy::lex::Pos;
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::access::secret::hashed;
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};
use crate::policies::{PreviewedView, confirm_command, defines, file_of, on_a_thread, place, unsaved};

/// Digits of a version: enough to tell texts apart.
const VERSION_DIGITS: usize = 32;

/// The text of an engine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PolicyTextView {
    /// File on the manager's host, behind symbolic links.
    pub file: String,
    /// The text.
    pub text: String,
    /// Version of the text: whoever saves another one says which he has changed.
    pub version: String,
    /// Longest text that is saved, in bytes.
    pub bytes_max: u64,
}

/// A text as it was understood.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct CheckedView {
    /// The sum over its words, which a preview and a confirmation are about; none of a text with a mistake.
    pub sum: Option<String>,
    /// The first mistake.
    pub mistake: Option<MistakeView>,
    /// Parts that are passed over.
    pub ignored: Vec<RemarkView>,
    /// Parts that have an old spelling, or probably mean something else.
    pub notes: Vec<RemarkView>,
    /// The policies in words.
    pub policies: Vec<PolicyView>,
    /// Policies that delete, and stay off until the text was previewed and confirmed.
    pub deleting: Vec<String>,
    /// Whether the text, with these words, was previewed.
    pub is_previewed: bool,
    /// Whether the text, with these words, was confirmed.
    pub is_confirmed: bool,
    /// The command that does the same.
    pub command: String,
}

/// A remark on a part of a text.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RemarkView {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The character in the line, from 1.
    pub column: u32,
    /// Message.
    pub what: String,
}

impl RemarkView {
    fn all(remarks: &[(Pos, String)]) -> Vec<RemarkView> {
        let one = |(pos, what): &(Pos, String)| RemarkView {
            file: pos.file.to_string(),
            line: pos.line,
            column: pos.column,
            what: what.clone(),
        };
        remarks.iter().map(one).collect()
    }
}

/// Version of a text.
fn version(text: &str) -> String {
    hashed(text).hex().chars().take(VERSION_DIGITS).collect()
}

fn deleting(program: &Program) -> Vec<String> {
    program.policies.iter().filter(|policy| policy.deletes()).map(|policy| policy.name.clone()).collect()
}

/// The text of the engine.
pub async fn view(managed: &Managed) -> Result<PolicyTextView> {
    let dir = managed.policy_state()?;
    on_a_thread(move || {
        let Edited { path, text } = policy_text::read(&file_of(&dir, &State::look(&dir)?)?)?;
        let file = path.display().to_string();
        Ok(PolicyTextView { file, version: version(&text), text, bytes_max: EDITED_MAX_BYTES as u64 })
    })
    .await
}

/// Checks a text as if it stood in the engine's file.
pub async fn check(managed: &Managed, text: String) -> Result<CheckedView> {
    let dir = managed.policy_state()?;
    on_a_thread(move || {
        let state = State::look(&dir)?;
        let file = file_of(&dir, &state)?.display().to_string();
        let command = format!("brindle policy check{} {}", defines(&state), quoted(&unsaved(&file)));
        let mut program = match policy_text::load(&file, &text, &state.history.defines) {
            Ok(program) => program,
            Err(fault) => {
                let mistake = Some(policy_text::mistake(&fault).ok_or(fault)?);
                return Ok(CheckedView { mistake, command, ..CheckedView::default() });
            }
        };
        // A path that lies elsewhere is a mistake of the text. That the mount is away is none: saving tells of it.
        let mistake = place(&state, &mut program).err().and_then(|fault| policy_text::mistake(&fault));
        if mistake.is_some() {
            return Ok(CheckedView { mistake, command, ..CheckedView::default() });
        }
        Ok(CheckedView {
            mistake: None,
            ignored: RemarkView::all(&program.ignored),
            notes: RemarkView::all(&program.warnings),
            policies: policy::in_words(&program, &state.off()),
            deleting: deleting(&program),
            is_previewed: state.is_previewed(&program.sum),
            is_confirmed: state.is_confirmed(&program.sum),
            sum: Some(program.sum),
            command,
        })
    })
    .await
}

/// A text that can be saved.
pub struct Saving {
    was: Edited,
    text: String,
    /// Told before it is done.
    pub plan: PlanView,
}

impl Saving {
    /// Looks whether a text can be understood, and is made from the one that is in force.
    pub async fn plan(managed: &Managed, text: String, shown: String) -> Result<Saving> {
        let dir = managed.policy_state()?;
        on_a_thread(move || {
            let state = State::look(&dir)?;
            let file = file_of(&dir, &state)?;
            if text.len() > EDITED_MAX_BYTES {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot save")
                    .subject(file.display().to_string())
                    .why(format!("the text may have {EDITED_MAX_BYTES} bytes"))
                    .data("nothing was changed"));
            }
            let was = policy_text::read(&file)?;
            if version(&was.text) != shown {
                return Err(Fault::new(Code::PolicyTextChanged)
                    .subject(was.path.display().to_string())
                    .data("nothing was changed"));
            }
            let mut program = policy_text::load(&file.display().to_string(), &text, &state.history.defines)
                .map_err(|fault| fault.data("nothing was changed"))?;
            place(&state, &mut program).map_err(|fault| fault.data("nothing was changed"))?;
            let plan = save_plan(&state, &was, &text, &program);
            Ok(Saving { was, text, plan })
        })
        .await
    }

    /// Saves it.
    pub async fn save(self) -> Result<PlanView> {
        on_a_thread(move || policy_text::replace(&self.was, &self.text).map(|()| self.plan)).await
    }
}

fn save_plan(state: &State, was: &Edited, text: &str, program: &Program) -> PlanView {
    let path = was.path.display().to_string();
    let changes = was.text != text;
    let (names, deleting): (Vec<&str>, _) =
        (program.policies.iter().map(|policy| policy.name.as_str()).collect(), deleting(program));
    let mut effects = vec![match state.is_running() {
        true => format!("The engine reads it within a second, and carries out: {}.", listed(&names)),
        false => format!("The engine does not run. Once it runs it carries out: {}.", listed(&names)),
    }];
    if !deleting.is_empty() {
        effects.push(match state.is_confirmed(&program.sum) {
            true => {
                format!("Exactly this text was confirmed before: {} may delete at once.", deleting.join(", "))
            }
            false => format!(
                "{} stays off: it deletes, and this text was not previewed and confirmed.",
                deleting.join(", ")
            ),
        });
    }
    effects.push(format!("The text of before is kept in {}.", policy_text::before(&was.path).display()));
    let (new, file) = (quoted(&unsaved(&path)), quoted(&path));
    PlanView {
        would: match changes {
            true => format!("The text of the policy engine, {path}, would be replaced"),
            false => format!("{path} is as it is here already"),
        },
        target: path,
        action: "save".to_owned(),
        effects,
        changes,
        command: format!("brindle policy check{} {new} && mv {new} {file}", defines(state)),
        request: "POST /api/v1/policies/text {\"text\": \"...\", \"version\": \"...\", \"dry_run\": false}"
            .to_owned(),
        task: None,
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A text whose deletions can be confirmed.
pub struct Confirming {
    dir: PathBuf,
    sum: String,
    /// Told before it is done.
    pub plan: PlanView,
}

impl Confirming {
    /// Looks whether the text in force has the sum that was shown, and was previewed.
    pub async fn plan(
        managed: &Managed,
        shown: String,
        last: Option<Arc<PreviewedView>>,
    ) -> Result<Confirming> {
        let dir = managed.policy_state()?;
        on_a_thread(move || {
            let state = State::look(&dir)?;
            let file = file_of(&dir, &state)?;
            let subject = file.display().to_string();
            let program = policy::load(&subject, &state.history.defines)?;
            if program.sum != shown {
                return Err(Fault::new(Code::PolicyTextChanged)
                    .what("cannot confirm")
                    .subject(subject)
                    .why("the text that is in force has other words than the one that was shown")
                    .data("nothing was confirmed")
                    .next("save the text, preview it, and confirm what the preview shows"));
            }
            if !state.is_previewed(&shown) {
                return Err(Fault::new(Code::NotPreviewed).subject(subject).data("nothing was confirmed"));
            }
            let plan = confirm_plan(&dir, &state, &program, last.as_deref());
            Ok(Confirming { dir, sum: shown, plan })
        })
        .await
    }

    /// Sets the mark.
    pub async fn confirm(self) -> Result<PlanView> {
        on_a_thread(move || {
            let state = State::look(&self.dir)?;
            state.confirm(&self.sum, &policy::mark(Path::new(&state.history.file)))?;
            Ok(self.plan)
        })
        .await
    }
}

fn confirm_plan(dir: &Path, state: &State, program: &Program, last: Option<&PreviewedView>) -> PlanView {
    let (deleting, file) = (deleting(program), state.history.file.clone());
    let changes = !deleting.is_empty() && !state.is_confirmed(&program.sum);
    let would = match (deleting.is_empty(), changes) {
        (true, _) => format!("Nothing of {file} deletes; there is nothing to confirm"),
        (false, true) => format!("{} may delete from now on, as {file} says", deleting.join(", ")),
        (false, false) => format!("{} may delete already", deleting.join(", ")),
    };
    let mut effects = vec!["What is deleted is gone. The confirmation is for these words alone.".to_owned()];
    // Somebody may have previewed it with the command: then its list is in that terminal.
    for (policy, chosen) in last
        .iter()
        .filter(|last| last.preview.sum == program.sum)
        .flat_map(|last| last.preview.policies.iter().zip(&last.chosen).filter(|(policy, _)| policy.deletes))
    {
        let entries = if *chosen == 1 { "entry" } else { "entries" };
        effects
            .push(format!("The preview chose {chosen} {entries} for {} ({}).", policy.policy, policy.action));
    }
    let command = confirm_command(dir, state);
    PlanView {
        target: file,
        action: "confirm".to_owned(),
        would,
        effects,
        changes,
        command,
        request: format!(
            "POST /api/v1/policies/confirm {{\"sum\": \"{}\", \"dry_run\": false}}",
            program.sum
        ),
        task: None,
    }
}
