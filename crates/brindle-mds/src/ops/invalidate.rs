//! invalidate: a write met marks of readers that keep pages; they drop them before the write returns.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::invalidate::InvalidateReq;

use crate::dispatch::unknown;
use crate::mdt::{Call, Mdt};

/// Drops kept pages of a range at other clients.
pub async fn handle(_mdt: &Mdt, call: &Call, _req: InvalidateReq) -> Result<Empty> {
    Err(unknown(call))
}
