//! `lfs getstripe`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_types::Result;

use crate::control::{Control, path_fault};
use crate::exit::Done;
use crate::stripe::{Striped, get};
use brindle_admin::paths;

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
    /// Print the pool
    #[arg(short = 'p', long = "pool")]
    pool: bool,
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
        self.count || self.size || self.index || self.pool || self.layout || self.generation
    }

    /// Values of the fields that were asked for, a line each.
    fn fields(&self, s: &Striped) -> String {
        let asked = [
            (self.count, s.count().to_string()),
            (self.size, s.stripe_bytes().to_string()),
            (self.index, s.start().to_string()),
            (self.pool, s.pool()),
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
    if s.is_composite() {
        return composite_text(s, quiet);
    }
    let mut text = format!("{}\n", paths::text(&s.path));
    let mut line = |label: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{label:<19}{value}");
    };
    line("lmm_stripe_count:", s.count().to_string());
    line("lmm_stripe_size:", s.stripe_bytes().to_string());
    line("lmm_pattern:", s.pattern().to_owned());
    line("lmm_layout_gen:", s.layout_gen.to_string());
    line("lmm_stripe_offset:", s.start().to_string());
    if !s.pool().is_empty() {
        line("lmm_pool:", s.pool());
    }
    if let Some(layout) = s.layout.as_ref().filter(|_| !quiet) {
        text.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
        let objid = s.ino.counter();
        for (stripe, ost) in layout.stripes() {
            let group = stripe.generation.counter;
            let _ = writeln!(text, "\t{ost:>6}\t{objid:>14}\t{objid:>#13x}\t{group:>14}");
        }
    }
    text.push('\n');
    text
}

