//! Commands of the system, run to their end in bounded time.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use brindle_types::{Code, Fault, Result};

use crate::process::Identity;

/// Longest time of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// Runs a command of the system to its end, or until it has taken too long. `packages`: what it is in, for the advice.
pub fn run(command: &mut Command, packages: &str) -> Result<()> {
    run_with_input(command, packages, "")
}

/// Runs a command with a text on its standard input.
pub fn run_with_input(command: &mut Command, packages: &str, input: &str) -> Result<()> {
    finish(command.stdout(Stdio::null()), packages, input, &[0]).map(drop)
}

/// Runs a command and returns its output, which has to be short. The command may end with one of `codes`.
pub fn run_for_output(command: &mut Command, packages: &str, codes: &[i32]) -> Result<String> {
    finish(command.stdout(Stdio::piped()), packages, "", codes)
}

fn finish(command: &mut Command, packages: &str, input: &str, codes: &[i32]) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let fault = || Fault::new(Code::CommandFailed).what("cannot run").subject(shown.clone());
    let failed = |e: std::io::Error| {
        let fault = fault().why(e.to_string());
        if e.kind() == std::io::ErrorKind::NotFound {
            return fault.next(format!("install it (Debian: {packages})"));
        }
        fault
    };
    let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that does not read its input reports the reason itself.
        let _ = pipe.write_all(input.as_bytes());
    }
    if !Identity::of(child.id()).is_none_or(|process| process.wait_end(COMMAND_LIMIT)) {
        // The command may have ended at this moment.
        let _ = child.kill();
        let _ = child.wait();
        return Err(fault()
            .why(format!("it did not end within {} s", COMMAND_LIMIT.as_secs()))
            .next("try again; dmesg may say what the kernel waited for"));
    }
    let out = child.wait_with_output().map_err(failed)?;
    if out.status.code().is_some_and(|code| codes.contains(&code)) {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(fault().why(said).why(out.status.to_string()))
}
