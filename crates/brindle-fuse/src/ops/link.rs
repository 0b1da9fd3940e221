//! LINK.

use brindle_client::Client;
use brindle_types::{Fault, Ino};

use crate::fs::Who;
use crate::reply::{Entry, Reply};
use crate::request::Link;

pub(crate) async fn handle(client: &Client, who: &Who, op: Link) -> Result<Reply, Fault> {
    let attr = client.link(&who.ctx, Ino(op.ino), who.ino, &op.name).await?;
    Ok(Reply::entry(&Entry::uncached(&attr)))
}
