//! Programs that run on one client and are written on another (what is left of ETXTBSY is under "What differs").

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use brindle_tests::area::Area;
use brindle_tests::child::{copying, no_copies, output};

use crate::both_ways;

/// Rounds of writing a program on one client and starting it on another.
const ROUNDS: usize = 40;

fn is_busy<T>(done: io::Result<T>) -> bool {
    done.is_err_and(|e| e.raw_os_error() == Some(libc::ETXTBSY))
}

/// truncate(2) to nothing.
fn truncate(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that lives until the call returns.
    match unsafe { libc::truncate(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn install(program: &str, at: &Path) {
    // A process that is made meanwhile would have it open for writing for a moment.
    let _guard = no_copies();
    fs::copy(program, at).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_program_that_runs_is_not_written_by_others_and_what_is_written_is_not_started() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "cat") {
        install("/bin/cat", &there);
        let guard = copying();
        let mut runs = Command::new(&there).stdin(Stdio::piped()).spawn().unwrap();
        drop(guard);
        let before = fs::read(&here).unwrap();
        assert!(is_busy(OpenOptions::new().write(true).open(&here)));
        assert!(is_busy(OpenOptions::new().write(true).truncate(true).open(&here)));
        assert!(is_busy(truncate(&here)));
        assert_eq!(fs::read(&here).unwrap(), before, "what was refused has changed nothing");
        // The program can be replaced, as every package manager does.
        let new = here.with_extension("new");
        install("/bin/true", &new);
        fs::rename(&new, &here).unwrap();
        drop(runs.stdin.take());
        assert!(runs.wait().unwrap().success());

        let guard = copying();
        let open = OpenOptions::new().append(true).custom_flags(libc::O_CLOEXEC).open(&there).unwrap();
        drop(guard);
        assert!(is_busy(output(&mut Command::new(&here))));
        drop(open);
        assert!(output(&mut Command::new(&here)).unwrap().status.success());
        fs::remove_file(&here).unwrap();
    }
}

/// A program that has ended, or a file that was closed, is in the way of no client.
#[test]
fn a_program_is_started_at_once_where_another_client_has_written_it_and_written_where_it_has_ended() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "true") {
        for round in 0..ROUNDS {
            install("/bin/true", &there);
            let ran = output(&mut Command::new(&here));
            assert!(ran.is_ok_and(|out| out.status.success()), "round {round}");
        }
        fs::remove_file(&here).unwrap();
    }
}
