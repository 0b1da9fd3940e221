//! Pending reports: changes of a writer to an inode of which the MDT may not have heard.
//!
//! Invariants: a report has every change that is not known to be delivered, so a report that overtakes another has at
//! least as much; each report has the number of the latest news in it, by which the MDT counts none twice. Numbers
//! grow over all inodes of a client, so that a file that is opened again goes on where it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Ino, Pair};
use brindle_wire::mds::report::WriteReport;
use parking_lot::Mutex;

use super::meanwhile::Meanwhile;
use super::{Inode, State};

/// Numbers the changes that are to be reported; shared by all inodes of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: AtomicU64,
    /// Inodes whose changes the MDT heard of while a request about some inode by name was under way.
    told: Mutex<Meanwhile>,
}

/// A request about an inode by name that is under way.
pub(crate) struct Naming(Numbers);

impl Numbers {
    /// Taken before a request to the MDT about an inode by name.
    pub fn naming(&self) -> Naming {
        self.0.told.lock().begin();
        Naming(self.clone())
    }
}

impl Naming {
    /// Whether the MDT has heard of changes of `ino` since the request was sent: its answer may be older than these.
    pub fn was_told(&self, ino: Ino) -> bool {
        self.0.0.told.lock().has(ino)
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        self.0.0.told.lock().end();
    }
}

/// Changes that are to be reported to the MDT. Each kind has the number of its latest change, 0 if there was none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    /// Highest end of a write since the last cut.
    pub end_bytes: u64,
    numbers: Numbers,
    /// Number of the latest change of any kind.
    changed: u64,
    written: u64,
    kill_suidgid: u64,
    stripes: u64,
    /// The MDT has heard of all changes up to this number.
    delivered: u64,
}

impl Pending {
    /// An empty list of reports.
    pub fn new(numbers: Numbers) -> Pending {
        Pending { numbers, ..Pending::default() }
    }

    /// Drops all reports. Numbers go on: the MDT may have heard of the last one.
    pub fn forget(&mut self) {
        *self = Pending::new(self.numbers.clone());
    }

    fn next_number(&mut self) -> u64 {
        self.changed = self.numbers.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.changed
    }

    /// A write ended at `end_bytes` and was made under the present epochs.
    pub fn wrote(&mut self, end_bytes: u64, kill_suidgid: bool) {
        self.end_bytes = self.end_bytes.max(end_bytes);
        let number = self.next_number();
        self.written = number;
        self.stripes = number;
        if kill_suidgid {
            self.kill_suidgid = number;
        }
    }

    /// A write under way has reserved a place up to `end_bytes`.
    pub fn reserve(&mut self, end_bytes: u64) {
        if end_bytes > self.end_bytes {
            self.end_bytes = end_bytes;
            self.next_number();
        }
    }

    /// The file was truncated or extended to `size_bytes` at the MDT.
    pub fn cut(&mut self, size_bytes: u64) {
        self.end_bytes = self.end_bytes.min(size_bytes);
    }

    /// Times were set explicitly: earlier writes change no times any more.
    pub fn times_set(&mut self) {
        self.written = 0;
    }

    /// The MDT may have been restarted, and may have lost the end that it had heard of.
    pub fn connection_lost(&mut self) {
        if self.end_bytes > 0 {
            self.next_number();
        }
    }

    /// The MDT has got changes of `ino`. Must be called before they count as delivered.
    pub fn told(&self, ino: Ino) {
        self.numbers.0.told.lock().note(ino);
    }

    /// Whether there is anything to report.
    pub fn due(&self) -> bool {
        self.changed > self.delivered
    }
}

/// A report on its way in a request. The changes in the report stay due until it is marked as delivered.
pub(crate) struct Due {
    /// The report that the request carries; `None` if nothing is due.
    pub report: Option<WriteReport>,
    inode: Arc<Inode>,
}

/// Kind of report that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// Changes of which the MDT may not know.
    Changes,
    /// With every stripe that is not known to be synced: the last one before a close.
    Last,
}

