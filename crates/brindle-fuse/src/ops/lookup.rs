//! LOOKUP: a name in a directory, never cached by the kernel.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::{Entry, Reply};
use crate::request::Lookup;

pub(crate) async fn handle(client: &Client, who: &Who, op: Lookup) -> Result<Reply, Fault> {
    let attr = client.lookup(who.ino, &op.name).await?;
    Ok(Reply::entry(&Entry::uncached(&attr)))
}
