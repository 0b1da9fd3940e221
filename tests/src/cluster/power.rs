//! Power cuts: the file system below a target forgets what it has not written to its loop image.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// `XFS_IOC_GOINGDOWN` and `EXT4_IOC_SHUTDOWN`, which are the same call.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Do not even write the log.
const NO_LOG_FLUSH: u32 = 2;
/// Longest time for which an unmount may be refused because a killed process is still being taken apart.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// Makes the file system mounted at `at` refuse everything from now on, without writing anything back.
///
/// # Panics
/// When it cannot.
pub fn forget_unwritten(at: &Path) {
    let dir = File::open(at).expect("the mounted image can be opened");
    let flag = NO_LOG_FLUSH;
    // SAFETY: the call reads one u32 at the given address.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), SHUTDOWN, &raw const flag) };
    assert_eq!(done, 0, "cannot shut {} down: {}", at.display(), std::io::Error::last_os_error());
}

/// Unmounts an image whose file system was shut down; its loop device goes with it.
///
/// # Panics
/// When it cannot.
pub fn unmount(at: &Path) {
    let since = Instant::now();
    loop {
        match rustix::mount::unmount(at, rustix::mount::UnmountFlags::empty()) {
            Ok(()) => return,
            Err(rustix::io::Errno::BUSY) if since.elapsed() < BUSY_LIMIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => panic!("cannot unmount {}: {e}", at.display()),
        }
    }
}
