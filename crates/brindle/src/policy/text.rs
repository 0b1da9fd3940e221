//! Texts of policies: reading, checking and confirming them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brindle_host::policy;
pub use brindle_host::policy::{HostNames, STATE_DEFAULT, mark};
use brindle_hsm::policy::State;
use brindle_hsm::policy::describe::describe;
use brindle_policy::Program;
use brindle_types::{Code, Fault, Result};

use crate::exit::{Done, warn};

/// Where a text is.
#[derive(clap::Args, Clone, Debug)]
pub struct TextArgs {
    /// Set a variable of the text; comes before the environment
    #[arg(long = "define", short = 'D', value_name = "NAME=VALUE", value_parser = definition)]
    define: Vec<(String, String)>,
    /// The text, in Robinhood's words (docs/operations/policies.md)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Where the engine keeps confirmations and history.
#[derive(clap::Args, Clone, Debug)]
pub struct StateArg {
    /// Directory of the engine: confirmations and history
    #[arg(long, value_name = "DIR", env = "BRINDLE_POLICY_STATE", default_value = STATE_DEFAULT)]
    pub state: PathBuf,
}

/// Arguments of `brindle policy check`.
#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    text: TextArgs,
}

/// Arguments of `brindle policy confirm`.
#[derive(clap::Args)]
pub struct ConfirmArgs {
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    state: StateArg,
}

fn definition(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not NAME=VALUE"))?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err(format!("'{name}' is no name of a variable"))
    }
}

impl TextArgs {
    /// A text in a file, with `NAME=VALUE` for its variables.
    pub fn of(file: PathBuf, define: &[String]) -> Result<TextArgs> {
        let bad = |why: String| Fault::new(Code::BadArgument).what("cannot set a variable").why(why);
        let define = define.iter().map(|text| definition(text).map_err(bad)).collect::<Result<_>>()?;
        Ok(TextArgs { define, file })
    }

    /// Variables that are set.
    pub fn defines(&self) -> BTreeMap<String, String> {
        self.define.iter().cloned().collect()
    }

    /// The text, understood.
    pub fn load(&self) -> Result<Program> {
        policy::load(&self.file.display().to_string(), &self.defines())
    }

    /// The text, with its paths below where the file system is mounted.
    pub fn load_at(&self, mounts: &[String]) -> Result<Program> {
        let mut program = self.load()?;
        program.place(mounts)?;
        Ok(program)
    }

    /// Same arguments for another process.
    pub fn arguments(&self) -> Result<Vec<String>> {
        let mut all: Vec<String> =
            self.define.iter().map(|(name, value)| format!("--define={name}={value}")).collect();
        all.push(crate::cli::text(&self.file)?);
        Ok(all)
    }
}

/// Runs `brindle policy check`.
pub fn check(args: &CheckArgs) -> Result<Done> {
    let program = args.text.load()?;
    for (pos, what) in &program.ignored {
        println!("{pos}: ignored: {what}");
    }
    for (pos, what) in &program.warnings {
        println!("{pos}: note: {what}");
    }
    if program.goes_by_access() {
        println!(
            "note: last_access begins to count when the file system begins to keep access times; brindle policy preview shows when that was"
        );
    }
    for policy in describe(&program) {
        println!(
            "policy {} ({}){}",
            policy.name,
            policy.action,
            if policy.deletes { ", deletes" } else { "" }
        );
        println!("  about: {}", policy.about);
        policy.never.iter().for_each(|never| println!("  never: {never}"));
        policy.rules.iter().for_each(|rule| println!("  rule {rule}"));
        policy.when.iter().for_each(|when| println!("  when: {when}"));
        println!("  limits: {}", policy.limits);
    }
    let deleting: Vec<&str> =
        program.policies.iter().filter(|p| p.deletes()).map(|p| p.name.as_str()).collect();
    if !deleting.is_empty() {
        println!("to be confirmed, since it deletes: {}", deleting.join(", "));
    }
    println!("{}: understood; sum {}", args.text.file.display(), program.sum);
    Ok(Done::Ok)
}

/// Runs `brindle policy confirm`.
pub fn confirm(args: &ConfirmArgs) -> Result<Done> {
    let program = args.text.load()?;
    let deleting: Vec<&str> =
        program.policies.iter().filter(|p| p.deletes()).map(|p| p.name.as_str()).collect();
    if deleting.is_empty() {
        println!("nothing of {} deletes; there is nothing to confirm", args.text.file.display());
        return Ok(Done::Ok);
    }
    State::look(&args.state.state)?.confirm(&program.sum, &mark(&args.text.file))?;
    println!(
        "confirmed: {} may delete from now on, as {} says it (sum {})",
        deleting.join(", "),
        args.text.file.display(),
        program.sum
    );
    Ok(Done::Ok)
}

/// Refuses commands where nobody is named to run them.
pub fn check_commands(program: &Program, has_user: bool, has_mount: bool) -> Result<()> {
    let is_command = |action: &brindle_policy::Action| matches!(action, brindle_policy::Action::Command(_));
    let with_command = program.policies.iter().find(|policy| {
        is_command(&policy.action)
            || policy.rules.iter().any(|rule| rule.action.as_ref().is_some_and(is_command))
    });
    let Some(policy) = with_command.filter(|_| !has_user || !has_mount) else { return Ok(()) };
    let (why, next) = match has_user {
        false => ("no user is named to run its commands", "name one that has no rights: --cmd-user nobody"),
        true => (
            "its commands get paths, and the file system is given by address",
            "mount it, and give the mount point",
        ),
    };
    Err(Fault::new(Code::BadPolicy)
        .what("cannot run the policy")
        .subject(policy.name.clone())
        .why(why)
        .next(next))
}

/// Says what is ignored.
pub fn warn_unusual(program: &Program) {
    for (pos, what) in &program.warnings {
        warn(
            &Fault::new(Code::BadPolicy)
                .what("note on the policy text at")
                .subject(pos.to_string())
                .why(what.clone()),
        );
    }
}
