//! `rbh-report`: usage by user, the largest files and directories, counts by class and state.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use brindle_policy::glob;
use brindle_types::{Fault, FileType, Ino, Result};

use super::rows::{self, Column, Stats, Style, in_words, total};
use super::tops::{Contents, Top, Tree};
use super::{Known, Scan, ScannedEntry, not_here, start, status_of, type_name};
use crate::exit::Done;
use crate::format::runtime;

/// Most lines of one.
const TOP_MAX: usize = 100_000;

/// Arguments of `rbh-report`.
#[derive(clap::Args)]
#[command(
    disable_version_flag = true,
    after_help = "Examples:\n  rbh-report -i\n  rbh-report -u foo -S\n  rbh-report --top-users=5 --by-count -P /mnt/scratch/project\n  \
                  rbh-report --class-info -f /etc/brindle/policy.conf --csv\n\
                  Every report looks at the file system as it is now, in one scan. Root only. Not here: --activity (brindle policy status),\n\
                  --entry-info (brindle policy why), --dump-ost (brindle file find -ost), projects, --size-profile."
)]
pub struct Args {
    /// Sums by type
    #[arg(short = 'i', long, alias = "fsinfo")]
    fs_info: bool,
    /// Sums of a user, by type
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// Sums of every user, or of those whose names match
    #[arg(long, alias = "userinfo", value_name = "USER", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    user_info: Option<String>,
    /// Sums of a group, by type
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Sums of every group, or of those whose names match
    #[arg(long, alias = "groupinfo", value_name = "GROUP", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    group_info: Option<String>,
    /// Sums by class of a policy text (-f)
    #[arg(long, alias = "classinfo", value_name = "CLASS", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    class_info: Option<String>,
    /// Sums by status: lhsm, or lhsm:VALUE for one
    #[arg(long, alias = "statusinfo", value_name = "STATUS")]
    status_info: Option<String>,
    /// Users with the most bytes in files
    #[arg(long, alias = "topusers", value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    top_users: Option<usize>,
    /// So many users with the most bytes
    #[arg(short = 'U', value_name = "N")]
    users: Option<usize>,
    /// Directories with the most entries
    #[arg(long, alias = "topdirs", value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    top_dirs: Option<usize>,
    /// So many directories with the most entries
    #[arg(short = 'd', value_name = "N")]
    dirs: Option<usize>,
    /// Largest files
    #[arg(long, alias = "topsize", value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    top_size: Option<usize>,
    /// So many of the largest files
    #[arg(short = 's', value_name = "N")]
    size: Option<usize>,
    /// Files that nobody has read for the longest time, as policies count it
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    oldest_files: Option<usize>,
    /// So many of them
    #[arg(short = 'o', value_name = "N")]
    files: Option<usize>,
    /// Empty directories that were changed last the longest ago
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    oldest_empty_dirs: Option<usize>,
    /// So many of them
    #[arg(short = 'O', value_name = "N")]
    empty_dirs: Option<usize>,
    /// Every entry
    #[arg(short = 'D', long, alias = "dump-all")]
    dump: bool,
    /// Every entry of a user
    #[arg(long, value_name = "USER")]
    dump_user: Option<String>,
    /// Every entry of a group
    #[arg(long, value_name = "GROUP")]
    dump_group: Option<String>,
    /// Every file with a status, lhsm:VALUE
    #[arg(long, value_name = "STATUS", value_parser = status_of)]
    dump_status: Option<String>,
    /// Only what is at or below this path
    #[arg(short = 'P', long, value_name = "PATH")]
    filter_path: Option<PathBuf>,
    /// Only what is in these classes of the text (-f)
    #[arg(short = 'C', long, value_name = "CLASS")]
    filter_class: Option<String>,
    /// Only lines with at least so many entries
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    count_min: u64,
    /// Users by group, groups by user
    #[arg(short = 'S', long)]
    split_user_groups: bool,
    /// Order by the number of entries
    #[arg(long)]
    by_count: bool,
    /// Order by the average size
    #[arg(long, alias = "by-avg-size")]
    by_avgsize: bool,
    /// The other way round
    #[arg(short = 'r', long)]
    reverse: bool,
    /// The policy text with the classes
    #[arg(short = 'f', long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Numbers for programs
    #[arg(short = 'c', long)]
    csv: bool,
    /// Without titles and sums
    #[arg(short = 'q', long)]
    no_header: bool,
    /// Taken, without effect: there is no table of accounts that could be passed over
    #[arg(short = 'F', long, hide = true)]
    force_no_acct: bool,
    /// Taken, without effect
    #[arg(short = 'l', long, hide = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// A path in a mount of the file system; the only one that is mounted here without it
    #[arg(value_name = "MNT")]
    mount: Option<PathBuf>,
}

