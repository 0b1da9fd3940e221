//! `brindle quota`: usage and limits of users, groups and projects.

pub mod owner;

use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_client::control::{Answer, Request};
use brindle_types::Result;
use brindle_wire::mds::quota::{QuotaChange, QuotaOwner, QuotaShowResp, QuotaSubject};
use schemars::JsonSchema;
use serde::Serialize;

use crate::completion::live;
use crate::control::{Control, unexpected};
use crate::exit::Done;
use crate::output::{Output, print_json, table};
use owner::{Owner, parse_grace, parse_space, period, space};

/// The verbs of `brindle quota`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show what somebody uses and may use
    Show(ShowArgs),
    /// List everybody who uses something or has limits
    List(ListArgs),
    /// Set limits
    Set(SetArgs),
    /// Set how long soft limits may be exceeded
    Grace(GraceArgs),
}

/// Whose usage or limits.
#[derive(clap::Args)]
#[group(id = "subject", multiple = false)]
struct SubjectArgs {
    /// A user, by name or number
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// A group, by name or number
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// A project, by number
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Whoever has no limits of his own
    #[arg(long, value_name = "KIND")]
    default: Option<Kind>,
}

/// Kinds of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Projects.
    Projects,
}

impl From<Kind> for QuotaOwner {
    fn from(kind: Kind) -> QuotaOwner {
        match kind {
            Kind::Users => QuotaOwner::User,
            Kind::Groups => QuotaOwner::Group,
            Kind::Projects => QuotaOwner::Project,
        }
    }
}

/// Arguments of `brindle quota show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    output: Output,
    /// A path in the mount
    #[arg(long, value_name = "PATH", default_value = ".", add = live::mount_points())]
    path: PathBuf,
}

/// Arguments of `brindle quota list`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Of which kind
    #[arg(value_enum, default_value = "users")]
    kind: Kind,
    #[command(flatten)]
    output: Output,
    /// A path in the mount
    #[arg(long, value_name = "PATH", default_value = ".", add = live::mount_points())]
    path: PathBuf,
}

/// Arguments of `brindle quota set`.
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("limit").required(true).multiple(true),
    after_help = "A limit of 0 is none; one that is not named stays as it is. Sizes are KiB, or have a unit (k, m, g, t, p).\n\
                  brindle quota set --project 1000 --space 10t --space-soft 9t --path /mnt/b --dry-run"
)]
pub struct SetArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Most space
    #[arg(long, value_name = "SIZE", group = "limit", value_parser = parse_space)]
    space: Option<u64>,
    /// Most space for longer than the grace time
    #[arg(long, value_name = "SIZE", group = "limit", value_parser = parse_space)]
    space_soft: Option<u64>,
    /// Most files, directories and other inodes
    #[arg(long, value_name = "COUNT", group = "limit")]
    inodes: Option<u64>,
    /// Most inodes for longer than the grace time
    #[arg(long, value_name = "COUNT", group = "limit")]
    inodes_soft: Option<u64>,
    /// The default limits from now on
    #[arg(long, group = "limit", conflicts_with_all = ["space", "space_soft", "inodes", "inodes_soft", "default"])]
    to_default: bool,
    /// Only show what would be
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// A path in the mount
    #[arg(long, value_name = "PATH", default_value = ".", add = live::mount_points())]
    path: PathBuf,
}

/// Arguments of `brindle quota grace`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("time").required(true).multiple(true))]
pub struct GraceArgs {
    /// Of all owners of which kind
    #[arg(value_enum)]
    kind: Kind,
    /// For space: 7d, 1w12h, or seconds
    #[arg(long, value_name = "TIME", group = "time", value_parser = parse_grace)]
    space: Option<u32>,
    /// For inodes
    #[arg(long, value_name = "TIME", group = "time", value_parser = parse_grace)]
    inodes: Option<u32>,
    /// Only show what would be
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// A path in the mount
    #[arg(long, value_name = "PATH", default_value = ".", add = live::mount_points())]
    path: PathBuf,
}

document!(QuotasView, "brindle.quotas", 1);

/// Usage and limits in JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuotasView {
    /// They were not set (`--dry-run`).
    dry_run: bool,
    /// One for each owner.
    quotas: Vec<QuotaView>,
}

/// Usage and limits of one owner; a limit of 0 is none.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaView {
    /// `user`, `group` or `project`.
    kind: &'static str,
    /// Number; none of a default.
    id: Option<u32>,
    /// Name, or the number as text; none of a default.
    name: Option<String>,
    /// The limits are those of whoever has none of his own.
    is_default: bool,
    /// Space.
    space_bytes: LimitView,
    /// Inodes.
    inodes: LimitView,
}