/// `lcm_...`, then `lcme_...` and `lmm_...` for each component.
fn composite_text(s: &Striped, quiet: bool) -> String {
    let parts = s.parts();
    let mut text = format!("{}\n", paths::text(&s.path));
    let mut line = |indent: usize, label: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:indent$}{label:<w$}{value}",
            "",
            w = if indent == 2 { 19 } else { 21 - indent / 6 * 2 }
        );
    };
    line(2, "lcm_layout_gen:", s.layout_gen.to_string());
    line(2, "lcm_mirror_count:", "1".to_owned());
    line(2, "lcm_entry_count:", parts.len().to_string());
    for (n, part) in parts.iter().enumerate() {
        let is_file = s.layout.is_some();
        line(4, "lcme_id:", if is_file { (n + 1).to_string() } else { "N/A".to_owned() });
        line(4, "lcme_mirror_id:", if is_file { "0".to_owned() } else { "N/A".to_owned() });
        line(4, "lcme_flags:", if part.osts.is_empty() { "0" } else { "init" }.to_owned());
        line(4, "lcme_extent.e_start:", part.start_bytes.to_string());
        line(4, "lcme_extent.e_end:", part.end_bytes.map_or("EOF".to_owned(), |end| end.to_string()));
        line(6, "lmm_stripe_count:", part.stripe_count.to_string());
        line(6, "lmm_stripe_size:", part.stripe_size_bytes.to_string());
        line(6, "lmm_pattern:", if n == 0 { s.pattern() } else { "raid0" }.to_owned());
        line(6, "lmm_layout_gen:", "0".to_owned());
        line(6, "lmm_stripe_offset:", part.start_ost.to_string());
        if let Some(pool) = &part.pool {
            line(6, "lmm_pool:", pool.clone());
        }
        if !part.osts.is_empty() && !quiet {
            line(6, "lmm_objects:", String::new());
            for (index, ost) in part.osts.iter().enumerate() {
                let (sequence, object) = (0x1_0000_0000 | u64::from(*ost) << 16, s.ino.counter());
                let fid = format!("[{sequence:#x}:{object:#x}:{:#x}]", part.generation);
                line(6, &format!("- {index:>3}: {{ l_ost_idx: {ost:>3}, l_fid: {fid} }}"), String::new());
            }
        }
        line(0, "", String::new());
    }
    let lines = text.lines().map(str::trim_end);
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Line of a directory's default.
fn dir_text(s: &Striped, only: bool) -> String {
    if s.is_composite() {
        return composite_text(s, false);
    }
    let pool = if s.pool().is_empty() { String::new() } else { format!(" pool:          {}", s.pool()) };
    let default = format!(
        "stripe_count:  {} stripe_size:   {} pattern:       raid0 stripe_offset: {}{pool}\n",
        s.count(),
        s.stripe_bytes(),
        s.start()
    );
    if only { default } else { format!("{}\n{default}\n", paths::text(&s.path)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::layout::{Component, EOF};
    use brindle_types::{Ino, Layout, LayoutPolicy, Pair, StripePolicy};

    fn component(start: u64, end: u64, osts: Vec<u16>) -> Component {
        Component {
            start,
            end,
            origin: start,
            generation: Pair { term: 1, counter: 7 },
            stripe_size_bytes: 1 << 20,
            asked: StripePolicy { count: Some(4), ..StripePolicy::default() },
            osts,
            objects: Vec::new(),
        }
    }

    fn layout(components: Vec<Component>) -> Option<Layout> {
        Some(Layout { epoch: Pair::ZERO, body: Pair::ZERO, inline: false, components })
    }

    fn file() -> Striped {
        let component = component(0, EOF, vec![2, 3]);
        Striped {
            path: "/mnt/f".into(),
            layout: layout(vec![component]),
            effective: LayoutPolicy::default(),
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
    fn components_look_as_they_do_in_lustre() {
        let parts = vec![component(0, 64 << 20, vec![2]), component(64 << 20, EOF, Vec::new())];
        let s = Striped { layout: layout(parts), layout_gen: 2, ..file() };
        assert_eq!(
            file_text(&s, false),
            "/mnt/f\n  \
             lcm_layout_gen:    2\n  \
             lcm_mirror_count:  1\n  \
             lcm_entry_count:   2\n    \
             lcme_id:             1\n    \
             lcme_mirror_id:      0\n    \
             lcme_flags:          init\n    \
             lcme_extent.e_start: 0\n    \
             lcme_extent.e_end:   67108864\n      \
             lmm_stripe_count:  1\n      \
             lmm_stripe_size:   1048576\n      \
             lmm_pattern:       raid0\n      \
             lmm_layout_gen:    0\n      \
             lmm_stripe_offset: 2\n      \
             lmm_objects:\n      \
             -   0: { l_ost_idx:   2, l_fid: [0x100020000:0x12c:0x7] }\n\
             \n    \
             lcme_id:             2\n    \
             lcme_mirror_id:      0\n    \
             lcme_flags:          0\n    \
             lcme_extent.e_start: 67108864\n    \
             lcme_extent.e_end:   EOF\n      \
             lmm_stripe_count:  4\n      \
             lmm_stripe_size:   1048576\n      \
             lmm_pattern:       raid0\n      \
             lmm_layout_gen:    0\n      \
             lmm_stripe_offset: -1\n\
             \n"
        );
    }

    #[test]
    fn a_pool_is_shown_as_in_lustre() {
        let pool = Some(brindle_types::PoolChoice::Named("flash".parse().expect("good")));
        let asked = StripePolicy { count: Some(4), pool: pool.clone(), ..StripePolicy::default() };
        let in_pool = |start, end, osts| Component { asked: asked.clone(), ..component(start, end, osts) };
        let s = Striped { layout: layout(vec![in_pool(0, EOF, vec![2])]), ..file() };
        let text = file_text(&s, false);
        assert!(text.contains("lmm_stripe_offset: 2\nlmm_pool:          flash\n\tobdidx"), "{text}");
        let parts = vec![in_pool(0, 1 << 20, vec![2]), component(1 << 20, EOF, Vec::new())];
        let text = file_text(&Striped { layout: layout(parts), ..file() }, true);
        assert!(text.contains("      lmm_stripe_offset: 2\n      lmm_pool:          flash\n\n"), "{text}");
        assert_eq!(text.matches("lmm_pool").count(), 1);
        let dir = Striped { layout: None, effective: asked.into(), is_dir: true, ..file() };
        assert!(dir_text(&dir, true).ends_with(" stripe_offset: -1 pool:          flash\n"));
    }

    #[test]
    fn a_directory_is_one_line() {
        let policy = StripePolicy { count: Some(-1), size_bytes: Some(4 << 20), ..Default::default() };
        let dir =
            Striped { layout: None, effective: policy.into(), is_dir: true, path: "/mnt/d".into(), ..file() };
        let line = "stripe_count:  -1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
        assert_eq!(dir_text(&dir, true), line);
        assert_eq!(dir_text(&dir, false), format!("/mnt/d\n{line}\n"));
    }
}
