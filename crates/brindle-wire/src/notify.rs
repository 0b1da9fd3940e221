//! Notices: requests of a server to a client, on the client's own connection. Each notice is answered within the lease or the
//! client is fenced.

use brindle_types::{Ino, Pair};
use serde::{Deserialize, Serialize};

use crate::mds::report::WriteReport;
use crate::message;

/// Right that is recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recall {
    /// The right to keep pages of a file that nobody writes: drop them all, and from now on mark every READ.
    ReadCache,
    /// The exclusive right of the sole writer: report size and times; from now on the servers are the authority.
    Exclusive,
}

/// Takes a lease back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallNotice {
    /// The file.
    pub ino: Ino,
    /// The right.
    pub recall: Recall,
}

/// Answer: done, with what the client knew that the MDT does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallAck {
    /// End and "written since" of a recalled writer.
    pub report: Option<WriteReport>,
    /// Not yet: bytes that a program was told are written cannot be sent, because an OST is away. To be asked again.
    pub later: bool,
}
message!(RecallNotice => RecallAck, RecallNotice);

/// Takes the leases of directories back: what is known under them is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseNotice {
    /// The directories.
    pub dirs: Vec<Ino>,
    /// Place in the log of the MDT: what was told of them up to it is void ([`crate::cache_updates`]).
    pub at: u64,
}

/// Answer: done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAck {}
message!(LeaseNotice => LeaseAck, LeaseNotice);

/// Drop kept pages of a range: somebody wrote there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidateNotice {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; `u64::MAX` to the end.
    pub len_bytes: u64,
}

/// Answer: whether the pages are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidateAck {
    /// Not yet: one that was changed through a mapping cannot be written back, because an OST is away. To be asked again.
    pub later: bool,
}
message!(InvalidateNotice => InvalidateAck, InvalidateNotice);

/// The layout (or the truncate epoch) changed: drop what is kept of it and fetch it again before the next I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutNotice {
    /// The file.
    pub ino: Ino,
    /// Kept pages from this byte on are dropped as well; below `u64::MAX` if the file was cut.
    pub drop_from: u64,
    /// Truncate epoch of the cut, or of the last one before.
    pub truncate_epoch: Pair,
}

/// Answer: done, with the report due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutAck {
    /// The report due of a writer.
    pub report: Option<WriteReport>,
    /// The pages are not gone yet, as in [`InvalidateAck`]; they are to be asked for with [`InvalidateNotice`].
    pub later: bool,
}
message!(LayoutNotice => LayoutAck, LayoutNotice);

/// Bytes of the file are about to be copied elsewhere: fetch the layout before the next I/O (which waits until they are),
/// let changes of objects that are under way end, and make what was written durable where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleNotice {
    /// The file.
    pub ino: Ino,
}

/// Answer: whether that is done. If an OST keeps us waiting it is not, and nothing must be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleAck {
    /// Done.
    pub settled: bool,
}
message!(SettleNotice => SettleAck, SettleNotice);

/// Report size and "written since" now (somebody stats, or sets times explicitly).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportNotice {
    /// The file.
    pub ino: Ino,
    /// Attribute epoch from now on; `None` leaves it.
    pub attr_epoch: Option<Pair>,
}

/// The report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAck {
    /// `None` when nothing was written since the last report.
    pub report: Option<WriteReport>,
}
message!(ReportNotice => ReportAck, ReportNotice);

/// Release what programs have closed of this file: somebody was refused a lock for one that the client holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedNotice {
    /// The file.
    pub ino: Ino,
}

/// Answer: what was closed before the question is released, and the MDT has its unlocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedAck {}
message!(ClosedNotice => ClosedAck, ClosedNotice);

/// The session was ended (lease ran out, or an administrator removed it).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEndNotice {
    /// Reason, for the client's log.
    pub reason: String,
}

/// Answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEndAck {}
message!(SessionEndNotice => SessionEndAck, SessionEndNotice);
