//! `lfs getstripe`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_types::Result;

use crate::control::{Control, path_fault};
use crate::exit::Done;
use crate::stripe::{Striped, get};

/// Arguments of `lfs getstripe`.
#[derive(clap::Args)]
pub struct Args {
    /// Print the stripe count
    #[arg(short = 'c', long = "stripe-count", visible_alias = "count")]
    count: bool,
    /// Print the stripe size in bytes
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size")]
    size: bool,
    /// Print the index of the first OST
    #[arg(short = 'i', long = "stripe-index", visible_alias = "index")]
    index: bool,
    /// Print the layout pattern
    #[arg(short = 'L', long = "layout")]
    layout: bool,
    /// Print the layout generation
    #[arg(short = 'g', long = "generation")]
    generation: bool,
    /// Of a directory print its default only, not its files
    #[arg(short = 'd', long = "directory")]
    directory: bool,
    /// Go down into directories
    #[arg(short = 'r', long = "recursive")]
    recursive: bool,
    /// Leave the objects out
    #[arg(short = 'q', long = "quiet")]
    quiet: bool,
    /// Files and directories
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

impl Args {
    fn single_field(&self) -> bool {
        self.count || self.size || self.index || self.layout || self.generation
    }

    /// Values of the fields that were asked for, a line each.
    fn fields(&self, s: &Striped) -> String {
        let asked = [
            (self.count, s.count().to_string()),
            (self.size, s.stripe_bytes().to_string()),
            (self.index, s.start().to_string()),
            (self.layout, s.pattern().to_owned()),
            (self.generation, s.layout_gen.to_string()),
        ];
        asked.into_iter().filter(|(wanted, _)| *wanted).map(|(_, value)| value + "\n").collect()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    for path in &args.paths {
        let control = Control::of(path)?;
        one(args, &control, path, 0)?;
    }
    Ok(Done::Ok)
}

/// Prints a path; of a directory also what is in it, one level deep unless all levels are asked for.
fn one(args: &Args, control: &Control, path: &Path, depth: u32) -> Result<()> {
    let striped = get(control, path)?;
    if !striped.is_dir {
        print!(
            "{}",
            if args.single_field() { args.fields(&striped) } else { file_text(&striped, args.quiet) }
        );
        return Ok(());
    }
    if args.directory || depth == 0 || args.recursive {
        print!(
            "{}",
            if args.single_field() { args.fields(&striped) } else { dir_text(&striped, args.directory) }
        );
    }
    if args.directory || (depth > 0 && !args.recursive) {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|e| path_fault("cannot list", path, &e))?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    names.sort();
    for inner in names {
        let kind = std::fs::symlink_metadata(&inner).map_err(|e| path_fault("cannot look at", &inner, &e))?;
        if kind.is_file() || kind.is_dir() {
            one(args, control, &inner, depth + 1)?;
        }
    }
    Ok(())
}

/// `lmm_...` lines and the table of objects.
fn file_text(s: &Striped, quiet: bool) -> String {
    let mut text = format!("{}\n", s.path.display());
    let mut line = |label: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{label:<19}{value}");
    };
    line("lmm_stripe_count:", s.count().to_string());
    line("lmm_stripe_size:", s.stripe_bytes().to_string());
    line("lmm_pattern:", s.pattern().to_owned());
    line("lmm_layout_gen:", s.layout_gen.to_string());
    line("lmm_stripe_offset:", s.start().to_string());
    if let Some(layout) = s.layout.as_ref().filter(|_| !quiet) {
        text.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
        let (objid, group) = (s.ino.counter(), layout.component.generation.counter);
        for ost in &layout.component.osts {
            let _ = writeln!(text, "\t{ost:>6}\t{objid:>14}\t{objid:>#13x}\t{group:>14}");
        }
    }
    text.push('\n');
    text
}

/// The one line of a directory's default.
fn dir_text(s: &Striped, only: bool) -> String {
    let default = format!(
        "stripe_count:  {} stripe_size:   {} pattern:       raid0 stripe_offset: {}\n",
        s.count(),
        s.stripe_bytes(),
        s.start()
    );
    if only { default } else { format!("{}\n{default}\n", s.path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::layout::Component;
    use brindle_types::{Ino, Layout, Pair, StripePolicy};

    fn file() -> Striped {
        let component = Component {
            generation: Pair { term: 1, counter: 7 },
            stripe_size_bytes: 1 << 20,
            osts: vec![2, 3],
            objects: Vec::new(),
        };
        Striped {
            path: "/mnt/f".into(),
            layout: Some(Layout { epoch: Pair::ZERO, inline: false, component }),
            effective: StripePolicy::default(),
            own_default: false,
            layout_gen: 0,
            ino: Ino::new(0, 300),
            size_bytes: 5,
            is_dir: false,
        }
    }

    #[test]
    fn a_file_looks_as_it_does_in_lustre() {
        assert_eq!(
            file_text(&file(), false),
            "/mnt/f\n\
             lmm_stripe_count:  2\n\
             lmm_stripe_size:   1048576\n\
             lmm_pattern:       raid0\n\
             lmm_layout_gen:    0\n\
             lmm_stripe_offset: 2\n\
             \tobdidx\t\t objid\t\t objid\t\t group\n\
             \t     2\t           300\t        0x12c\t             7\n\
             \t     3\t           300\t        0x12c\t             7\n\
             \n"
        );
    }

    #[test]
    fn a_directory_is_one_line() {
        let policy = StripePolicy { count: Some(-1), size_bytes: Some(4 << 20), start_ost: None };
        let dir = Striped { layout: None, effective: policy, is_dir: true, path: "/mnt/d".into(), ..file() };
        let line = "stripe_count:  -1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
        assert_eq!(dir_text(&dir, true), line);
        assert_eq!(dir_text(&dir, false), format!("/mnt/d\n{line}\n"));
    }
}
