//! Where the bytes of a file lie: ranges of a file to ranges of objects and back, stripe policies, choice of OSTs.
//!
//! Called by the client (I/O), the MDT (create, size, truncate) and fsck. Pure: no I/O, no clock, no chance but what
//! is handed in. Invariant: under one component every byte of a file is one byte of one object, and the other way.

pub mod map;
pub mod place;
pub mod policy;

pub use map::{
    ObjectRange, Place, StripeExtent, check, extents, file_offset, file_size_from, last_stripe, locate,
    object_len, object_ranges, seek_join, seek_start, stripes_touched,
};
pub use place::{Ask, Candidate, place};
pub use policy::{StripeCount, Striping, inherit, normalise};
