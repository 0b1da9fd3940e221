//! Contents of files: one file per operation. [`scatter`] is the way of written bytes to the OSTs, [`read`] the way back.

pub mod append;
pub mod behind;
pub mod close;
pub mod copy_range;
pub mod fallocate;
pub mod fsync;
pub mod open;
pub mod read;
pub mod relayout;
pub mod scatter;
pub mod seek;
pub mod sync_all;
pub mod write;

use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::Client;
use crate::handles::Handle;
use crate::inodes::Inode;

/// Requests to OSTs that one call has in flight.
const IN_FLIGHT_MAX: usize = 16;
/// Most bytes of one request to an OST.
pub(crate) const RPC_BYTES_MAX: u64 = 4 << 20;
/// First and longest pause before an I/O whose layout was old is tried again.
const RETRY_MIN_MS: u64 = 1;
const RETRY_MAX_MS: u64 = 200;

/// Runs `work` with a bounded number in flight; the outcomes in the order in which they came.
pub(crate) async fn gather<T: Send>(work: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut waiting = work.into_iter();
    let mut running: FuturesUnordered<BoxFuture<'_, T>> = waiting.by_ref().take(IN_FLIGHT_MAX).collect();
    let mut done = Vec::with_capacity(running.len());
    while let Some(outcome) = running.next().await {
        done.push(outcome);
        running.extend(waiting.next());
    }
    done
}

/// The same for work that can fail: every part is run to its end, then the first fault counts.
pub(crate) async fn try_gather<T: Send>(work: Vec<BoxFuture<'_, Result<T, Fault>>>) -> Result<Vec<T>, Fault> {
    gather(work).await.into_iter().collect()
}

/// Paces the tries of an I/O that meets changes of the layout.
#[derive(Default)]
pub(crate) struct Tries(u32);

impl Client {
    pub(crate) fn live_handle(&self, number: u64) -> Result<Arc<Handle>, Fault> {
        let handle = self.handles.get(number)?;
        handle.alive()?;
        Ok(handle)
    }

    pub(crate) fn writable_handle(&self, number: u64) -> Result<Arc<Handle>, Fault> {
        let handle = self.live_handle(number)?;
        if handle.access.write {
            Ok(handle)
        } else {
            Err(Fault::new(Code::BadHandle).why("it is not open for writing"))
        }
    }

    /// If `fault` says that the layout or an epoch was old: waits a little, has it fetched, and lets the caller try
    /// again. Everything else is the caller's answer.
    pub(crate) async fn retry(&self, inode: &Inode, tries: &mut Tries, fault: Fault) -> Result<(), Fault> {
        if fault.code != Code::StaleLayout {
            return Err(fault);
        }
        inode.lock().stale = true;
        if tries.0 > 0 {
            let pause_ms = (RETRY_MIN_MS << tries.0.min(16)).min(RETRY_MAX_MS);
            self.seams.sleep_ms(pause_ms).await;
        }
        tries.0 += 1;
        Ok(())
    }
}
