//! Page reads under way, and how they and invalidations get past each other.
//!
//! A READ that fills pages of the kernel and an invalidation of the same range can cross in two ways. While the bytes
//! are being fetched the invalidation leaves the range out (the kernel holds its pages locked, so asking for them
//! would wait for the READ) and the READ is fetched again. Once the READ is being answered the invalidation waits
//! until the kernel has the answer, which takes no other client, and then drops the pages.
//!
//! Invariant: when an invalidation has completed, the kernel holds no page of the range that was fetched before it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::planted;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Pages are dropped, and left out, in units of this size.
const PAGE_BYTES: u64 = 4096;

/// Page reads of one inode.
#[derive(Default)]
pub(crate) struct Reads {
    table: Mutex<Table>,
    ended: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    reads: BTreeMap<u64, Entry>,
}

struct Entry {
    range: Range<u64>,
    /// The kernel writes the page.
    is_write: bool,
    stale: bool,
    answering: bool,
}

/// A page read, from before its bytes are fetched until the kernel has them.
pub struct ReadGuard {
    reads: Arc<Reads>,
    id: u64,
}

impl Reads {
    /// A page read of `range` begins.
    pub fn begin(self: &Arc<Self>, range: Range<u64>) -> ReadGuard {
        self.enter(range, false)
    }

    /// The kernel writes pages of `range` back.
    pub fn begin_write(self: &Arc<Self>, range: Range<u64>) -> ReadGuard {
        self.enter(range, true)
    }

    fn enter(self: &Arc<Self>, range: Range<u64>, is_write: bool) -> ReadGuard {
        let mut table = self.table.lock();
        table.next += 1;
        let id = table.next;
        table.reads.insert(id, Entry { range, is_write, stale: false, answering: false });
        ReadGuard { reads: self.clone(), id }
    }

    /// Waits for pages of `range` that are being written back now; whether there were any.
    pub async fn written_back(&self, range: &Range<u64>) -> bool {
        let last = self.table.lock().next;
        let is_awaited =
            |(id, entry): (&u64, &Entry)| *id <= last && entry.is_write && overlap(&entry.range, range);
        let mut has_waited = false;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.table.lock().reads.iter().any(is_awaited) {
                return has_waited;
            }
            has_waited = true;
            ended.await;
        }
    }

    /// Contents of `range` changed: reads of it are fetched again. Waits for those that are being answered; returns
    /// what may be dropped in the kernel now, which leaves out the reads that are being fetched.
    pub async fn invalidate(&self, range: Range<u64>) -> Vec<Range<u64>> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(free) = self.mark(&range) {
                return free;
            }
            ended.await;
        }
    }

    /// Voids reads of `range` that are being fetched, because this client changes it itself: they are fetched again.
    pub fn changed(&self, range: &Range<u64>) {
        self.mark(range);
    }

    fn mark(&self, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
        let mut table = self.table.lock();
        let mut busy = Vec::new();
        let mut answering = false;
        for entry in table.reads.values_mut().filter(|e| overlap(&e.range, range)) {
            if entry.answering {
                answering = true;
            } else {
                entry.stale = true;
                busy.push(whole_pages(&entry.range));
            }
        }
        (!answering).then(|| without(range.clone(), busy))
    }
}

impl ReadGuard {
    /// The bytes are there. Whether they may be given to the kernel; otherwise they must be fetched again.
    pub fn settle(&self) -> bool {
        let mut table = self.reads.table.lock();
        let entry = table.reads.get_mut(&self.id).expect("it is in the table as long as it lives");
        let stale = std::mem::take(&mut entry.stale) && !planted("client_no_refetch_after_invalidate");
        entry.answering = !stale;
        !stale
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.reads.table.lock().reads.remove(&self.id);
        self.reads.ended.notify_waiters();
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    range.start / PAGE_BYTES * PAGE_BYTES..end
}

/// `range` without the `busy` ones.
fn without(range: Range<u64>, mut busy: Vec<Range<u64>>) -> Vec<Range<u64>> {
    busy.sort_by_key(|b| b.start);
    let mut free = Vec::new();
    let mut at = range.start;
    for b in busy {
        if b.start > at {
            free.push(at..b.start.min(range.end));
        }
        at = at.max(b.end);
    }
    if at < range.end {
        free.push(at..range.end);
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_read_being_fetched_is_left_out_and_fetched_again() {
        let reads = Arc::new(Reads::default());
        let read = reads.begin(5000..6000);
        let free = reads.invalidate(0..u64::MAX).now_or_never().expect("does not wait");
        assert_eq!(free, [0..4096, 8192..u64::MAX]);
        assert!(!read.settle(), "fetched before the change");
        assert!(read.settle(), "fetched after it");
    }

    #[test]
    fn a_read_being_answered_is_waited_for() {
        let reads = Arc::new(Reads::default());
        let other = reads.begin(1 << 20..2 << 20);
        let read = reads.begin(0..4096);
        assert!(read.settle());
        let mut invalidation = Box::pin(reads.invalidate(0..10));
        assert!(invalidation.as_mut().now_or_never().is_none());
        drop(read);
        assert_eq!(invalidation.now_or_never(), Some(std::iter::once(0..10).collect()));
        assert!(other.settle(), "another range");
    }

    #[test]
    fn ranges_that_touch_are_cut_out_in_order() {
        assert_eq!(without(10..100, vec![50..60, 0..20, 55..70]), [20..50, 70..100]);
        assert_eq!(without(10..20, std::iter::once(0..40).collect()), [] as [Range<u64>; 0]);
    }
}
