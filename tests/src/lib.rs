//! Shared helpers of the cluster tests.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests tell people where their logs are")]

pub mod area;
pub mod child;
pub mod cluster;
pub mod history;
pub mod locks;
pub mod maps;
pub mod model_run;
pub mod s3;
pub mod syscalls;
pub mod users;

use rustix::io::Errno;

/// The error of a call that has to fail.
///
/// # Panics
/// When the call succeeded, or failed without an errno.
pub fn fails<T: std::fmt::Debug, E: Into<std::io::Error>>(result: Result<T, E>) -> Errno {
    match result {
        Ok(value) => panic!("the call should have failed and answered {value:?}"),
        Err(error) => Errno::from_io_error(&error.into()).expect("an error of a system call has a number"),
    }
}

/// `len` bytes that differ with `seed` and with their place, so that a byte in a wrong place is seen.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Equal, or a panic that names the first difference instead of printing megabytes.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn same_bytes(found: &[u8], wanted: &[u8], what: &str) {
    if found == wanted {
        return;
    }
    let at = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(found.len().min(wanted.len()));
    let part = |all: &[u8]| all[at.min(all.len())..(at + 16).min(all.len())].to_vec();
    panic!(
        "{what}: {} bytes, {} wanted; first difference at {at}: {:02x?}, wanted {:02x?}",
        found.len(),
        wanted.len(),
        part(found),
        part(wanted)
    );
}
