//! IOCTL: the project of a file or directory, as `lsattr -p`, `chattr -p` and `xfs_quota` ask for it.
//!
//! The kernel has checked that the caller owns the inode or is root, and is in the first user namespace. The kernel asks for files
//! and directories only, and opens them first. All other flags of inodes are refused, and every other command is answered as a plain
//! file answers it.

use brindle_client::Client;
use brindle_types::errno::{ENOTTY, EOPNOTSUPP};
use brindle_types::{Code, Fault};
use bytes::Bytes;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::outputs::FsXattr;
use crate::fs::Who;
use crate::reply::Reply;
use crate::request::Ioctl;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;

/// `FS_PROJINHERIT_FL`.
const FLAG_INHERIT: u32 = 0x2000_0000;
/// `FS_XFLAG_PROJINHERIT`.
const XFLAG_INHERIT: u32 = 0x200;

pub(crate) async fn handle(client: &Client, who: &Who, op: Ioctl) -> Result<Reply, Fault> {
    match op.command {
        GET_FLAGS => {
            let project = client.project(who.ino).await?;
            let flags = if project.inherits { FLAG_INHERIT } else { 0 };
            Ok(answer(flags.as_bytes(), op.room))
        }
        GET_XATTR => {
            let project = client.project(who.ino).await?;
            let xflags = if project.inherits { XFLAG_INHERIT } else { 0 };
            let xattr = FsXattr { xflags, projid: project.id, ..FsXattr::default() };
            Ok(answer(xattr.as_bytes(), op.room))
        }
        SET_FLAGS => {
            let (flags, _) = u32::read_from_prefix(&op.data).map_err(|_| too_short())?;
            if flags & !FLAG_INHERIT != 0 {
                return Ok(Reply::err(EOPNOTSUPP));
            }
            client.set_project(&who.ctx, who.ino, None, Some(flags & FLAG_INHERIT != 0)).await?;
            Ok(answer(&[], op.room))
        }
        SET_XATTR => {
            let (wanted, _) = FsXattr::read_from_prefix(&op.data).map_err(|_| too_short())?;
            let FsXattr { xflags, extsize, projid, cowextsize, .. } = wanted;
            if xflags & !XFLAG_INHERIT != 0 || extsize != 0 || cowextsize != 0 {
                return Ok(Reply::err(EOPNOTSUPP));
            }
            let inherits = xflags & XFLAG_INHERIT != 0;
            client.set_project(&who.ctx, who.ino, Some(projid), Some(inherits)).await?;
            Ok(answer(&[], op.room))
        }
        _ => Ok(Reply::err(ENOTTY)),
    }
}

/// Reply of exactly `room` bytes: the caller's buffer.
fn answer(bytes: &[u8], room: u32) -> Reply {
    let mut data = bytes.to_vec();
    data.resize(room as usize, 0);
    Reply::ioctl(Bytes::from(data))
}

fn too_short() -> Fault {
    Fault::new(Code::InvalidArgument).why("the command comes with too few bytes")
}
