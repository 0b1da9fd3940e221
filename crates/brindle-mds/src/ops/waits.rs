//! mdt_waits: who waits for whom (`brindle waits`).

use brindle_types::Result;
use brindle_wire::mds::waits::{MdtWaitsReq, MdtWaitsResp};

use crate::mdt::{Call, Mdt};

/// Waits at the MDT, for its own events and for OSTs, longest first.
pub async fn handle(mdt: &Mdt, _call: &Call, _req: MdtWaitsReq) -> Result<MdtWaitsResp> {
    let mut waits = mdt.waits().list();
    waits.extend(mdt.osts().waits());
    waits.sort_by_key(|(_, _, ms)| std::cmp::Reverse(*ms));
    Ok(MdtWaitsResp { waits })
}
