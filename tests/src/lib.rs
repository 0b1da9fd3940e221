//! Shared helpers of the cluster tests.

pub mod model_run;
pub mod syscalls;
