//! Loop devices, made and found without asking any other one about its file: that may be in a mount whose server does not run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use brindle_types::Result;

use crate::system::{run, run_for_output};

/// Directory in which the kernel shows its block devices.
const BLOCK_DIR: &str = "/sys/block";
/// The kernel adds this to the name of a file that was removed.
const REMOVED: &str = " (deleted)";
/// Packages of the commands.
const PACKAGES: &str = "mount, util-linux";

/// A device over a file. `options`: further words for losetup(8).
pub fn attach(file: &Path, options: &[&str]) -> Result<String> {
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show"]).args(options).arg(file);
    Ok(run_for_output(&mut losetup, PACKAGES, &[0])?.trim().to_owned())
}

/// Takes a device away from its file; one that is in use goes when its last user does.
pub fn detach(device: &str) -> Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device), PACKAGES)
}

/// Takes all devices away from a file.
pub fn detach_all(file: &Path) -> Result<()> {
    over(file).iter().try_for_each(|device| detach(device))
}

/// Takes all devices away from the files below a directory.
pub fn detach_below(dir: &Path) -> Result<()> {
    let below = all().into_iter().filter(|(_, file)| file.starts_with(dir));
    below.map(|(device, _)| device).try_for_each(|device| detach(&device))
}

/// Devices over a file.
pub fn over(file: &Path) -> Vec<String> {
    all().into_iter().filter(|(_, backing)| backing == file).map(|(device, _)| device).collect()
}

/// All devices that have a file, and the files.
pub fn all() -> BTreeMap<String, PathBuf> {
    let of = |entry: std::fs::DirEntry| {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let file = file.trim_end_matches('\n');
        let file = file.strip_suffix(REMOVED).unwrap_or(file);
        Some((format!("/dev/{}", entry.file_name().to_str()?), PathBuf::from(file)))
    };
    // Devices without a file have no such entry.
    std::fs::read_dir(BLOCK_DIR).into_iter().flatten().flatten().filter_map(of).collect()
}
