//! UNLINK.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Unlink;

pub(crate) async fn handle(client: &Client, who: &Who, op: Unlink) -> Result<Reply, Fault> {
    client.unlink(&who.ctx, who.ino, &op.name).await?;
    Ok(Reply::ok())
}
