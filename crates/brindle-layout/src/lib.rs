//! Where the bytes of a file lie: ranges of a file to ranges of objects and back, stripe policies, choice of OSTs.
//!
//! Called by the client (I/O), the MDT (create, size, truncate) and fsck. Pure: no I/O, no clock, no chance but what
//! is handed in. Invariant: under one component every byte of a file is one byte of one object, and the other way.

pub mod composite;
pub mod map;
pub mod place;
pub mod policy;

pub use composite::{check, is_placed, last_stripe, object_ranges, parts, seek_join, seek_start};
pub use map::{ObjectRange, Place, StripeExtent, extents, file_offset, file_size_from, locate, object_len};
pub use place::{
    Ask, Candidate, HIGH_WATER_PERCENT_DEFAULT, HIGH_WATER_PERCENT_RANGE, is_full, place, usable,
};
pub use policy::{
    Planned, Pools, StripeCount, Striping, check_policy, empty_pool, in_pool_of, inherit_layout, normalise,
    plan, progressive,
};
