//! Mapping of the bytes of a file: file ranges to object ranges and back, stripe policies, choice of OSTs.
//!
//! Called by the client (I/O), the MDT (create, size, truncate) and fsck. Pure: no I/O, no clock, no chance but what
//! is handed in. Invariant: under one component every byte of a file is one byte of one object, and the other way.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod composite;
pub mod map;
pub mod place;
pub mod policy;
pub mod relocate;

pub use composite::{
    check, file_size_from, is_placed, last_stripe, object_len, object_ranges, parts, seek_join, seek_start,
};
pub use map::{BytePosition, ObjectRange, StripeExtent, extents, file_offset, locate};
pub use place::{
    Ask, Candidate, HIGH_WATER_PERCENT_DEFAULT, HIGH_WATER_PERCENT_RANGE, is_full, place, usable,
};
pub use policy::{
    Planned, Pools, StripeCount, Striping, check_policy, empty_pool, in_pool_of, inherit_layout, normalise,
    plan, progressive,
};
pub use relocate::{Run, copies, emptied, relocated};
