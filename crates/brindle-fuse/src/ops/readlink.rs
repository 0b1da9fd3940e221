//! READLINK.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::Reply;

pub(crate) async fn handle(client: &Client, who: &Who) -> Result<Reply, Fault> {
    Ok(Reply::data(client.readlink(who.ino).await?.into()))
}
