//! What a writer has done to an inode and the MDT was not told yet.

use std::sync::Arc;

use brindle_types::Pair;
use brindle_wire::mds::report::WriteReport;

use super::{Inode, State};

/// Changes due for a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// Highest end of a write since the last cut.
    pub end_bytes: u64,
    reported_end_bytes: u64,
    written: bool,
    kill_suidgid: bool,
    /// "Written" as told in the answer to a notice; told again if that connection was lost.
    told: bool,
    stripes_due: bool,
}

impl Pending {
    /// A write ended at `end_bytes` and was made under the present epochs.
    pub fn wrote(&mut self, end_bytes: u64, kill_suidgid: bool) {
        self.end_bytes = self.end_bytes.max(end_bytes);
        self.written = true;
        self.kill_suidgid |= kill_suidgid;
        self.stripes_due = true;
    }

    /// A place up to `end_bytes` is taken by a write under way.
    pub fn reserve(&mut self, end_bytes: u64) {
        self.end_bytes = self.end_bytes.max(end_bytes);
    }

    /// The file was cut or extended to `size_bytes` at the MDT, with the report due applied first.
    pub fn cut(&mut self, size_bytes: u64) {
        self.end_bytes = self.end_bytes.min(size_bytes);
        self.reported_end_bytes = self.end_bytes;
    }

    /// Times were set explicitly: what was written before moves none any more.
    pub fn times_set(&mut self) {
        self.written = false;
        self.told = false;
    }

    /// The connection was lost on which an answer to a notice may have been under way.
    pub fn connection_lost(&mut self) {
        self.written |= std::mem::take(&mut self.told);
        self.reported_end_bytes = 0;
    }

    /// Whether there is anything to report.
    pub fn due(&self) -> bool {
        self.written || self.kill_suidgid || self.end_bytes > self.reported_end_bytes
    }
}

/// A report on its way in a request. Unless it is said to be delivered it is due again when this is dropped.
pub(crate) struct Due {
    /// What the request carries; `None` if nothing is due.
    pub report: Option<WriteReport>,
    inode: Arc<Inode>,
    before: Pending,
    attr_epoch: Pair,
    truncate_epoch: Pair,
}

/// Which report a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// What the MDT does not know yet.
    News,
    /// With every stripe that is not known to be synced: the last one before a close.
    Last,
}

impl Inode {
    /// The report due, for a request.
    pub fn due(self: &Arc<Self>, carry: Carry) -> Due {
        let mut state = self.lock();
        if carry == Carry::Last && !state.unsynced.is_empty() {
            state.pending.stripes_due = true;
        }
        let before = state.pending;
        let due = before.due() || carry == Carry::Last && before.stripes_due;
        let report = due.then(|| state.report());
        state.in_transit += usize::from(report.as_ref().is_some_and(|r| r.written));
        let (attr_epoch, truncate_epoch) = (state.attr_epoch, state.truncate_epoch);
        drop(state);
        Due { report, inode: self.clone(), before, attr_epoch, truncate_epoch }
    }
}

impl Due {
    /// The MDT has it.
    pub fn delivered(mut self) {
        if self.report.take().is_some_and(|r| r.written) {
            self.inode.lock().in_transit -= 1;
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        let Some(report) = self.report.take() else { return };
        let mut state = self.inode.lock();
        state.in_transit -= usize::from(report.written);
        let same_times = self.attr_epoch == state.attr_epoch;
        let same_cut = self.truncate_epoch == state.truncate_epoch;
        let pending = &mut state.pending;
        pending.written |= self.before.written && same_times;
        pending.kill_suidgid |= self.before.kill_suidgid;
        if same_cut {
            pending.reported_end_bytes = self.before.reported_end_bytes;
        }
        pending.stripes_due |= self.before.stripes_due;
    }
}

impl State {
    /// What there is to tell in answer to a notice: also what is on its way in requests, which may arrive later.
    pub fn tell_report(&mut self) -> Option<WriteReport> {
        let written = self.pending.written || self.in_transit > 0;
        if !self.pending.due() && !written && self.pending.end_bytes == 0 {
            return None;
        }
        let told = self.pending.told || self.pending.written;
        let mut report = self.report();
        report.written = written;
        self.pending.told = told;
        Some(report)
    }

    /// A report as of now, due or not.
    pub fn report(&mut self) -> WriteReport {
        let pending = self.pending;
        self.pending.reported_end_bytes = pending.end_bytes;
        self.pending.written = false;
        self.pending.kill_suidgid = false;
        self.pending.told = false;
        self.pending.stripes_due = false;
        let terms = self.unsynced.iter().filter_map(|(stripe, u)| Some((*stripe, u.oldest_term()?)));
        WriteReport {
            end_bytes: pending.end_bytes,
            written: pending.written,
            kill_suidgid: pending.kill_suidgid,
            attr_epoch: self.attr_epoch,
            truncate_epoch: self.truncate_epoch,
            generation: self.layout.as_ref().map_or(Pair::ZERO, |l| l.component.generation),
            synced_stripes: Vec::new(),
            unsynced_stripes: if pending.stripes_due { terms.collect() } else { Vec::new() },
            allocated_bytes: self.allocated_bytes().filter(|_| pending.stripes_due),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::Inodes;
    use brindle_types::Ino;

    #[test]
    fn a_report_says_each_thing_once_and_nothing_gets_lost() {
        let inode = Arc::new(Inodes::default()).hold(Ino(7)).clone();
        assert!(inode.due(Carry::News).report.is_none());
        inode.lock().pending.wrote(100, true);
        let due = inode.due(Carry::News);
        let report = due.report.clone().expect("due");
        assert!(report.written && report.kill_suidgid && report.end_bytes == 100);
        assert!(inode.due(Carry::News).report.is_none(), "on its way");
        assert!(inode.lock().tell_report().expect("may arrive later").written);
        drop(due);
        let again = inode.due(Carry::News);
        assert_eq!(again.report, Some(report), "it never arrived");
        again.delivered();
        inode.lock().pending.wrote(50, false);
        assert!(inode.lock().tell_report().expect("due").written);
        inode.lock().pending.connection_lost();
        let report = inode.due(Carry::News).report.clone().expect("the answer may be lost");
        assert!(report.written && report.end_bytes == 100);
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
