//! Extended attributes.

use brindle_types::{Fault, Ino};
use brindle_wire::Name;
use brindle_wire::mds::xattr::{GetxattrReq, ListxattrReq, RemovexattrReq, SetxattrReq};

use crate::{Client, Ctx};

/// Flags of setting a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetHow {
    /// Fail if the attribute exists.
    pub create: bool,
    /// Fail if it does not.
    pub replace: bool,
    /// Clear the set-group-id bit.
    pub kill_sgid: bool,
}

impl Client {
    /// Value of an attribute.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(self.mds.ask(&GetxattrReq { ino, name: name.to_vec() }).await?.value)
    }

    /// All names, in order.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<Name>, Fault> {
        Ok(self.mds.ask(&ListxattrReq { ino }).await?.names)
    }

    /// Sets a value.
    pub async fn setxattr(
        &self,
        ctx: &Ctx,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: SetHow,
    ) -> Result<(), Fault> {
        let request = SetxattrReq {
            ino,
            name: name.to_vec(),
            value: value.to_vec(),
            create: how.create,
            replace: how.replace,
            kill_sgid: how.kill_sgid,
            cred: ctx.cred.clone(),
        };
        self.mds.ask(&request).await.map(drop)
    }

    /// Removes a value.
    pub async fn removexattr(&self, ctx: &Ctx, ino: Ino, name: &[u8]) -> Result<(), Fault> {
        let request = RemovexattrReq { ino, name: name.to_vec(), cred: ctx.cred.clone() };
        self.mds.ask(&request).await.map(drop)
    }
}