impl Inode {
    /// The report due, for a request.
    pub fn due(self: &Arc<Self>, carry: Carry) -> Due {
        let mut state = self.lock();
        if carry == Carry::Last && !state.unsynced.is_empty() {
            state.pending.stripes = state.pending.next_number();
        }
        let report = state.pending.due().then(|| state.report());
        drop(state);
        Due { report, inode: self.clone() }
    }
}

impl Due {
    /// The MDT has the report.
    pub fn delivered(self) {
        if let Some(report) = self.report {
            let pending = &mut self.inode.lock().pending;
            pending.told(self.inode.ino);
            pending.delivered = pending.delivered.max(report.number);
        }
    }
}

impl State {
    /// The report in answer to a notice. The report counts as delivered only when another report with it was
    /// delivered.
    pub fn tell_report(&self) -> Option<WriteReport> {
        (self.pending.due() || self.pending.end_bytes > 0).then(|| self.report())
    }

    /// A report as of now, due or not.
    pub fn report(&self) -> WriteReport {
        let pending = &self.pending;
        let is_news = |number: u64| number > pending.delivered;
        let terms = self.unsynced.iter().filter_map(|(stripe, u)| Some((*stripe, u.oldest_term()?)));
        WriteReport {
            number: pending.changed,
            end_bytes: pending.end_bytes,
            written: is_news(pending.written),
            written_at: self.written_at,
            kill_suidgid: is_news(pending.kill_suidgid),
            attr_epoch: self.attr_epoch,
            truncate_epoch: self.truncate_epoch,
            body: self.layout.as_ref().map_or(Pair::ZERO, |layout| layout.body),
            synced_stripes: Vec::new(),
            unsynced_stripes: if is_news(pending.stripes) { terms.collect() } else { Vec::new() },
            allocated_bytes: self.allocated_bytes().filter(|_| is_news(pending.stripes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::Inodes;
    use brindle_types::Ino;

    #[test]
    fn news_are_told_until_they_are_delivered_and_then_no_more() {
        let inode = Arc::new(Inodes::default()).hold(Ino(7)).clone();
        assert!(inode.due(Carry::Changes).report.is_none());
        inode.lock().pending.wrote(100, true);
        let due = inode.due(Carry::Changes);
        let report = due.report.clone().expect("due");
        assert!(report.written && report.kill_suidgid && report.end_bytes == 100);
        let overtaking = inode.due(Carry::Changes);
        assert_eq!(overtaking.report, Some(report), "the first one may arrive later");
        assert!(inode.lock().tell_report().expect("may arrive later").written);
        overtaking.delivered();
        assert!(inode.due(Carry::Changes).report.is_none(), "whatever became of the first");
        inode.lock().pending.wrote(50, false);
        due.delivered();
        let report = inode.due(Carry::Changes).report.clone().expect("the first one did not say this");
        assert!(report.written && !report.kill_suidgid && report.end_bytes == 100);
        inode.due(Carry::Changes).delivered();
        inode.lock().pending.connection_lost();
        let report = inode.due(Carry::Changes).report.clone().expect("the MDT may not know the end any more");
        assert!(!report.written && report.end_bytes == 100);
    }

    #[test]
    fn numbers_go_on_when_an_inode_comes_back() {
        let inodes = Arc::new(Inodes::default());
        let number = || {
            let inode = inodes.hold(Ino(7));
            inode.lock().pending.wrote(1, false);
            let before = inode.due(Carry::Changes).report.expect("due").number;
            inode.lock().pending.forget();
            assert!(inode.due(Carry::Changes).report.is_none());
            inode.lock().pending.wrote(1, false);
            let after = inode.due(Carry::Changes).report.expect("due").number;
            assert!(before < after);
            after
        };
        assert!(number() < number());
    }

    #[test]
    fn explicit_times_are_not_moved_by_older_writes() {
        let mut state = State::default();
        state.pending.wrote(10, false);
        state.take_attr_epoch(Pair { term: 1, counter: 1 });
        assert!(!state.report().written);
        state.pending.wrote(10, false);
        assert!(state.report().written);
    }
}
