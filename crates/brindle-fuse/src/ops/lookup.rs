//! LOOKUP: a name in a directory, never kept by the kernel; what it is told of a directory may be.

use brindle_types::{Fault, FileType};

use super::NOT_KEPT;
use crate::fs::{BrindleFs, Who};
use crate::reply::{Entry, Reply};
use crate::request::Lookup;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Lookup) -> Result<Reply, Fault> {
    let asked_at = fs.client.seams().now();
    let attr = fs.client.lookup(who.ino, &op.name).await?;
    fs.known.note(&attr);
    fs.recent.found(who.tid, &attr, asked_at);
    if attr.kind != FileType::Directory {
        return Ok(Reply::entry(&Entry::uncached(&attr)));
    }
    let nodeid = fs.places.found(who.nodeid, &op.name, attr.ino);
    let (attr, attr_valid) = fs.shown.show_again(&fs.client, attr.ino, nodeid).unwrap_or((attr, NOT_KEPT));
    Ok(Reply::entry(&Entry { nodeid, attr_valid, ..Entry::uncached(&attr) }))
}
