//! MKNOD: pipes, sockets, devices, and regular files without opening them.

use brindle_client::Client;
use brindle_types::{Attr, Fault};

use crate::fs::Who;
use crate::request::Mknod;

pub(crate) async fn handle(client: &Client, who: &Who, op: Mknod) -> Result<Attr, Fault> {
    client.mknod(&who.ctx, who.ino, &op.name, op.mode, op.umask, op.rdev).await
}
