//! LOOKUP: a name in a directory, never cached by the kernel.

use brindle_types::{Fault, FileType};

use crate::fs::{BrindleFs, Who};
use crate::reply::{Entry, Reply};
use crate::request::Lookup;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Lookup) -> Result<Reply, Fault> {
    let asked_at = fs.client.seams().now();
    let attr = fs.client.lookup(who.ino, &op.name).await?;
    fs.known.note(&attr);
    fs.recent.found(who.tid, &attr, asked_at);
    let mut entry = Entry::uncached(&attr);
    if attr.kind == FileType::Directory {
        entry.nodeid = fs.places.found(who.nodeid, &op.name, attr.ino);
    }
    Ok(Reply::entry(&entry))
}
