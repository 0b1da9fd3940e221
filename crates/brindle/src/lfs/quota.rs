//! `lfs quota` and `lfs setquota`: what users and groups use, and what they may use. There are no soft limits in this version: they
//! are shown as 0, and grace times as `-`.

use std::path::PathBuf;

use brindle_client::control::{Answer, Request};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::{QuotaOwner, QuotaUseResp};
use clap::ArgGroup;

use crate::completion::live;
use crate::control::{Control, unexpected};
use crate::exit::Done;
use crate::find::users;

/// Longest mount point that stands in the line of the figures.
const MOUNT_COLUMNS: usize = 15;

/// Arguments of `lfs quota`.
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("owner"),
    after_help = "Without -u, -g and -p: the user who asks, and his group. Root may ask for everybody, others for themselves and \
                  their groups.\nA limit of 0 is none. An asterisk stands behind what is over its limit: it may have been there \
                  before the limit. There are no soft limits (bquota, iquota) in this version."
)]
pub struct Args {
    #[command(flatten)]
    owner: OwnerArgs,
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
    path: PathBuf,
}

/// Whose usage or limits.
#[derive(clap::Args)]
struct OwnerArgs {
    /// A user, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER", group = "owner")]
    user: Option<String>,
    /// A group, by name or number
    #[arg(short = 'g', long = "group", value_name = "GROUP", group = "owner")]
    group: Option<String>,
    /// A project, by number
    #[arg(short = 'p', long = "project", value_name = "ID", group = "owner")]
    project: Option<u32>,
}

/// Somebody whose usage is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    kind: QuotaOwner,
    id: u32,
    /// As it was given, or the number's name.
    name: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let owners = owners(args)?;
    let control = Control::of(&args.path)?;
    let mount = control.mount().mount_point.display().to_string();
    for owner in owners {
        let used = match control.ask(&Request::Quota { owner: owner.kind, id: owner.id })? {
            Answer::Quota(used) => used,
            other => return Err(unexpected(&other)),
        };
        print!("{}", text(args.human, args.quiet, &owner, &used, &mount));
    }
    Ok(Done::Ok)
}

/// Arguments of `lfs setquota`.
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("owner").required(true),
    group = ArgGroup::new("limit").required(true).multiple(true),
    after_help = "A limit of 0 is none; one that is not named stays as it is. What is over a new limit already stays: its owner can \
                  remove and, in files without holes, overwrite, and gets no more. No limit counts for root. Mounts hear of a new limit of space \
                  within a third of the lease (2 s)."
)]
pub struct SetArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Most space, in KiB or with a unit (k, m, g, t, p: powers of 1024)
    #[arg(short = 'B', long = "block-hardlimit", value_name = "SIZE", group = "limit", value_parser = parse_space)]
    space: Option<u64>,
    /// Most files, directories and other inodes
    #[arg(short = 'I', long = "inode-hardlimit", value_name = "COUNT", group = "limit")]
    inodes: Option<u64>,
    /// A soft limit of space: only 0, there is none in this version
    #[arg(short = 'b', long = "block-softlimit", value_name = "SIZE", group = "limit", value_parser = parse_space)]
    soft_space: Option<u64>,
    /// A soft limit of inodes: only 0, there is none in this version
    #[arg(short = 'i', long = "inode-softlimit", value_name = "COUNT", group = "limit")]
    soft_inodes: Option<u64>,
    /// A path in the mount
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    path: PathBuf,
}

