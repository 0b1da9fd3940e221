//! `lfs getdirstripe`: which MDT answers for directories. In this version each directory lies in one MDT whole.

use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Ino, Result};

use crate::control::{Control, ino, path_fault};
use crate::exit::Done;

/// Arguments of `lfs getdirstripe`.
#[derive(clap::Args)]
pub struct Args {
    /// Print the stripe count: 0, a directory that is not striped
    #[arg(short = 'c', long = "mdt-count")]
    count: bool,
    /// Print the index of the MDT
    #[arg(short = 'i', short_alias = 'm', long = "mdt-index")]
    index: bool,
    /// Print the hash by which names are spread: none
    #[arg(short = 'H', long = "mdt-hash")]
    hash: bool,
    /// Go down into directories
    #[arg(short = 'r', long = "recursive")]
    recursive: bool,
    /// Directories
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    for dir in &args.dirs {
        Control::of(dir)?;
        one(args, dir)?;
    }
    Ok(Done::Ok)
}

fn one(args: &Args, dir: &Path) -> Result<()> {
    let meta = std::fs::metadata(dir).map_err(|e| path_fault("cannot look at", dir, &e))?;
    if !meta.is_dir() {
        return Err(Fault::new(Code::NotDirectory)
            .subject(dir.display().to_string())
            .next(format!("how a file lies: lfs getstripe {}", dir.display())));
    }
    print!("{}", text(args, ino(dir)?));
    if !args.recursive {
        return Ok(());
    }
    let entries = std::fs::read_dir(dir).map_err(|e| path_fault("cannot list", dir, &e))?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    names.sort();
    for inner in names {
        let kind = std::fs::symlink_metadata(&inner).map_err(|e| path_fault("cannot look at", &inner, &e))?;
        if kind.is_dir() {
            one(args, &inner)?;
        }
    }
    Ok(())
}

fn text(args: &Args, dir: Ino) -> String {
    let mdt = dir.mdt();
    let asked = [(args.count, "0".to_owned()), (args.index, mdt.to_string()), (args.hash, "none".to_owned())];
    if asked.iter().any(|(is, _)| *is) {
        return asked.into_iter().filter(|(is, _)| *is).map(|(_, value)| value + "\n").collect();
    }
    format!("lmv_stripe_count: 0 lmv_stripe_offset: {mdt} lmv_hash_type: none\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_one_mdt_looks_as_it_does_in_lustre() {
        let args = |count, index| Args { count, index, hash: false, recursive: false, dirs: Vec::new() };
        let dir = Ino::new(1, 300);
        assert_eq!(
            text(&args(false, false), dir),
            "lmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none\n"
        );
        assert_eq!(text(&args(true, true), dir), "0\n1\n");
    }
}
