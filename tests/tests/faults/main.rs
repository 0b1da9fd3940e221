//! Faults on real processes and real mounts, against a history kept outside the file system.
//!
//! Names follow the table of faults: F1 killed servers, F3 and F4 power cuts, F11 full disks, F13 damage, F15 a killed client, F16 garbage
//! on the wire; `admin` the messages about faults. Each test starts a cluster of its own; tests run one after the other. A test prints its
//! seed; `BRINDLE_SEED=n` throws the same dice again, `BRINDLE_FAULT_ROUNDS=n` repeats the faults n times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a failed test shows its seed and its figures")]
#![allow(clippy::too_many_lines, reason = "a fault and its consequences are one story")]

mod access_times;
mod admin;
mod ahead;
mod alerts;
mod append;
mod backup;
mod bare_hosts;
mod bb_bricks;
mod bb_hosts;
mod bb_staging;
mod behind;
mod client;
mod commands;
mod crew;
mod crowd;
mod damage;
mod dice;
mod durability;
mod earlier_release;
mod enrolment;
mod failout;
mod fair;
mod full;
mod garbage;
mod hosts;
mod hung_disks;
mod id_maps;
mod jobs;
mod kill;
mod leases;
mod load;
mod log_in;
mod logs;
mod many_to_many;
mod mdt_replicas;
mod mdt_scrub;
mod monitoring;
mod moves;
mod names;
mod nodemaps;
mod parameters;
mod policies;
mod pools;
mod power;
mod projects;
mod quota;
mod racks;
mod rails;
mod records;
mod releases;
mod removals;
mod renames;
mod replaced_disks;
mod replica_durability;
mod replicas;
mod restore;
mod robinhood;
mod rolling;
mod scrub;
mod several_mgs;
mod slurm;
mod space;
mod spares;
mod standby;
mod stripes;
mod superblocks;
mod support;
mod thrash;
mod tiering;
mod tiering_cases;
mod tiering_divided;
mod tiering_import;
mod tiering_read;
mod tiering_s3;
mod trace;
mod tree;
mod work;
