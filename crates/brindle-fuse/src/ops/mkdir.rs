//! MKDIR.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::{Entry, Reply};
use crate::request::Mkdir;

pub(crate) async fn handle(client: &Client, who: &Who, op: Mkdir) -> Result<Reply, Fault> {
    let attr = client.mkdir(&who.ctx, who.ino, &op.name, op.mode & 0o7777, op.umask).await?;
    Ok(Reply::entry(&Entry::uncached(&attr)))
}
