//! Scans: walking a tree of rows and matching a predicate, a page at a time.
//!
//! Called by [`crate::ops::scan`]. Invariants: a page takes bounded work and bounded bytes, holds no lock of the MDT and
//! leaves nothing behind; where it stopped is in its cursor.

pub mod glob;
pub mod predicate;
pub mod walk;

pub use predicate::Predicate;
pub use walk::{Limits, Walk};
