//! Layouts of files and defaults of directories: asked for and chosen through the mount; `brindle stripe get|set`.

use std::path::{Path, PathBuf};

use brindle_client::control::{Answer, Request};
use brindle_types::layout::STRIPE_SIZE_DEFAULT_BYTES;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Ino, Layout, Result, StripePolicy};
use serde::Serialize;

use crate::control::{Control, ino, path_fault, unexpected};
use crate::exit::Done;
use crate::output::{Output, print_json};

/// The verbs of `brindle stripe`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show how files lie, and what directories give to new files
    Get(GetArgs),
    /// Choose the layout of a new or empty file, or what a directory gives to new files
    Set(SetArgs),
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
                        brindle stripe set -c -1 /mnt/b/wide    (a directory: for the files made in it)")]
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

/// What is asked of a layout; what is left out is inherited.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(id = "policy", multiple = true)]
pub struct PolicyArgs {
    /// Number of stripes; -1 for all OSTs, 0 for the default
    #[arg(
        short = 'c',
        long = "stripe-count",
        visible_alias = "count",
        value_name = "N",
        allow_hyphen_values = true
    )]
    count: Option<i32>,
    /// Stripe size: a multiple of 64KiB; 0 for the default
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size", value_name = "SIZE", value_parser = stripe_size)]
    size: Option<u32>,
    /// Index of the first OST; -1 for any
    #[arg(short = 'i', long = "stripe-index", visible_aliases = ["index", "start-ost"], value_name = "INDEX", allow_hyphen_values = true)]
    index: Option<i32>,
}

/// As lfs has it, a bare number below this is in KiB.
const BARE_KIB_BELOW: u64 = 4096;

fn stripe_size(text: &str) -> std::result::Result<u32, String> {
    let mut bytes = parse_bytes(text)?;
    let bare = text.bytes().all(|b| b.is_ascii_digit());
    if bare && bytes < BARE_KIB_BELOW {
        bytes *= 1024;
    }
    u32::try_from(bytes).map_err(|_| "a stripe has at most 1GiB".to_owned())
}

impl PolicyArgs {
    /// As it goes to the MDT.
    pub fn policy(&self) -> StripePolicy {
        StripePolicy { count: self.count, size_bytes: self.size, start_ost: self.index }
    }
}

/// What is known of a path.
#[derive(Clone, Debug)]
pub struct Striped {
    /// The path, as given.
    pub path: PathBuf,
    /// Of a regular file.
    pub layout: Option<Layout>,
    /// What a new file here gets; for directories.
    pub effective: StripePolicy,
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

impl Striped {
    /// Stripes of the file, or of new files here.
    pub fn count(&self) -> i64 {
        match &self.layout {
            Some(layout) => layout.component.osts.len() as i64,
            None => i64::from(self.effective.count.filter(|c| *c != 0).unwrap_or(1)),
        }
    }

    /// Stripe size.
    pub fn stripe_bytes(&self) -> u32 {
        match &self.layout {
            Some(layout) => layout.component.stripe_size_bytes,
            None => self.effective.size_bytes.filter(|s| *s != 0).unwrap_or(STRIPE_SIZE_DEFAULT_BYTES),
        }
    }

    /// First OST; -1 for any.
    pub fn start(&self) -> i64 {
        match &self.layout {
            Some(layout) => layout.component.osts.first().map_or(-1, |o| i64::from(*o)),
            None => i64::from(self.effective.start_ost.unwrap_or(-1)),
        }
    }

    /// Where the bytes are: `mdt` while they lie in the MDT, otherwise `raid0`.
    pub fn pattern(&self) -> &'static str {
        let inline = self.layout.as_ref().is_some_and(|l| l.inline);
        // An empty file has no bytes anywhere, and shows where they will lie.
        if inline && self.size_bytes > 0 { "mdt" } else { "raid0" }
    }
}

/// Chooses a layout; makes the file where there is nothing.
pub fn set(path: &Path, policy: Option<StripePolicy>) -> Result<()> {
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

#[derive(Serialize)]
struct View {
    files: Vec<FileView>,
}

#[derive(Serialize)]
struct FileView {
    path: String,
    kind: &'static str,
    stripe_count: i64,
    stripe_size_bytes: u32,
    start_ost: i64,
    pattern: &'static str,
    layout_gen: u32,
    /// For directories: whether the default is its own (else inherited).
    own_default: bool,
    /// OST of each stripe, in order.
    osts: Vec<u16>,
    size_bytes: u64,
    fid: String,
}

impl From<&Striped> for FileView {
    fn from(s: &Striped) -> FileView {
        FileView {
            path: s.path.display().to_string(),
            kind: if s.is_dir { "directory" } else { "file" },
            stripe_count: s.count(),
            stripe_size_bytes: s.stripe_bytes(),
            start_ost: s.start(),
            pattern: s.pattern(),
            layout_gen: s.layout_gen,
            own_default: s.own_default,
            osts: s.layout.as_ref().map(|l| l.component.osts.clone()).unwrap_or_default(),
            size_bytes: s.size_bytes,
            fid: s.ino.fid().to_string(),
        }
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Get(args) => show(args),
        Command::Set(args) => {
            let policy = args.policy.policy();
            if policy == StripePolicy::default() && !args.delete {
                return Err(Fault::new(Code::BadArgument)
                    .what("nothing to set on")
                    .subject(args.path.display().to_string())
                    .next("give -c, -S or -i; or -d to delete a directory's default"));
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
        return print_json("brindle.stripe", 1, &View { files: all.iter().map(FileView::from).collect() });
    }
    for s in all {
        print!("{}", describe(s));
    }
    Ok(())
}

/// For people.
fn describe(s: &Striped) -> String {
    use brindle_types::units::format_bytes;
    let count = if s.count() == -1 { "all".to_owned() } else { s.count().to_string() };
    let start = if s.start() == -1 { "any".to_owned() } else { s.start().to_string() };
    let mut text = format!("{}\n", s.path.display());
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<12} {value}\n"));
    line("stripes", count);
    line("stripe size", format_bytes(s.stripe_bytes().into()));
    line("first OST", start);
    match &s.layout {
        Some(layout) if s.pattern() == "mdt" => {
            line("bytes lie in", format!("the MDT ({} bytes); later on OSTs {}", s.size_bytes, list(layout)));
        }
        Some(layout) => line("OSTs", list(layout)),
        None => line("default", if s.own_default { "its own" } else { "inherited" }.to_owned()),
    }
    text
}

fn list(layout: &Layout) -> String {
    layout.component.osts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripe_sizes_are_read_as_lfs_reads_them() {
        assert_eq!(stripe_size("64"), Ok(65536));
        assert_eq!(stripe_size("4096"), Ok(4096));
        assert_eq!(stripe_size("1M"), Ok(1 << 20));
        assert_eq!(stripe_size("65536"), Ok(65536));
        assert!(stripe_size("8G").is_err());
        assert!(stripe_size("many").is_err());
    }
}
