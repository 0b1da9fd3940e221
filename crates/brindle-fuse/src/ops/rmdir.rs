//! RMDIR.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Rmdir;

pub(crate) async fn handle(client: &Client, who: &Who, op: Rmdir) -> Result<Reply, Fault> {
    client.rmdir(&who.ctx, who.ino, &op.name).await?;
    Ok(Reply::ok())
}
