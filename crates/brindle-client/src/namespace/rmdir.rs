//! rmdir.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::unlink::RmdirReq;

use crate::{Client, Ctx};

impl Client {
    /// Removes an empty directory.
    pub async fn rmdir(&self, ctx: &Ctx, parent: Ino, name: &[u8]) -> Result<(), Fault> {
        let request = RmdirReq { parent, name: name.to_vec(), cred: ctx.cred.clone() };
        self.mds.ask(&request).await.map(drop)
    }
}
