//! return_grant: a client that ends leaves what it was granted to the next one.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::oss::grant::ReturnGrantReq;

use crate::dispatch::Call;
use crate::service::Oss;

/// Takes back the grant of the request's session.
pub async fn handle(oss: &Oss, call: &Call, _req: ReturnGrantReq) -> Result<Empty> {
    oss.store.take_grant_back(call.frame.header.session);
    Ok(Empty {})
}
