//! FLUSH: a descriptor was closed. The process's fcntl locks on the file go, whichever descriptor took them; lost data
//! is told.

use brindle_types::Fault;
use brindle_wire::mds::lock::LockSpace;

use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::Flush;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Flush) -> Result<Reply, Fault> {
    fs.owners.forget(op.fh, op.lock_owner);
    fs.client.drop_locks(&who.ctx, who.ino, LockSpace::Posix, op.lock_owner).await?;
    fs.client.flush(op.fh, Some(op.lock_owner)).await?;
    Ok(Reply::ok())
}