/// A report that is being made.
trait Report {
    /// Takes in an entry.
    fn offer(&mut self, found: &ScannedEntry, known: &mut Known);
    /// Lines of the report.
    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String>;
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let needs_text = args.class_info.is_some() || args.filter_class.is_some();
    if needs_text && args.config_file.is_none() {
        return Err(not_here(
            "class",
            "classes stand in a policy text, and none is given",
            "give it: -f FILE",
        ));
    }
    let reports = reports(args)?;
    if let (Some(path), Some(mount)) = (&args.filter_path, &args.mount)
        && !path.starts_with(mount)
    {
        let why = format!("-P {} is not in it", path.display());
        return Err(not_here(&mount.display().to_string(), &why, "give one of them"));
    }
    let place = start(args.filter_path.as_deref().or(args.mount.as_deref()))?;
    let style = Style { csv: args.csv, no_header: args.no_header };
    if let Some(path) = &args.filter_path
        && !style.no_header
    {
        println!("filter path: {}", path.display());
    }
    if let Some(class) = &args.filter_class
        && !style.no_header
    {
        println!("filter class: {class}");
    }
    runtime()?.block_on(scan(args, &place, style, reports))
}

async fn scan(
    args: &Args,
    place: &std::path::Path,
    style: Style,
    mut reports: Vec<Box<dyn Report>>,
) -> Result<Done> {
    let mut scan = Scan::begin(place, Vec::new(), args.config_file.as_deref()).await?;
    let client = scan.client.clone();
    let mut known = Known::default();
    let mut dump = Dump::new(args);
    let made = async {
        while let Some(page) = scan.next().await? {
            let is_wanted = |found: &&ScannedEntry| {
                args.filter_class
                    .as_ref()
                    .is_none_or(|class| is_in(found.class.as_deref().unwrap_or_default(), class))
            };
            for found in page.iter().filter(is_wanted) {
                reports.iter_mut().for_each(|report| report.offer(found, &mut known));
                if let Some(dump) = &mut dump {
                    dump.print(found, style, &mut known);
                }
            }
        }
        for report in reports {
            report.lines(style, &mut known).iter().for_each(|line| println!("{line}"));
        }
        if let Some(dump) = dump {
            dump.finish(style);
        }
        Ok::<_, Fault>(())
    };
    let made = made.await;
    client.unmount().await;
    made.map(|()| Done::Ok)
}

/// Lines of single entries have no number of them.
fn refuse_count_min(args: &Args) -> Result<()> {
    let is_of_entries =
        [args.top_size, args.size, args.oldest_files, args.files, args.oldest_empty_dirs, args.empty_dirs]
            .iter()
            .any(Option::is_some)
            || Dump::new(args).is_some();
    match args.count_min > 0 && is_of_entries {
        true => Err(not_here(
            "--count-min for --top-size, --oldest-files, --oldest-empty-dirs and --dump",
            "each of their lines is one entry",
            "leave it out, or ask for sums in another command",
        )),
        false => Ok(()),
    }
}

