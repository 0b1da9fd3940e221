//! STATFS.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::{Reply, Statfs};

/// Unit that space is told in.
const UNIT_BYTES: u32 = 4096;
/// Longest name.
const NAME_MAX_BYTES: u32 = 255;

pub(crate) async fn handle(client: &Client, who: &Who) -> Result<Reply, Fault> {
    let space = client.statfs_in(&who.ctx, who.ino).await?;
    let units = |bytes: u64| bytes / u64::from(UNIT_BYTES);
    Ok(Reply::statfs(&Statfs {
        blocks: units(space.total_bytes),
        free: units(space.available_bytes),
        available: units(space.available_bytes),
        inodes: space.total_inodes,
        inodes_free: space.free_inodes,
        bsize_bytes: UNIT_BYTES,
        frsize_bytes: UNIT_BYTES,
        name_max_bytes: NAME_MAX_BYTES,
    }))
}
