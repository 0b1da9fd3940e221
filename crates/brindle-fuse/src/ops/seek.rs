//! LSEEK: SEEK_DATA and SEEK_HOLE.

use brindle_client::Client;
use brindle_types::{Code, Fault};

use crate::reply::Reply;
use crate::request::Lseek;

pub(crate) async fn handle(client: &Client, op: Lseek) -> Result<Reply, Fault> {
    let data = match op.whence.cast_signed() {
        libc::SEEK_DATA => true,
        libc::SEEK_HOLE => false,
        _ => return Err(Fault::new(Code::InvalidArgument)),
    };
    Ok(Reply::offset(client.seek(op.fh, op.offset, data).await?))
}
