//! Sizes of the work: a full run for figures to be quoted, a quick one as a check that all systems work.

use brindle_types::units::{GIB, MIB};

/// Amounts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// `full`, `medium` or `quick`.
    pub name: &'static str,
    /// Each of the two disks that a system has for data.
    pub data_bytes: u64,
    /// The disk for metadata, where a system has one of its own.
    pub metadata_bytes: u64,
    /// Bytes that each process of `ior` writes and reads.
    pub ior: &'static str,
    /// Random writes and reads: the set, and the seconds of each phase.
    pub random: (&'static str, u32),
    /// Files of each process of `mdtest`.
    pub files: u32,
    /// Entries of the tree.
    pub entries: u32,
    /// Files of the directory that is listed.
    pub listed: u32,
}

/// Scale for figures to be quoted: sets larger than caches of clients.
pub const FULL: Scale = Scale {
    name: "full",
    data_bytes: 6 * GIB,
    metadata_bytes: 3 * GIB,
    ior: "512MiB",
    random: ("4GiB", 10),
    files: 5000,
    entries: 50_000,
    listed: 100_000,
};

/// Scale for a session: phases are long enough for medians, and sets fit into caches of servers.
pub const MEDIUM: Scale = Scale {
    name: "medium",
    data_bytes: 4 * GIB,
    metadata_bytes: 2 * GIB,
    ior: "256MiB",
    random: ("1GiB", 5),
    files: 3000,
    entries: 10_000,
    listed: 20_000,
};

/// Scale to see that everything works; phases are too short for the processor time, and caches are larger
/// than the sets.
pub const QUICK: Scale = Scale {
    name: "quick",
    data_bytes: 2560 * MIB,
    metadata_bytes: GIB,
    ior: "64MiB",
    random: ("256MiB", 3),
    files: 500,
    entries: 700,
    listed: 2000,
};

/// The scale of that name.
pub fn of(name: &str) -> Result<Scale, String> {
    match name {
        "full" => Ok(FULL),
        "medium" => Ok(MEDIUM),
        "quick" => Ok(QUICK),
        other => Err(format!("--scale {other}: it is quick, medium or full")),
    }
}
