//! Checks of a package, without installing it.

use std::path::{Path, PathBuf};

use super::contents::LINKS;
use super::control;
use crate::run::{Cmd, capture};

/// Checks of the unpacked package; the first argument is its tree, the second its control files.
const CHECKS: &[(&str, &str)] = &[
    ("nobody but root may write any of it", "test -z \"$(find \"$1\" -perm /022 ! -type l)\""),
    ("manual pages are whole", "find \"$1/usr/share/man\" -type f -exec gzip -t {} +"),
    (
        "dpkg's scripts are shell",
        "for s in postinst prerm postrm; do sh -n \"$2/$s\" && test -x \"$2/$s\"; done",
    ),
    ("completions are shell", "bash -n \"$1/usr/share/bash-completion/completions/brindle\""),
    ("checksums are right", "cd \"$1\" && md5sum --check --quiet --strict \"$2/md5sums\""),
    (
        "the changelog is Debian's",
        "gzip -dc \"$1/usr/share/doc/brindle/changelog.gz\" | grep -q '^brindle (.*) stable; '",
    ),
    (
        "pages lead to pages",
        "cd \"$1/usr/share/doc/brindle/operations\" && \
         for to in $(grep -oh '](\\.*[a-z0-9/.-]*\\.md' *.md | cut -c3- | sort -u); do \
         case $to in ../../*) ;; *) test -e \"$to\" || { echo \"$to is missing\"; exit 1; } ;; esac; done",
    ),
];

/// Unpacks a package and checks it.
pub fn check(package: &Path, logs: &Path) -> Result<(), String> {
    let (tree, control) = (logs.join("unpacked"), logs.join("control"));
    let words = |words: &[&Path]| words.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    for (option, to) in [("--extract", &tree), ("--control", &control)] {
        ended("dpkg-deb", Cmd::new("dpkg-deb").arg(option).args(words(&[package, to])), logs)?;
    }
    fields(package)?;
    owners(package)?;
    links(&tree)?;
    for (what, script) in CHECKS {
        let command = Cmd::new("sh").args(["-ec", script, "check"]).args(words(&[&tree, &control]));
        ended(what, command, logs)?;
    }
    let said = capture(&tree.join("usr/bin/brindle").to_string_lossy(), &["--version"]).unwrap_or_default();
    if !said.contains(control::version()) {
        return Err(format!("'brindle --version' says '{said}', and the package {}", control::version()));
    }
    std::fs::remove_dir_all(&tree).map_err(|e| format!("cannot remove {}: {e}", tree.display()))
}

fn fields(package: &Path) -> Result<(), String> {
    let field = |name: &str| {
        capture("dpkg-deb", &["--field", &package.to_string_lossy(), name])
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    for (name, wanted) in [("Package", "brindle"), ("Version", control::version())] {
        if field(name) != wanted {
            return Err(format!("the field {name} says '{}' instead of '{wanted}'", field(name)));
        }
    }
    match field("Depends") {
        depends if depends.starts_with("libc6 (>= 2.") => Ok(()),
        depends => Err(format!("the package depends on '{depends}'")),
    }
}

fn owners(package: &Path) -> Result<(), String> {
    let list =
        capture("dpkg-deb", &["--contents", &package.to_string_lossy()]).ok_or("no list of contents")?;
    match list.lines().find(|line| line.split_whitespace().nth(1) != Some("root/root")) {
        Some(line) => Err(format!("a file is not root's: {line}")),
        None => Ok(()),
    }
}

fn links(tree: &Path) -> Result<(), String> {
    for (name, _) in LINKS {
        let at: PathBuf = tree.join(name);
        let reached =
            std::fs::canonicalize(&at).map_err(|e| format!("the link {name} leads nowhere: {e}"))?;
        let inside = std::fs::canonicalize(tree).is_ok_and(|tree| reached.starts_with(tree));
        if !inside {
            return Err(format!("the link {name} leads out of the package"));
        }
    }
    Ok(())
}

fn ended(what: &str, command: Cmd, logs: &Path) -> Result<(), String> {
    let done = command.limit_secs(120).run(&logs.join("inspect.log"));
    if done.ok() { Ok(()) } else { Err(format!("not so: {what}\n{}", done.explain())) }
}
