//! unlink.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::unlink::UnlinkReq;

use crate::{Client, Ctx};

impl Client {
    /// Removes a name of something that is not a directory.
    pub async fn unlink(&self, ctx: &Ctx, parent: Ino, name: &[u8]) -> Result<(), Fault> {
        let known = self.dirs.lead(parent, name);
        let request = UnlinkReq { parent, name: name.to_vec(), cred: ctx.cred.clone() };
        self.mds.ask(&request).await?;
        if let Some(Some((ino, _))) = known {
            // A prefetched handle would keep the bytes of the file until the handle is too old.
            self.drop_spare(ino);
        }
        Ok(())
    }
}
