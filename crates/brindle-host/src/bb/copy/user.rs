//! A process that becomes a user.

use std::path::PathBuf;

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;

/// Becomes the user for good. From then on this process ends with the one that started it.
pub fn become_user(uid: u32, gid: u32) -> Result<PathBuf> {
    let cannot = |e: nix::errno::Errno| {
        Fault::new(Code::StageFailed).what("cannot become user").subject(uid.to_string()).why(e.to_string())
    };
    if uid == 0 {
        return Err(Fault::new(Code::PermissionDenied).what("files are never staged as root"));
    }
    let parent = rustix::process::getppid();
    let (user, group) = (nix::unistd::Uid::from_raw(uid), nix::unistd::Gid::from_raw(gid));
    let entry = nix::unistd::User::from_uid(user).map_err(cannot)?;
    let home = match &entry {
        Some(entry) => {
            let name =
                std::ffi::CString::new(entry.name.clone()).map_err(|_| cannot(nix::errno::Errno::EINVAL))?;
            nix::unistd::initgroups(&name, group).map_err(cannot)?;
            entry.dir.clone()
        }
        // A user that this host does not know has no further groups and no home.
        None => {
            nix::unistd::setgroups(&[group]).map_err(cannot)?;
            PathBuf::new()
        }
    };
    nix::unistd::setgid(group).map_err(cannot)?;
    nix::unistd::setuid(user).map_err(cannot)?;
    if nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_ok() {
        return Err(Fault::new(Code::StageFailed).what("could become root again, and copies nothing"));
    }
    let died = Fault::new(Code::StageStopped).why("the process that started this one has ended");
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|_| died.clone())?;
    if rustix::process::getppid() != parent {
        return Err(died);
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    Ok(home)
}
