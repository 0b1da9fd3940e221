//! `lfs quota`: what users and groups use. There are no limits in this version: they are shown as 0, and grace times as `-`.

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
                  their groups.\nThere are no limits in this version; what is used is counted."
)]
pub struct Args {
    /// A user, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER", group = "owner")]
    user: Option<String>,
    /// A group, by name or number
    #[arg(short = 'g', long = "group", value_name = "GROUP", group = "owner")]
    group: Option<String>,
    /// A project, by number
    #[arg(short = 'p', long = "project", value_name = "ID", group = "owner")]
    project: Option<u32>,
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
            Answer::Quota { inodes, bytes } => QuotaUseResp { inodes, bytes },
            other => return Err(unexpected(&other)),
        };
        print!("{}", text(args.human, args.quiet, &owner, &used, &mount));
    }
    Ok(Done::Ok)
}

fn owners(args: &Args) -> Result<Vec<Owner>> {
    let by_id =
        |kind, id: u32, name: Option<String>| Owner { kind, id, name: name.unwrap_or(id.to_string()) };
    if let Some(text) = &args.user {
        let id = number(text, "user", users::uid_of)?;
        return Ok(vec![Owner { kind: QuotaOwner::User, id, name: text.clone() }]);
    }
    if let Some(text) = &args.group {
        let id = number(text, "group", users::gid_of)?;
        return Ok(vec![Owner { kind: QuotaOwner::Group, id, name: text.clone() }]);
    }
    if let Some(id) = args.project {
        return Ok(vec![by_id(QuotaOwner::Project, id, None)]);
    }
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
    // An asterisk behind a figure would mean that it is over its limit.
    let limits = |unit: &str| format!("  {:>6} {:>7} {:>7}", format!("0{unit}"), format!("0{unit}"), "-");
    let unit = if human { "k" } else { "" };
    text + &format!(" {:>7}{} {:>7}{}\n", space(used.bytes, human), limits(unit), used.inodes, limits(""))
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

    const USED: QuotaUseResp = QuotaUseResp { inodes: 12, bytes: (3 << 20) + 1 };

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
