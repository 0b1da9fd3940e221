//! Layout and epochs: fetching them again, moving inline data to objects.

use brindle_types::{Fault, Pair};
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};

use crate::Client;
use crate::inodes::{Inode, Sight};

impl Client {
    /// Layout, epochs and leases as they are now; fetched if a notice or a refusal said that they are old.
    pub(crate) async fn sight(&self, inode: &Inode) -> Result<Sight, Fault> {
        loop {
            if let Some(sight) = inode.sight() {
                return Ok(sight);
            }
            let _one_asks = inode.relayout.lock().await;
            if let Some(sight) = inode.sight() {
                return Ok(sight);
            }
            let asked = inode.asked();
            let grant = self.mds.ask(&LayoutGetReq { ino: inode.ino }).await?;
            brindle_layout::check(&grant.layout.component)?;
            tracing::trace!(ino = inode.ino.0, ?grant, "layout fetched");
            inode.lock().take_grant(asked, &grant, None);
            self.tell_lost(inode);
        }
    }

    /// Moves the bytes of a file from the MDT to objects, unless its layout is newer than `epoch` already.
    pub(crate) async fn convert(&self, inode: &Inode, epoch: Pair) -> Result<(), Fault> {
        let _one_asks = inode.relayout.lock().await;
        let done = |layout: &brindle_types::Layout| layout.epoch != epoch || !layout.inline;
        if inode.lock().layout.as_deref().is_some_and(done) {
            return Ok(());
        }
        let asked = inode.asked();
        let request = ConvertReq { ino: inode.ino, layout_epoch: epoch };
        let grant = self.mds.ask(&request).await?;
        brindle_layout::check(&grant.layout.component)?;
        tracing::trace!(ino = inode.ino.0, ?grant, "converted");
        let mut state = inode.lock();
        state.take_grant(asked, &grant, None);
        state.changed_at_mdt(grant.changed);
        state.inline = None;
        Ok(())
    }
}
