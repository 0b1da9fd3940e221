//! WRITE: from here to `brindle-client/src/file/write.rs`. The kernel's offset does not count with O_APPEND.

use brindle_client::{Client, WriteIn};
use brindle_types::Fault;

use crate::fs::Who;
use crate::request::Write;

pub(crate) async fn handle(client: &Client, who: &Who, op: Write) -> Result<u64, Fault> {
    let has = |flag: i32| op.flags & flag as u32 == flag as u32;
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
    client.write(&who.ctx, op.fh, write).await
}
