//! `mount -o remount`: the flags that the kernel keeps of a mount (read-only, nodev, nosuid, noexec) change while it is in
//! use. The options that the daemon was started with do not.

use brindle_types::{Code, Fault, Result};
use rustix::mount::{MountFlags, mount_remount};

use super::options::{Settings, fixed};
use crate::exit::Done;
use brindle_host::mounts;

/// Changes the options of the mount at the mount point.
pub fn run(settings: &Settings) -> Result<Done> {
    let at = &settings.mount_point;
    let fault = || {
        let fault = Fault::new(Code::MountFailed).what("cannot remount").subject(at.display().to_string());
        fault.data("nothing was changed")
    };
    let Some(line) = mounts::find(at).filter(|line| line.fs_type == mounts::FUSE_TYPE) else {
        return Err(fault()
            .why("no Brindle file system is mounted there")
            .next("brindle status shows the mounts"));
    };
    if !settings.switches.access_times && !line.is_noatime {
        return Err(fixed("noatime"));
    }
    let flags = [
        (settings.read_only, MountFlags::RDONLY),
        (settings.nodev, MountFlags::NODEV),
        (settings.nosuid, MountFlags::NOSUID),
        (settings.noexec, MountFlags::NOEXEC),
    ];
    let flags =
        flags.into_iter().filter(|(wanted, _)| *wanted).fold(MountFlags::empty(), |all, (_, f)| all | f);
    match mount_remount(at, flags, "") {
        Ok(()) => Ok(Done::Ok),
        Err(rustix::io::Errno::BUSY) => Err(fault()
            .why("files are open for writing")
            .next(format!("fuser -vm {} shows by whom", at.display()))),
        Err(e) => Err(fault().why(e.to_string())),
    }
}
