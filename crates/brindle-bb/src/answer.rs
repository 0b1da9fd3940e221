//! The answers of `dacctl`, as Slurm's plug-in `burst_buffer/datawarp` reads them.
//!
//! Ids of sessions and instances are numbers: Slurm takes anything else for 0, and charges every buffer with the sum of all.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::pool::Pool;

/// Answer of `pools`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// The pools.
    pub pools: Vec<PoolAnswer>,
}

/// A pool, counted in granules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAnswer {
    /// Name of the pool.
    pub id: String,
    /// Unit of the granularity.
    pub units: String,
    /// Bytes of a granule.
    pub granularity: u64,
    /// Granules in all.
    pub quantity: u64,
    /// Granules that no buffer has.
    pub free: u64,
}

/// Answer of `show_instances`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instances {
    /// The buffers of jobs.
    pub instances: Vec<Instance>,
}

/// A buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Number of the buffer.
    pub id: u64,
    /// Size of the buffer.
    pub capacity: Capacity,
    /// The session of its job.
    pub links: Links,
}

/// Size of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Bytes.
    pub bytes: u64,
    /// Always 0: buffers are not made of nodes.
    pub nodes: u64,
}

/// The session of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Number of the session.
    pub session: u64,
}

/// Answer of `show_sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    /// The buffers' owners.
    pub sessions: Vec<Session>,
}

/// Owner of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Number of the buffer.
    pub id: u64,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// The user.
    pub owner: u32,
    /// The job.
    pub token: String,
}

/// Answer of `show_configurations`: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configurations {
    /// Always empty.
    pub configurations: Vec<()>,
}

/// Answer of `real_size`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealSize {
    /// The job.
    pub token: String,
    /// Size of its buffer.
    pub capacity: u64,
    /// Unit of the size.
    pub units: String,
}

impl Pools {
    /// The pools as they are now. Free space on bricks of hosts that are `away` counts as unavailable.
    pub fn of(pools: &[Pool], away: &BTreeSet<String>) -> Pools {
        let answer = |pool: &Pool| PoolAnswer {
            id: pool.name.clone(),
            units: "bytes".to_owned(),
            granularity: pool.granule_bytes,
            quantity: pool.granules(),
            free: pool.free_granules_without(away),
        };
        Pools { pools: pools.iter().map(answer).collect() }
    }
}

/// An answer as one line of JSON.
pub fn json<T: Serialize>(answer: &T) -> String {
    serde_json::to_string(answer).expect("plain fields always serialise")
}

/// The lines that Slurm puts into the environment of a job: each variable under its name at the Data Accelerator and under ours.
/// `variables`: names that begin with `DW_`, and their values.
pub fn variable_lines(variables: &[(String, String)]) -> String {
    let lines = variables.iter().map(|(name, value)| {
        let rest = name.strip_prefix("DW_").unwrap_or(name);
        format!("{name}={value}\nBRINDLE_{rest}={value}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Brick;

    #[test]
    fn answers_have_the_form_that_slurm_reads() {
        let mut pool = Pool::new("default", 16 << 20);
        pool.add_brick("b0", Brick { dir: "/b0".to_owned(), bytes: 1 << 30, node: None }).unwrap();
        pool.allocate(33 << 20, &BTreeSet::new()).unwrap();
        let pools = json(&Pools::of(&[pool], &BTreeSet::new()));
        let wanted =
            r#"{"pools":[{"id":"default","units":"bytes","granularity":16777216,"quantity":64,"free":61}]}"#;
        assert_eq!(pools, wanted);
        let instance =
            Instance { id: 7, capacity: Capacity { bytes: 9, nodes: 0 }, links: Links { session: 7 } };
        assert_eq!(
            json(&Instances { instances: vec![instance] }),
            r#"{"instances":[{"id":7,"capacity":{"bytes":9,"nodes":0},"links":{"session":7}}]}"#
        );
        let session = Session { id: 7, created: 5, owner: 1001, token: "42".to_owned() };
        assert_eq!(
            json(&Sessions { sessions: vec![session] }),
            r#"{"sessions":[{"id":7,"created":5,"owner":1001,"token":"42"}]}"#
        );
        assert_eq!(json(&Instances::default()), r#"{"instances":[]}"#);
        assert_eq!(json(&Sessions::default()), r#"{"sessions":[]}"#);
        assert_eq!(json(&Configurations::default()), r#"{"configurations":[]}"#);
        let size = RealSize { token: "42".to_owned(), capacity: 9, units: "bytes".to_owned() };
        assert_eq!(json(&size), r#"{"token":"42","capacity":9,"units":"bytes"}"#);
        assert_eq!(
            variable_lines(&[("DW_JOB_STRIPED".to_owned(), "/m/42/global".to_owned())]),
            "DW_JOB_STRIPED=/m/42/global\nBRINDLE_JOB_STRIPED=/m/42/global\n"
        );
    }
}
