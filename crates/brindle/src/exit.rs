//! End of a command: exit codes (users-study section 3), and the one place that prints a fault.

use std::process::ExitCode;

use brindle_types::errno::{EACCES, EBUSY, EEXIST, ENOENT, ENOTCONN, EPERM, ETIMEDOUT};
use brindle_types::{Code, Fault, Result};

use crate::print;

/// A command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Success: all is as asked.
    Ok,
    /// A part was done; the rest was reported on standard error.
    Partly,
    /// Done, and what it found is not well (status, fsck).
    Unhealthy,
    /// Done by another program that ended with this code (aliases).
    Code(u8),
}

/// The usual exit codes.
mod codes {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_FOUND: u8 = 3;
    pub const DENIED: u8 = 4;
    pub const EXISTS: u8 = 5;
    pub const UNREACHABLE: u8 = 6;
    pub const PARTLY: u8 = 7;
    pub const UNHEALTHY: u8 = 8;
    pub const INTERRUPTED: u8 = 130;
}

/// Prints the fault of a failed command and gives its exit code.
pub fn code(outcome: Result<Done>) -> ExitCode {
    match outcome {
        Ok(Done::Ok) => ExitCode::SUCCESS,
        Ok(Done::Partly) => codes::PARTLY.into(),
        Ok(Done::Unhealthy) => codes::UNHEALTHY.into(),
        Ok(Done::Code(code)) => code.into(),
        Err(fault) => {
            show(&fault);
            of_fault(&fault).into()
        }
    }
}

/// Prints a fault as commands do.
pub fn show(fault: &Fault) {
    eprintln!("error: {fault}");
}

/// Prints a fault that did not stop the command.
pub fn warn(fault: &Fault) {
    eprintln!("warning: {fault}");
}

/// Prints a message of clap: help and version are no failure.
pub fn usage(e: &clap::Error) -> ExitCode {
    let printed = e.print();
    if e.use_stderr() {
        // A closed standard error cannot be reported anywhere.
        return codes::USAGE.into();
    }
    let failed = printed.err().filter(|e| e.kind() != std::io::ErrorKind::BrokenPipe);
    code(failed.map_or(Ok(Done::Ok), |e| Err(print::fault(&e))))
}

fn of_fault(fault: &Fault) -> u8 {
    match fault.code {
        Code::BadArgument | Code::UnknownConfigKey | Code::BadConfigValue | Code::BadStripe => codes::USAGE,
        Code::NoMgs | Code::Disconnected | Code::TargetDown | Code::NotConnected => codes::UNREACHABLE,
        Code::Interrupted => codes::INTERRUPTED,
        Code::NotATarget | Code::UnknownTarget | Code::NoSuchPool => codes::NOT_FOUND,
        code => match code.errno() {
            ENOENT => codes::NOT_FOUND,
            EACCES | EPERM => codes::DENIED,
            EEXIST | EBUSY => codes::EXISTS,
            ETIMEDOUT | ENOTCONN => codes::UNREACHABLE,
            _ => codes::FAILED,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_what_happened() {
        let of = |code| of_fault(&Fault::new(code));
        assert_eq!(of(Code::BadArgument), 2);
        assert_eq!(of(Code::NoSuchFs), 3);
        assert_eq!(of(Code::NotWritable), 4);
        assert_eq!(of(Code::AlreadyFormatted), 5);
        assert_eq!(of(Code::AddressInUse), 5);
        assert_eq!(of(Code::NoMgs), 6);
        assert_eq!(of(Code::BadSuperblock), 1);
    }
}