fn reports(args: &Args) -> Result<Vec<Box<dyn Report>>> {
    refuse_count_min(args)?;
    let mut all: Vec<Box<dyn Report>> = Vec::new();
    let sums = |by: By, pattern: Option<String>| -> Box<dyn Report> {
        Box::new(Sums { by, pattern, args: SumArgs::of(args), sums: BTreeMap::new(), seen: HashSet::new() })
    };
    if args.fs_info {
        all.push(sums(By::Type, None));
    }
    let users = args.user.iter().chain(&args.user_info);
    all.extend(users.map(|name| sums(By::User, Some(name.clone()))));
    let groups = args.group.iter().chain(&args.group_info);
    all.extend(groups.map(|name| sums(By::Group, Some(name.clone()))));
    all.extend(args.class_info.as_ref().map(|class| sums(By::Class, Some(class.clone()))));
    if let Some(status) = &args.status_info {
        let value = match status.as_str() {
            "lhsm" => None,
            text => Some(
                status_of(text)
                    .map_err(|why| not_here("status", &why, "rbh-report --status-info lhsm shows all"))?,
            ),
        };
        all.push(sums(By::Status, value));
    }
    let reverse = args.reverse;
    let first = |long: Option<usize>, short: Option<usize>| long.or(short).map(|n| n.min(TOP_MAX));
    if let Some(most) = first(args.top_users, args.users) {
        all.push(Box::new(TopUsers {
            most,
            args: SumArgs::of(args),
            sums: BTreeMap::new(),
            seen: HashSet::new(),
        }));
    }
    if let Some(most) = first(args.top_dirs, args.dirs) {
        all.push(Box::new(TopDirs {
            by_average: args.by_avgsize,
            count_min: args.count_min,
            tree: Tree::default(),
            top: Top::new(most, reverse),
        }));
    }
    if let Some(most) = first(args.top_size, args.size) {
        all.push(Box::new(TopSize(Top::new(most, reverse))));
    }
    if let Some(most) = first(args.oldest_files, args.files) {
        all.push(Box::new(OldestFiles(Top::new(most, !reverse))));
    }
    if let Some(most) = first(args.oldest_empty_dirs, args.empty_dirs) {
        all.push(Box::new(EmptyDirs(Top::new(most, !reverse))));
    }
    if all.is_empty() && Dump::new(args).is_none() {
        return Err(not_here(
            "report without a name",
            "none was asked for",
            "-i, -u USER, --user-info, -g GROUP, --group-info, --class-info, --status-info lhsm, --top-users, --top-dirs, --top-size, --oldest-files, --oldest-empty-dirs, --dump",
        ));
    }
    Ok(all)
}

/// Whether one of the classes of an entry matches.
fn is_in(classes: &str, pattern: &str) -> bool {
    classes.split('+').any(|class| glob::matches(&pattern.to_lowercase(), &class.to_lowercase()))
}

/// Options of sums.
struct SumArgs {
    split: bool,
    reverse: bool,
    by_count: bool,
    by_average: bool,
    count_min: u64,
}

impl SumArgs {
    fn of(args: &Args) -> SumArgs {
        SumArgs {
            split: args.split_user_groups,
            reverse: args.reverse,
            by_count: args.by_count,
            by_average: args.by_avgsize,
            count_min: args.count_min,
        }
    }
}

/// Key by which entries are summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Type,
    User,
    Group,
    Class,
    Status,
}

/// Sums by type and more.
struct Sums {
    by: By,
    pattern: Option<String>,
    args: SumArgs,
    sums: BTreeMap<Vec<String>, Stats>,
    /// Files with several names count once.
    seen: HashSet<Ino>,
}

/// Whether an entry is met for the first time.
fn is_first(found: &ScannedEntry, seen: &mut HashSet<Ino>) -> bool {
    let has_more_names = found.attr.nlink > 1 && found.attr.kind != FileType::Directory;
    !has_more_names || seen.insert(found.attr.ino)
}

