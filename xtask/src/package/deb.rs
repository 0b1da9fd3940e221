//! The tree of a package, and the package of it, by plain `dpkg-deb`.
//!
//! Everything belongs to root and has the time of the last commit (`SOURCE_DATE_EPOCH` if that is set).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::contents::{BINARY, COMPRESSED, CONFIGURATION, DIRS, FILES, LINKS, MAN, PAGES, SCRIPTS};
use super::control;
use crate::Session;
use crate::run::{Cmd, capture};

/// Longest time of one command.
const COMMAND_SECS_MAX: u64 = 120;

/// Makes `brindle_VERSION_ARCHITECTURE.deb` of a binary in the directory `out`; its path.
pub fn make(session: &Session, binary: &Path, out: &Path) -> Result<PathBuf, String> {
    let epoch = epoch(&session.root)?;
    let tree = Tree { root: out.join("tree"), logs: out.join("log"), source: session.root.clone() };
    remove(&tree.root)?;
    tree.fill(binary, &epoch)?;
    let architecture = control::architecture()?;
    let installed_kib = tree.kib(&tree.root)?;
    let text = control::text(&control::depends(&tree.root.join(BINARY))?, &architecture, installed_kib);
    tree.write("DEBIAN/control", text.as_bytes(), 0o644)?;
    let configuration: String = CONFIGURATION.iter().map(|path| format!("/{path}\n")).collect();
    tree.write("DEBIAN/conffiles", configuration.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        tree.copy(&format!("deploy/debian/{script}"), &format!("DEBIAN/{script}"), 0o755)?;
    }
    tree.sums()?;
    let package = out.join(format!("brindle_{}_{architecture}.deb", control::version()));
    let build = Cmd::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "-z3", "--build"]);
    let build = build.arg(&tree.root).arg(&package).env("SOURCE_DATE_EPOCH", &epoch);
    tree.ended("dpkg-deb", build)?;
    remove(&tree.root)?;
    remove(&tree.logs)?;
    Ok(package)
}

/// Two packages of the same sources have the same bytes.
pub fn same(a: &Path, b: &Path) -> Result<(), String> {
    let read = |path: &Path| fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
    if read(a)? == read(b)? { Ok(()) } else { Err("the package made twice has different bytes".to_owned()) }
}

/// Seconds since 1970 that all files get.
fn epoch(root: &Path) -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let root = root.to_str().unwrap_or(".");
    let said = capture("git", &["-C", root, "log", "-1", "--format=%ct"]);
    said.map(|time| time.trim().to_owned())
        .filter(|time| !time.is_empty())
        .ok_or_else(|| "no commit tells the time of the package; set SOURCE_DATE_EPOCH".to_owned())
}

fn remove(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {e}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The files of a package, before they are packed.
struct Tree {
    root: PathBuf,
    logs: PathBuf,
    source: PathBuf,
}

impl Tree {
    fn fill(&self, binary: &Path, epoch: &str) -> Result<(), String> {
        let stripped = self.root.join(BINARY);
        self.parent(&stripped)?;
        // Names of functions stay: what a server says before it ends has them.
        let strip = Cmd::new("strip").args(["--strip-debug", "-o"]);
        self.ended("strip", strip.arg(&stripped).arg(binary))?;
        self.mode(&stripped, 0o755)?;
        for (from, to, mode) in FILES {
            self.copy(from, to, *mode)?;
        }
        for (from, to) in PAGES {
            for name in self.names(from)?.iter().filter(|name| name.ends_with(".md")) {
                self.copy(&format!("{from}/{name}"), &format!("{to}/{name}"), 0o644)?;
            }
        }
        for name in self.names(MAN.0)? {
            self.compress(&format!("{}/{name}", MAN.0), &format!("{}/{name}", MAN.1))?;
        }
        for (from, to) in COMPRESSED {
            self.compress(from, to)?;
        }
        let date = capture("date", &["-u", "-R", "-d", &format!("@{epoch}")]).ok_or("'date -R' failed")?;
        let changelog = "usr/share/doc/brindle/changelog";
        self.write(changelog, control::changelog(date.trim()).as_bytes(), 0o644)?;
        self.gzip(&self.root.join(changelog))?;
        for (name, to) in LINKS {
            let path = self.root.join(name);
            self.parent(&path)?;
            symlink(to, &path).map_err(|e| format!("cannot make the link {name}: {e}"))?;
        }
        DIRS.iter().try_for_each(|(name, mode)| self.dir(&self.root.join(name), *mode))
    }

    /// Names of the files in a directory of the repository, in order.
    fn names(&self, dir: &str) -> Result<Vec<String>, String> {
        let entries = fs::read_dir(self.source.join(dir)).map_err(|e| format!("cannot read {dir}: {e}"))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn copy(&self, from: &str, to: &str, mode: u32) -> Result<(), String> {
        let bytes = fs::read(self.source.join(from)).map_err(|e| format!("cannot read {from}: {e}"))?;
        self.write(to, &bytes, mode)
    }

    fn compress(&self, from: &str, to: &str) -> Result<(), String> {
        self.copy(from, to, 0o644)?;
        self.gzip(&self.root.join(to))
    }

    /// Compressed without name and time, so that the bytes are the same each time.
    fn gzip(&self, path: &Path) -> Result<(), String> {
        self.ended("gzip", Cmd::new("gzip").args(["-9", "-n", "-f"]).arg(path))
    }

    fn write(&self, to: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        let path = self.root.join(to);
        self.parent(&path)?;
        fs::write(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        self.mode(&path, mode)
    }

    fn parent(&self, path: &Path) -> Result<(), String> {
        let parent = path.parent().ok_or_else(|| format!("{} has no directory", path.display()))?;
        let inside = parent.strip_prefix(&self.root).map_err(|e| e.to_string())?;
        self.dir(&self.root, 0o755)?;
        let mut at = self.root.clone();
        for part in inside {
            at.push(part);
            self.dir(&at, 0o755)?;
        }
        Ok(())
    }

    /// A directory with these permissions, whatever the mask of the caller is.
    fn dir(&self, path: &Path, mode: u32) -> Result<(), String> {
        fs::create_dir_all(path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        self.mode(path, mode)
    }

    fn mode(&self, path: &Path, mode: u32) -> Result<(), String> {
        let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
        set.map_err(|e| format!("cannot set permissions of {}: {e}", path.display()))
    }

    /// Size of the tree on a disk, as Debian counts it.
    fn kib(&self, dir: &Path) -> Result<u64, String> {
        let mut sum = 1;
        for entry in fs::read_dir(dir).map_err(|e| format!("cannot read {}: {e}", dir.display()))?.flatten() {
            let meta = entry.metadata().map_err(|e| e.to_string())?;
            sum += if meta.is_dir() { self.kib(&entry.path())? } else { meta.len().div_ceil(1024) };
        }
        Ok(sum)
    }

    /// `md5sums`, by which `dpkg --verify` finds files that were changed.
    fn sums(&self) -> Result<(), String> {
        let script =
            "cd \"$1\" && find etc usr var -type f | LC_ALL=C sort | xargs -r md5sum > DEBIAN/md5sums";
        self.ended("md5sum", Cmd::new("sh").args(["-ec", script, "sums"]).arg(&self.root))?;
        self.mode(&self.root.join("DEBIAN/md5sums"), 0o644)
    }

    fn ended(&self, what: &str, command: Cmd) -> Result<(), String> {
        let done = command.limit_secs(COMMAND_SECS_MAX).run(&self.logs.join(format!("{what}.log")));
        if done.ok() { Ok(()) } else { Err(format!("'{what}' failed\n{}", done.explain())) }
    }
}
