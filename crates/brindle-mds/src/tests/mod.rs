//! Tests drive an MDT directly: a memory disk, simulated clients and OSTs.

mod extremes;
pub(crate) mod rig;

mod access_times;
mod backup;
mod batch;
mod changelog;
mod cuts;
mod destroys;
mod fuzz;
mod golden;
mod hostile;
mod hsm;
mod hsm_read;
mod hsm_span;
mod leases;
mod model;
mod mount_logs;
mod moves;
mod once;
mod open_ahead;
mod pools;
mod posix;
mod projects;
mod quota;
mod recovery;
mod scan;
mod served;
mod sharing;
mod smoke;
