//! Reasons why the closure of an operation ends without an answer.

use brindle_types::{Fault, Ino, Pair, SessionId};
use brindle_wire::notify::Recall;

use crate::leases::Conflicts;

/// Event that operations can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The busy mark of an inode is gone.
    Idle(Ino),
    /// A recall on an inode is done.
    Recalled(Ino),
    /// More inode numbers are reserved.
    Inodes,
    /// Reclaim after a restart is over.
    Recovered,
    /// A reservation of an append is done, or was taken away.
    Append(Ino),
    /// A session connected, was ended or closed.
    Session(SessionId),
    /// A recall of the lease of a directory is done.
    LeaseFree(Ino),
    /// The action of tiering on a file has ended.
    Hsm(Ino),
    /// More extents of a file that is being restored have come, its attempt is over, or its action.
    HsmExtents(Ino),
    /// New work for agents may have come.
    HsmWork,
}

/// Work outside of the writer lock that an operation needs before it can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SideTask {
    /// Take a right back from these sessions.
    Recall {
        /// The inode.
        ino: Ino,
        /// The right.
        right: Recall,
        /// Sessions that hold the right.
        from: Vec<SessionId>,
    },
    /// Have these sessions release handles of a file that their programs have closed.
    Release {
        /// The inode.
        ino: Ino,
        /// Sessions that have the inode open.
        from: Vec<SessionId>,
    },
    /// Cancel the restore of a file that is to be emptied: whoever has pages of it in use waits for bytes that nobody needs.
    CancelRestore {
        /// The inode.
        ino: Ino,
    },
    /// Take leases of directories back.
    RecallLeases(Conflicts),
    /// Tell these writers of a new attribute epoch, and take in what they wrote before.
    Report {
        /// The inode.
        ino: Ino,
        /// The epoch.
        attr_epoch: Pair,
        /// Sessions that write.
        from: Vec<SessionId>,
    },
}

/// Reason why a closure ended without an answer. All its changes are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The operation is refused.
    Fault(Fault),
    /// Run the closure again from the start after this event.
    RetryAfter(Event),
    /// Do this task, then run the closure again from the start.
    First(SideTask),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// Result of an operation's closure.
pub type Step<T> = Result<T, Stop>;
