//! SYMLINK.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::{Entry, Reply};
use crate::request::Symlink;

pub(crate) async fn handle(client: &Client, who: &Who, op: Symlink) -> Result<Reply, Fault> {
    let attr = client.symlink(&who.ctx, who.ino, &op.name, &op.target).await?;
    Ok(Reply::entry(&Entry::uncached(&attr)))
}
