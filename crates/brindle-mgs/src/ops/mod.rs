//! One file an operation.

pub(crate) mod drain;
pub(crate) mod get_map;
pub(crate) mod heartbeat;
pub(crate) mod pool;
pub(crate) mod register;
pub(crate) mod target_info;
