//! LOOKUP: a name in a directory. What the kernel may keep of it: [`crate::ops::shown`].

use brindle_types::{Fault, FileType};

use super::NOT_KEPT;
use super::shown::{Found, Moment};
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
    let (client, kind, now) = (&fs.client, attr.kind, Moment::now(fs.client.seams()));
    let found = Found { tid: who.tid, parent: who.ino, ino: attr.ino, nodeid, kind, now };
    let is_seen = || fs.places.is_where_it_was(who.ino, who.nodeid);
    let named = || client.lasting_name(who.ino, &op.name, found.ino).filter(|_| is_seen());
    let kept = fs.shown.by_name(found, &|ino| client.lasting_attr(ino), &named);
    let (attr, attr_valid) = kept.attr.unwrap_or((attr, NOT_KEPT));
    Ok(Reply::entry(&Entry { nodeid, attr_valid, entry_valid: kept.name, ..Entry::uncached(&attr) }))
}