/// Usage and limits of one thing.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LimitView {
    /// What is used.
    used: u64,
    /// The most that may be.
    hard: u64,
    /// The most for longer than the grace time.
    soft: u64,
    /// How long that is, in seconds.
    grace_seconds: u32,
    /// What is left of it, in seconds; 0 when it is over, none below the soft limit.
    grace_left_seconds: Option<u64>,
    /// `ok`, `grace` (over the soft limit), `full` (at the hard limit), or `expired` (over the soft limit, and the grace time is over).
    state: &'static str,
}

impl LimitView {
    fn new(used: u64, (hard, soft): (u64, u64), grace_seconds: u32, end: Option<i64>, now: i64) -> LimitView {
        let left = end.map(|end| end.saturating_sub(now).max(0).unsigned_abs());
        let state = match left {
            _ if hard > 0 && used >= hard => "full",
            Some(0) => "expired",
            Some(_) => "grace",
            None => "ok",
        };
        LimitView { used, hard, soft, grace_seconds, grace_left_seconds: left, state }
    }

    fn cells(&self, show: impl Fn(u64) -> String) -> Vec<String> {
        let limit = |limit: u64| if limit == 0 { "-".to_owned() } else { show(limit) };
        let state = match (self.state, self.grace_left_seconds) {
            ("grace", Some(left)) => format!("{} left", period(left)),
            (state, _) => state.to_owned(),
        };
        vec![show(self.used), limit(self.soft), limit(self.hard), state]
    }
}

impl QuotaView {
    fn new(kind: QuotaOwner, owner: Option<Owner>, shown: &QuotaShowResp) -> QuotaView {
        let (limits, grace, now) = (shown.limits, shown.grace, shown.now_secs);
        let space = (limits.bytes_max, limits.bytes_soft);
        let inodes = (limits.inodes_max, limits.inodes_soft);
        QuotaView {
            kind: kind_name(kind),
            id: owner.as_ref().map(|owner| owner.id),
            name: owner.map(|owner| owner.name),
            is_default: shown.is_default,
            space_bytes: LimitView::new(shown.bytes, space, grace.bytes_secs, shown.bytes_grace_end, now),
            inodes: LimitView::new(shown.inodes, inodes, grace.inodes_secs, shown.inodes_grace_end, now),
        }
    }

    fn row(&self) -> Vec<String> {
        let name = match &self.name {
            Some(name) => format!("{} {name}", self.kind),
            None => format!("every {}", self.kind),
        };
        let limits = if self.is_default { "default" } else { "own" };
        let space = self.space_bytes.cells(|bytes| space(bytes, true).trim_start().to_owned());
        let inodes = self.inodes.cells(|count| count.to_string());
        [vec![name], space, inodes, vec![limits.to_owned()]].concat()
    }
}

fn kind_name(kind: QuotaOwner) -> &'static str {
    match kind {
        QuotaOwner::User => "user",
        QuotaOwner::Group => "group",
        QuotaOwner::Project => "project",
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Show(args) => show(args),
        Command::List(args) => list(args),
        Command::Set(args) => {
            let change = QuotaChange {
                inodes_max: args.inodes,
                bytes_max: args.space,
                inodes_soft: args.inodes_soft,
                bytes_soft: args.space_soft,
                to_default: args.to_default,
                ..QuotaChange::default()
            };
            let subjects = args.subject.subjects()?;
            let [subject] = &subjects[..] else { return Err(nobody()) };
            changed(&args.path, subject.clone(), change, args.dry_run, args.output)
        }
        Command::Grace(args) => {
            let change = QuotaChange {
                inodes_grace_secs: args.inodes,
                bytes_grace_secs: args.space,
                ..QuotaChange::default()
            };
            let subject = Subject::Default(args.kind.into());
            changed(&args.path, subject, change, args.dry_run, args.output)
        }
    }
}

fn nobody() -> brindle_types::Fault {
    brindle_types::Fault::new(brindle_types::Code::BadArgument)
        .what("nobody is named whose limits are to be set")
        .next("give --user, --group, --project, or --default users|groups|projects")
}

/// An owner, or whoever has no limits of his own.
#[derive(Clone)]
enum Subject {
    Owner(Owner),
    Default(QuotaOwner),
}

impl Subject {
    fn asked(&self) -> QuotaSubject {
        match self {
            Subject::Owner(Owner { kind, id, .. }) => QuotaSubject::Owner { owner: *kind, id: *id },
            Subject::Default(kind) => QuotaSubject::Default(*kind),
        }
    }

