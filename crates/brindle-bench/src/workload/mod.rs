//! The workloads: what each rank does in each phase (`run`), and which plans a command comes to (`plans`).

pub mod ior;
pub mod list;
pub mod mdtest;
pub mod quick;
pub mod random;
pub mod threads;
pub mod tree;

use brindle_types::{Code, Fault};

use crate::rank::Phase;

/// A phase that the job does not have, which no plan asks for.
fn no_such_phase(phase: Phase) -> Fault {
    Fault::new(Code::Bug).why(format!("this job has no phase {phase:?}"))
}
