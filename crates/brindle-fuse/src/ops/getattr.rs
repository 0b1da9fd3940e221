//! GETATTR and STATX: attributes, never cached by the kernel.

use std::time::Duration;

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::Reply;

pub(crate) async fn handle(client: &Client, who: &Who) -> Result<Reply, Fault> {
    let attr = client.getattr(who.ino).await?;
    Ok(Reply::attr(&attr, Duration::ZERO))
}

pub(crate) async fn statx(client: &Client, who: &Who) -> Result<Reply, Fault> {
    let attr = client.getattr(who.ino).await?;
    Ok(Reply::statx(&attr, Duration::ZERO))
}
