//! mknod: pipes, sockets, devices, and regular files without opening them.

use brindle_types::{Attr, Code, Fault, FileType, Ino};
use brindle_wire::mds::mknod::MknodReq;

use crate::{Client, Ctx};

impl Client {
    /// Makes a special file, or a regular one; `mode` holds type and permission bits.
    pub async fn mknod(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Attr, Fault> {
        let kind = match FileType::from_mode(mode) {
            None if mode >> 12 == 0 => FileType::Regular,
            None | Some(FileType::Directory | FileType::Symlink) => {
                return Err(Fault::new(Code::InvalidArgument));
            }
            Some(kind) => kind,
        };
        let request = MknodReq {
            parent,
            name: name.to_vec(),
            kind,
            mode: mode & 0o7777,
            umask,
            rdev,
            cred: ctx.cred.clone(),
        };
        Ok(self.mds.ask(&request).await?.attr)
    }
}
