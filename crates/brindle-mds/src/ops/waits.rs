//! mdt_waits: who waits for whom (`brindle waits`).

use brindle_types::Result;
use brindle_wire::mds::waits::{MdtWaitsReq, MdtWaitsResp};

use crate::dispatch::unknown;
use crate::mdt::{Call, Mdt};

/// What is waiting at the MDT.
pub async fn handle(_mdt: &Mdt, call: &Call, _req: MdtWaitsReq) -> Result<MdtWaitsResp> {
    Err(unknown(call))
}
