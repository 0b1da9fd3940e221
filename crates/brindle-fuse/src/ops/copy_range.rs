//! COPY_FILE_RANGE and COPY_FILE_RANGE_64.

use brindle_client::Client;
use brindle_client::file::copy_range::CopyIn;
use brindle_types::{Code, Fault};

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::CopyFileRange;

pub(crate) async fn handle(client: &Client, who: &Who, op: CopyFileRange) -> Result<Reply, Fault> {
    if op.flags != 0 {
        return Err(Fault::new(Code::InvalidArgument));
    }
    let copy = CopyIn {
        source: op.fh_in,
        source_offset: op.offset_in,
        target: op.fh_out,
        target_offset: op.offset_out,
        len_bytes: op.length,
        // The kernel leaves the set-id bits to us here, and does not say whether the caller may keep them.
        kill_suidgid: who.ctx.cred.uid != 0,
    };
    Ok(Reply::copied(client.copy_range(&who.ctx, copy).await?, &op))
}
