//! RENAME and RENAME2.

use brindle_client::namespace::rename::RenameIn;
use brindle_types::{Code, Fault};

use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::Rename;

pub(crate) async fn handle(fs: &BrindleFs, who: &Who, op: Rename) -> Result<Reply, Fault> {
    let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
    if op.flags & !known != 0 {
        return Err(Fault::new(Code::InvalidArgument).what("cannot rename with").subject("these flags"));
    }
    let new_parent = fs.node_ids.ino(op.new_parent);
    let rename = RenameIn {
        parent: who.ino,
        name: &op.name,
        new_parent,
        new_name: &op.new_name,
        no_replace: op.flags & libc::RENAME_NOREPLACE != 0,
        exchange: op.flags & libc::RENAME_EXCHANGE != 0,
        whiteout: op.flags & libc::RENAME_WHITEOUT != 0,
    };
    let exchange = rename.exchange;
    let mut pauses = Vec::new();
    if who.ino != new_parent {
        pauses.push(fs.about_to_move(who.ino, &op.name).await);
        if exchange {
            pauses.push(fs.about_to_move(new_parent, &op.new_name).await);
        }
    }
    fs.client.rename(&who.ctx, rename).await?;
    fs.node_ids.moved((who.nodeid, &op.name), (op.new_parent, &op.new_name), exchange);
    Ok(Reply::ok())
}
