//! FALLOCATE: reserve, punch, zero.

use brindle_client::Client;
use brindle_client::file::fallocate::Allocation;
use brindle_types::{Code, Fault};

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Fallocate;

const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const ZERO_KEEP: u32 = ZERO | KEEP_SIZE;

pub(crate) async fn handle(client: &Client, who: &Who, op: Fallocate) -> Result<Reply, Fault> {
    let how = match op.mode {
        0 | KEEP_SIZE => Allocation::Reserve { keep_size: op.mode == KEEP_SIZE },
        PUNCH => Allocation::Punch,
        ZERO | ZERO_KEEP => Allocation::Zero { keep_size: op.mode == ZERO_KEEP },
        _ => return Err(Fault::new(Code::NotSupported)),
    };
    let end = op.offset.checked_add(op.length).ok_or_else(|| Fault::new(Code::TooLarge))?;
    client.fallocate(&who.ctx, op.fh, op.offset..end, how).await?;
    Ok(Reply::ok())
}
