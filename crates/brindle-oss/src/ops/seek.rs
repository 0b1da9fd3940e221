//! seek: data and holes of an object.

use brindle_types::Result;
use brindle_wire::oss::seek::{SeekReq, SeekResp};

use crate::service::Oss;

/// The next data or hole.
pub async fn handle(oss: &Oss, req: SeekReq) -> Result<SeekResp> {
    Ok(SeekResp { offset: oss.store.seek(req.object, req.offset, req.data, req.must_exist).await? })
}
