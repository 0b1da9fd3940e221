//! Guards: each marks work under way on an inode for as long as it lives: changes of its size and of its
//! objects, moves out of the MDT, bytes that are written again. The comments of [`State`] say which work
//! waits for which.

use brindle_types::{Code, Fault};

use super::{Hold, Inode, LayoutSnapshot, State};

/// A change of the size that the MDT has not answered.
pub(crate) struct Cutting<'a>(&'a Inode);

/// A change of objects under way.
pub(crate) struct Changing<'a>(&'a Inode);

/// A system call that changes contents through a handle.
pub(crate) struct Writing<'a> {
    inode: &'a Inode,
    /// [`State::last_closes`] and [`State::session_ends`] when it began.
    last_closes: u64,
    session_ends: u64,
}

/// A change of objects for which nobody waits any more, and which may still be made.
pub(crate) struct Abandoned {
    inode: Hold,
    /// [`State::session_ends`] when it was given up.
    session_ends: u64,
}

/// The bytes are being moved out of the MDT, or cut.
pub(crate) struct Converting<'a>(&'a Inode);

/// Acknowledged bytes wait for an OST with room.
pub(crate) struct WithoutRoom<'a>(&'a Inode);

/// Marks that bytes which an OST lost are being written again.
pub(crate) struct Rewriting<'a> {
    inode: &'a Inode,
    begun: bool,
}

impl Inode {
    /// The kernel waits for the answer to a change of the size.
    pub fn cutting(&self) -> Cutting<'_> {
        let mut state = self.lock();
        state.cutting += 1;
        state.contents += 1;
        state.void_allocated_range();
        drop(state);
        self.quiet.notify_waiters();
        Cutting(self)
    }

    /// A program has called for a change of contents through a handle.
    pub fn writing(&self) -> Writing<'_> {
        let mut state = self.lock();
        state.calls += 1;
        Writing { inode: self, last_closes: state.last_closes, session_ends: state.session_ends }
    }

    /// Keeps bytes from being buffered for the MDT, if it has the file's bytes.
    pub fn converting(&self) -> Option<Converting<'_>> {
        let is_inline = self.lock().layout.as_ref().is_some_and(|layout| layout.inline);
        is_inline.then(|| self.unbuffered())
    }

    /// Keeps bytes from being buffered: the file is about to be moved or truncated.
    pub fn unbuffered(&self) -> Converting<'_> {
        self.lock().converting += 1;
        Converting(self)
    }

    /// Begins a change of objects under a layout. Waits while lost bytes are written again, which would lie over the new ones.
    /// `StaleLayout` if the layout has changed, or is about to change: a task that settles before a copy waits for changes
    /// that have begun, and the objects of an old layout may be gone.
    pub async fn changing(&self, snapshot: &LayoutSnapshot) -> Result<Changing<'_>, Fault> {
        let begin = |state: &mut State| {
            state.changing += 1;
            state.contents += 1;
        };
        self.wait_then(|state| state.rewriters == 0, begin).await;
        let changing = Changing(self);
        let now = self.lock().snapshot();
        match now.is_some_and(|now| now.layout.epoch == snapshot.layout.epoch) {
            true => Ok(changing),
            false => Err(Fault::new(Code::StaleLayout)),
        }
    }

    /// Acknowledged bytes that found no space at an OST wait until the MDT has found other OSTs. Meanwhile a task that settles
    /// does not wait for the buffer: the MDT may have asked for the settling in order to find other OSTs.
    pub fn without_room(&self) -> WithoutRoom<'_> {
        self.lock().behind.without_room += 1;
        self.quiet.notify_waiters();
        WithoutRoom(self)
    }

    /// Begins to write lost bytes again. Waits for changes under way, which may be newer.
    pub async fn rewriting(&self) -> Rewriting<'_> {
        self.lock().rewriters += 1;
        let mut rewriting = Rewriting { inode: self, begun: false };
        let free = |state: &State| state.changing == 0 && !state.rewriting;
        self.wait_then(free, |state| state.rewriting = true).await;
        rewriting.begun = true;
        rewriting
    }
}

impl Abandoned {
    /// Keeps other clients from getting the file to write, until the outcome is known.
    pub fn new(inode: Hold) -> Abandoned {
        let session_ends = {
            let mut state = inode.lock();
            state.abandoned += 1;
            state.session_ends
        };
        Abandoned { inode, session_ends }
    }
}

impl Cutting<'_> {
    /// Over at the moment in which the answer is taken in.
    pub fn end(self, state: &mut State) {
        state.cut_is_over();
        std::mem::forget(self);
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.lock().cut_is_over();
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.inode.lock();
        if state.session_ends != self.session_ends {
            return;
        }
        if state.last_closes == self.last_closes {
            state.calls -= 1;
            return;
        }
        state.abandoned -= 1;
        drop(state);
        self.inode.quiet.notify_waiters();
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let mut state = self.inode.lock();
        state.contents += 1;
        if state.session_ends == self.session_ends {
            state.abandoned -= 1;
        }
        drop(state);
        self.inode.quiet.notify_waiters();
    }
}

impl Drop for Converting<'_> {
    fn drop(&mut self) {
        self.0.lock().converting -= 1;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.changing -= 1;
        state.contents += 1;
        drop(state);
        self.0.quiet.notify_waiters();
    }
}

impl Drop for WithoutRoom<'_> {
    fn drop(&mut self) {
        self.0.lock().behind.without_room -= 1;
    }
}

impl Drop for Rewriting<'_> {
    fn drop(&mut self) {
        let mut state = self.inode.lock();
        state.rewriters -= 1;
        state.rewriting &= !self.begun;
        state.contents += 1;
        drop(state);
        self.inode.quiet.notify_waiters();
    }
}
