//! sync_all: makes everything acknowledged so far durable (`brindle sync`).

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::sync_all::SyncAllReq;

use crate::mdt::{Call, Mdt};

/// Waits until the log is on the device.
pub async fn handle(mdt: &Mdt, _call: &Call, _req: SyncAllReq) -> Result<Empty> {
    mdt.synced_as_asked().await?;
    Ok(Empty {})
}
