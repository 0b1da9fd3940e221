//! A whole cluster in one process: simulated time, chance, network and disks, faults, and (above them) checkers.
//!
//! Used by tests only. Everything random comes from one seed, so that a failing run replays exactly.

pub mod fs;
pub mod model;
pub mod sim;