impl Sums {
    fn columns(&self) -> Vec<Column> {
        let mut columns = match self.by {
            By::Type => Vec::new(),
            By::User if self.args.split => vec![rows::USER, rows::GROUP],
            By::User => vec![rows::USER],
            By::Group if self.args.split => vec![rows::GROUP, rows::USER],
            By::Group => vec![rows::GROUP],
            By::Class => vec![rows::FILECLASS],
            By::Status => vec![rows::STATUS],
        };
        if self.by != By::Class {
            columns.push(rows::TYPE);
        }
        columns
    }

    fn key(&self, found: &ScannedEntry, known: &mut Known) -> Option<Vec<String>> {
        let (uid, gid) = (found.attr.uid, found.attr.gid);
        let matches = |name: &str, number: u32| {
            self.pattern
                .as_ref()
                .is_none_or(|pattern| glob::matches(pattern, name) || *pattern == number.to_string())
        };
        let mut key = match self.by {
            By::Type => Vec::new(),
            By::User => {
                let user = known.user(uid).to_owned();
                if !matches(&user, uid) {
                    return None;
                }
                if self.args.split { vec![user, known.group(gid).to_owned()] } else { vec![user] }
            }
            By::Group => {
                let group = known.group(gid).to_owned();
                if !matches(&group, gid) {
                    return None;
                }
                if self.args.split { vec![group, known.user(uid).to_owned()] } else { vec![group] }
            }
            By::Class => {
                let class = found.class_text();
                let is_wanted =
                    self.pattern.as_ref().is_none_or(|pattern| pattern == "*" || is_in(class, pattern));
                return is_wanted.then(|| vec![class.to_owned()]);
            }
            By::Status => {
                let status = found.status_text();
                let is_wanted = self.pattern.as_ref().is_none_or(|wanted| wanted == status);
                if !is_wanted {
                    return None;
                }
                vec![status.to_owned()]
            }
        };
        key.push(type_name(found.attr.kind).to_owned());
        Some(key)
    }
}

impl Report for Sums {
    fn offer(&mut self, found: &ScannedEntry, known: &mut Known) {
        if let Some(key) = self.key(found, known)
            && is_first(found, &mut self.seen)
        {
            self.sums.entry(key).or_default().add(found.attr.size_bytes, found.used_bytes());
        }
    }

    fn lines(self: Box<Self>, style: Style, _: &mut Known) -> Vec<String> {
        let columns = [&self.columns()[..], &Stats::COLUMNS].concat();
        let count_min = self.args.count_min;
        let mut shown: Vec<(&Vec<String>, &Stats)> =
            self.sums.iter().filter(|(_, stats)| stats.count >= count_min).collect();
        match (self.args.by_count, self.args.by_average) {
            (true, _) => shown.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.count)),
            (false, true) => shown.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.average())),
            (false, false) => {}
        }
        if self.args.reverse {
            shown.reverse();
        }
        let mut lines = Vec::new();
        if !style.no_header && !shown.is_empty() {
            lines.push(style.titles(&columns, false));
        }
        lines.extend(shown.iter().map(|(key, stats)| {
            let cells: Vec<String> = key.iter().cloned().chain(stats.cells(style)).collect();
            style.row(&columns, &cells)
        }));
        if !style.no_header {
            let all: Vec<Stats> = shown.iter().map(|(_, stats)| **stats).collect();
            lines.push(total(&all));
        }
        lines
    }
}

/// Users with the most.
struct TopUsers {
    most: usize,
    args: SumArgs,
    sums: BTreeMap<u32, Stats>,
    seen: HashSet<Ino>,
}

