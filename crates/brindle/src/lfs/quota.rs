//! `lfs quota` and `lfs setquota`: what users, groups and projects use, and what they may use, in Lustre's words.

use std::path::{Path, PathBuf};

use brindle_client::control::{Answer, Request};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::{QuotaChange, QuotaOwner, QuotaShowResp, QuotaSubject};

use crate::completion::live;
use crate::control::{Control, unexpected};
use crate::exit::Done;
use crate::quota::owner::{Owner, parse_grace, parse_space, period, space};

/// Longest mount point that stands in the line of the figures.
const MOUNT_COLUMNS: usize = 15;

/// Arguments of `lfs quota`.
#[derive(clap::Args)]
#[command(
    after_help = "Without -u, -g and -p: the user who asks, and his group. Root may ask for everybody, others for themselves, their \
                  groups, and projects.\nA limit of 0 is none. An asterisk stands behind what is at its limit (blimit, ilimit) or over \
                  its soft limit (bquota, iquota); what is over a soft limit has the rest of the grace time beside it, or 'none' when \
                  that is over. With -U, -G and -P: the limits of whoever has none of his own."
)]
pub struct Args {
    #[command(flatten)]
    owner: OwnerArgs,
    /// The grace times of users (with -u), groups (-g) or projects (-p)
    #[arg(short = 't', long = "grace")]
    grace: bool,
    /// Space with a unit, powers of 1024
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Only the figures, without headings
    #[arg(short = 'q', long = "quiet")]
    quiet: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// A path in the mount
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    path: Option<PathBuf>,
}

/// Whose usage or limits.
#[derive(clap::Args)]
#[group(multiple = false)]
struct OwnerArgs {
    /// A user, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER")]
    user: Option<Option<String>>,
    /// A group, by name or number
    #[arg(short = 'g', long = "group", value_name = "GROUP")]
    group: Option<Option<String>>,
    /// A project, by number
    #[arg(short = 'p', long = "project", value_name = "ID")]
    project: Option<Option<String>>,
    /// All users without limits of their own
    #[arg(short = 'U', long = "default-usr")]
    default_user: bool,
    /// All groups without limits of their own
    #[arg(short = 'G', long = "default-grp")]
    default_group: bool,
    /// All projects without limits of their own
    #[arg(short = 'P', long = "default-prj")]
    default_project: bool,
}

/// Owner that the options name.
enum Named {
    Nobody,
    Owner(QuotaOwner, Option<String>),
    Default(QuotaOwner),
}

impl OwnerArgs {
    fn named(&self) -> Named {
        let kinds = [
            (&self.user, self.default_user, QuotaOwner::User),
            (&self.group, self.default_group, QuotaOwner::Group),
            (&self.project, self.default_project, QuotaOwner::Project),
        ];
        for (owner, default, kind) in kinds {
            match owner {
                Some(name) => return Named::Owner(kind, name.clone()),
                None if default => return Named::Default(kind),
                None => {}
            }
        }
        Named::Nobody
    }

    /// Owner that the options name, and the path. A word behind -u, -g or -p that no other follows is the
    /// path, as in `lfs quota -t -u /mnt`.
    fn with_path(&self, path: Option<&Path>) -> Result<(Named, PathBuf)> {
        match (self.named(), path) {
            (named, Some(path)) => Ok((named, path.to_owned())),
            (Named::Owner(kind, Some(word)), None) => Ok((Named::Owner(kind, None), word.into())),
            (_, None) => Err(Fault::new(Code::BadArgument)
                .what("no mount is named")
                .next("give a path in the mount as the last word")),
        }
    }
}

/// Runs `lfs quota`.
pub fn run(args: &Args) -> Result<Done> {
    let (named, path) = args.owner.with_path(args.path.as_deref())?;
    let control = Control::of(&path)?;
    let mount = control.mount().mount_point.display().to_string();
    let owners = match named {
        Named::Owner(kind, _) if args.grace => {
            let shown = show(&control, QuotaSubject::Default(kind))?;
            println!("{}", grace_text(&shown));
            return Ok(Done::Ok);
        }
        _ if args.grace => return Err(whose_grace()),
        Named::Default(kind) => {
            let shown = show(&control, QuotaSubject::Default(kind))?;
            print!("{}", default_text(args.human, args.quiet, kind, &shown, &mount));
            return Ok(Done::Ok);
        }
        Named::Owner(kind, Some(name)) => vec![Owner::named(kind, &name)?],
        Named::Owner(kind, None) => Owner::own().into_iter().filter(|owner| owner.kind == kind).collect(),
        Named::Nobody => Owner::own(),
    };
    if owners.is_empty() {
        return Err(no_number());
    }
    for owner in owners {
        let used = show(&control, QuotaSubject::Owner { owner: owner.kind, id: owner.id })?;
        print!("{}", text(args.human, args.quiet, &owner, &used, &mount));
    }
    Ok(Done::Ok)
}

