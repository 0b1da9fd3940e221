//! `make package`: a Debian package of the binary, its other names, units, man pages, completions and the administrators' pages.
//! `make container`: an image of it.
//!
//! | module | does |
//! |---|---|
//! | [`container`] | an image of the binary, and a try of it |
//! | [`contents`] | which file goes where |
//! | [`control`] | name, version, what the binary needs |
//! | [`deb`] | the tree, and the package of it |
//! | [`inspect`] | what is wrong with a package |
//!
//! Invariant: the same sources and the same compiler give the same bytes.

pub mod container;
mod contents;
mod control;
mod deb;
mod inspect;

use std::path::{Path, PathBuf};

use crate::report::Report;
use crate::{Session, setup};

/// Directory of packages, below the repository.
const OUT: &str = "target/package";
/// The profile of the binary that goes into a package.
const PROFILE: &str = "dist";

/// Arguments of `cargo xtask package` and `container`.
struct Wanted {
    profile: String,
    out: PathBuf,
}

impl Wanted {
    fn parse(session: &Session, command: &str, out: &str) -> Result<Wanted, String> {
        let usage = || format!("usage: cargo xtask {command} [--profile dist|release] [--out DIR]");
        let mut wanted = Wanted { profile: PROFILE.to_owned(), out: session.root.join(out) };
        let mut words = session.args.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(usage)?;
            match word.as_str() {
                "--profile" if matches!(value.as_str(), "dist" | "release") => {
                    wanted.profile.clone_from(value)
                }
                "--out" => wanted.out = PathBuf::from(value),
                _ => return Err(usage()),
            }
        }
        Ok(wanted)
    }

    /// Builds the binary.
    fn binary(&self, session: &Session) -> Result<PathBuf, String> {
        match self.profile.as_str() {
            "release" => crate::build(session)?,
            _ => crate::dist(session)?,
        }
        Ok(session.root.join("target").join(&self.profile).join("brindle"))
    }
}

/// `cargo xtask package`.
pub fn run(session: &Session) -> Result<(), String> {
    let wanted = Wanted::parse(session, "package", OUT)?;
    setup::need("package")?;
    let binary = wanted.binary(session)?;
    let package = deb::make(session, &binary, &wanted.out)?;
    println!("{}", package.display());
    println!("  install it on each host: apt install ./{}", name_of(&package));
    println!("  how to go on: docs/operations/install.md");
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A package of the release binary: made twice, and inspected.
pub fn test(session: &Session) -> Report {
    let (logs, binary) = (session.logs().join("package"), session.brindle());
    let _ = std::fs::remove_dir_all(&logs);
    let made = deb::make(session, &binary, &logs.join("a"))
        .and_then(|first| deb::make(session, &binary, &logs.join("b")).map(|second| (first, second)));
    let (first, second) = match made {
        Ok(made) => made,
        Err(why) => return Report::fail("package::make", why),
    };
    let mut report = Report::check("package::same-bytes", deb::same(&first, &second));
    report.add(Report::check("package::contents", inspect::check(&first, &logs)));
    report.add(container::test(session));
    report
}
