//! The mount option `failout=`: calls that need an OST that has been unreachable for too long fail (note 041).
//!
//! Calls to the OST itself end in [`brindle_targets::Caller`]. The module itself ends calls to the MDT that wait for an OST in turn: a
//! truncate, and the size of a file that others write. Invariants: without the option the module does nothing and waits for nothing;
//! while a change that was given up may still be made, handles of the file are not given back, and neither the right to write it alone
//! nor a lock under which it was written goes to others.

use std::any::Any;
use std::collections::BTreeSet;

use brindle_stdx::unless::unless;
use brindle_targets::Guard;
use brindle_types::{Fault, Ino, Layout, TargetId};
use brindle_wire::mds::convert::LayoutGetReq;
use futures_util::FutureExt;

use crate::Client;
use crate::inodes::{Abandoned, Inode};

/// Longest wait for an answer of the MDT before the client looks whether the MDT waits for an OST that is
/// given up.
const PATIENCE_MS: u64 = 1_000;

impl Client {
    /// Whether calls to an OST fail now, as far as is known without asking it.
    pub(crate) fn is_failed_out(&self, ost: u16) -> bool {
        self.config.failout_ms.is_some()
            && self.targets.known(TargetId::ost(ost)).is_some_and(|caller| caller.is_failed_out())
    }

    /// Goes with a change of objects that is given up: until its outcome is known nobody else gets the file to write.
    pub(crate) fn abandoning(&self, inode: &Inode) -> Option<Guard> {
        self.config.failout_ms?;
        let hold = self.inodes.hold(inode.ino);
        Some(Box::new(move || -> Box<dyn Any + Send> { Box::new(Abandoned::new(hold)) }))
    }

    /// Waits until every OST of a file is connected. `OstUnreachable` where one is given up.
    pub(crate) async fn check_failout(&self, inode: &Inode) -> Result<(), Fault> {
        if self.config.failout_ms.is_none() {
            return Ok(());
        }
        let layout = self.snapshot(inode).await?.layout;
        for ost in osts(&layout) {
            self.ost(ost).await?.until_reachable().await?;
        }
        Ok(())
    }

    /// The answer of the MDT to a question about a file. `OstUnreachable` if it does not come soon and an OST of the file is given up.
    pub(crate) fn unless_failed_out<'a, T, W>(
        &'a self,
        ino: Ino,
        asking: W,
    ) -> impl Future<Output = Result<T, Fault>> + use<'a, T, W>
    where
        W: Future<Output = Result<T, Fault>>,
    {
        let given_up = async move {
            match self.config.failout_ms {
                // In a box: with the option only, and rarely.
                Some(_) => Box::pin(self.until_failed_out(ino)).await,
                None => std::future::pending().await,
            }
        };
        unless(asking, given_up).map(|first| first.unwrap_or_else(Err))
    }

    /// Completes when an OST of the file is given up, but not before the MDT has had time to answer.
    async fn until_failed_out(&self, ino: Ino) -> Fault {
        loop {
            self.seams.sleep_ms(PATIENCE_MS).await;
            let callers = self.callers();
            let failed: BTreeSet<u16> =
                callers.iter().filter(|c| c.is_failed_out()).map(|c| c.target().index).collect();
            if failed.is_empty() {
                continue;
            }
            let Ok(grant) = self.mds.ask(&LayoutGetReq { ino }).await else { continue };
            for ost in osts(&grant.layout).intersection(&failed) {
                let Ok(caller) = self.ost(*ost).await else { continue };
                if let Err(fault) = caller.until_reachable().await {
                    return fault;
                }
            }
        }
    }
}

/// The OSTs on which a file may have bytes.
fn osts(layout: &Layout) -> BTreeSet<u16> {
    if layout.inline {
        return BTreeSet::new();
    }
    layout.stripes().map(|(_, ost)| ost).collect()
}
