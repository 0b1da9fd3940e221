//! Scrub of an MDT: orders of administrators, its progress, and its record on the disk (design note 057). When passes begin, and how fast
//! they go, is as for OSTs ([`crate::oss::scrub`]).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::mds::replica::StorePlace;
use crate::oss::scrub::{ScrubReq, ScrubResp};
use crate::{first_form, message};

/// A damaged place that was not mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtDamage {
    /// Host of the copy; empty where the MDT is in no replica set.
    pub host: String,
    /// Name of the file in the directory of the store; empty for rows that cannot be read or that differ between copies.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// Reason.
    pub why: String,
    /// Whether no checksum is wrong: rows of two copies differ.
    pub differs: bool,
}

impl MdtDamage {
    /// Damage of a copy, in no file in particular.
    pub fn of(host: &str, why: impl Into<String>) -> MdtDamage {
        MdtDamage { host: host.to_owned(), file: String::new(), offset: 0, why: why.into(), differs: false }
    }
}

/// How far a pass is in the files of one copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesPlace {
    /// Host of the copy.
    pub host: String,
    /// The next piece; `None` at the beginning and at the end.
    pub next: Option<StorePlace>,
    /// Whether all files were read.
    pub is_done: bool,
}

/// A copy that is filled anew because of damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedCopy {
    /// Its host.
    pub host: String,
    /// Damaged places, which count as mended when the copy is in sync again.
    pub places: u64,
}

/// How far a pass is, and what it has found. All members of a replica set have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtScrubPlaces {
    /// Key of the last row that was compared; empty at the beginning.
    pub rows_after: Bytes,
    /// Whether all rows were compared.
    pub rows_done: bool,
    /// Files of each copy.
    pub files: Vec<FilesPlace>,
    /// Copies that are filled anew.
    pub awaited: Vec<AwaitedCopy>,
    /// Damaged places that were not mended in the pass under way, or else in the last one; the first of them.
    pub named: Vec<MdtDamage>,
}
first_form!(1 => MdtScrubPlaces);

/// Gives an order to the scrub of an MDT, and asks how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtScrubReq(pub ScrubReq);

/// How far it is. `objects` of a pass are rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtScrubResp {
    /// Progress and settings.
    pub scrub: ScrubResp,
    /// Damaged places that were not mended.
    pub named: Vec<MdtDamage>,
}
message!(MdtScrubReq => MdtScrubResp, MdtScrub);
