//! rename, with the flags of renameat2.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::rename::RenameReq;

use crate::{Client, Ctx};

/// Old and new name of a rename.
#[derive(Clone, Copy, Debug)]
pub struct RenameIn<'a> {
    /// Old directory.
    pub parent: Ino,
    /// Old name.
    pub name: &'a [u8],
    /// New directory.
    pub new_parent: Ino,
    /// New name.
    pub new_name: &'a [u8],
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Swap the two.
    pub exchange: bool,
    /// Leave a whiteout at the old name.
    pub whiteout: bool,
}

impl Client {
    /// Moves a name, or swaps two.
    pub async fn rename(&self, ctx: &Ctx, rename: RenameIn<'_>) -> Result<(), Fault> {
        // Programs that replace a file by a new one rely on the new one's bytes being there first.
        if self.grants.bytes() > 0 {
            match self.dirs.lead(rename.parent, rename.name) {
                Some(Some((ino, _))) => {
                    if let Some(inode) = self.inodes.get(ino) {
                        self.flush_behind(&inode).await;
                    }
                }
                _ => {
                    for inode in self.inodes.all() {
                        self.flush_behind(&inode).await;
                    }
                }
            }
        }
        let request = RenameReq {
            parent: rename.parent,
            name: rename.name.to_vec(),
            new_parent: rename.new_parent,
            new_name: rename.new_name.to_vec(),
            no_replace: rename.no_replace,
            exchange: rename.exchange,
            whiteout: rename.whiteout,
            cred: ctx.cred.clone(),
        };
        self.mds.ask(&request).await.map(drop)
    }
}
