//! mdt_statfs: space, and how many inodes there are and would still fit.

use brindle_types::Result;
use brindle_wire::mds::statfs::{MdtStatfsReq, MdtStatfsResp};

use crate::mdt::{Call, Mdt};
use crate::store::usage::{self, Kind};

/// Bytes that an inode with its entry takes in store and log, about.
pub const BYTES_PER_INODE: u64 = 1024;

/// Space and inodes.
pub async fn handle(mdt: &Mdt, _call: &Call, _req: MdtStatfsReq) -> Result<MdtStatfsResp> {
    let space = mdt.engine().space()?;
    let users = mdt.read(|t| usage::list(t, Kind::User)).await?;
    Ok(MdtStatfsResp {
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        inodes_used: users.iter().map(|(_, used)| used.inodes).sum(),
        inodes_free: space.available_bytes / BYTES_PER_INODE,
        device_id: space.device_id,
    })
}
