//! Where the bytes of a file lie: ranges of a file to ranges of objects and back, stripe policies, choice of OSTs.
//!
//! Called by the client (I/O), the MDT (create, size, truncate) and fsck. Pure: no I/O, no clock, no chance but what
//! is handed in. Invariant: under one component every byte of a file is one byte of one object, and the other way.

pub mod composite;
pub mod map;
pub mod place;
pub mod policy;
pub mod relocate;

pub use composite::{
    check, file_size_from, is_placed, last_stripe, object_len, object_ranges, parts, seek_join, seek_start,
};
pub use map::{ObjectRange, Place, StripeExtent, extents, file_offset, locate};
pub use place::{Ask, Candidate, place};
pub use policy::{
    Planned, StripeCount, Striping, check_policy, inherit_layout, normalise, plan, progressive,
};
pub use relocate::{Run, copies, emptied, relocated};
