//! Locks: fcntl, OFD and flock.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::lock::{CancelLockReq, GetLockReq, GetLockResp, SetLockReq};

use crate::dispatch::unknown;
use crate::mdt::{Call, Mdt};

/// The lock in the way of another.
pub async fn handle_get(_mdt: &Mdt, call: &Call, _req: GetLockReq) -> Result<GetLockResp> {
    Err(unknown(call))
}

/// Sets or gives up a lock.
pub async fn handle_set(_mdt: &Mdt, call: &Call, _req: SetLockReq) -> Result<Empty> {
    Err(unknown(call))
}

/// Ends the waiting of a SetLock.
pub async fn handle_cancel(_mdt: &Mdt, call: &Call, _req: CancelLockReq) -> Result<Empty> {
    Err(unknown(call))
}
