//! SETATTR: mode, owner, times, size.

use std::time::Duration;

use brindle_client::SetAttr;
use brindle_types::{Code, Fault};
use brindle_wire::mds::setattr::SetTime as To;

use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::{SetTime, Setattr};

/// The calls that cut by a descriptor; the last two are those of 32-bit programs, whose numbers are those of calls that cut nothing for
/// others.
const FTRUNCATE: &[libc::c_long] = &[libc::SYS_ftruncate, 93, 194];

fn time(set: SetTime) -> To {
    match set {
        SetTime::Now => To::Now,
        SetTime::To(time) => To::At(time),
    }
}

/// Whether a cut by a handle may be what the kernel does behind an asynchronous write that failed ([`super::failed`]), perhaps before
/// anything of it was sent.
fn is_kernels_own(fs: &BrindleFs, tid: u32, fh: u64) -> bool {
    let has_failed = fs.failed.take(tid, fh, fs.client.seams().now());
    match fs.calls.number(tid) {
        Some(libc::SYS_io_submit) => true,
        number => has_failed && !number.is_some_and(|number| FTRUNCATE.contains(&number)),
    }
}

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Setattr) -> Result<Reply, Fault> {
    if let (Some(_), Some(fh)) = (op.size, op.fh)
        && is_kernels_own(fs, who.tid, fh)
    {
        // The kernel does not look at the answer. A program that is not seen in its call may make it again.
        let why = "it follows a write that has failed, and may be the kernel's own cut to an end of before";
        return Err(Fault::new(Code::Interrupted).why(why));
    }
    let set = SetAttr {
        mode: op.mode.map(|mode| mode & 0o7777),
        uid: op.uid,
        gid: op.gid,
        size_bytes: op.size,
        atime: op.atime.map(time),
        mtime: op.mtime.map(time),
        kill_suidgid: op.kill_suidgid,
        handle: op.fh.filter(|_| op.size.is_some()).unwrap_or(0),
    };
    let asked_at = fs.client.seams().now();
    let attr = fs.client.setattr(&who.ctx, who.ino, set).await?;
    if op.mode.is_some() {
        // In the same chmod(2) the kernel looks for an ACL that it would have to change too.
        fs.recent.mode_set(who.tid, &attr, asked_at);
    }
    Ok(Reply::attr(&attr, Duration::ZERO))
}
