//! append: O_APPEND. The sole writer appends at its own end; others get a place from the MDT.
//!
//! Invariants: two appends never get the same place; an append returns when the end shown to others has passed it. Processes of
//! one mount append side by side at places that the MDT has given. At our own end they append one at a time, and never beside
//! appends at the MDT's places: the right to write the file alone may come and go between two of them.

use std::sync::atomic::Ordering;

use brindle_types::layout::{FILE_SIZE_MAX_BYTES, INLINE_MAX_BYTES};
use brindle_types::{Code, Fault, Pair};
use brindle_wire::mds::append::{AppendDoneReq, AppendReserveReq};
use brindle_wire::mds::report::ReportReq;

use super::scatter::{How, Progress};
use super::write::WriteIn;
use super::{Tries, write_behind};
use crate::handles::Handle;
use crate::inodes::{Carry, Inode, PlacedAppend};
use crate::quota::Growth;
use crate::rope::Rope;
use crate::{Client, Ctx};

/// The place of an append at our own end; given up when dropped.
struct AppendPosition<'a> {
    inode: &'a Inode,
}

impl Drop for AppendPosition<'_> {
    fn drop(&mut self) {
        self.inode.lock().appending = None;
        self.inode.quiet.notify_waiters();
    }
}

/// An append at a place of the MDT, remembered so that it can be reclaimed at a restarted MDT; over when dropped.
struct Placed<'a> {
    inode: &'a Inode,
    number: u64,
}

impl<'a> Placed<'a> {
    fn begin(handle: &'a Handle, number: u64, len_bytes: u64) -> Placed<'a> {
        let inode: &Inode = &handle.inode;
        let append = PlacedAppend { session: handle.session, len_bytes, writing_at: None };
        inode.lock().appends.insert(number, append);
        Placed { inode, number }
    }

    fn writing_at(&self, place: Option<(u64, Pair)>) {
        if let Some(append) = self.inode.lock().appends.get_mut(&self.number) {
            append.writing_at = place;
        }
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        self.inode.lock().appends.remove(&self.number);
    }
}

impl Client {
    pub(crate) async fn append(&self, ctx: &Ctx, handle: &Handle, write: &WriteIn) -> Result<u64, Fault> {
        let inode = &handle.inode;
        let len_bytes = write.data.len() as u64;
        // An append that is not buffered has its place as soon as it begins.
        if write.may_wait()
            && let Ok(_one_appends) = inode.append.try_write()
            && self.put_behind(handle, write_behind::WritePosition::End, &write.data, write.rights(ctx))
        {
            return Ok(len_bytes);
        }
        self.flush_behind(inode).await;
        let charge = self.room(inode, write.rights(ctx).bound, Growth::Anywhere(len_bytes)).await?;
        let written = self.append_through(ctx, handle, write).await;
        self.room_used(inode, charge, written == Ok(len_bytes));
        written
    }

    async fn append_through(&self, ctx: &Ctx, handle: &Handle, write: &WriteIn) -> Result<u64, Fault> {
        let inode = &handle.inode;
        let len_bytes = write.data.len() as u64;
        let mut tries = Tries::default();
        // Layout epoch under which the MDT did not take the bytes: others have appended, and they do not fit any more.
        let mut refused = None;
        loop {
            let snapshot = self.snapshot(inode).await?;
            let done = if snapshot.layout.inline {
                // The MDT finds the end: no other append is buffered for a place of our own meanwhile.
                let one_appends = inode.append.write().await;
                self.flush_behind(inode).await;
                let size_bytes = self.size_for(inode, 0).await?;
                let refused = refused == Some(snapshot.layout.epoch);
                if refused || size_bytes + len_bytes > INLINE_MAX_BYTES {
                    drop(one_appends);
                    self.place(inode, size_bytes..size_bytes + len_bytes).await?;
                    continue;
                }
                self.write_inline(ctx, handle, &snapshot, write, write.data.clone()).await
            } else if snapshot.exclusive {
                match self.append_at_own_end(handle, write).await {
                    Some(done) => done,
                    None => continue,
                }
            } else {
                match self.append_at_place(handle, write).await {
                    Some(done) => done,
                    None => continue,
                }
            };
            match done {
                Err(fault) => {
                    refused = snapshot.layout.inline.then_some(snapshot.layout.epoch);
                    self.retry(inode, &mut tries, fault).await?;
                }
                done => return done,
            }
        }
    }

