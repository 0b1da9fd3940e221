//! `lfs project`: the project of files and directories, in Lustre's words.
//!
//! Unlike Lustre's, symbolic links and special files have a project too: they count as inodes.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_admin::paths::text;
use brindle_client::control::{Answer, Request};
use brindle_types::{Fault, Result};
use brindle_wire::mds::project::Project;

use crate::control::{Control, path_fault, unexpected};
use crate::exit::{self, Done};
use crate::quota::owner;

/// Arguments of `lfs project`.
#[derive(clap::Args)]
#[command(
    after_help = "Without -p, -s, -c and -C: list. Each line has the number of the project (0: none), P where what is made in the \
                  directory gets its project, and the path.\nOf a directory its entries are meant too (to list: they alone), with -r all \
                  below, with -d the directory alone.\n\
                  lfs project -p 1000 -s -r /mnt/b/dir      the tree is project 1000, also what comes into it\n\
                  lfs setquota -p 1000 -B 10t /mnt/b        and may have 10 TiB\n\
                  The owner of a file and root may change its project."
)]
pub struct Args {
    /// Set the project; with -c the one that is expected
    #[arg(short = 'p', value_name = "ID", value_parser = owner::project)]
    id: Option<u32>,
    /// Have what is made in the directories get their project
    #[arg(short = 's', conflicts_with_all = ["check", "clear"])]
    inherit: bool,
    /// List what is in another project than the directory named (or -p), and directories whose project is not inherited
    #[arg(short = 'c', conflicts_with = "clear")]
    check: bool,
    /// Take out of projects, and have no project be inherited
    #[arg(short = 'C', conflicts_with = "id")]
    clear: bool,
    /// Keep the project, clear only what is inherited
    #[arg(short = 'k', requires = "clear")]
    keep: bool,
    /// Everything below directories too
    #[arg(short = 'r')]
    recursive: bool,
    /// Directories themselves, not what is in them
    #[arg(short = 'd')]
    dir_only: bool,
    /// End the paths with a zero byte
    #[arg(short = '0', requires = "check")]
    print0: bool,
    /// Files and directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// What is done with each file.
#[derive(Clone, Copy)]
enum Verb {
    List,
    Set { id: Option<u32>, inherit: bool },
    Clear { keep: bool },
    Check { id: Option<u32>, print0: bool },
}

impl Args {
    fn verb(&self) -> Verb {
        match self.id {
            id if self.check => Verb::Check { id, print0: self.print0 },
            _ if self.clear => Verb::Clear { keep: self.keep },
            None if !self.inherit => Verb::List,
            id => Verb::Set { id, inherit: self.inherit },
        }
    }
}

/// Runs `lfs project`. What cannot be done with one file is said, and the others go on.
pub fn run(args: &Args) -> Result<Done> {
    let mut is_whole = true;
    for path in &args.paths {
        let mut walk = Walk { control: Control::of(path)?, verb: args.verb(), is_whole: true };
        walk.tree(args, path)?;
        is_whole &= walk.is_whole;
    }
    if is_whole { Ok(Done::Ok) } else { Ok(Done::Code(1)) }
}

/// A tree that is being walked.
struct Walk {
    control: Control,
    verb: Verb,
    is_whole: bool,
}

impl Walk {
    fn tree(&mut self, args: &Args, path: &Path) -> Result<()> {
        let is_dir =
            std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?.is_dir();
        let is_tree = is_dir && !args.dir_only;
        if !(is_tree && matches!(self.verb, Verb::List)) {
            self.one(path)?;
        }
        let mut dirs: VecDeque<PathBuf> = is_tree.then(|| path.to_owned()).into_iter().collect();
        while let Some(dir) = dirs.pop_front() {
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(e) => {
                    self.failed(&path_fault("cannot list", &dir, &e));
                    continue;
                }
            };
            for entry in entries {
                let entry = entry.map_err(|e| path_fault("cannot list", &dir, &e))?;
                if let Err(fault) = self.one(&entry.path()) {
                    self.failed(&fault);
                }
                if args.recursive && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    dirs.push_back(entry.path());
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, fault: &Fault) {
        exit::warn(fault);
        self.is_whole = false;
    }

    fn one(&mut self, path: &Path) -> Result<()> {
        let meta = std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
        let (ino, is_dir) = (meta.ino(), meta.is_dir());
        let at = |fault: Fault| fault.subject(path.display().to_string());
        match self.verb {
            Verb::List => line(self.ask(&Request::Project { ino }).map_err(at)?, path),
            Verb::Check { id, print0 } => {
                let project = self.ask(&Request::Project { ino }).map_err(at)?;
                // The first is that of the path named.
                let expected = id.unwrap_or(project.id);
                self.verb = Verb::Check { id: Some(expected), print0 };
                check(project, expected, is_dir, path, print0);
            }
            Verb::Set { id, inherit } => {
                let inherits = (inherit && is_dir).then_some(true);
                self.ask(&Request::SetProject { ino, id, inherits }).map_err(at)?;
            }
            Verb::Clear { keep } => {
                let id = (!keep).then_some(0);
                self.ask(&Request::SetProject { ino, id, inherits: Some(false) }).map_err(at)?;
            }
        }
        Ok(())
    }

    fn ask(&self, request: &Request) -> Result<Project> {
        match self.control.ask(request)? {
            Answer::Project(project) => Ok(project),
            other => Err(unexpected(&other)),
        }
    }
}

fn line(project: Project, path: &Path) {
    let flag = if project.inherits { 'P' } else { '-' };
    println!("{:5} {flag} {}", project.id, text(path));
}

/// Says what is not as it should be; with `print0` the path alone, once.
fn check(project: Project, expected: u32, is_dir: bool, path: &Path, print0: bool) {
    let lacks_flag = is_dir && !project.inherits;
    let is_other = project.id != expected;
    let path = text(path);
    if print0 {
        if lacks_flag || is_other {
            print!("{path}\0");
        }
        return;
    }
    if lacks_flag {
        println!("{path} - project inheritance flag is not set");
    }
    if is_other {
        println!("{path} - project identifier is not set (inode={}, tree={expected})", project.id);
    }
}
