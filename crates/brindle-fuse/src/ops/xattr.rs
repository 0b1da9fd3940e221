//! SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.

use brindle_client::Client;
use brindle_client::namespace::xattr::SetHow;
use brindle_types::{Code, Fault, Ino};
use bytes::Bytes;

use super::recent::Extras;
use crate::fs::{BrindleFs, Who};
use crate::reply::Reply;
use crate::request::{Getxattr, Listxattr, Removexattr, Setxattr};

/// The attribute in which file systems with labels keep them.
const SELINUX: &[u8] = b"security.selinux";

pub(crate) async fn set(client: &Client, who: &Who, op: Setxattr) -> Result<Reply, Fault> {
    let how = SetHow {
        create: op.flags & libc::XATTR_CREATE as u32 != 0,
        replace: op.flags & libc::XATTR_REPLACE as u32 != 0,
        kill_sgid: op.kill_sgid,
    };
    client.setxattr(&who.ctx, who.ino, &op.name, &op.value, how).await?;
    Ok(Reply::ok())
}

pub(crate) async fn get(fs: &BrindleFs, who: &Who, op: Getxattr) -> Result<Reply, Fault> {
    let value = fs.client.getxattr(who.ino, &op.name).await.map_err(|fault| match fault.code {
        Code::NoXattr => Fault { code: lack(&op.name), ..fault },
        _ => fault,
    })?;
    Ok(Reply::xattr(Bytes::from(value), op.size))
}

/// The answer for an attribute that a file does not have. No kernel takes SELinux labels from a FUSE file
/// system (one with SELinux answers for them itself), and `ls -l` asks for that of each file until it hears
/// that there is no such thing here. Labels set by a restored archive are kept and shown all the same.
pub(crate) fn lack(name: &[u8]) -> Code {
    if name == SELINUX { Code::NotSupported } else { Code::NoXattr }
}

/// Kinds of extended attributes of the inode, if a lease covers it or an answer has just told them.
pub(crate) fn extras(fs: &BrindleFs, tid: u32, ino: Ino) -> Option<Extras> {
    let lasting = fs.client.lasting_attr(ino).map(|(attr, _)| attr);
    let covered = lasting.or_else(|| fs.client.rights(ino)).map(|attr| Extras::of(&attr));
    covered.or_else(|| fs.recent.extras(tid, ino, fs.client.seams().now()))
}

/// Only the superuser sees the names of `trusted.` attributes, as on other file systems.
pub(crate) async fn list(fs: &BrindleFs, who: &Who, op: Listxattr) -> Result<Reply, Fault> {
    let none = extras(fs, who.tid, who.ino).is_some_and(Extras::are_none);
    let names = if none { Vec::new() } else { fs.client.listxattr(who.ino).await? };
    let shown = |name: &&Vec<u8>| who.ctx.cred.uid == 0 || !name.starts_with(b"trusted.");
    let mut list = Vec::new();
    for name in names.iter().filter(shown) {
        list.extend_from_slice(name);
        list.push(0);
    }
    Ok(Reply::xattr(Bytes::from(list), op.size))
}

pub(crate) async fn remove(client: &Client, who: &Who, op: Removexattr) -> Result<Reply, Fault> {
    client.removexattr(&who.ctx, who.ino, &op.name).await?;
    Ok(Reply::ok())
}
