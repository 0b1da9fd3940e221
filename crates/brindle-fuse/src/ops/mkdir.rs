//! MKDIR.

use brindle_types::Fault;

use crate::fs::{BrindleFs, Who};
use crate::reply::{Entry, Reply};
use crate::request::Mkdir;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Mkdir) -> Result<Reply, Fault> {
    let attr = fs.client.mkdir(&who.ctx, who.ino, &op.name, op.mode & 0o7777, op.umask).await?;
    fs.known.note(&attr);
    let nodeid = fs.node_ids.found(who.nodeid, &op.name, attr.ino);
    Ok(Reply::entry(&Entry { nodeid, ..Entry::uncached(&attr) }))
}