impl Report for TopUsers {
    fn offer(&mut self, found: &ScannedEntry, _: &mut Known) {
        // Robinhood counts files alone here, unless it orders by number.
        let counts = self.args.by_count || found.attr.kind == FileType::Regular;
        if counts && is_first(found, &mut self.seen) {
            self.sums.entry(found.attr.uid).or_default().add(found.attr.size_bytes, found.used_bytes());
        }
    }

    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String> {
        const COLUMNS: [Column; 7] = [
            rows::USER,
            rows::VOLUME,
            rows::SPC_USED,
            rows::COUNT,
            rows::MIN_SIZE,
            rows::MAX_SIZE,
            rows::AVG_SIZE,
        ];
        let mut top = Top::new(self.most, self.args.reverse);
        for (uid, stats) in self.sums.iter().filter(|(_, stats)| stats.count >= self.args.count_min) {
            let key = match (self.args.by_count, self.args.by_average) {
                (true, _) => stats.count,
                (false, true) => stats.average(),
                (false, false) => stats.size_bytes,
            };
            top.offer(key, (*uid, *stats));
        }
        let ranked = top.finish().into_iter().map(|(uid, stats)| {
            let mut cells = vec![known.user(uid).to_owned()];
            let [count, volume, used, rest @ ..] = &stats.cells(style)[..] else { return cells };
            cells.extend([volume.clone(), used.clone(), count.clone()]);
            cells.extend(rest.iter().cloned());
            cells
        });
        ranked_lines(style, &COLUMNS, ranked.collect())
    }
}

fn ranked_lines(style: Style, columns: &[Column], all: Vec<Vec<String>>) -> Vec<String> {
    let titles = (!style.no_header).then(|| style.titles(columns, true));
    let lines = all.iter().enumerate().map(|(n, cells)| style.ranked(n + 1, columns, cells));
    titles.into_iter().chain(lines).collect()
}

/// A directory or file of a list.
#[derive(Clone)]
struct Listed {
    path: String,
    uid: u32,
    gid: u32,
    atime_secs: i64,
    mtime_secs: i64,
    size_bytes: u64,
    class: String,
    osts: Vec<u16>,
    pools: Vec<String>,
}

impl Listed {
    fn of(found: &ScannedEntry) -> Listed {
        Listed {
            path: found.path.display().to_string(),
            uid: found.attr.uid,
            gid: found.attr.gid,
            atime_secs: found.attr.atime.secs,
            mtime_secs: found.attr.mtime.secs,
            size_bytes: found.attr.size_bytes,
            class: found.class_text().to_owned(),
            osts: found.entry.osts.clone(),
            pools: found.entry.pools.clone(),
        }
    }
}

/// Directories with the most entries.
struct TopDirs {
    by_average: bool,
    count_min: u64,
    tree: Tree<Listed>,
    top: Top<Contents<Listed>>,
}

impl TopDirs {
    fn taker(
        top: &mut Top<Contents<Listed>>,
        by_average: bool,
        count_min: u64,
    ) -> impl FnMut(Contents<Listed>) {
        move |contents| {
            let key = if by_average { contents.average() } else { contents.count };
            if contents.count >= count_min {
                top.offer(key, contents);
            }
        }
    }
}

impl Report for TopDirs {
    fn offer(&mut self, found: &ScannedEntry, _: &mut Known) {
        let size_bytes = (found.attr.kind == FileType::Regular).then_some(found.attr.size_bytes);
        let dir = (found.attr.kind == FileType::Directory).then(|| Listed::of(found));
        self.tree.add(
            found.depth,
            size_bytes,
            dir,
            &mut TopDirs::taker(&mut self.top, self.by_average, self.count_min),
        );
    }

    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String> {
        const COLUMNS: [Column; 6] =
            [rows::PATH, rows::DIRCOUNT, rows::AVGSIZE, rows::USER, rows::GROUP, rows::LAST_MOD];
        let TopDirs { by_average, count_min, tree, mut top } = *self;
        tree.finish(&mut TopDirs::taker(&mut top, by_average, count_min));
        let all = top.finish().into_iter().map(|contents| {
            let dir = &contents.dir;
            vec![
                dir.path.clone(),
                contents.count.to_string(),
                style.size(contents.average()),
                known.user(dir.uid).to_owned(),
                known.group(dir.gid).to_owned(),
                super::date(dir.mtime_secs),
            ]
        });
        ranked_lines(style, &COLUMNS, all.collect())
    }
}

