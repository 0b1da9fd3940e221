//! Targets on loop images: a sparse file with a file system of its own, so that full disks and power cuts can be real.

use std::path::Path;
use std::process::Command;

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use super::state::Image;
use crate::system::run;
use crate::{loops, mounts};

/// Packages of the commands.
const PACKAGES: &str = "e2fsprogs, xfsprogs, mount";

/// File system of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// ext4
    Ext4,
    /// XFS (images of 300 MiB or more)
    Xfs,
}

/// Makes the image if it does not exist, and mounts it at `at` if it is not.
pub fn attach(image: &Image, at: &Path) -> Result<()> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot make", image.file.display().to_string(), e);
    if !image.file.exists() {
        if let Some(parent) = image.file.parent() {
            std::fs::create_dir_all(parent).map_err(|e| cannot(&e))?;
        }
        // Made under another name first, so that a half-made image is never taken for a good one.
        let temp = image.file.with_extension("new");
        let made = std::fs::File::create(&temp).and_then(|f| f.set_len(image.size_bytes));
        made.map_err(|e| cannot(&e))?;
        make_fs(image.kind, &temp)?;
        std::fs::rename(&temp, &image.file).map_err(|e| cannot(&e))?;
    }
    std::fs::create_dir_all(at).map_err(|e| cannot(&e))?;
    if mounts::find(at).is_some() {
        return Ok(());
    }
    mount_image(&image.file, at)
}

/// Mounts an image. `mount -o loop` would ask every loop device of the host about the file below it first: where that lies in a mount whose
/// server is about to be started on this image, both would wait for each other.
fn mount_image(file: &Path, at: &Path) -> Result<()> {
    // A command that was killed may have attached the image without mounting it.
    loops::detach_all(file)?;
    let device = loops::attach(file, &[])?;
    let mounted = run(Command::new("mount").arg(&device).arg(at), PACKAGES);
    // The device is in use now, so it goes by itself when the file system is unmounted.
    let detached = loops::detach(&device);
    mounted.and(detached)
}

/// Gives back to the disk below what the file system of an image does not use any more.
pub fn trim(at: &Path) -> Result<()> {
    run(Command::new("fstrim").arg(at), "util-linux")
}

/// Unmounts; says nothing when it is not mounted.
pub fn detach(at: &Path) -> Result<()> {
    if mounts::find(at).is_none() {
        return Ok(());
    }
    run(Command::new("umount").arg(at), PACKAGES)
}

fn make_fs(kind: Kind, file: &Path) -> Result<()> {
    match kind {
        Kind::Ext4 => run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(file), PACKAGES),
        Kind::Xfs => run(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(file), PACKAGES),
    }
}
