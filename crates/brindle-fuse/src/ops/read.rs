//! READ. A read that fills pages of the kernel is one without a lock owner (`tests/mixed_state.rs`).
//!
//! A cached read ends for invalidations only when the kernel has its bytes: its guard travels with them and goes when
//! the answer was written.

use brindle_client::Client;
use brindle_client::inodes::ReadGuard;
use brindle_types::Fault;
use bytes::Bytes;

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Read;

/// Bytes, and the guard of the read they came by.
struct Guarded {
    bytes: Bytes,
    _guard: ReadGuard,
}

impl AsRef<[u8]> for Guarded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) async fn handle(client: &Client, who: &Who, op: Read) -> Result<Reply, Fault> {
    let page = op.lock_owner.is_none();
    let read = client.read_for(&who.ctx, op.fh, op.offset, u64::from(op.size), page).await?;
    let mut pieces = read.pieces;
    if let Some(guard) = read.guard {
        let bytes = pieces.pop().unwrap_or_default();
        pieces.push(Bytes::from_owner(Guarded { bytes, _guard: guard }));
    }
    Ok(Reply::pieces(pieces))
}
