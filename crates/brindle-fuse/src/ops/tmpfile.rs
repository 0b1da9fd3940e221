//! TMPFILE: a file without a name. With O_EXCL the file may never get a name; the kernel enforces
//! that.

use brindle_types::Fault;

use super::open::{access, note_synchronous, opened};
use crate::fs::{BrindleFs, Done, Undo, Who};
use crate::reply::{Entry, Reply};
use crate::request::Tmpfile;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Tmpfile) -> Result<Done, Fault> {
    let open = fs.client.tmpfile(&who.ctx, who.ino, op.mode & 0o7777, op.umask, access(op.flags)).await?;
    note_synchronous(&fs.client, &open, op.flags);
    fs.known.note(&open.attr);
    let reply = Reply::created(&Entry::uncached(&open.attr), opened(&open));
    Ok(Done { reply, undo: Undo::Close(open.attr.ino, open.handle) })
}
