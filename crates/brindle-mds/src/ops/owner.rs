//! owner_query: an OST asks whether objects are still wanted.

use brindle_types::Result;
use brindle_wire::mds::owner::{OwnerQueryReq, OwnerQueryResp};

use crate::dispatch::unknown;
use crate::mdt::{Call, Mdt};

/// Answers from committed state only.
pub async fn handle(_mdt: &Mdt, call: &Call, _req: OwnerQueryReq) -> Result<OwnerQueryResp> {
    Err(unknown(call))
}
