//! CREATE: step 1 of create, from here to `brindle-client/src/namespace/create.rs`.

use brindle_client::namespace::create::CreateIn;
use brindle_types::Fault;

use super::open::{access, keeps_atime, note_synchronous, opened};
use crate::fs::{BrindleFs, Done, Undo, Who};
use crate::reply::{Entry, Reply};
use crate::request::Create;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Create) -> Result<Done, Fault> {
    let create = CreateIn {
        parent: who.ino,
        name: &op.name,
        mode: op.mode & 0o7777,
        umask: op.umask,
        exclusive: op.flags & libc::O_EXCL as u32 != 0,
        access: access(op.flags),
    };
    let asked_at = fs.client.seams().now();
    let open = fs.client.create(&who.ctx, create).await?.opened;
    note_synchronous(&fs.client, &open, op.flags);
    fs.client.opened_by_program(&open, keeps_atime(op.flags));
    fs.known.note(&open.attr);
    fs.recent.made(who.tid, &open.attr, asked_at);
    let reply = Reply::created(&Entry::uncached(&open.attr), opened(&open));
    Ok(Done { reply, undo: Undo::Close(open.attr.ino, open.handle) })
}
