//! scrub: an administrator starts or stops the scrub, or asks how far it is.

use brindle_types::Result;
use brindle_wire::oss::scrub::{ScrubReq, ScrubResp};

use crate::scrub;
use crate::service::Oss;

/// Carries the order out; durable on return.
pub async fn handle(oss: &Oss, req: ScrubReq) -> Result<ScrubResp> {
    scrub::order(oss, req.order).await
}
