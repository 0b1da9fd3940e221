//! RELEASE: the last descriptor of an open file is gone; its flock and its OFD locks go with it.

use brindle_types::Fault;
use brindle_wire::mds::lock::LockSpace;

use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::Release;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Release) -> Result<Reply, Fault> {
    let under_way = fs.releases.begin(who.ino);
    // The kernel sends no unlock for OFD locks and does not name their owner here.
    let ofd = fs.owners.take(op.fh).into_iter().map(|owner| (LockSpace::Posix, owner));
    let flock = op.flock_owner.map(|owner| (LockSpace::Flock, owner));
    for (space, owner) in ofd.chain(flock) {
        if let Err(fault) = fs.client.drop_locks(&who.ctx, who.ino, space, owner).await {
            tracing::warn!(ino = who.ino.0, code = %fault.code, "a lock may be left behind: {fault}");
        }
    }
    drop(under_way);
    // The answer of the MDT is not awaited: the kernel has room for only a few dozen of these requests.
    fs.client.finish_writes(op.fh).await;
    drop(fs.client.close_later(op.fh)?);
    Ok(Reply::ok())
}
