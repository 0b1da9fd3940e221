//! WRITE: from here to `brindle-client/src/file/write.rs`. The kernel's offset does not count with O_APPEND.

use brindle_client::WriteIn;
use brindle_types::Fault;

use crate::fs::{BrindleFs, Who};
use crate::request::Write;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Write) -> Result<u64, Fault> {
    let has = |flag: i32| op.flags.cast_signed() & flag == flag;
    let write = WriteIn {
        offset: op.offset,
        // Writeback of a page knows its place; its open file is a guess of the kernel's.
        append: has(libc::O_APPEND) && !op.from_cache,
        sync: has(libc::O_DSYNC) && !op.from_cache,
        kill_suidgid: op.kill_suidgid,
        page: op.from_cache,
        direct: has(libc::O_DIRECT),
        process: op.lock_owner,
        data: op.data,
    };
    let (client, fh, ino, offset) = (&fs.client, op.fh, who.ino, write.offset);
    if write.page {
        let data = fs.beside.over(ino, offset, write.data);
        return client.write(&who.ctx, fh, WriteIn { data, ..write }).await;
    }
    let is_append = write.append;
    let number = fs.beside.begin(ino, (!is_append).then_some(offset), &write.data);
    let written = client.write(&who.ctx, fh, write).await;
    let place = written.as_ref().ok().and_then(|len_bytes| {
        // If no other client writes the file, the bytes lie where the kernel assumes.
        let is_there = !is_append || client.own_end(fh) == Some(offset + len_bytes);
        is_there.then_some((offset, *len_bytes))
    });
    fs.beside.end(ino, number, place);
    written
}
