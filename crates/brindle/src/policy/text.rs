//! Texts of policies: reading, checking and confirming them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_hsm::policy::State;
use brindle_hsm::policy::state::Mark;
use brindle_policy::lex::Text;
use brindle_policy::program::Parameters;
use brindle_policy::trigger::{Level, On, Trigger};
use brindle_policy::values::{duration_text, size_text};
use brindle_policy::{Names, Program, Source};
use brindle_types::{Code, Fault, Result};

use crate::exit::{Done, warn};
use crate::find::users;

/// Directory of the engine unless told otherwise.
pub const STATE_DEFAULT: &str = "/var/lib/brindle/policy";

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

/// Reads a file of a text.
fn read(name: &str, from: Option<&str>) -> std::result::Result<Text, String> {
    let path = from.map_or_else(|| PathBuf::from(name), |dir| Path::new(dir).join(name));
    let cannot = |e: std::io::Error| format!("cannot read '{}': {e}", path.display());
    let real = path.canonicalize().map_err(cannot)?;
    let text = std::fs::read_to_string(&real).map_err(cannot)?;
    let dir = real.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    Ok(Text { name: path.display().to_string(), dir, text })
}

impl TextArgs {
    /// A text in a file, with `NAME=VALUE` for its variables.
    pub fn of(file: PathBuf, define: &[String]) -> Result<TextArgs> {
        let bad = |why: String| Fault::new(Code::BadArgument).what("cannot set a variable").why(why);
        let define = define.iter().map(|text| definition(text).map_err(bad)).collect::<Result<_>>()?;
        Ok(TextArgs { define, file })
    }

    /// The text, understood.
    pub fn load(&self) -> Result<Program> {
        let defines: BTreeMap<String, String> = self.define.iter().cloned().collect();
        let environment = |name: &str| std::env::var(name).ok();
        let source = Source { read: &read, defines: &defines, environment: &environment };
        Program::load(&source, &self.file.display().to_string())
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

/// Users and groups as this host knows them. A name service that does not answer knows nobody.
pub struct HostNames;

impl Names for HostNames {
    fn user(&self, uid: u32) -> Option<String> {
        users::user_name(uid).ok().flatten()
    }

    fn group(&self, gid: u32) -> Option<String> {
        users::group_name(gid).ok().flatten()
    }

    fn uid(&self, name: &str) -> Option<u32> {
        users::uid_of(name).ok().flatten().or_else(|| name.parse().ok())
    }

    fn gid(&self, name: &str) -> Option<u32> {
        users::gid_of(name).ok().flatten().or_else(|| name.parse().ok())
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
    for policy in &program.policies {
        println!(
            "policy {} ({}){}",
            policy.name,
            policy.action.name(),
            if policy.deletes() { ", deletes" } else { "" }
        );
        println!("  about: {}", policy.scope);
        for ignore in &policy.ignore {
            println!("  never: {ignore}");
        }
        for rule in &policy.rules {
            let of = if rule.targets.is_empty() {
                String::new()
            } else {
                format!(" for {}", rule.targets.join(", "))
            };
            println!("  rule {}{of}: {}", rule.name, rule.condition);
        }
        when(&policy.triggers, policy.parameters.interval_secs)
            .iter()
            .for_each(|line| println!("  when: {line}"));
        println!("  limits: {}", limits(&policy.parameters));
    }
    let deleting: Vec<&str> =
        program.policies.iter().filter(|p| p.deletes()).map(|p| p.name.as_str()).collect();
    if !deleting.is_empty() {
        println!("to be confirmed, since it deletes: {}", deleting.join(", "));
    }
    println!("{}: understood; sum {}", args.text.file.display(), program.sum);
    Ok(Done::Ok)
}

/// When a policy runs, in words.
fn when(triggers: &[Trigger], interval_secs: Option<u64>) -> Vec<String> {
    if triggers.is_empty() {
        return vec![interval_secs.map_or_else(
            || "only when asked: it has no trigger and no runtime_interval".to_owned(),
            |secs| format!("every {}", duration_text(secs)),
        )];
    }
    let level = |level: Option<Level>| match level {
        Some(Level::Pct(percent)) => format!("{percent}%"),
        Some(Level::Bytes(bytes)) => size_text(bytes),
        Some(Level::Count(count)) => format!("{count} entries"),
        Some(Level::CountPct(percent)) => format!("{percent}% of the entries"),
        None => String::new(),
    };
    let line = |trigger: &Trigger| {
        let of = match &trigger.on {
            On::Periodic => return format!("every {}", duration_text(trigger.interval_secs)),
            On::Global => "the file system".to_owned(),
            On::Ost => "an OST".to_owned(),
            On::Pool(names) => format!("a pool of {}", names.join(", ")),
            On::User(names) => format!("a user of {}", names.join(", ")),
            On::Group(names) => format!("a group of {}", names.join(", ")),
        };
        let every = duration_text(trigger.interval_secs);
        format!(
            "{of} has more than {}; down to {}; looked at every {every}",
            level(trigger.high),
            level(trigger.low)
        )
    };
    triggers.iter().map(line).collect()
}

fn limits(parameters: &Parameters) -> String {
    let mut text = format!("{} at once", parameters.threads);
    let mut add = |limit: Option<String>| {
        if let Some(limit) = limit {
            // Writing to a String cannot fail.
            let _ = write!(text, ", {limit}");
        }
    };
    add(parameters.count_max.map(|n| format!("{n} a run")));
    add(parameters.bytes_max.map(|n| format!("{} a run", size_text(n))));
    add(parameters.rate_count.map(|n| format!("{n} in {} ms", parameters.period_ms)));
    add(parameters.rate_bytes.map(|n| format!("{} in {} ms", size_text(n), parameters.period_ms)));
    text
}

/// A mark of this user, now.
pub fn mark(file: &Path) -> Mark {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Mark {
        at_secs: now.as_secs() as i64,
        uid: rustix::process::getuid().as_raw(),
        file: file.display().to_string(),
    }
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
