//! LOOKUP: a name in a directory. See [`crate::ops::kernel_cache`] for the lifetime of the name in the
//! kernel.

use brindle_stdx::Mono;
use brindle_types::{Attr, Fault, FileType, Ino};

use super::NOT_KEPT;
use super::kernel_cache::{LookedUpName, Moment};
use crate::fs::{BrindleFs, Who};
use crate::reply::{Entry, Reply};
use crate::request::Lookup;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Lookup) -> Result<Reply, Fault> {
    let asked_at = fs.client.seams().now();
    let attr = fs.client.lookup(who.ino, &op.name).await?;
    fs.known.note(&attr);
    let ino = attr.ino;
    let nodeid = match attr.kind {
        FileType::Directory => fs.node_ids.found(who.nodeid, &op.name, ino),
        _ => ino.0,
    };
    let reply = found(fs, (who.ino, who.nodeid), who.tid, (&op.name, nodeid), attr, asked_at);
    if nodeid != ino.0 {
        // A change through this path is not seen where the kernel keeps names of the directory under the
        // other node id.
        fs.names_gone(ino).await;
    }
    Ok(reply)
}

/// The answer about a name in `parent` (inode and node id) that was found and what the kernel is to call it, asked for at `asked_at`.
pub(crate) fn found(
    fs: &BrindleFs,
    parent: (Ino, u64),
    tid: u32,
    (name, nodeid): (&[u8], u64),
    attr: Attr,
    asked_at: Mono,
) -> Reply {
    fs.recent.found(tid, &attr, asked_at);
    let (client, kind, now) = (&fs.client, attr.kind, Moment::now(fs.client.seams()));
    let found = LookedUpName { tid, parent: parent.0, ino: attr.ino, nodeid, kind, now };
    let is_seen = || fs.node_ids.is_where_it_was(parent.0, parent.1);
    let keeps_names = client.config().switches.kernel_names;
    let lasting_name = || client.lasting_name(parent.0, name, found.ino);
    let named = || keeps_names.then(lasting_name).flatten().filter(|_| is_seen());
    let kept = fs.kernel_cache.by_name(found, &|ino| client.lasting_attr(ino), &named);
    let (attr, attr_valid) = kept.attr.unwrap_or((attr, NOT_KEPT));
    let attr = client.with_last_access(attr);
    let entry = Entry { nodeid, attr_valid, entry_valid: kept.name, ..Entry::uncached(&attr) };
    Reply { given: kept.given, ..Reply::entry(&entry) }
}
