//! readlink.

use brindle_types::{Code, Fault, FileType, Result};
use brindle_wire::mds::readlink::{ReadlinkReq, ReadlinkResp};

use crate::mdt::{Call, Mdt};
use crate::store::{inline, inode};

/// The target of a symbolic link.
pub async fn handle(mdt: &Mdt, _call: &Call, req: ReadlinkReq) -> Result<ReadlinkResp> {
    mdt.read(|t| {
        if inode::get(t, req.ino)?.kind != FileType::Symlink {
            return Err(Fault::new(Code::InvalidArgument).why("it is not a symbolic link"));
        }
        Ok(ReadlinkResp { target: inline::get(t, req.ino)?.to_vec() })
    })
    .await
}
