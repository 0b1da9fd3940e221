//! The policy engine: scans the MDT by a policy text, and asks for what follows from it.
//!
//! It decides nothing by itself ([`brindle_policy`] does) and keeps nothing that counts: what is queued lies in the MDT, which refuses the
//! same action twice, and a removal compares the entry first. So a kill at any moment loses and doubles nothing. [`state`] keeps
//! confirmations and history in a directory.

mod act;
pub mod describe;
mod engine;
pub mod pages;
mod run;
pub mod state;

pub use act::Outcome;
pub use engine::{Due, Engine, Options, Planned};
pub use run::{Load, run};
pub use state::State;
