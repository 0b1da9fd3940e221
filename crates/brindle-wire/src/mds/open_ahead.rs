//! open_ahead: handles for reading of small files that nobody writes, before a program opens them.

use brindle_types::{Attr, Ino};
use serde::{Deserialize, Serialize};

use super::open::OpenGrant;
use crate::message;

/// Most files in one request: their bytes fit into one answer.
pub const OPENS_AHEAD_MAX: usize = 64;

/// Opens files for reading, as far as that disturbs nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAheadReq {
    /// The files, at most [`OPENS_AHEAD_MAX`], and the client's number for the handle of each.
    pub opens: Vec<(Ino, u64)>,
}

/// Files of the request that are open now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAheadResp {
    /// For each file, in order, what opening it gave: always the right to keep pages, and the contents. `None` for those
    /// that have to be opened one by one. When the request was answered before, and the answer is given again, all are
    /// `None`, whichever are open: the caller gives the handles back.
    pub opened: Vec<Option<OpenedAhead>>,
}
message!(OpenAheadReq => OpenAheadResp, OpenAhead);

/// A file that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedAhead {
    /// Attributes.
    pub attr: Attr,
    /// Mode, layout, epochs, contents.
    pub grant: OpenGrant,
}
