//! LOOKUP: a name in a directory, never kept by the kernel; what it is told of the inode may be ([`crate::ops::shown`]).

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
    let nodeid = match attr.kind {
        FileType::Directory => fs.places.found(who.nodeid, &op.name, attr.ino),
        _ => attr.ino.0,
    };
    let lasting = |ino| fs.client.lasting_attr(ino);
    let shown = fs.shown.by_name(&lasting, who.tid, attr.ino, nodeid, fs.client.seams().now());
    let (attr, attr_valid) = shown.unwrap_or((attr, NOT_KEPT));
    Ok(Reply::entry(&Entry { nodeid, attr_valid, ..Entry::uncached(&attr) }))
}