    fn view(self, shown: &QuotaShowResp) -> QuotaView {
        match self {
            Subject::Owner(owner) => QuotaView::new(owner.kind, Some(owner), shown),
            Subject::Default(kind) => QuotaView::new(kind, None, shown),
        }
    }
}

impl SubjectArgs {
    /// Subjects that the options name; without any, the caller and its group.
    fn subjects(&self) -> Result<Vec<Subject>> {
        let named = [
            (QuotaOwner::User, &self.user),
            (QuotaOwner::Group, &self.group),
            (QuotaOwner::Project, &self.project),
        ];
        for (kind, name) in named {
            if let Some(name) = name {
                return Ok(vec![Subject::Owner(Owner::named(kind, name)?)]);
            }
        }
        Ok(match self.default {
            Some(kind) => vec![Subject::Default(kind.into())],
            None => Owner::own().into_iter().map(Subject::Owner).collect(),
        })
    }
}

fn show(args: &ShowArgs) -> Result<Done> {
    let control = Control::of(&args.path)?;
    let asked = args.subject.subjects()?.into_iter().map(|subject| {
        let shown = ask(&control, &Request::QuotaShow { subject: subject.asked() })?;
        Ok(subject.view(&shown))
    });
    print(asked.collect::<Result<_>>()?, false, args.output)
}

fn list(args: &ListArgs) -> Result<Done> {
    let (control, kind) = (Control::of(&args.path)?, QuotaOwner::from(args.kind));
    let (mut quotas, mut behind) = (Vec::new(), None);
    loop {
        let page = match control.ask(&Request::QuotaList { owner: kind, behind })? {
            Answer::QuotaList(page) => page,
            other => return Err(unexpected(&other)),
        };
        behind = page.owners.last().map(|(id, _)| *id);
        let views =
            page.owners.iter().map(|(id, shown)| QuotaView::new(kind, Some(Owner::by_id(kind, *id)), shown));
        quotas.extend(views);
        if !page.has_more || behind.is_none() {
            return print(quotas, false, args.output);
        }
    }
}

fn changed(
    path: &Path,
    subject: Subject,
    change: QuotaChange,
    dry_run: bool,
    output: Output,
) -> Result<Done> {
    let request = Request::QuotaChange { subject: subject.asked(), change, dry_run };
    let shown = ask(&Control::of(path)?, &request)?;
    print(vec![subject.view(&shown)], dry_run, output)
}

fn ask(control: &Control, request: &Request) -> Result<QuotaShowResp> {
    match control.ask(request)? {
        Answer::QuotaShow(shown) => Ok(shown),
        other => Err(unexpected(&other)),
    }
}

fn print(quotas: Vec<QuotaView>, dry_run: bool, output: Output) -> Result<Done> {
    if output.json() {
        print_json(&QuotasView { dry_run, quotas })?;
        return Ok(Done::Ok);
    }
    let heads = ["OWNER", "SPACE", "SOFT", "HARD", "STATE", "INODES", "SOFT", "HARD", "STATE", "LIMITS"];
    println!("{}", table(&heads, quotas.iter().map(QuotaView::row).collect()));
    if dry_run {
        println!("(nothing was changed)");
    }
    Ok(Done::Ok)
}

#[cfg(test)]
mod tests {
    use brindle_wire::mds::quota::{QuotaGrace, QuotaLimits};

    use super::*;

    #[test]
    fn a_line_says_what_is_used_and_how_long_a_soft_limit_may_still_be_exceeded() {
        let limits = QuotaLimits { inodes_max: 20, inodes_soft: 0, bytes_max: 0, bytes_soft: 1 << 20 };
        let shown = QuotaShowResp {
            inodes: 20,
            bytes: 2 << 20,
            limits,
            bytes_grace_end: Some(4600),
            grace: QuotaGrace::default(),
            now_secs: 1000,
            ..QuotaShowResp::default()
        };
        let owner = || Owner { kind: QuotaOwner::Project, id: 7, name: "7".into() };
        let row = QuotaView::new(QuotaOwner::Project, Some(owner()), &shown).row();
        assert_eq!(row.join(" "), "project 7 2M 1M - 1h left 20 - 20 full own");
        let expired = QuotaShowResp { now_secs: 5000, is_default: true, ..shown };
        let view = QuotaView::new(QuotaOwner::Project, Some(owner()), &expired);
        assert_eq!((view.space_bytes.state, view.space_bytes.grace_left_seconds), ("expired", Some(0)));
        assert_eq!(view.row().last().map(String::as_str), Some("default"));
    }
}
