//! link: one more name for an inode, or the first one of an O_TMPFILE file.

use brindle_types::{Attr, Fault, Ino};
use brindle_wire::mds::link::LinkReq;

use crate::{Client, Ctx};

impl Client {
    /// Adds a name for `ino`.
    pub async fn link(&self, ctx: &Ctx, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, Fault> {
        let request = LinkReq { ino, parent, name: name.to_vec(), cred: ctx.cred.clone() };
        let naming = self.inodes.naming();
        let attr = self.mds.ask(&request).await?.attr;
        self.attr_by_name(naming, attr).await
    }
}
