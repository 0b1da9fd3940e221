//! SYMLINK.

use brindle_client::Client;
use brindle_types::{Attr, Fault};

use crate::fs::Who;
use crate::request::Symlink;

pub(crate) async fn handle(client: &Client, who: &Who, op: Symlink) -> Result<Attr, Fault> {
    client.symlink(&who.ctx, who.ino, &op.name, &op.target).await
}
