//! SETATTR: mode, owner, times, size.

use std::time::Duration;

use brindle_client::SetAttr;
use brindle_types::Fault;
use brindle_wire::mds::setattr::SetTime as To;

use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::{SetTime, Setattr};

fn time(set: SetTime) -> To {
    match set {
        SetTime::Now => To::Now,
        SetTime::To(time) => To::At(time),
    }
}

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Setattr) -> Result<Reply, Fault> {
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
    // In the same chmod(2) the kernel looks for an ACL that it would have to change too.
    fs.recent.found(who.tid, &attr, asked_at);
    Ok(Reply::attr(&attr, Duration::ZERO))
}