/// Runs `lfs setquota`.
pub fn set(args: &SetArgs) -> Result<Done> {
    let named = named(&args.owner)?;
    let soft = [(args.soft_space, "-b", "-B"), (args.soft_inodes, "-i", "-I")];
    let wanted = soft.into_iter().find(|(limit, ..)| limit.is_some_and(|limit| limit > 0));
    if let Some((_, soft, hard)) = wanted {
        return Err(Fault::new(Code::NotSupported)
            .what("cannot set the soft limit")
            .subject(soft)
            .why("this version has hard limits only")
            .data("nothing was changed")
            .next(format!("give {hard}")));
    }
    let control = Control::of(&args.path)?;
    if let Some(Owner { kind, id, .. }) = named {
        let request = Request::SetQuota { owner: kind, id, inodes_max: args.inodes, bytes_max: args.space };
        match control.ask(&request)? {
            Answer::Quota(_) => {}
            other => return Err(unexpected(&other)),
        }
    }
    Ok(Done::Ok)
}

/// KiB, or bytes in a unit.
fn parse_space(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        unit => return Err(format!("'{unit}' is no unit: k, m, g, t or p")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("'{text}' is no size: say 500g, or KiB as a number"))?;
    let bytes = number.checked_mul(1 << shift);
    bytes.filter(|bytes| *bytes <= 1 << 62).ok_or_else(|| format!("'{text}' is more than can be stored"))
}

fn named(args: &OwnerArgs) -> Result<Option<Owner>> {
    if let Some(text) = &args.user {
        let id = number(text, "user", users::uid_of)?;
        return Ok(Some(Owner { kind: QuotaOwner::User, id, name: text.clone() }));
    }
    if let Some(text) = &args.group {
        let id = number(text, "group", users::gid_of)?;
        return Ok(Some(Owner { kind: QuotaOwner::Group, id, name: text.clone() }));
    }
    Ok(args.project.map(|id| Owner { kind: QuotaOwner::Project, id, name: id.to_string() }))
}

fn owners(args: &Args) -> Result<Vec<Owner>> {
    if let Some(owner) = named(&args.owner)? {
        return Ok(vec![owner]);
    }
    let by_id =
        |kind, id: u32, name: Option<String>| Owner { kind, id, name: name.unwrap_or(id.to_string()) };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // A number without a name is shown as it is.
    let (user, group) = (users::user_name(uid).ok().flatten(), users::group_name(gid).ok().flatten());
    Ok(vec![by_id(QuotaOwner::User, uid, user), by_id(QuotaOwner::Group, gid, group)])
}

fn number(text: &str, what: &'static str, look_up: fn(&str) -> std::io::Result<Option<u32>>) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let unknown = || Fault::new(Code::BadArgument).what("there is no").subject(format!("{what} '{text}'"));
    match look_up(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(unknown().next("give the number, if this host does not know the name")),
        Err(e) => Err(Fault::io(Code::BadArgument, "cannot look up", format!("{what} '{text}'"), &e)
            .next("give the number")),
    }
}

