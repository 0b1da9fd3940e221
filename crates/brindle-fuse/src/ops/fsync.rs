//! FSYNC and FSYNCDIR. fdatasync costs as much as fsync: either has to make size and existence
//! durable.

use brindle_client::Client;
use brindle_types::Fault;

use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Fsync;

pub(crate) async fn handle(client: &Client, op: Fsync) -> Result<Reply, Fault> {
    client.fsync(op.fh).await?;
    Ok(Reply::ok())
}

pub(crate) async fn directory(client: &Client, who: &Who) -> Result<Reply, Fault> {
    client.fsync_dir(who.ino).await?;
    Ok(Reply::ok())
}
