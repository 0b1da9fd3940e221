//! Layout and epochs: fetching them again, having inline data moved to objects and OSTs chosen for what is to be written.

use std::ops::Range;

use brindle_types::{Fault, Layout};
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
            brindle_layout::check(&grant.layout)?;
            tracing::trace!(ino = inode.ino.0, ?grant, "layout fetched");
            inode.lock().take_grant(asked, &grant, None);
            self.tell_lost(inode);
        }
    }

    /// Has the bytes of a file moved from the MDT to objects, and OSTs chosen for all of `range`, unless all that is done.
    pub(crate) async fn place(&self, inode: &Inode, range: Range<u64>) -> Result<(), Fault> {
        let _one_asks = inode.relayout.lock().await;
        let done = |layout: &Layout| brindle_layout::is_placed(layout, range.clone());
        if inode.lock().layout.as_deref().is_some_and(done) {
            return Ok(());
        }
        let asked = inode.asked();
        let (offset, len_bytes) = (range.start, range.end - range.start);
        let request = ConvertReq { ino: inode.ino, offset, len_bytes };
        let grant = self.mds.ask(&request).await?;
        brindle_layout::check(&grant.layout)?;
        tracing::trace!(ino = inode.ino.0, ?grant, "placed");
        let mut state = inode.lock();
        state.take_grant(asked, &grant, None);
        state.changed_at_mdt(grant.changed);
        state.inline = None;
        Ok(())
    }
}
