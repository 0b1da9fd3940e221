//! Requirements of a mount on this machine.

use std::path::Path;

use brindle_types::{Code, Fault, Result};

use crate::mounts;

/// Oldest kernel: its FUSE has direct I/O with shared mmap.
const KERNEL_MIN: (u32, u32) = (6, 6);

/// Checks the kernel and its FUSE device.
pub fn check() -> Result<()> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    kernel_fits(&release)?;
    if !Path::new("/dev/fuse").exists() {
        return Err(Fault::new(Code::NoFuseDevice).what("cannot mount: there is no").subject("/dev/fuse"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Fault::new(Code::NeedsRoot).what("cannot mount").why("this user is not root"));
    }
    Ok(())
}

/// Sees to it that something can be mounted at `at`: takes away what a killed daemon left there, and refuses to cover or
/// end a mount that somebody uses.
pub fn free_mount_point(at: &Path) -> Result<()> {
    let Some(line) = mounts::find(at).filter(|m| m.fs_type == mounts::FUSE_TYPE) else { return Ok(()) };
    if !mounts::is_dead(at) {
        return Err(Fault::new(Code::MountFailed)
            .what("cannot mount on")
            .subject(at.display().to_string())
            .why(format!("{} is mounted there", line.source))
            .data("nothing was changed")
            .next(format!("use it, or unmount it first: umount {}", at.display())));
    }
    mounts::unmount(at, true)
}

/// Refuses what is no directory before any server is asked.
pub fn is_directory(at: &Path) -> Result<()> {
    let fault = Fault::new(Code::MountFailed).what("cannot mount on").subject(at.display().to_string());
    match std::fs::metadata(at) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(fault.why("it is not a directory").next("name an existing directory")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(fault.why("there is no such directory").next(format!("make it: mkdir -p {}", at.display())))
        }
        Err(e) => Err(fault.why(e.to_string())),
    }
}

fn kernel_fits(release: &str) -> Result<()> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        return Ok(());
    }
    Err(Fault::new(Code::KernelTooOld)
        .what("cannot mount: the kernel is too old:")
        .subject(format!("Linux {release}"))
        .why(format!("Linux {}.{} or newer is needed", KERNEL_MIN.0, KERNEL_MIN.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for good in ["6.6.0", "6.18.44-fc-v657", "7.0-rc1", "6.10"] {
            kernel_fits(good).unwrap();
        }
        for old in ["6.5.99", "5.15.0-1", "6.1.0-28-amd64", "garbage"] {
            assert_eq!(kernel_fits(old).unwrap_err().code, Code::KernelTooOld, "{old}");
        }
    }
}
