//! Append by several clients: a logged reservation of a place, so that a retry and a restart return the same one.

use brindle_types::{Ino, Pair};
use serde::{Deserialize, Serialize};

use super::Empty;
use super::report::WriteReport;
use crate::message;

/// Reserves the next bytes behind the end; asked again with the same number, it tells the place that the append still has, or gives
/// another one if a cut has taken that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendReserveReq {
    /// The file.
    pub ino: Ino,
    /// Number of bytes to append.
    pub len_bytes: u64,
    /// The client's number of this append, never used twice in its session.
    pub number: u64,
}

/// The place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendReserveResp {
    /// First byte of the reservation.
    pub offset: u64,
    /// Truncate epoch of the last cut. After the next cut nothing may be written there before the place was
    /// asked for again.
    pub truncate_epoch: Pair,
}
message!(AppendReserveReq => AppendReserveResp, AppendReserve);

/// The reserved bytes are written (or given up: they become a hole). Answered when the end shown to others has passed
/// the reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendDoneReq {
    /// The file.
    pub ino: Ino,
    /// [`AppendReserveReq::number`].
    pub number: u64,
    /// Report of the write.
    pub report: Option<WriteReport>,
}
message!(AppendDoneReq => Empty, AppendDone);
