//! mkdir.

use brindle_types::{Attr, Fault, Ino};
use brindle_wire::mds::mkdir::MkdirReq;

use crate::{Client, Ctx};

impl Client {
    /// Makes a directory.
    pub async fn mkdir(
        &self,
        ctx: &Ctx,
        parent: Ino,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Attr, Fault> {
        let request = MkdirReq { parent, name: name.to_vec(), mode, umask, cred: ctx.cred.clone() };
        Ok(self.mds.ask(&request).await?.attr)
    }
}