fn show(control: &Control, subject: QuotaSubject) -> Result<QuotaShowResp> {
    match control.ask(&Request::QuotaShow { subject })? {
        Answer::QuotaShow(shown) => Ok(shown),
        other => Err(unexpected(&other)),
    }
}

fn whose_grace() -> Fault {
    Fault::new(Code::BadArgument)
        .what("grace times are those of all users, groups or projects")
        .next("add -u, -g or -p")
}

fn no_number() -> Fault {
    Fault::new(Code::BadArgument).what("no project is named").next("give its number: -p ID")
}

/// Arguments of `lfs setquota`.
#[derive(clap::Args)]
#[command(
    after_help = "A limit of 0 is none; one that is not named stays as it is. What is over a new limit already stays: its owner can \
                  remove and, in files without holes, overwrite, and gets no more. A soft limit may be exceeded for the grace time (a week \
                  unless -t sets another), and counts like a hard one after that, until no more than it is used. No limit counts for root. \
                  Mounts hear of a new limit of space within a third of the lease (2 s).\n\
                  lfs setquota -u bob -b 400g -B 500g /mnt/b\n\
                  lfs setquota -t -u --block-grace 3d --inode-grace 1w /mnt/b\n\
                  lfs setquota -U -B 1t /mnt/b          users without limits of their own\n\
                  lfs setquota -u bob -D /mnt/b         bob has no limits of his own any more"
)]
pub struct SetArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Most space, in KiB or with a unit (k, m, g, t, p: powers of 1024)
    #[arg(short = 'B', long = "block-hardlimit", value_name = "SIZE", value_parser = parse_space)]
    space: Option<u64>,
    /// Most files, directories and other inodes
    #[arg(short = 'I', long = "inode-hardlimit", value_name = "COUNT")]
    inodes: Option<u64>,
    /// Most space for longer than the grace time; with -t the grace time of space
    #[arg(short = 'b', long = "block-softlimit", value_name = "SIZE")]
    soft_space: Option<String>,
    /// Most inodes for longer than the grace time; with -t the grace time of inodes
    #[arg(short = 'i', long = "inode-softlimit", value_name = "COUNT")]
    soft_inodes: Option<String>,
    /// The owner has the default limits from now on
    #[arg(short = 'D', long = "default", short_alias = 'd', conflicts_with_all = ["space", "inodes", "soft_space", "soft_inodes"])]
    to_default: bool,
    /// Set the grace times of all users (with -u), groups (-g) or projects (-p)
    #[arg(short = 't', conflicts_with_all = ["space", "inodes", "to_default"])]
    grace: bool,
    /// Grace time of space: 7d, 1w12h, or seconds
    #[arg(long = "block-grace", value_name = "TIME", value_parser = parse_grace, requires = "grace")]
    space_grace: Option<u32>,
    /// Grace time of inodes
    #[arg(long = "inode-grace", value_name = "TIME", value_parser = parse_grace, requires = "grace")]
    inodes_grace: Option<u32>,
    /// A path in the mount
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    path: Option<PathBuf>,
}

/// Runs `lfs setquota`.
pub fn set(args: &SetArgs) -> Result<Done> {
    let (named, path) = args.owner.with_path(args.path.as_deref())?;
    let subject = match named {
        Named::Owner(owner, _) if args.grace => QuotaSubject::Default(owner),
        _ if args.grace => return Err(whose_grace()),
        Named::Default(owner) => QuotaSubject::Default(owner),
        Named::Owner(kind, Some(name)) => {
            let Owner { kind: owner, id, .. } = Owner::named(kind, &name)?;
            QuotaSubject::Owner { owner, id }
        }
        Named::Owner(_, None) | Named::Nobody => {
            return Err(Fault::new(Code::BadArgument)
                .what("nobody is named whose limits are to be set")
                .next("give -u USER, -g GROUP, -p ID, or -U, -G, -P for whoever has no limits of his own"));
        }
    };
    let change = if args.grace { grace_change(args)? } else { limit_change(args)? };
    if change == QuotaChange::default() {
        return Err(Fault::new(Code::BadArgument)
            .what("nothing is to be set")
            .next("give -b, -B, -i or -I; with -t --block-grace or --inode-grace"));
    }
    match Control::of(&path)?.ask(&Request::QuotaChange { subject, change, dry_run: false })? {
        Answer::QuotaShow(_) => Ok(Done::Ok),
        other => Err(unexpected(&other)),
    }
}

