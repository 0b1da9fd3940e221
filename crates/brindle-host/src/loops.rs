//! Loop devices, made and found without asking any other loop device about its file: that file may be in a mount whose server does not
//! run.

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

/// Takes a device away from its file, unless it has been taken away meanwhile: a device without users goes by itself once it was told to.
fn detach_from(device: &str, file: &Path) -> Result<()> {
    let is_over = || file_of(device).is_some_and(|backing| backing == file);
    if !is_over() {
        return Ok(());
    }
    detach(device).or_else(|fault| if is_over() { Err(fault) } else { Ok(()) })
}

/// Takes all devices away from a file.
pub fn detach_all(file: &Path) -> Result<()> {
    over(file).iter().try_for_each(|device| detach_from(device, file))
}

/// Takes all devices away from the files below a directory.
pub fn detach_below(dir: &Path) -> Result<()> {
    let mut below = all().into_iter().filter(|(_, file)| file.starts_with(dir));
    below.try_for_each(|(device, file)| detach_from(&device, &file))
}

/// Devices over a file.
pub fn over(file: &Path) -> Vec<String> {
    all().into_iter().filter(|(_, backing)| backing == file).map(|(device, _)| device).collect()
}

/// All devices that have a file, and the files.
pub fn all() -> BTreeMap<String, PathBuf> {
    let of = |entry: std::fs::DirEntry| {
        let device = format!("/dev/{}", entry.file_name().to_str()?);
        file_of(&device).map(|file| (device, file))
    };
    std::fs::read_dir(BLOCK_DIR).into_iter().flatten().flatten().filter_map(of).collect()
}

/// The file of a device that has one.
fn file_of(device: &str) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev/")?;
    let file = std::fs::read_to_string(Path::new(BLOCK_DIR).join(name).join("loop/backing_file")).ok()?;
    let file = file.trim_end_matches('\n');
    Some(PathBuf::from(file.strip_suffix(REMOVED).unwrap_or(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_went_by_itself_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        std::fs::write(&file, vec![0; 1 << 20]).unwrap();
        let (first, second) = (attach(&file, &[]).unwrap(), attach(&file, &[]).unwrap());
        assert_eq!(over(&file).len(), 2);
        detach(&first).unwrap();
        detach_from(&first, &file).unwrap();
        assert_eq!(over(&file), [second.as_str()], "only its own device is taken away");
        detach_below(dir.path()).unwrap();
        assert!(over(&file).is_empty());
    }
}
