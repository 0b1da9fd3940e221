//! OPEN and OPENDIR: from the mode of a handle to the flags for the kernel.

use brindle_client::Client;
use brindle_types::{Fault, Ino};
use brindle_wire::mds::open::{Access, OpenMode};

use crate::abi::flags::fopen::{DIRECT_IO, KEEP_CACHE, PARALLEL_DIRECT_WRITES};
use crate::fs::{BrindleFs, Done, Undo, Who};
use crate::reply::{Opened, Reply};
use crate::request::Open;

/// The kernel's own flag of an open by execve(2) (`__FMODE_EXEC` of linux/fs.h), which it tells in OPEN since 2.6.34.
const FMODE_EXEC: u32 = 0x20;

/// Access that the flags of open(2) ask for. The access mode 3 of Linux (checks both rights, gives none) counts as both.
pub(crate) fn access(flags: u32) -> Access {
    let mode = flags & libc::O_ACCMODE as u32;
    Access {
        read: mode != libc::O_WRONLY as u32,
        write: mode != libc::O_RDONLY as u32,
        truncate: flags & libc::O_TRUNC as u32 != 0,
        execute: flags & FMODE_EXEC != 0,
    }
}

/// The open for the kernel: pages only while nobody writes, and old ones only if they are of this version.
pub(crate) fn opened(opened: &brindle_client::Opened) -> Opened {
    let flags = match opened.mode {
        OpenMode::Cached if opened.keep_cache => KEEP_CACHE,
        OpenMode::Cached => 0,
        OpenMode::Direct | OpenMode::Exclusive => DIRECT_IO | PARALLEL_DIRECT_WRITES,
    };
    Opened { fh: opened.handle, flags }
}

pub(crate) async fn handle(client: &Client, who: &Who, op: Open) -> Result<Done, Fault> {
    let access = access(op.flags);
    let waits = client.config().switches.nonblock_recall || op.flags & libc::O_NONBLOCK as u32 == 0;
    let open = match waits {
        true => client.open(&who.ctx, who.ino, access, op.kill_suidgid).await?,
        false => {
            let opening = client.open_here(&who.ctx, who.ino, access, op.kill_suidgid).await;
            opening.map_err(|fault| {
                client.not_recalled(
                    fault,
                    "it was opened with O_NONBLOCK, and this mount has nonblock-recall=off",
                )
            })?
        }
    };
    note_synchronous(client, &open, op.flags);
    client.opened_by_program(&open, keeps_atime(op.flags));
    Ok(Done { reply: Reply::opened(opened(&open)), undo: Undo::Close(open.attr.ino, open.handle) })
}

/// The kernel says with each write whether it is to be durable, with no copy and no reservation.
pub(crate) fn note_synchronous(client: &Client, open: &brindle_client::Opened, flags: u32) {
    if flags & libc::O_DSYNC as u32 != 0 {
        client.make_synchronous(open.handle);
    }
}

/// Whether reads leave the time of last access unchanged.
pub(crate) fn keeps_atime(flags: u32) -> bool {
    flags & libc::O_NOATIME as u32 != 0
}

/// Answers an open of a file that was opened ahead.
pub(crate) fn fast_path(fs: &BrindleFs, ino: Ino, op: Open) -> Option<Reply> {
    // The MDT must know of an open for execution: no file that was opened ahead serves it.
    let is_read = op.flags & ((libc::O_ACCMODE | libc::O_TRUNC) as u32 | FMODE_EXEC) == libc::O_RDONLY as u32;
    let open = if is_read { fs.client.take_opened_ahead(ino)? } else { return None };
    fs.client.opened_by_program(&open, keeps_atime(op.flags));
    Some(Reply::opened(opened(&open)))
}

/// Directories have no handles: each listing says where it goes on.
pub(crate) fn directory() -> Reply {
    Reply::opened(Opened { fh: 0, flags: 0 })
}
