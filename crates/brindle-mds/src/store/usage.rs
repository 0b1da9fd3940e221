//! `U|kind|id`: inodes and bytes of users and groups, changed in the batch that causes it.

use brindle_types::Result;
use serde::{Deserialize, Serialize};

use super::{Inode, Rows, for_each, keys, row};

row::first_form!(Usage);

/// Whose usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A user.
    User = 0,
    /// A group.
    Group = 1,
}

/// Usage of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of inodes.
    pub inodes: u64,
    /// Allocated bytes.
    pub bytes: u64,
}

/// A change of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Inodes.
    pub inodes: i64,
    /// Bytes.
    pub bytes: i64,
}

impl Delta {
    /// Usage of one inode, times `sign`.
    pub fn of(inode: &Inode, sign: i64) -> Delta {
        Delta { inodes: sign, bytes: sign.saturating_mul(inode.allocated_bytes as i64) }
    }

    /// Adds another change.
    pub fn add(&mut self, other: Delta) {
        self.inodes += other.inodes;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Usage {
    /// Applies a change. Never below zero: a wrong counter is fsck's finding, not a reason to refuse.
    pub fn apply(self, delta: Delta) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add_signed(delta.inodes),
            bytes: self.bytes.saturating_add_signed(delta.bytes),
        }
    }
}

/// Usage of one user or group.
pub fn get(rows: &(impl Rows + ?Sized), kind: u8, id: u32) -> Result<Usage> {
    let key = keys::usage(kind, id);
    let found = rows.row(&key)?.map(|value| row::decode("usage", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Usage of all users or groups: (id, usage).
pub fn list(rows: &(impl Rows + ?Sized), kind: Kind) -> Result<Vec<(u32, Usage)>> {
    let mut all = Vec::new();
    for_each(rows, &[keys::USAGE, kind as u8], |key, value| {
        let (_, id) = keys::split_owner(key).ok_or_else(|| row::damaged("usage", key, "short key".into()))?;
        all.push((id, row::decode("usage", key, value)?));
        Ok(true)
    })?;
    Ok(all)
}
