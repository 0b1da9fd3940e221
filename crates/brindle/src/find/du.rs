//! `brindle file du`: the space that trees take, added up in the MDT.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brindle_admin::document;
use brindle_client::control::SumLine;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::scan::Wanted;
use schemars::JsonSchema;
use serde::Serialize;

use super::each_start;
use super::query::Query;
use crate::exit::Done;
use crate::output::{Output, print_json};
use crate::print;
use brindle_admin::paths::PathView;

/// Unit of du where nobody names another.
const BLOCK_BYTES_DEFAULT: u64 = 1024;

/// Arguments of `brindle file du`.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "The MDT adds up what it knows: a file that is open for writing may count with what it had a second ago.\n\
                  A file with several names counts once. What the caller may not read and search is left out, and said.\n\
                  Example: brindle file du -h --max-depth 1 /mnt/b"
)]
pub struct Args {
    /// Only the sum of each PATH
    #[arg(short = 's', long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Sizes with a unit, powers of 1024
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Directories down to this level; 0: as -s
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<u32>,
    /// Sizes of the contents instead of allocated space
    #[arg(long)]
    apparent_size: bool,
    /// Unit of the numbers, such as 1 or 1M
    #[arg(short = 'B', long, value_name = "SIZE", default_value = "1K", value_parser = block_size, conflicts_with = "human")]
    block_size: u64,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    output: Output,
    /// Files and directories; the working directory without any
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn block_size(text: &str) -> std::result::Result<u64, String> {
    let size = parse_bytes(text)?;
    if size == 0 { Err("a unit has at least 1 byte".to_owned()) } else { Ok(size) }
}

/// Space of a directory and everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
struct Space {
    /// Bytes that are allocated.
    allocated_bytes: u64,
    /// Sizes of files.
    size_bytes: u64,
    /// Entries.
    entries: u64,
}

impl Space {
    fn add(&mut self, other: &Space) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.entries = self.entries.saturating_add(other.entries);
    }
}

/// Space of directories.
#[derive(Serialize, JsonSchema)]
pub struct DuView {
    /// The innermost first.
    directories: Vec<SpaceView>,
}
document!(DuView, "brindle.du", 1);

/// Space of a directory.
#[derive(Serialize, JsonSchema)]
struct SpaceView {
    #[serde(flatten)]
    path: PathView,
    #[serde(flatten)]
    space: Space,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let paths = if args.paths.is_empty() { vec![PathBuf::from(".")] } else { args.paths.clone() };
    let depth_max = if args.summarize { 0 } else { args.max_depth.unwrap_or(u32::MAX) };
    let mut seen = HashSet::new();
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let mut view = DuView { directories: Vec::new() };
    let done = each_start(&Query::everything(paths), Wanted::Sums { depth_max }, Done::Partly, |start| {
        let mut tree = Tree { device: start.device, seen: &mut seen, open: Vec::new() };
        let mut emit = |path: &[u8], space: Space| {
            if args.output.json() {
                view.directories
                    .push(SpaceView { path: PathView::from(OsStr::from_bytes(&start.joined(path))), space });
                return Ok(());
            }
            let line = [args.figure(&space).as_bytes(), b"\t", &start.joined(path), b"\n"].concat();
            out.write_all(&line).map_err(|e| print::fault(&e))
        };
        let is_whole = start.scan(|page| page.sums.drain(..).try_for_each(|sum| tree.add(sum, &mut emit)))?;
        tree.close_all(&mut emit)?;
        Ok(is_whole)
    })?;
    if args.output.json() {
        print_json(&view)?;
    }
    out.flush().map_err(|e| print::fault(&e))?;
    Ok(done)
}

impl Args {
    fn figure(&self, space: &Space) -> String {
        let bytes = if self.apparent_size { space.size_bytes } else { space.allocated_bytes };
        if self.human { human(bytes) } else { bytes.div_ceil(self.block_size).to_string() }
    }
}