/// Largest files.
struct TopSize(Top<Listed>);

impl Report for TopSize {
    fn offer(&mut self, found: &ScannedEntry, _: &mut Known) {
        if found.attr.kind == FileType::Regular && self.0.takes(found.attr.size_bytes) {
            self.0.offer(found.attr.size_bytes, Listed::of(found));
        }
    }

    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String> {
        const COLUMNS: [Column; 9] = [
            rows::PATH,
            rows::SIZE,
            rows::USER,
            rows::GROUP,
            rows::LAST_ACCESS,
            rows::LAST_MOD,
            rows::FILECLASS,
            rows::STRIPE,
            rows::STRIPES,
        ];
        let all = self.0.finish().into_iter().map(|file| {
            let mut osts = file.osts.clone();
            let count = osts.len();
            osts.dedup();
            let pool = file.pools.first().map_or("", String::as_str);
            vec![
                file.path.clone(),
                style.size(file.size_bytes),
                known.user(file.uid).to_owned(),
                known.group(file.gid).to_owned(),
                super::date(file.atime_secs),
                super::date(file.mtime_secs),
                file.class.clone(),
                // The scan tells no stripe sizes: lfs getstripe does.
                format!("{count:>10}, {:>11}, {pool:>9}", "-"),
                osts.iter().map(|ost| format!("ost{ost}")).collect::<Vec<_>>().join(","),
            ]
        });
        ranked_lines(style, &COLUMNS, all.collect())
    }
}

/// Files that nobody has read for the longest time.
struct OldestFiles(Top<Listed>);

impl Report for OldestFiles {
    fn offer(&mut self, found: &ScannedEntry, _: &mut Known) {
        // (Of anything but a file it is not known.)
        let Some(unread) = found.entry.unread_since else { return };
        let key = u64::try_from(unread.secs).unwrap_or(0);
        if self.0.takes(key) {
            self.0.offer(key, Listed { atime_secs: unread.secs, ..Listed::of(found) });
        }
    }

    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String> {
        const COLUMNS: [Column; 7] = [
            rows::PATH,
            rows::USER,
            rows::GROUP,
            rows::LAST_ACCESS,
            rows::LAST_MOD,
            rows::SIZE,
            rows::FILECLASS,
        ];
        let all = self.0.finish().into_iter().map(|file| {
            vec![
                file.path.clone(),
                known.user(file.uid).to_owned(),
                known.group(file.gid).to_owned(),
                super::date(file.atime_secs),
                super::date(file.mtime_secs),
                style.size(file.size_bytes),
                file.class.clone(),
            ]
        });
        ranked_lines(style, &COLUMNS, all.collect())
    }
}

/// Empty directories that nobody has changed for the longest time.
struct EmptyDirs(Top<Listed>);

impl Report for EmptyDirs {
    fn offer(&mut self, found: &ScannedEntry, _: &mut Known) {
        if found.entry.is_empty_dir && found.depth > 0 {
            self.0.offer(u64::try_from(found.attr.mtime.secs).unwrap_or(0), Listed::of(found));
        }
    }

    fn lines(self: Box<Self>, style: Style, known: &mut Known) -> Vec<String> {
        const COLUMNS: [Column; 4] = [rows::PATH, rows::USER, rows::GROUP, rows::LAST_MOD];
        let all = self.0.finish().into_iter().map(|dir| {
            let (user, group) = (known.user(dir.uid).to_owned(), known.group(dir.gid).to_owned());
            vec![dir.path.clone(), user, group, super::date(dir.mtime_secs)]
        });
        ranked_lines(style, &COLUMNS, all.collect())
    }
}

/// A list of everything, as it is found.
struct Dump {
    user: Option<String>,
    group: Option<String>,
    status: Option<String>,
    is_begun: bool,
    count: u64,
    bytes: u64,
}

