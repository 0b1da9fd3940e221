//! Stripe settings of files, and defaults of directories.

use brindle_types::{Fault, Ino, LayoutPolicy};
use brindle_wire::mds::stripe::{GetStripeReq, GetStripeResp, SetStripeReq};

use crate::{Client, Ctx};

impl Client {
    /// Layout of a file, or the default of a directory.
    pub async fn get_stripe(&self, ino: Ino) -> Result<GetStripeResp, Fault> {
        self.mds.ask(&GetStripeReq { ino }).await
    }

    /// Chooses the layout of an empty file, or the default of a directory (`None` deletes it).
    pub async fn set_stripe(&self, ctx: &Ctx, ino: Ino, policy: Option<LayoutPolicy>) -> Result<(), Fault> {
        let inode = self.inodes.hold(ino);
        self.mds.ask(&SetStripeReq { ino, policy, cred: ctx.cred.clone() }).await?;
        inode.lock().stale = true;
        Ok(())
    }
}