/// Size as du -h prints it: rounded up, one decimal below 10.
fn human(bytes: u64) -> String {
    const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut letter = 0;
    while letter + 1 < LETTERS.len()
        && u128::from(bytes).div_ceil(1 << (10 * letter)) >= BLOCK_BYTES_DEFAULT.into()
    {
        letter += 1;
    }
    let unit = 1_u128 << (10 * letter);
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    if letter == 0 || tenths >= 100 {
        return format!("{}{}", u128::from(bytes).div_ceil(unit), LETTERS[letter]);
    }
    format!("{}.{}{}", tenths / 10, tenths % 10, LETTERS[letter])
}

/// Adds up the sums of a scan, which come depth first; a directory is told when it was left.
struct Tree<'a> {
    device: u64,
    /// Files with several names that were counted.
    seen: &'a mut HashSet<(u64, Ino)>,
    /// The directories that the scan is in, outermost first.
    open: Vec<(Vec<u8>, Space)>,
}

impl Tree<'_> {
    fn add(&mut self, sum: SumLine, emit: &mut impl FnMut(&[u8], Space) -> Result<()>) -> Result<()> {
        let path = sum.path.into_bytes();
        while self.open.last().is_some_and(|(above, _)| !is_in(&path, above)) {
            self.close(emit)?;
        }
        if self.open.last().is_none_or(|(above, _)| *above != path) {
            self.open.push((path, Space::default()));
        }
        let mut space =
            Space { allocated_bytes: sum.allocated_bytes, size_bytes: sum.size_bytes, entries: sum.entries };
        for link in sum.linked.iter().filter(|link| self.seen.insert((self.device, link.ino))) {
            let (allocated_bytes, size_bytes) = (link.allocated_bytes, link.size_bytes);
            space.add(&Space { allocated_bytes, size_bytes, entries: 1 });
        }
        match self.open.last_mut() {
            Some((_, total)) => total.add(&space),
            None => return Err(Fault::new(Code::Bug).what("a sum belongs to no directory")),
        }
        Ok(())
    }

    fn close(&mut self, emit: &mut impl FnMut(&[u8], Space) -> Result<()>) -> Result<()> {
        let Some((path, space)) = self.open.pop() else { return Ok(()) };
        if let Some((_, above)) = self.open.last_mut() {
            above.add(&space);
        }
        emit(&path, space)
    }

    fn close_all(&mut self, emit: &mut impl FnMut(&[u8], Space) -> Result<()>) -> Result<()> {
        while !self.open.is_empty() {
            self.close(emit)?;
        }
        Ok(())
    }
}

/// Whether `path` is `dir` or below it.
fn is_in(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::mds::scan::ScanLinked;

    #[test]
    fn directories_come_after_what_is_in_them_and_links_count_once() {
        let linked = |n| vec![ScanLinked { ino: Ino(n), allocated_bytes: 100, size_bytes: 10 }];
        let sum = |path: &str, allocated_bytes, linked| SumLine {
            path: path.as_bytes().to_vec().into(),
            entries: 1,
            allocated_bytes,
            size_bytes: 1,
            linked,
        };
        let mut seen = HashSet::new();
        let mut tree = Tree { device: 1, seen: &mut seen, open: Vec::new() };
        let mut lines = Vec::new();
        let mut emit = |path: &[u8], space: Space| {
            lines.push((String::from_utf8_lossy(path).into_owned(), space.allocated_bytes, space.entries));
            Ok(())
        };
        for line in [
            sum("", 1, vec![]),
            sum("a", 2, linked(7)),
            sum("a/b", 4, linked(7)),
            sum("a", 8, vec![]),
            sum("ab", 16, linked(9)),
            sum("", 32, vec![]),
        ] {
            tree.add(line, &mut emit).unwrap();
        }
        tree.close_all(&mut emit).unwrap();
        let wanted = [("a/b", 4, 1), ("a", 114, 4), ("ab", 116, 2), ("", 263, 8)];
        assert_eq!(lines, wanted.map(|(path, bytes, entries)| (path.to_owned(), bytes, entries)));
    }

    #[test]
    fn figures_are_those_of_du() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (3 << 29, "1.5G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
