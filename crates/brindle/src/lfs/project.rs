//! `lfs project`: the project of files and directories, in Lustre's words.
//!
//! Unlike Lustre's, symbolic links and special files have a project too: they count as inodes.

use std::collections::VecDeque;
use std::ffi::{CStr, OsStr};
use std::fs::{Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brindle_admin::paths::text;
use brindle_client::control::{Answer, Request};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::project::Project;
use rustix::fs::{AtFlags, Dir};

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

/// Action on each file.
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

/// Runs `lfs project`. A failure with one file is reported, and the others go on.
pub fn run(args: &Args) -> Result<Done> {
    let mut is_whole = true;
    for path in &args.paths {
        let mut walk = Walk::new(Control::of(path)?, args.verb());
        walk.tree(args, path)?;
        is_whole &= walk.is_whole;
    }
    if is_whole { Ok(Done::Ok) } else { Ok(Done::Code(1)) }
}

/// Identity of a file, as a look has shown it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    dev: u64,
    ino: u64,
    is_dir: bool,
}

impl FileIdentity {
    fn of(meta: &Metadata) -> FileIdentity {
        FileIdentity { dev: meta.dev(), ino: meta.ino(), is_dir: meta.is_dir() }
    }

    /// Looks at an entry of an open directory.
    fn entry(dir: &Dir, name: &CStr) -> std::io::Result<FileIdentity> {
        let fd = dir.fd()?;
        let stat = rustix::io::retry_on_intr(|| rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW))?;
        let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(FileIdentity { dev: stat.st_dev, ino: stat.st_ino, is_dir })
    }
}

/// Directories that are yet to be listed.
type Dirs = VecDeque<(PathBuf, FileIdentity)>;

/// A tree that is being walked.
struct Walk {
    control: Control,
    /// Device of the mount. The daemon is asked by inode numbers, which mean nothing elsewhere.
    dev: u64,
    verb: Verb,
    is_whole: bool,
}

impl Walk {
    fn new(control: Control, verb: Verb) -> Walk {
        let mount = control.mount();
        let dev = rustix::fs::makedev(mount.major, mount.minor);
        Walk { control, dev, verb, is_whole: true }
    }

    fn tree(&mut self, args: &Args, path: &Path) -> Result<()> {
        let meta = std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
        let named = FileIdentity::of(&meta);
        if named.dev != self.dev {
            return Err(self.elsewhere(path));
        }
        let is_tree = named.is_dir && !args.dir_only;
        if !(is_tree && matches!(self.verb, Verb::List)) {
            self.one(path, named)?;
        }
        let mut dirs: Dirs = is_tree.then(|| (path.to_owned(), named)).into_iter().collect();
        while let Some((dir, found)) = dirs.pop_front() {
            if let Err(fault) = self.entries(args, (dir.as_path(), found), &mut dirs) {
                self.failed(&fault);
            }
        }
        Ok(())
    }

    /// Handles the entries of one directory; with `-r` its subdirectories are next.
    fn entries(&mut self, args: &Args, (dir, found): (&Path, FileIdentity), dirs: &mut Dirs) -> Result<()> {
        let mut open = open_found(dir, found).map_err(|e| path_fault("cannot list", dir, &e))?;
        while let Some(entry) = open.read() {
            let entry = entry.map_err(|e| path_fault("cannot list", dir, &e.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = dir.join(OsStr::from_bytes(name.to_bytes()));
            let found = match FileIdentity::entry(&open, name) {
                Ok(found) => found,
                Err(e) => {
                    self.failed(&path_fault("cannot look at", &path, &e));
                    continue;
                }
            };
            if found.dev != self.dev {
                exit::warn(&self.elsewhere(&path));
                continue;
            }
            if let Err(fault) = self.one(&path, found) {
                self.failed(&fault);
            }
            if args.recursive && found.is_dir {
                dirs.push_back((path, found));
            }
        }
        Ok(())
    }

    /// Says that a path is left out.
    fn elsewhere(&self, path: &Path) -> Fault {
        let mount = self.control.mount().mount_point.display();
        Fault::new(Code::CrossDevice)
            .what("left out")
            .subject(path.display().to_string())
            .why(format!("it is in another file system than {mount}"))
            .data("its project was not changed")
    }

    fn failed(&mut self, fault: &Fault) {
        exit::warn(fault);
        self.is_whole = false;
    }

    fn one(&mut self, path: &Path, FileIdentity { ino, is_dir, .. }: FileIdentity) -> Result<()> {
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

/// Opens a directory, if what has its name is still what was looked at.
fn open_found(path: &Path, found: FileIdentity) -> std::io::Result<Dir> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let dir = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if FileIdentity::of(&dir.metadata()?) != found {
        return Err(std::io::Error::other("another directory has its name now"));
    }
    Ok(Dir::new(dir)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_put_in_the_place_of_another_is_not_listed() {
        let top = tempfile::tempdir().expect("a directory");
        let (dir, other) = (top.path().join("dir"), top.path().join("other"));
        std::fs::create_dir(&dir).expect("made");
        std::fs::create_dir(&other).expect("made");
        let found = FileIdentity::of(&std::fs::symlink_metadata(&dir).expect("it is there"));
        let above = FileIdentity::of(&std::fs::symlink_metadata(top.path()).expect("it is there"));
        let whole = open_found(top.path(), above).expect("opened");
        assert!(FileIdentity::entry(&whole, c"dir").expect("it is there") == found);
        assert_eq!(whole.count(), 4, "two directories, itself and the one above");
        assert!(open_found(&dir, found).is_ok());
        std::fs::rename(&dir, top.path().join("moved")).expect("moved");
        std::os::unix::fs::symlink(&other, &dir).expect("made");
        assert!(open_found(&dir, found).is_err(), "a symbolic link is not followed");
        std::fs::remove_file(&dir).expect("removed");
        std::fs::rename(&other, &dir).expect("moved");
        assert!(open_found(&dir, found).is_err(), "another directory");
    }
}
