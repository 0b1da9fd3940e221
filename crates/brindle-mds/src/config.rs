//! Configuration of an MDT.

use std::sync::Arc;

use brindle_config::Superblock;
use brindle_kv::{
    CACHE_BYTES_MAX, DurabilityMode, KvOptions, MEMTABLE_BYTES_MAX, RESERVE_BYTES, SEGMENT_BYTES,
};
use brindle_net::fair::MDT_PLACES;
use brindle_targets::OwnerLease;
use brindle_targets::replica::Seat;
use brindle_types::{FsName, LayoutPolicy, Nid, TargetId};

/// Lifetime of a session that is not renewed, in milliseconds.
pub const LEASE_MS: u32 = 6_000;

/// Most bytes of the changelog: about a million records. Well below the space that is kept for batches that free space,
/// since records come with those too.
pub const CHANGELOG_BYTES_MAX: u64 = 128 << 20;
/// Age at which records of the changelog go.
pub const CHANGELOG_AGE_MAX_SECS: u64 = 30 * 24 * 3600;

/// Identity of an MDT, from its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// File system.
    pub fs: FsName,
    /// Index of the MDT.
    pub index: u16,
    /// Identity given at format time.
    pub uuid: [u8; 16],
}

impl Identity {
    /// The identity in a superblock.
    pub fn of(superblock: &Superblock) -> Identity {
        Identity { fs: superblock.fs.clone(), index: superblock.target.index, uuid: superblock.uuid }
    }

    /// The target.
    pub fn target(&self) -> TargetId {
        TargetId::mdt(self.index)
    }

    /// Full name of the MDT: `scratch-MDT0000`.
    pub fn name(&self) -> String {
        self.fs.target(self.target())
    }
}

/// Configuration of an MDT.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the formatted MDT.
    pub dir: String,
    /// Address to listen at; port 0 chooses a free one.
    pub listen: Nid,
    /// Addresses of further rails to listen at, with the same port.
    pub rails: Vec<Nid>,
    /// Addresses that others reach it at; empty for the one it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host, for people.
    pub host: String,
    /// Lifetime of a session that is not renewed, in milliseconds.
    pub lease_ms: u32,
    /// Moment at which replies leave.
    pub durability: DurabilityMode,
    /// Default of new files where no directory has one.
    pub layout_default: LayoutPolicy,
    /// High-water mark, in percent: a fuller OST gets no new objects while others can take them.
    pub high_water_percent: u64,
    /// Longest time that writes wait for added space where all OSTs are full, in milliseconds.
    pub room_wait_ms: u64,
    /// Files that are longer are divided over the agents of their archive, in bytes.
    pub divide_above_bytes: u64,
    /// Size of one log segment in bytes.
    pub segment_bytes: u64,
    /// Bound of the store's memtable in bytes.
    pub memtable_bytes_max: usize,
    /// Memory for pages of the store's checkpoint in bytes.
    pub cache_bytes_max: usize,
    /// Most bytes of the changelog; also at most a 64th of the device.
    pub changelog_bytes_max: u64,
    /// Records of the changelog that are older than this go, in seconds.
    pub changelog_age_max_secs: u64,
    /// Free space kept for operations that free space, in bytes.
    pub reserve_bytes: u64,
    /// Right to answer for the MDT; `Some` if the MDT lies on a device that two hosts reach.
    pub lease: Option<Arc<OwnerLease>>,
    /// Requests of jobs that are served at once, in turns; `None` for all, as they come.
    pub places: Option<usize>,
    /// Place in the replica set; `Some` if the MDT is a member of one.
    pub seat: Option<Arc<Seat>>,
}

impl Config {
    /// The usual values.
    pub fn new(dir: impl Into<String>, listen: Nid, host: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen,
            rails: Vec::new(),
            advertise: Vec::new(),
            host: host.into(),
            lease_ms: LEASE_MS,
            durability: DurabilityMode::Relaxed,
            layout_default: brindle_layout::progressive(),
            high_water_percent: brindle_layout::HIGH_WATER_PERCENT_DEFAULT,
            room_wait_ms: 0,
            divide_above_bytes: brindle_types::hsm::DIVIDE_ABOVE_BYTES_DEFAULT,
            segment_bytes: SEGMENT_BYTES,
            memtable_bytes_max: MEMTABLE_BYTES_MAX,
            cache_bytes_max: CACHE_BYTES_MAX,
            changelog_bytes_max: CHANGELOG_BYTES_MAX,
            changelog_age_max_secs: CHANGELOG_AGE_MAX_SECS,
            reserve_bytes: RESERVE_BYTES,
            lease: None,
            places: Some(MDT_PLACES),
            seat: None,
        }
    }

    /// Directory of the store.
    pub fn store_dir(&self) -> String {
        store_dir(&self.dir)
    }

    /// Options of the store.
    pub fn kv_options(&self, identity: &Identity) -> KvOptions {
        KvOptions {
            mode: self.durability,
            segment_bytes: self.segment_bytes,
            memtable_bytes_max: self.memtable_bytes_max,
            cache_bytes_max: self.cache_bytes_max,
            reserve_bytes: self.reserve_bytes,
            ..kv_identity(identity)
        }
    }
}

/// Directory of the store of the MDT in `dir`.
pub fn store_dir(dir: &str) -> String {
    format!("{}/store", dir.trim_end_matches('/'))
}

/// Options of a store with the identity of its MDT. The file system's id is not known when an MDT is formatted, so its
/// name stands in for it.
pub fn kv_identity(identity: &Identity) -> KvOptions {
    let mut fs = [0; 16];
    let name = identity.fs.as_str().as_bytes();
    fs[..name.len()].copy_from_slice(name);
    KvOptions::new(fs, identity.uuid, identity.name())
}