impl Dump {
    const COLUMNS: [Column; 7] =
        [rows::TYPE, rows::SIZE, rows::USER, rows::GROUP, rows::FILECLASS, rows::STATUS, rows::PATH];

    fn new(args: &Args) -> Option<Dump> {
        let is_asked =
            args.dump || args.dump_user.is_some() || args.dump_group.is_some() || args.dump_status.is_some();
        is_asked.then(|| Dump {
            user: args.dump_user.clone(),
            group: args.dump_group.clone(),
            status: args.dump_status.clone(),
            is_begun: false,
            count: 0,
            bytes: 0,
        })
    }

    fn print(&mut self, found: &ScannedEntry, style: Style, known: &mut Known) {
        let (user, group) = (known.user(found.attr.uid).to_owned(), known.group(found.attr.gid).to_owned());
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
        };
        if !is(&self.user, &user) || !is(&self.group, &group) || !is(&self.status, found.status_text()) {
            return;
        }
        if !std::mem::replace(&mut self.is_begun, true) && !style.no_header {
            println!("{}", style.titles(&Dump::COLUMNS, false));
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(found.attr.size_bytes);
        let cells = [
            type_name(found.attr.kind).to_owned(),
            style.size(found.attr.size_bytes),
            user,
            group,
            found.class_text().to_owned(),
            found.status_text().to_owned(),
            found.path.display().to_string(),
        ];
        println!("{}", style.row(&Dump::COLUMNS, &cells));
    }

    fn finish(self, style: Style) {
        if !style.no_header {
            println!("\nTotal: {} entries, {} bytes ({})", self.count, self.bytes, in_words(self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(name = "rbh-report")]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let line = ["rbh-report"].iter().chain(words);
        Line::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args
    }

    #[test]
    fn options_are_taken_as_robinhood_takes_them() {
        assert_eq!(args(&["--top-users"]).top_users, Some(20));
        assert_eq!(args(&["--top-users=3", "/mnt"]).top_users, Some(3));
        assert_eq!(args(&["-u", "foo", "-S"]).user.as_deref(), Some("foo"));
        assert_eq!(args(&["--user-info"]).user_info.as_deref(), Some("*"));
        assert_eq!(args(&["--userinfo=f*", "-c", "-q"]).user_info.as_deref(), Some("f*"));
        assert_eq!(
            reports(&args(&["-i", "-U", "5", "-d", "3", "--class-info"])).map(|all| all.len()).ok(),
            Some(4)
        );
        let both = reports(&args(&["-u", "ann", "--user-info"])).map(|all| all.len()).ok();
        assert_eq!(both, Some(2), "none is passed over");
        let entries = reports(&args(&["-D", "--count-min=3"])).map(|_| ()).unwrap_err().to_string();
        assert!(entries.contains("--count-min"), "{entries}");
        let elsewhere = run(&args(&["-i", "-P", "/mnt/b/x", "/mnt/a"])).unwrap_err().to_string();
        assert!(elsewhere.contains("/mnt/a"), "{elsewhere}");
        let nothing = reports(&args(&["-c"])).map(|_| ()).unwrap_err().to_string();
        assert!(nothing.contains("--top-dirs"), "{nothing}");
        assert!(Line::try_parse_from(["rbh-report", "--size-profile"]).is_err());
        assert!(Line::try_parse_from(["rbh-report", "--dump-status", "lhsm:gone"]).is_err());
        let oldest = reports(&args(&["-o", "5", "--oldest-files", "--count-min=2"]))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(oldest.contains("--oldest-files"), "{oldest}");
        let class = run(&args(&["--class-info"])).unwrap_err().to_string();
        assert!(class.contains("-f FILE"), "{class}");
    }

    #[test]
    fn a_file_may_be_in_several_classes() {
        assert!(is_in("big+Old", "old") && is_in("big", "b*") && !is_in("bigger", "big"));
    }
}
