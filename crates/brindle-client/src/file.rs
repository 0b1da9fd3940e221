//! Contents of files: one file per operation. [`scatter`] is the way of written bytes to the OSTs, [`read`] the way back.

pub mod append;
pub mod close;
pub mod copy_range;
pub mod fallocate;
pub mod fsync;
pub mod open;
mod open_ahead;
pub mod read;
pub mod relayout;
pub(crate) mod restored;
pub mod scatter;
pub mod seek;
pub mod sync_all;
pub mod write;
pub mod write_behind;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Pair};

use crate::Client;
use crate::handles::Handle;
use crate::inodes::{Inode, LayoutSnapshot};

/// Requests to OSTs that one call has in flight.
const IN_FLIGHT_MAX: usize = 16;
/// Most bytes of one request to an OST.
pub(crate) const RPC_BYTES_MAX: u64 = 4 << 20;
/// First and longest pause before an I/O with an old layout is tried again.
const RETRY_MIN_MS: u64 = 1;
const RETRY_MAX_MS: u64 = 200;

/// Runs `work` with a bounded number in flight; returns the outcomes in the order in which they came. All futures in flight
/// are polled whenever one can go on: they are few. A set that knows which one (`FuturesUnordered`) wakes its own task once
/// after the first round, which costs a thread switch for each write and read.
pub(crate) async fn gather<T: Send>(work: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done = Vec::with_capacity(work.len());
    let mut waiting = work.into_iter();
    let mut running: Vec<BoxFuture<'_, T>> = waiting.by_ref().take(IN_FLIGHT_MAX).collect();
    poll_fn(|context| {
        let mut index = 0;
        while index < running.len() {
            let Poll::Ready(outcome) = running[index].as_mut().poll(context) else {
                index += 1;
                continue;
            };
            done.push(outcome);
            match waiting.next() {
                Some(next) => running[index] = next,
                None => drop(running.swap_remove(index)),
            }
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done
}

/// Like `gather`, for work that can fail: every part is run to its end, then the first fault counts.
pub(crate) async fn try_gather<T: Send>(work: Vec<BoxFuture<'_, Result<T, Fault>>>) -> Result<Vec<T>, Fault> {
    gather(work).await.into_iter().collect()
}

/// Paces and bounds the tries of an I/O that meets changes of the layout.
#[derive(Default)]
pub(crate) struct Tries {
    /// Number of tries that met an old layout.
    old: u32,
    /// Number of times that other OSTs were chosen since bytes were last written: one after the other
    /// refused.
    spills: u32,
    /// Layout and truncate epoch under which an object was missing that must exist.
    missing_under: Option<(Pair, Pair)>,
}

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

    /// If `fault` says that the layout or an epoch was old: waits a little, fetches the layout, and lets the caller try
    /// again. Any other fault is returned to the caller.
    pub(crate) async fn retry(&self, inode: &Inode, tries: &mut Tries, fault: Fault) -> Result<(), Fault> {
        match fault.code {
            Code::StaleLayout => {}
            Code::ObjectMissing => return self.still_missing(inode, tries, fault).await,
            _ => return Err(fault),
        }
        inode.lock().stale = true;
        if tries.old > 0 {
            let pause_ms = (RETRY_MIN_MS << tries.old.min(16)).min(RETRY_MAX_MS);
            self.seams.sleep_ms(pause_ms).await;
        }
        tries.old += 1;
        Ok(())
    }

    /// An object is missing. Where the file was cut or moved meanwhile that is no fault: the caller tries again under the new
    /// layout. Where it is missing twice under the same one, the fault names the file.
    async fn still_missing(&self, inode: &Inode, tries: &mut Tries, fault: Fault) -> Result<(), Fault> {
        let epochs =
            |snapshot: &LayoutSnapshot| (snapshot.ticket.layout_epoch, snapshot.ticket.truncate_epoch);
        inode.lock().stale = true;
        let now = epochs(&self.snapshot(inode).await?);
        if tries.missing_under == Some(now) {
            let object = fault.subject.clone();
            return Err(fault.subject(format!("{} ({object})", inode.ino.fid())));
        }
        tries.missing_under = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_gathered_is_bounded_and_wakes_nobody_before_something_can_go_on() {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = IN_FLIGHT_MAX + 3;
        let (ends, work): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let (end, ended) = oneshot::channel::<usize>();
                let begun = begun.clone();
                let work: BoxFuture<'static, usize> = Box::pin(async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    ended.await.expect("it is ended")
                });
                (Some(end), work)
            })
            .unzip();
        let mut ends: Vec<Option<oneshot::Sender<usize>>> = ends;
        let mut end = |n: usize| ends[n].take().expect("once").send(n).expect("somebody waits");
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut gathering = Box::pin(gather(work));
        assert!(gathering.as_mut().poll(&mut context).is_pending());
        assert_eq!((begun.load(Ordering::SeqCst), wakes.0.load(Ordering::SeqCst)), (IN_FLIGHT_MAX, 0));

        end(IN_FLIGHT_MAX - 1);
        end(4);
        assert!(gathering.as_mut().poll(&mut context).is_pending());
        assert_eq!(begun.load(Ordering::SeqCst), IN_FLIGHT_MAX + 2);
        (0..count).filter(|n| ![4, IN_FLIGHT_MAX - 1].contains(n)).for_each(&mut end);
        let Poll::Ready(mut done) = gathering.as_mut().poll(&mut context) else { panic!("all have ended") };
        assert_eq!(done[..2], [4, IN_FLIGHT_MAX - 1], "in the order in which they came");
        done.sort_unstable();
        assert_eq!(done, (0..count).collect::<Vec<_>>());
    }
}
