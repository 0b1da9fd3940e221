//! A trial protocol, for tests of the translation: in its earlier version every body of every message begins with a mark.
//!
//! A forgotten message is always found: a body without the mark, or with one mark too many, does not decode.

use brindle_types::{Code, Fault};
use bytes::Bytes;

use super::{Change, Part, Protocols};
use crate::version::{MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, Versions};

/// First byte of every body of the earlier version.
const MARK: u8 = 0xe1;

fn mark(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    Ok(Some([&[MARK], body].concat().into()))
}

fn unmark(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    match body.split_first() {
        Some((&MARK, rest)) => Ok(Some(Bytes::copy_from_slice(rest))),
        _ => Err(Fault::new(Code::BadFrame).why("a body of the trial version has no mark")),
    }
}

const fn marked(part: Part) -> Change {
    Change { since: PROTOCOL_VERSION, op: None, part, down: mark, up: unmark, samples: Vec::new }
}

const MARKED: &[Change] = &[marked(Part::Request), marked(Part::Reply), marked(Part::CacheUpdates)];

/// The trial protocol of a side that speaks both versions, or the earlier one only.
pub const fn protocols(is_earlier: bool) -> Protocols {
    let max = if is_earlier { MIN_PROTOCOL_VERSION } else { PROTOCOL_VERSION };
    Protocols { versions: Versions { min: MIN_PROTOCOL_VERSION, max }, changes: MARKED }
}
