//! Commands that look at a cluster from outside: the choice of the cluster ([`place`]), requests to its servers
//! ([`ask`]), and one file a command.

pub mod ask;
pub mod events;
pub mod fs_df;
pub mod fs_upgrade;
pub mod mdt;
pub mod mount_info;
pub mod place;
pub mod rebalance;
pub mod status;
pub mod target_add;
pub mod target_assign;
pub mod target_drain;
pub mod target_list;
pub mod target_replica;
pub mod target_replica_move;
pub mod target_scrub;
pub mod target_set;
pub mod target_shared;
pub mod top;
pub mod trace;
pub mod why;
