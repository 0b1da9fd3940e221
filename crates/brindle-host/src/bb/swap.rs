//! Swap on nodes: a loop device over a file of a buffer, in a mount that serves nothing else.
//!
//! Devices are found by the file below them, as the kernel tells it; nothing is written down. Any orchestrator can therefore repeat every
//! call, whatever was killed before.
//!
//! Invariant: a file is written in full before swap is turned on over it, so that no page needs room; and no file ever lies below two
//! devices that have swap on.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use brindle_stdx::cast::to_usize;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};

use crate::loops;
use crate::process::Identity;
use crate::system::run;

/// Packages of the commands.
const PACKAGES: &str = "mount, util-linux";
/// How long the kernel may take to bring pages back. Longer than a server of the buffer takes to be started again.
const OFF_LIMIT: Duration = Duration::from_secs(60);
/// Memory that stays available on a node while pages are brought back.
const SPARE_BYTES: u64 = 64 << 20;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Only root reads pages of users.
const FILE_MODE: u32 = 0o600;

/// Swap that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Bytes of pages in it.
    pub used_bytes: u64,
}

/// Writes a file of zeros and syncs it: all its blocks are allocated then, down to the brick, and hold nothing of earlier users. A file
/// that was only reserved would need room again at its first write. `stops`: whether somebody wants it to end.
pub fn write_file(path: &Path, bytes: u64, stops: &dyn Fn() -> Option<Fault>) -> Result<()> {
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::SwapFailed, "cannot allocate the swap file", path.display().to_string(), e)
    };
    // The path is never written through: it may be a link, or a device.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(&e)),
        _ => {}
    }
    let how = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    let mut file = how.map_err(|e| cannot(&e))?;
    let piece = vec![0; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        if let Some(fault) = stops() {
            return Err(fault);
        }
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..to_usize(now)]).map_err(|e| cannot(&e))?;
        left -= now;
    }
    file.sync_all().map_err(|e| cannot(&e))
}

/// Makes what was done in a directory durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| Fault::io(Code::SwapFailed, "cannot sync", dir.display().to_string(), &e))
}

/// Turns swap on over a file, if it is not.
pub fn turn_on(file: &Path) -> Result<()> {
    let failed = |fault: Fault| Fault { code: Code::SwapFailed, ..fault };
    let device = match loops::over(file).into_iter().next() {
        Some(device) => device,
        // Direct: pages of the device go to the file system at once, and take no further memory for a copy.
        None => loops::attach(file, &["--direct-io=on"]).map_err(failed)?,
    };
    if active(&device)?.is_some() {
        return Ok(());
    }
    let on = run(Command::new("mkswap").arg(&device), PACKAGES)
        .and_then(|()| run(Command::new("swapon").arg(&device), PACKAGES));
    on.map_err(|fault| {
        if let Err(second) = loops::detach(&device) {
            tracing::warn!(fault = %second, "a loop device is left until the job ends");
        }
        failed(fault)
    })
}

/// Bytes of pages in the swap over a file.
pub fn used_bytes(file: &Path) -> Result<u64> {
    let mut used = 0;
    for device in loops::over(file) {
        used += active(&device)?.map_or(0, |active| active.used_bytes);
    }
    Ok(used)
}

/// Turns swap off over a file and takes its device away; nothing happens where there is none.
pub fn turn_off(file: &Path, node: &str) -> Result<()> {
    for device in loops::over(file) {
        if let Some(swap) = active(&device)? {
            refuse_without_memory(node, swap.used_bytes, available_bytes()?)?;
            swap_off(&device, node)?;
        }
        loops::detach(&device).map_err(|fault| Fault { code: Code::SwapFailed, ..fault })?;
    }
    Ok(())
}

/// Refuses to bring pages back that the memory of a node cannot take: the kernel would end processes to make room.
fn refuse_without_memory(node: &str, used_bytes: u64, available_bytes: u64) -> Result<()> {
    if used_bytes == 0 || available_bytes >= used_bytes.saturating_add(SPARE_BYTES) {
        return Ok(());
    }
    let (available, used) = (format_bytes(available_bytes), format_bytes(used_bytes));
    Err(Fault::new(Code::SwapNeedsMemory)
        .what("swap stays on: node")
        .subject(node.to_owned())
        .why(format!("{used} of pages are in it, {available} of memory are available"))
        .data("the buffer is kept"))
}

/// swapoff(8) in a process of its own. swapoff waits in the kernel for pages, and nobody can end it there. When its time is over it is left
/// alone.
fn swap_off(device: &str, node: &str) -> Result<()> {
    let fault = || {
        let what = format!("cannot turn off the swap {device} of node");
        Fault::new(Code::SwapFailed).what(what).subject(node.to_owned()).data("the buffer is kept")
    };
    let mut command = Command::new("swapoff");
    command.arg(device).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| fault().why(e.to_string()))?;
    if Identity::of(child.id()).is_some_and(|process| !process.wait_end(OFF_LIMIT)) {
        // swapoff gives up before the next page. A process that has just ended is not there to be killed.
        let _ = child.kill();
        std::thread::spawn(move || child.wait());
        return Err(fault().why(format!("it has not ended within {} s", OFF_LIMIT.as_secs())));
    }
    let out = child.wait_with_output().map_err(|e| fault().why(e.to_string()))?;
    if active(device)?.is_none() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(fault().why(if said.is_empty() { out.status.to_string() } else { said }))
}

/// Whether a device lies over any file in a mount of this name.
pub fn is_left(mount: &str) -> Option<String> {
    let is_in = |file: &Path| file.components().any(|part| part.as_os_str() == mount);
    loops::all().into_iter().find(|(_, file)| is_in(file)).map(|(device, _)| device)
}

/// The swap on a device.
fn active(device: &str) -> Result<Option<Active>> {
    Ok(swap_in(&read("/proc/swaps")?, device))
}

fn swap_in(swaps: &str, device: &str) -> Option<Active> {
    let line = swaps.lines().find(|line| line.split_whitespace().next() == Some(device))?;
    let used_kib: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
    Some(Active { used_bytes: used_kib << 10 })
}

/// Memory that processes can have without paging out.
fn available_bytes() -> Result<u64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| {
        Fault::new(Code::SwapFailed).what("the kernel does not tell how much memory is available")
    })
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Fault::io(Code::SwapFailed, "cannot read", path.to_owned(), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_brought_back_only_where_there_is_memory() {
        let mib = |n: u64| n << 20;
        for (used, available, fits) in [
            (0, 0, true),
            (mib(100), mib(164), true),
            (mib(100), mib(163), false),
            (u64::MAX, u64::MAX, true),
        ] {
            let outcome = refuse_without_memory("n1", used, available);
            assert_eq!(outcome.is_ok(), fits, "{used} {available}");
        }
        let fault = refuse_without_memory("n1", mib(100), mib(50)).unwrap_err();
        assert_eq!(fault.code, Code::SwapNeedsMemory);
        let why = fault.why.join("");
        assert_eq!(why, "100.0 MiB of pages are in it, 50.0 MiB of memory are available");
    }

    #[test]
    fn the_kernels_list_is_understood() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/loop10                             partition\t131068\t\t80548\t\t-2\n";
        assert_eq!(swap_in(text, "/dev/loop10"), Some(Active { used_bytes: 80_548 << 10 }));
        assert_eq!(swap_in(text, "/dev/loop1"), None);
        assert_eq!(swap_in("", "/dev/loop1"), None);
    }
}
