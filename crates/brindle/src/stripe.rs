//! Layouts of files and defaults of directories, read and set through the mount: `brindle stripe get|set|migrate`.

use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_client::control::{Answer, Request};
use brindle_stdx::cast::to_i64;
use brindle_types::layout::{Component, EOF, STRIPE_SIZE_DEFAULT_BYTES};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Ino, Layout, LayoutPolicy, Result, StripePolicy};
use schemars::JsonSchema;
use serde::Serialize;

pub mod migrate;
mod wanted;

use crate::control::{Control, ino, path_fault, unexpected};
use crate::exit::Done;
use crate::output::{Output, print_json};
use brindle_admin::paths::{self, PathView};

pub use wanted::PolicyArgs;

/// The verbs of `brindle stripe`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show how files lie, and what directories give to new files
    Get(GetArgs),
    /// Choose the layout of a new or empty file, or what a directory gives to new files
    Set(SetArgs),
    /// Move files to other OSTs, or give them another layout
    Migrate(migrate::Args),
}

/// Arguments of `brindle stripe get`.
#[derive(clap::Args)]
pub struct GetArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle stripe set`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  brindle stripe set -c 4 -S 4MiB /mnt/b/big.dat\n  \
                        brindle stripe set -c -1 /mnt/b/wide    (a directory: for the files made in it)\n  \
                        brindle stripe set -E 64MiB -c 1 -E -1 -c 4 /mnt/b/grows")]
pub struct SetArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Delete the directory's default
    #[arg(short = 'd', long, conflicts_with = "policy")]
    delete: bool,
    /// A directory, an empty file, or a file to make
    #[arg(value_name = "PATH")]
    path: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Layout of a path.
#[derive(Clone, Debug)]
pub struct Striped {
    /// The path, as given.
    pub path: PathBuf,
    /// Layout; of a regular file only.
    pub layout: Option<Layout>,
    /// Policy of a new file here; for directories.
    pub effective: LayoutPolicy,
    /// Whether the directory has a default of its own.
    pub own_default: bool,
    /// Number of layout changes.
    pub layout_gen: u32,
    /// The inode.
    pub ino: Ino,
    /// Length of the file.
    pub size_bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Asks for one path.
pub fn get(control: &Control, path: &Path) -> Result<Striped> {
    let meta = std::fs::metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
    let ino = ino(path)?;
    match control.ask(&Request::Getstripe { ino: ino.0 })? {
        Answer::Stripe { layout, policy, effective, layout_gen } => Ok(Striped {
            path: path.to_owned(),
            layout,
            own_default: policy.is_some(),
            effective,
            layout_gen,
            ino,
            size_bytes: meta.len(),
            is_dir: meta.is_dir(),
        }),
        other => Err(unexpected(&other)),
    }
}

/// A component as it is shown: of a file, or of what a directory gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Part {
    /// First byte in the file.
    pub start_bytes: u64,
    /// Byte behind the last; `None` for the end of the file.
    pub end_bytes: Option<u64>,
    /// Number of stripes; -1 for all OSTs.
    pub stripe_count: i64,
    /// Stripe size.
    pub stripe_size_bytes: u32,
    /// First OST; -1 for any.
    pub start_ost: i64,
    /// Pool that its OSTs are chosen from; `None` for the whole file system.
    pub pool: Option<String>,
    /// OST of each stripe; none before the first write in it.
    pub osts: Vec<u16>,
    /// Names its objects.
    #[serde(skip)]
    pub generation: u64,
}

impl Part {
    fn asked(start: u64, end: u64, asked: &StripePolicy) -> Part {
        let listed = i64::try_from(asked.osts.len()).ok().filter(|n| *n > 0);
        let count = asked.count.filter(|count| *count != 0).unwrap_or(1);
        Part {
            start_bytes: start,
            end_bytes: (end != EOF).then_some(end),
            stripe_count: listed.unwrap_or(count.into()),
            stripe_size_bytes: asked.size_bytes.filter(|s| *s != 0).unwrap_or(STRIPE_SIZE_DEFAULT_BYTES),
            start_ost: asked.osts.first().map_or(asked.start_ost.unwrap_or(-1).into(), |ost| (*ost).into()),
            pool: asked.pool().map(ToString::to_string),
            osts: Vec::new(),
            generation: 0,
        }
    }

    fn of(component: &Component) -> Part {
        let mut part = Part::asked(component.start, component.end, &component.asked);
        part.stripe_size_bytes = component.stripe_size_bytes;
        part.generation = component.generation.counter;
        if let Some(first) = component.osts.first() {
            part.stripe_count = to_i64(component.osts.len() as u64);
            part.start_ost = (*first).into();
            part.osts = component.osts.clone();
        }
        part
    }
}

impl Striped {
    /// The components, in order: at least one.
    pub fn parts(&self) -> Vec<Part> {
        if let Some(layout) = &self.layout {
            return layout.components.iter().map(Part::of).collect();
        }
        // A policy that an MDT has accepted can be planned.
        let planned = brindle_layout::plan(&self.effective).unwrap_or_default();
        planned.iter().map(|p| Part::asked(p.start, p.end, &p.asked)).collect()
    }

    /// Whether it has several components, or can have.
    pub fn is_composite(&self) -> bool {
        self.parts().len() > 1
    }

    /// The component that single values are those of, as lfs has it: the last one that has objects, else the first.
    fn main(&self) -> Option<Part> {
        let mut parts = self.parts();
        let last = parts.iter().rposition(|part| !part.osts.is_empty()).unwrap_or(0);
        (last < parts.len()).then(|| parts.swap_remove(last))
    }

    /// Stripes of the file, or of new files here.
    pub fn count(&self) -> i64 {
        self.main().map_or(1, |part| part.stripe_count)
    }

    /// Stripe size.
    pub fn stripe_bytes(&self) -> u32 {
        self.main().map_or(STRIPE_SIZE_DEFAULT_BYTES, |part| part.stripe_size_bytes)
    }

    /// First OST; -1 for any.
    pub fn start(&self) -> i64 {
        self.main().map_or(-1, |part| part.start_ost)
    }

    /// The pool; empty for the whole file system.
    pub fn pool(&self) -> String {
        self.main().and_then(|part| part.pool).unwrap_or_default()
    }

    /// Pattern of the file: `mdt` while the bytes lie in the MDT, otherwise `raid0`.
    pub fn pattern(&self) -> &'static str {
        let inline = self.layout.as_ref().is_some_and(|l| l.inline);
        // An empty file has no bytes anywhere, and shows where they will lie.
        if inline && self.size_bytes > 0 { "mdt" } else { "raid0" }
    }
}

/// Chooses a layout; makes the file where there is nothing.
pub fn set(path: &Path, policy: Option<LayoutPolicy>) -> Result<()> {
    let made = !path.exists();
    let holder = if made { parent(path) } else { path };
    let control = Control::of(holder)?;
    if made {
        let opened = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        opened.map_err(|e| path_fault("cannot make", path, &e))?;
    }
    let outcome = ino(path).and_then(|ino| control.ask(&Request::Setstripe { ino: ino.0, policy }));
    match outcome {
        Ok(Answer::Done) => Ok(()),
        Ok(other) => Err(unexpected(&other)),
        Err(fault) => {
            if made {
                // The file was made for this layout only; what the fault says matters more than whether it goes.
                let _ = std::fs::remove_file(path);
            }
            Err(fault.why(format!("asked for {}", path.display())))
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Layouts of files, and what directories give to new ones.
#[derive(Serialize, JsonSchema)]
pub struct StripesView {
    /// In the order in which they were named.
    files: Vec<StripeView>,
}
document!(StripesView, "brindle.stripe", 1);

/// The layout of a file, or what a directory gives.
#[derive(Serialize, JsonSchema)]
struct StripeView {
    #[serde(flatten)]
    path: PathView,
    /// `file` or `directory`.
    kind: &'static str,
    /// Number of stripes; -1 for all OSTs. Of the last component, as the next ones.
    stripe_count: i64,
    /// Stripe size.
    stripe_size_bytes: u32,
    /// First OST; -1 for any.
    start_ost: i64,
    /// Pool that the OSTs are chosen from; empty for the whole file system.
    pool: String,
    /// `raid0`, `mdt` and so on.
    pattern: &'static str,
    /// Number of layout changes so far.
    layout_gen: u32,
    /// For directories: whether the default is its own (else inherited).
    own_default: bool,
    /// OST of each stripe, in order.
    osts: Vec<u16>,
    /// Parts of the file with layouts of their own; one where there is one layout.
    components: Vec<Part>,
    /// Size of the file.
    size_bytes: u64,
    /// FID of the file.
    fid: String,
}

impl From<&Striped> for StripeView {
    fn from(s: &Striped) -> StripeView {
        StripeView {
            path: PathView::from(&s.path),
            kind: if s.is_dir { "directory" } else { "file" },
            stripe_count: s.count(),
            stripe_size_bytes: s.stripe_bytes(),
            start_ost: s.start(),
            pool: s.pool(),
            pattern: s.pattern(),
            layout_gen: s.layout_gen,
            own_default: s.own_default,
            osts: s.main().map(|part| part.osts).unwrap_or_default(),
            components: s.parts(),
            size_bytes: s.size_bytes,
            fid: s.ino.fid().to_string(),
        }
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Get(args) => show(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Set(args) => {
            let policy = args.policy.policy()?;
            if policy == LayoutPolicy::default() && !args.delete {
                return Err(Fault::new(Code::BadArgument)
                    .what("nothing to set on")
                    .subject(args.path.display().to_string())
                    .next("give -c, -S, -i, -o, -p or -E; or -d to delete a directory's default"));
            }
            set(&args.path, (!args.delete).then_some(policy))?;
            let striped = get(&Control::of(&args.path)?, &args.path)?;
            print(&[striped], args.output)?;
            Ok(Done::Ok)
        }
    }
}

fn show(args: &GetArgs) -> Result<Done> {
    let mut all = Vec::new();
    for path in &args.paths {
        all.push(get(&Control::of(path)?, path)?);
    }
    print(&all, args.output)?;
    Ok(Done::Ok)
}

fn print(all: &[Striped], output: Output) -> Result<()> {
    if output.json() {
        return print_json(&StripesView { files: all.iter().map(StripeView::from).collect() });
    }
    for s in all {
        print!("{}", describe(s));
    }
    Ok(())
}

/// Description for people.
fn describe(s: &Striped) -> String {
    let mut text = format!("{}\n", paths::text(&s.path));
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<16} {value}\n"));
    let parts = s.parts();
    if let [part] = &parts[..] {
        line("stripes", stripes(part));
        line("stripe size", format_bytes(part.stripe_size_bytes.into()));
        if let Some(pool) = &part.pool {
            line("pool", pool.clone());
        }
        line("first OST", if part.start_ost == -1 { "any".to_owned() } else { part.start_ost.to_string() });
    }
    if s.pattern() == "mdt" {
        line("bytes lie in", format!("the MDT ({} bytes); later on OSTs:", s.size_bytes));
    }
    match &parts[..] {
        [part] if s.layout.is_some() => line("OSTs", list(part)),
        [_] => {}
        _ => {
            for part in &parts {
                let end = part.end_bytes.map_or("the end".to_owned(), format_bytes);
                let size = format_bytes(part.stripe_size_bytes.into());
                let place = match (s.layout.is_some(), part.osts.is_empty()) {
                    (true, false) => format!(" on OSTs {}", list(part)),
                    (true, true) => ", not written yet".to_owned(),
                    (false, _) => String::new(),
                };
                let noun = if part.stripe_count == 1 { "stripe" } else { "stripes" };
                let pool = part.pool.as_ref().map_or(String::new(), |pool| format!(" in pool {pool}"));
                line(&format!("up to {end}"), format!("{} {noun} of {size}{pool}{place}", stripes(part)));
            }
        }
    }
    if s.layout.is_none() {
        line("default", if s.own_default { "its own" } else { "inherited" }.to_owned());
    }
    text
}

fn stripes(part: &Part) -> String {
    if part.stripe_count == -1 { "all".to_owned() } else { part.stripe_count.to_string() }
}

fn list(part: &Part) -> String {
    part.osts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
