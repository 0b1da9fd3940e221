//! unlink.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::unlink::UnlinkReq;

use crate::{Client, Ctx};

impl Client {
    /// Removes a name of something that is not a directory.
    pub async fn unlink(&self, ctx: &Ctx, parent: Ino, name: &[u8]) -> Result<(), Fault> {
        let request = UnlinkReq { parent, name: name.to_vec(), cred: ctx.cred.clone() };
        self.mds.ask(&request).await.map(drop)
    }
}
