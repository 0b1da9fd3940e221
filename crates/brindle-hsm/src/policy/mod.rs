//! The policy engine: scans the MDT by a policy text, and requests the actions that follow.
//!
//! The engine leaves decisions to [`brindle_policy`] and holds no state that must survive. Queued actions lie in the MDT, which refuses
//! the same action twice; a removal compares the entry first. A kill at any moment therefore loses and doubles nothing. [`state`] keeps
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