fn text(human: bool, quiet: bool, owner: &Owner, used: &QuotaUseResp, mount: &str) -> String {
    let mut text = String::new();
    if !quiet {
        let (kind, letter) = match owner.kind {
            QuotaOwner::User => ("usr", 'u'),
            QuotaOwner::Group => ("grp", 'g'),
            QuotaOwner::Project => ("prj", 'p'),
        };
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
    if mount.len() > MOUNT_COLUMNS {
        text.push_str(&format!("{mount}\n{:>15}", ""));
    } else {
        text.push_str(&format!("{mount:>15}"));
    }
    let mark = |used: u64, max: u64| if max > 0 && used > max { '*' } else { ' ' };
    let limits = |soft: &str, hard: String| format!(" {soft:>6} {hard:>7} {:>7}", "-");
    text + &format!(
        " {:>7}{}{} {:>7}{}{}\n",
        space(used.bytes, human),
        mark(used.bytes, used.bytes_max),
        limits(if human { "0k" } else { "0" }, space(used.bytes_max, human)),
        used.inodes,
        mark(used.inodes, used.inodes_max),
        limits("0", used.inodes_max.to_string()),
    )
}

/// KiB, rounded up; or with a unit and four digits, as `%5.4g` has them.
fn space(bytes: u64, human: bool) -> String {
    let kib = bytes.div_ceil(1024);
    if !human {
        return kib.to_string();
    }
    let (shift, letter) = match kib {
        0..0x400 => return format!("{kib}k"),
        0x400..0x10_0000 => (10, 'M'),
        0x10_0000..0x4000_0000 => (20, 'G'),
        0x4000_0000..0x100_0000_0000 => (30, 'T'),
        _ => (40, 'P'),
    };
    let value = kib as f64 / (1_u64 << shift) as f64;
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let digits = if decimals > 0 { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits:>5}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bob() -> Owner {
        Owner { kind: QuotaOwner::User, id: 1000, name: "bob".into() }
    }

    const USED: QuotaUseResp = QuotaUseResp { inodes: 12, bytes: (3 << 20) + 1, inodes_max: 0, bytes_max: 0 };

    #[test]
    fn columns_are_those_of_lustre() {
        assert_eq!(
            text(false, false, &bob(), &USED, "/mnt"),
            "Disk quotas for usr bob (uid 1000):\n     \
             Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n           \
             /mnt    3073       0       0       -      12       0       0       -\n"
        );
        let staff = Owner { kind: QuotaOwner::Group, id: 50, name: "staff".into() };
        assert_eq!(
            text(true, false, &staff, &USED, "/mnt/a/long/name"),
            "Disk quotas for grp staff (gid 50):\n     \
             Filesystem    used  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n\
             /mnt/a/long/name\n                 \
             3.001M      0k      0k       -      12       0       0       -\n"
        );
        assert_eq!(
            text(false, true, &bob(), &USED, "/mnt"),
            "           /mnt    3073       0       0       -      12       0       0       -\n"
        );
    }

    #[test]
    fn limits_are_shown_and_what_is_over_them_is_marked() {
        let used = QuotaUseResp { inodes_max: 12, bytes_max: 3 << 20, ..USED };
        assert_eq!(
            text(false, true, &bob(), &used, "/mnt"),
            "           /mnt    3073*      0    3072       -      12       0      12       -\n"
        );
        assert_eq!(
            text(true, true, &bob(), &used, "/mnt"),
            "           /mnt  3.001M*     0k      3M       -      12       0      12       -\n"
        );
    }

    #[test]
    fn limits_are_kib_or_have_a_unit() {
        assert_eq!(parse_space("0"), Ok(0));
        assert_eq!(parse_space("4"), Ok(4096));
        assert_eq!(parse_space("1G"), Ok(1 << 30));
        assert_eq!(parse_space("2t"), Ok(2 << 40));
        assert_eq!(parse_space("g").expect_err("refused"), "'g' is no size: say 500g, or KiB as a number");
        assert_eq!(parse_space("1x").expect_err("refused"), "'x' is no unit: k, m, g, t or p");
        assert_eq!(parse_space("99999p").expect_err("refused"), "'99999p' is more than can be stored");
        assert!(parse_space("-1").is_err() && parse_space("").is_err());
    }

    #[test]
    fn space_has_four_digits_and_a_unit() {
        let human = |bytes| space(bytes, true);
        assert_eq!(human(0), "0k");
        assert_eq!(human(1), "1k");
        assert_eq!(human(1 << 20), "    1M");
        assert_eq!(human(3 << 19), "  1.5M");
        assert_eq!(human(1_000_000 << 10), "976.6M");
        assert_eq!(human(5 << 40), "    5T");
        assert_eq!(human(1 << 50), "    1P");
        assert_eq!(space(1025, false), "2");
    }

    #[test]
    fn names_are_looked_up_and_numbers_taken() {
        assert_eq!(number("0", "user", users::uid_of), Ok(0));
        assert_eq!(number("root", "user", users::uid_of), Ok(0));
        assert_eq!(
            number("no such user here", "user", users::uid_of).expect_err("refused").to_string(),
            "there is no user 'no such user here'\
             \n  next: give the number, if this host does not know the name\
             \n  code: E1001 (brindle explain E1001)"
        );
    }
}
