//! LINK.

use brindle_client::Client;
use brindle_types::{Attr, Fault, Ino};

use crate::fs::Who;
use crate::request::Link;

pub(crate) async fn handle(client: &Client, who: &Who, op: Link) -> Result<Attr, Fault> {
    client.link(&who.ctx, Ino(op.ino), who.ino, &op.name).await
}
