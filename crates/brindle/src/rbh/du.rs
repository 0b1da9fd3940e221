//! `rbh-du`: the usage below paths, by type if asked for.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use brindle_types::{Fault, FileType, Result};
use brindle_wire::mds::scan::{Term, Test};

use super::find::id_of;
use super::{Scan, ScannedEntry, TYPES, start, status_of, type_of};
use crate::exit::Done;
use crate::format::runtime;
use brindle_host::users;

/// Arguments of `rbh-du`.
#[derive(clap::Args)]
#[command(
    disable_version_flag = true,
    after_help = "Examples:\n  rbh-du -H /mnt/scratch/project\n  rbh-du -s -c -u foo -t f\n\
                  Root only; brindle file du is for everybody."
)]
pub struct Args {
    /// Only what belongs to this user
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// Only what belongs to this group
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Only this type: f, d, l, b, c, p or s
    #[arg(short = 't', value_name = "TYPE", value_parser = type_of)]
    kind: Option<FileType>,
    /// Only files of this status, lhsm:VALUE
    #[arg(short = 'S', value_name = "STATUS", value_parser = status_of)]
    status: Option<String>,
    /// One sum of all paths
    #[arg(short = 's', long)]
    sum: bool,
    /// Numbers of entries
    #[arg(short = 'c', long)]
    count: bool,
    /// Sizes, in bytes, instead of the space that is taken
    #[arg(short = 'b', long)]
    bytes: bool,
    /// In KB
    #[arg(short = 'k', long)]
    kilo: bool,
    /// In MB
    #[arg(short = 'm', long)]
    mega: bool,
    /// With a unit
    #[arg(short = 'H', long)]
    human: bool,
    /// All of it, by type
    #[arg(short = 'd', long)]
    details: bool,
    /// Taken, without effect
    #[arg(short = 'f', long, hide = true, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Taken, without effect
    #[arg(short = 'l', long, hide = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Files and directories; the only file system that is mounted here without any
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Sums of a type.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    size_bytes: u64,
    used_bytes: u64,
}

type Sums = BTreeMap<&'static str, Sum>;

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let paths = if args.paths.is_empty() { vec![start(None)?] } else { args.paths.clone() };
    let predicate = predicate(args)?;
    runtime()?.block_on(async {
        let mut all = Sums::new();
        // Files with several names count once, below all paths if these are summed up.
        let mut seen = HashSet::new();
        for path in &paths {
            let mut scan = Scan::begin(path, predicate.clone(), None).await?;
            let summed = async {
                while let Some(page) = scan.next().await? {
                    let wanted = |found: &&ScannedEntry| {
                        args.status.as_ref().is_none_or(|status| status == found.status_text())
                    };
                    for found in page.iter().filter(wanted) {
                        let attr = &found.attr;
                        let has_more_names = attr.nlink > 1 && attr.kind != FileType::Directory;
                        if has_more_names && !seen.insert(attr.ino) {
                            continue;
                        }
                        let sum = all.entry(super::type_name(attr.kind)).or_default();
                        sum.count += 1;
                        sum.size_bytes = sum.size_bytes.saturating_add(attr.size_bytes);
                        sum.used_bytes = sum.used_bytes.saturating_add(found.used_bytes());
                    }
                }
                Ok::<_, Fault>(())
            };
            let summed = summed.await;
            scan.client.unmount().await;
            summed?;
            if !args.sum {
                println!("{}", args.text(&path.display().to_string(), &all));
                all.clear();
                seen.clear();
            }
        }
        if args.sum {
            println!("{}", args.text("total", &all));
        }
        Ok(Done::Ok)
    })
}

fn predicate(args: &Args) -> Result<Vec<Term>> {
    let mut tests = Vec::new();
    if let Some(user) = &args.user {
        tests.push(Test::Uid(id_of("-u", user, users::uid_of)?));
    }
    if let Some(group) = &args.group {
        tests.push(Test::Gid(id_of("-g", group, users::gid_of)?));
    }
    tests.extend(args.kind.map(|kind| Test::Kind(vec![kind])));
    Ok(super::find::all_of(tests.into_iter().map(|test| vec![Term::Test(test)]).collect()))
}

impl Args {
    fn text(&self, name: &str, sums: &Sums) -> String {
        let total = |of: fn(&Sum) -> u64| sums.values().map(of).fold(0, u64::saturating_add);
        if self.details {
            let shown = TYPES.iter().filter_map(|(_, kind)| Some((kind, sums.get(kind)?)));
            let lines = shown.map(|(kind, sum)| {
                let (size, used) = (self.size(sum.size_bytes), self.size(sum.used_bytes));
                format!("\n\t{kind} count:{}, size:{size}, spc_used:{used}", sum.count)
            });
            return name.to_owned() + &lines.collect::<String>();
        }
        let figure = match (self.count, self.bytes) {
            (true, _) => total(|sum| sum.count).to_string(),
            (false, true) => self.size(total(|sum| sum.size_bytes)),
            (false, false) => self.size(total(|sum| sum.used_bytes)),
        };
        format!("{figure}\t{name}")
    }

    fn size(&self, bytes: u64) -> String {
        match (self.human, self.mega, self.bytes && !self.kilo) {
            (true, ..) => human(bytes),
            (false, true, _) => bytes.div_ceil(1 << 20).to_string(),
            (false, false, true) => bytes.to_string(),
            _ => bytes.div_ceil(1 << 10).to_string(),
        }
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn figures_look_as_robinhoods() {
        let file = Sum { count: 2, size_bytes: 1025, used_bytes: 8192 };
        let sums =
            Sums::from([("file", file), ("dir", Sum { count: 1, size_bytes: 4096, used_bytes: 4096 })]);
        let text = |words: &[&str]| {
            let line = ["rbh-du"].iter().chain(words);
            Line::try_parse_from(line).unwrap().args.text("/mnt", &sums)
        };
        assert_eq!(text(&[]), "12\t/mnt");
        assert_eq!(text(&["-b"]), "5121\t/mnt");
        assert_eq!(text(&["-c"]), "3\t/mnt");
        assert_eq!(text(&["-H"]), "12.0K\t/mnt");
        assert_eq!(text(&["-m"]), "1\t/mnt");
        let details = "/mnt\n\tdir count:1, size:4, spc_used:4\n\tfile count:2, size:2, spc_used:8";
        assert_eq!(text(&["-d"]), details);
    }
}
