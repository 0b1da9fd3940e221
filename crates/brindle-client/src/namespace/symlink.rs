//! symlink.

use brindle_types::{Attr, Fault, Ino};
use brindle_wire::mds::symlink::SymlinkReq;

use crate::{Client, Ctx};

impl Client {
    /// Makes a symbolic link.
    pub async fn symlink(&self, ctx: &Ctx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr, Fault> {
        let (name, target) = (name.to_vec(), target.to_vec());
        let request = SymlinkReq { parent, name, target, cred: ctx.cred.clone() };
        Ok(self.mds.ask(&request).await?.attr)
    }
}