    /// `None` when the exclusive right was lost meanwhile, or the layout had to be changed first.
    async fn append_at_own_end(&self, handle: &Handle, write: &WriteIn) -> Option<Result<u64, Fault>> {
        let inode = &handle.inode;
        let one_appends = inode.append.write().await;
        if let Err(fault) = self.size_for(inode, 0).await {
            return Some(Err(fault));
        }
        // Place of the append after a full OST has stopped it. The other OSTs may have taken parts of the write already, so
        // that the file seems to end after those parts.
        let mut begun = None;
        let mut under = None;
        let mut tries = Tries::default();
        let data = Rope::from(write.data.clone());
        // Bytes that were written before an OST was full.
        let mut done = 0;
        let or_short = |done: u64, outcome| if done > 0 { Some(Ok(done)) } else { outcome };
        loop {
            let range = {
                let mut state = inode.lock();
                if begun.is_none() && !state.size_exact() || !state.exclusive {
                    return or_short(done, None);
                }
                let start = begun.unwrap_or(state.size_bytes);
                let end = start.checked_add(data.len_bytes() - done);
                let Some(end) = end.filter(|end| *end <= FILE_SIZE_MAX_BYTES) else {
                    return Some(Err(Fault::new(Code::TooLarge)));
                };
                state.appending = Some(end);
                start..end
            };
            let place = AppendPosition { inode };
            let snapshot = match self.snapshot(inode).await {
                Ok(snapshot) => snapshot,
                Err(fault) => return or_short(done, Some(Err(fault))),
            };
            if snapshot.layout.inline {
                return or_short(done, None);
            }
            if begun.is_some() && under != Some(snapshot.ticket.truncate_epoch) {
                // The file was truncated meanwhile: it ends elsewhere.
                if done > 0 {
                    return Some(Ok(done));
                }
                begun = None;
                continue;
            }
            if done > 0 && !brindle_layout::is_placed(&snapshot.layout, range.clone()) {
                return Some(Ok(done));
            }
            if !brindle_layout::is_placed(&snapshot.layout, range.clone()) {
                // A recall of our right waits for an append under way, and the MDT may wait for that recall:
                // the append must let go first.
                drop((place, one_appends));
                return self.place(inode, range).await.err().map(Err);
            }
            match self.scatter(inode, &snapshot, range.start, &data.tail(done), write.how(handle)).await {
                // The file was truncated meanwhile, and its end is elsewhere.
                Ok(Progress { overtaken: true, .. }) => {
                    return or_short(done, Some(Err(Fault::new(Code::StaleLayout))));
                }
                Ok(Progress { written, full: Some(full), .. }) => {
                    done += written;
                    drop(place);
                    if let Err(fault) = self.spill(inode, &mut tries, full).await {
                        return or_short(done, Some(Err(fault)));
                    }
                    (begun, under) = (Some(range.start + written), Some(snapshot.ticket.truncate_epoch));
                }
                Ok(Progress { written, .. }) => return Some(Ok(done + written)),
                Err(fault) => return or_short(done, Some(Err(fault))),
            }
        }
    }

    /// `None` when the exclusive right has come meanwhile.
    async fn append_at_place(&self, handle: &Handle, write: &WriteIn) -> Option<Result<u64, Fault>> {
        let inode = &handle.inode;
        let _none_at_our_end = inode.append.read().await;
        // Sends the bytes that were buffered before the right went. While the guard is held no write is
        // buffered at the end.
        self.flush_behind(inode).await;
        if inode.lock().exclusive {
            return None;
        }
        Some(self.append_where_told(handle, write).await)
    }

    async fn append_where_told(&self, handle: &Handle, write: &WriteIn) -> Result<u64, Fault> {
        let inode = &handle.inode;
        let due = inode.due(Carry::Changes);
        if let Some(report) = &due.report {
            // The place is after all bytes that we wrote.
            self.mds.ask(&ReportReq { items: vec![(inode.ino, report.clone())], synced: Vec::new() }).await?;
            due.delivered();
        }
        let len_bytes = write.data.len() as u64;
        let number = self.append_numbers.fetch_add(1, Ordering::Relaxed);
        let placed = Placed::begin(handle, number, len_bytes);
        let request = AppendReserveReq { ino: inode.ino, len_bytes, number };
        let data = Rope::from(write.data.clone());
        let mut tries = Tries::default();
        let written = loop {
            let (place, _) = match self.mds.call_with(&request, Vec::new(), handle.options()).await {
                Ok(place) => place,
                // An earlier call may have reserved a place.
                Err(fault) => break Err(fault),
            };
            placed.writing_at(Some((place.offset, place.truncate_epoch)));
            let how = How { under: Some(place.truncate_epoch), ..write.how(handle) };
            let written = self.write_objects(inode, place.offset, &data, how).await;
            placed.writing_at(None);
            match written {
                // The file was moved, or truncated, perhaps below this place: the MDT knows.
                Err(fault) if fault.code == Code::StaleLayout => {
                    if let Err(fault) = self.retry(inode, &mut tries, fault).await {
                        break Err(fault);
                    }
                }
                written => break written,
            }
        };
        // Ends the reservation in every case: other clients wait for bytes at a place that is not given up.
        let due = inode.due(Carry::Changes);
        let done = AppendDoneReq { ino: inode.ino, number, report: due.report.clone() };
        let told = self.mds.call_with(&done, Vec::new(), handle.options()).await;
        if told.is_ok() {
            due.delivered();
        }
        let written = written?;
        told.map(|_| written)
    }
}