fn limit_change(args: &SetArgs) -> Result<QuotaChange> {
    let count = |text: &String| text.parse().map_err(|_| format!("'{text}' is no number"));
    Ok(QuotaChange {
        inodes_max: args.inodes,
        bytes_max: args.space,
        inodes_soft: args.soft_inodes.as_ref().map(count).transpose().map_err(|why| wrong("-i", why))?,
        bytes_soft: args
            .soft_space
            .as_deref()
            .map(parse_space)
            .transpose()
            .map_err(|why| wrong("-b", why))?,
        to_default: args.to_default,
        ..QuotaChange::default()
    })
}

fn grace_change(args: &SetArgs) -> Result<QuotaChange> {
    let time = |short: &Option<String>, option| {
        short.as_deref().map(parse_grace).transpose().map_err(|why| wrong(option, why))
    };
    Ok(QuotaChange {
        bytes_grace_secs: args.space_grace.or(time(&args.soft_space, "-b")?),
        inodes_grace_secs: args.inodes_grace.or(time(&args.soft_inodes, "-i")?),
        ..QuotaChange::default()
    })
}

fn wrong(option: &'static str, why: String) -> Fault {
    Fault::new(Code::BadArgument).what("cannot read the option").subject(option).why(why)
}

fn grace_text(shown: &QuotaShowResp) -> String {
    let time = |secs: u32| period(secs.into());
    let grace = shown.grace;
    format!("Block grace time: {}; Inode grace time: {}", time(grace.bytes_secs), time(grace.inodes_secs))
}

fn label(kind: QuotaOwner) -> (&'static str, char) {
    match kind {
        QuotaOwner::User => ("usr", 'u'),
        QuotaOwner::Group => ("grp", 'g'),
        QuotaOwner::Project => ("prj", 'p'),
    }
}

/// The mount point, on a line of its own if it is long.
fn mount_text(mount: &str) -> String {
    if mount.len() > MOUNT_COLUMNS { format!("{mount}\n{:>15}", "") } else { format!("{mount:>15}") }
}

fn default_text(human: bool, quiet: bool, kind: QuotaOwner, shown: &QuotaShowResp, mount: &str) -> String {
    let mut text = String::new();
    if !quiet {
        text = format!(
            "Disk default {} quota:\n{:>15} {:>6} {:>7} {:>7} {:>6} {:>7} {:>7}\n",
            label(kind).0,
            "Filesystem",
            "bquota",
            "blimit",
            "bgrace",
            "iquota",
            "ilimit",
            "igrace",
        );
    }
    let (limits, grace) = (shown.limits, shown.grace);
    text + &mount_text(mount)
        + &format!(
            " {:>6} {:>7} {:>7} {:>6} {:>7} {:>7}\n",
            space(limits.bytes_soft, human),
            space(limits.bytes_max, human),
            period(grace.bytes_secs.into()),
            limits.inodes_soft,
            limits.inodes_max,
            period(grace.inodes_secs.into()),
        )
}

/// The mark behind what is used, and the rest of the grace time.
fn over(used: u64, max: u64, grace_end: Option<i64>, now_secs: i64) -> (char, String) {
    match grace_end {
        _ if max > 0 && used >= max => ('*', "-".into()),
        Some(end) if end <= now_secs => ('*', "none".into()),
        Some(end) => ('*', period(end.abs_diff(now_secs))),
        None => (' ', "-".into()),
    }
}

