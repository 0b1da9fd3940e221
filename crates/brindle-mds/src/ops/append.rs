//! append by several clients: a logged reservation of a place.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::append::{AppendDoneReq, AppendReserveReq, AppendReserveResp};

use crate::dispatch::unknown;
use crate::mdt::{Call, Mdt};

/// Reserves the next bytes behind the end.
pub async fn handle_reserve(_mdt: &Mdt, call: &Call, _req: AppendReserveReq) -> Result<AppendReserveResp> {
    Err(unknown(call))
}

/// The reserved bytes are written, or given up.
pub async fn handle_done(_mdt: &Mdt, call: &Call, _req: AppendDoneReq) -> Result<Empty> {
    Err(unknown(call))
}
