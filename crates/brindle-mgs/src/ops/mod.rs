//! A file for each operation.

pub(crate) mod change_target;
pub(crate) mod durability;
pub(crate) mod events;
pub(crate) mod get_map;
pub(crate) mod heartbeat;
pub(crate) mod hosts;
pub(crate) mod limit;
pub(crate) mod nodemap;
pub(crate) mod note_scrub;
pub(crate) mod note_term;
pub(crate) mod pool;
pub(crate) mod raise_level;
pub(crate) mod register;
pub(crate) mod replica;
pub(crate) mod shared;
pub(crate) mod target_info;