fn text(human: bool, quiet: bool, owner: &Owner, used: &QuotaShowResp, mount: &str) -> String {
    let mut text = String::new();
    if !quiet {
        let (kind, letter) = label(owner.kind);
        let space = if human { "used" } else { "kbytes" };
        text = format!(
            "Disk quotas for {kind} {} ({letter}id {}):\n{:>15} {space:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
            owner.name,
            owner.id,
            "Filesystem",
            "bquota",
            "blimit",
            "bgrace",
            "files",
            "iquota",
            "ilimit",
            "igrace",
        );
    }
    let (limits, now) = (used.limits, used.now_secs);
    let (bytes_mark, bytes_grace) = over(used.bytes, limits.bytes_max, used.bytes_grace_end, now);
    let (inodes_mark, inodes_grace) = over(used.inodes, limits.inodes_max, used.inodes_grace_end, now);
    let columns = |soft: String, hard: String, grace: String| format!(" {soft:>6} {hard:>7} {grace:>7}");
    text + &mount_text(mount)
        + &format!(
            " {:>7}{bytes_mark}{} {:>7}{inodes_mark}{}\n",
            space(used.bytes, human),
            columns(space(limits.bytes_soft, human), space(limits.bytes_max, human), bytes_grace),
            used.inodes,
            columns(limits.inodes_soft.to_string(), limits.inodes_max.to_string(), inodes_grace),
        )
}

#[cfg(test)]
mod tests {
    use brindle_wire::mds::quota::{QuotaGrace, QuotaLimits};

    use super::*;

    fn bob() -> Owner {
        Owner { kind: QuotaOwner::User, id: 1000, name: "bob".into() }
    }

    fn used() -> QuotaShowResp {
        QuotaShowResp { inodes: 12, bytes: (3 << 20) + 1, now_secs: 1000, ..QuotaShowResp::default() }
    }

    #[test]
    fn columns_are_those_of_lustre() {
        assert_eq!(
            text(false, false, &bob(), &used(), "/mnt"),
            "Disk quotas for usr bob (uid 1000):\n     \
             Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n           \
             /mnt    3073       0       0       -      12       0       0       -\n"
        );
        let staff = Owner { kind: QuotaOwner::Group, id: 50, name: "staff".into() };
        assert_eq!(
            text(true, false, &staff, &used(), "/mnt/a/long/name"),
            "Disk quotas for grp staff (gid 50):\n     \
             Filesystem    used  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n\
             /mnt/a/long/name\n                 \
             3.001M      0k      0k       -      12       0       0       -\n"
        );
        let tree = Owner { kind: QuotaOwner::Project, id: 7, name: "7".into() };
        assert!(text(false, false, &tree, &used(), "/mnt").starts_with("Disk quotas for prj 7 (pid 7):\n"));
        assert_eq!(
            text(false, true, &bob(), &used(), "/mnt"),
            "           /mnt    3073       0       0       -      12       0       0       -\n"
        );
    }

    #[test]
    fn limits_are_shown_and_what_is_at_them_is_marked() {
        let limits = QuotaLimits { inodes_max: 13, bytes_max: 3 << 20, ..QuotaLimits::default() };
        let used = QuotaShowResp { limits, ..used() };
        assert_eq!(
            text(false, true, &bob(), &used, "/mnt"),
            "           /mnt    3073*      0    3072       -      12       0      13       -\n"
        );
        assert_eq!(
            text(true, true, &bob(), &used, "/mnt"),
            "           /mnt  3.001M*     0k      3M       -      12       0      13       -\n"
        );
    }

    #[test]
    fn what_is_over_a_soft_limit_has_the_rest_of_its_grace_time() {
        let limits = QuotaLimits { inodes_soft: 10, inodes_max: 20, bytes_max: 0, bytes_soft: 2 << 20 };
        let over = QuotaShowResp {
            limits,
            inodes_grace_end: Some(1000 + 3661),
            bytes_grace_end: Some(1000),
            ..used()
        };
        assert_eq!(
            text(false, true, &bob(), &over, "/mnt"),
            "           /mnt    3073*   2048       0    none      12*     10      20  1h1m1s\n"
        );
        let at_the_hard_one = QuotaShowResp { inodes: 20, ..over };
        assert!(
            text(false, true, &bob(), &at_the_hard_one, "/mnt").ends_with("20*     10      20       -\n")
        );
    }

    #[test]
    fn defaults_and_grace_times_have_their_lines() {
        let limits = QuotaLimits { inodes_max: 20, bytes_max: 1 << 30, ..QuotaLimits::default() };
        let shown = QuotaShowResp {
            limits,
            grace: QuotaGrace { inodes_secs: 3600, bytes_secs: 604_800 },
            ..QuotaShowResp::default()
        };
        assert_eq!(grace_text(&shown), "Block grace time: 1w; Inode grace time: 1h");
        assert_eq!(
            default_text(false, false, QuotaOwner::Project, &shown, "/mnt"),
            "Disk default prj quota:\n     Filesystem bquota  blimit  bgrace iquota  ilimit  igrace\n           \
             /mnt      0 1048576      1w      0      20      1h\n"
        );
    }
}
