//! `brindle quota`: usage and limits of users, groups and projects.

pub mod owner;

use std::path::{Path, PathBuf};

pub use brindle_admin::quota::QuotasView;
use brindle_admin::quota::{LimitView, QuotaView};
use brindle_client::control::{Answer, Request};
use brindle_types::Result;
use brindle_wire::mds::quota::{QuotaChange, QuotaOwner, QuotaShowResp, QuotaSubject};

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

fn cells(limits: &LimitView, show: impl Fn(u64) -> String) -> Vec<String> {
    let limit = |limit: u64| if limit == 0 { "-".to_owned() } else { show(limit) };
    let state = match (limits.state, limits.grace_left_seconds) {
        ("grace", Some(left)) => format!("{} left", period(left)),
        (state, _) => state.to_owned(),
    };
    vec![show(limits.used), limit(limits.soft), limit(limits.hard), state]
}

fn row(quota: &QuotaView) -> Vec<String> {
    let name = match &quota.name {
        Some(name) => format!("{} {name}", quota.kind),
        None => format!("every {}", quota.kind),
    };
    let limits = if quota.is_default { "default" } else { "own" };
    let space = cells(&quota.space_bytes, |bytes| space(bytes, true).trim_start().to_owned());
    let inodes = cells(&quota.inodes, |count| count.to_string());
    [vec![name], space, inodes, vec![limits.to_owned()]].concat()
}

fn view(kind: QuotaOwner, owner: Option<Owner>, shown: &QuotaShowResp) -> QuotaView {
    QuotaView::new(kind, owner.map(|owner| (owner.id, owner.name)), shown)
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
            Subject::Owner(owner) => view(owner.kind, Some(owner), shown),
            Subject::Default(kind) => view(kind, None, shown),
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
        let views = page.owners.iter().map(|(id, shown)| view(kind, Some(Owner::by_id(kind, *id)), shown));
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
    println!("{}", table(&heads, quotas.iter().map(row).collect()));
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
        let cells = row(&view(QuotaOwner::Project, Some(owner()), &shown));
        assert_eq!(cells.join(" "), "project 7 2M 1M - 1h left 20 - 20 full own");
        let expired = QuotaShowResp { now_secs: 5000, is_default: true, ..shown };
        let expired = view(QuotaOwner::Project, Some(owner()), &expired);
        assert_eq!((expired.space_bytes.state, expired.space_bytes.grace_left_seconds), ("expired", Some(0)));
        assert_eq!(row(&expired).last().map(String::as_str), Some("default"));
    }
}
