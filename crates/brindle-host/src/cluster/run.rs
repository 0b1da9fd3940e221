//! A command on a host of the cluster, as if somebody had logged in there.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::state::Cluster;
use crate::process::Entrance;

/// Number that shells add to the number of the signal that killed a command.
const SIGNAL_BASE: i32 = 128;

/// The way of a command to its host.
enum Way {
    /// Into the namespaces of the init of a bare host.
    Init(OwnedFd),
    /// Into the network of a host, under its name.
    Network(Entrance),
}

/// Runs a command on a host, with the standard input, output and error of this process; its exit code, or 128 and the signal that killed
/// it. Call it while the process has one thread: no thread can be started afterwards.
pub fn run_on(dir: &Path, host: &str, words: &[OsString]) -> Result<u8> {
    let cluster = Cluster::load(dir)?;
    let index = cluster.host_index(host)?;
    cluster.must_run(host, dir)?;
    let way = if cluster.hosts[index].bare {
        Way::Init(cluster.running_init(index, dir)?)
    } else {
        let none = || Fault::new(Code::Bug).why("a cluster of hosts has no network");
        Way::Network(Entrance::of(&cluster.within(Some(host)).ok_or_else(none)?)?)
    };
    let (program, arguments) =
        words.split_first().ok_or_else(|| Fault::new(Code::BadArgument).what("no command was given"))?;
    let shown = program.to_string_lossy().into_owned();
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::ProcessFailed, "cannot run", format!("{shown} on {host}"), e)
            .data("nothing was changed")
            .next(format!("see what is there: brindle dev host run --dir {} {host} -- bash", dir.display()))
    };
    let mut command = Command::new(program);
    command.args(arguments);
    way.prepare(&mut command).map_err(|e| cannot(&e))?;
    let mut child = command.spawn().map_err(|e| cannot(&e))?;
    leave_interrupts();
    let status = child.wait().map_err(|e| cannot(&e))?;
    let code = status.code().or_else(|| Some(SIGNAL_BASE + status.signal()?));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

impl Way {
    /// Has the command go there between fork and exec.
    fn prepare(self, command: &mut Command) -> std::io::Result<()> {
        // The working directory is lost with the mount namespace.
        let here = std::env::current_dir().ok();
        let here = here.and_then(|here| CString::new(here.as_os_str().as_bytes()).ok());
        if let Way::Init(init) = &self {
            // A process enters a pid namespace by being born there.
            move_into_thread_name_spaces(init.as_fd(), ThreadNameSpaceType::PROCESS_ID)?;
        }
        // SAFETY: what is done is async-signal-safe and touches no memory but what was made before the fork.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
                match &self {
                    Way::Network(entrance) => entrance.enter()?,
                    Way::Init(init) => {
                        let all = ThreadNameSpaceType::NETWORK
                            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
                            | ThreadNameSpaceType::MOUNT;
                        move_into_thread_name_spaces(init.as_fd(), all)?;
                        if let Some(here) = &here {
                            // A directory that the host does not have leaves the command in the root.
                            let _ = rustix::process::chdir(here.as_c_str());
                        }
                    }
                }
                Ok(())
            });
        }
        Ok(())
    }
}

/// Interrupts of the terminal are for the command, which this process waits for.
fn leave_interrupts() {
    // SAFETY: no handler is installed.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
    }
}
