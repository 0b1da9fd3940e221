//! `U|kind|id`: inodes and bytes of users, groups and projects, changed in the batch that causes it. There is no row of project 0, which
//! is no project.

use brindle_types::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Inode, Rows, for_each, keys, row};

row::first_form!(Usage);

/// Kind of owner of a usage counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A user.
    User = 0,
    /// A group.
    Group = 1,
    /// A project.
    Project = 2,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];
}

/// User, group and project that an inode counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project; 0 for none.
    pub project: u32,
}

impl Owners {
    /// Each owner: user, group and project.
    pub fn each(self) -> impl Iterator<Item = (Kind, u32)> {
        let project = (self.project != 0).then_some((Kind::Project, self.project));
        [(Kind::User, self.uid), (Kind::Group, self.gid)].into_iter().chain(project)
    }
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
        let bytes = i64::try_from(inode.allocated_bytes).unwrap_or(i64::MAX);
        Delta { inodes: sign, bytes: sign.saturating_mul(bytes) }
    }

    /// Adds another change.
    pub fn add(&mut self, other: Delta) {
        self.inodes = self.inodes.saturating_add(other.inodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Usage {
    /// Applies a change. The result is never below zero: a wrong counter is a finding for fsck, and no reason to
    /// refuse a request.
    pub fn apply(self, delta: Delta) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add_signed(delta.inodes),
            bytes: self.bytes.saturating_add_signed(delta.bytes),
        }
    }
}

/// Usage of one user, group or project.
pub fn get(rows: &(impl Rows + ?Sized), (kind, id): (Kind, u32)) -> Result<Usage> {
    if (kind, id) == (Kind::Project, 0) {
        return without_project(rows);
    }
    let key = keys::usage(kind as u8, id);
    let found = rows.row(&key)?.map(|value| row::decode("usage", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Usage of inodes without a project: the usage of all users minus that of all projects.
fn without_project(rows: &(impl Rows + ?Sized)) -> Result<Usage> {
    let sum = |kind| -> Result<Usage> {
        let add = |sum: Usage, (_, used): (u32, Usage)| Usage {
            inodes: sum.inodes.saturating_add(used.inodes),
            bytes: sum.bytes.saturating_add(used.bytes),
        };
        Ok(list(rows, kind)?.into_iter().fold(Usage::default(), add))
    };
    let (all, of_projects) = (sum(Kind::User)?, sum(Kind::Project)?);
    Ok(Usage {
        inodes: all.inodes.saturating_sub(of_projects.inodes),
        bytes: all.bytes.saturating_sub(of_projects.bytes),
    })
}

/// Numbers of users, groups or projects that use something, in order: at most `most`, those behind `behind`.
pub fn ids_behind(
    rows: &(impl Rows + ?Sized),
    kind: Kind,
    behind: Option<u32>,
    most: usize,
) -> Result<Vec<u32>> {
    let after = behind.map(|id| keys::usage(kind as u8, id));
    let found = rows.rows(&[keys::USAGE, kind as u8], after.as_deref(), most)?;
    let id = |(key, _): &(Bytes, Bytes)| {
        let (_, id) = keys::split_owner(key).ok_or_else(|| row::damaged("usage", key, "short key".into()))?;
        Ok(id)
    };
    found.iter().map(id).collect()
}

/// Usage of all users, groups or projects: (id, usage).
pub fn list(rows: &(impl Rows + ?Sized), kind: Kind) -> Result<Vec<(u32, Usage)>> {
    let mut all = Vec::new();
    for_each(rows, &[keys::USAGE, kind as u8], |key, value| {
        let (_, id) = keys::split_owner(key).ok_or_else(|| row::damaged("usage", key, "short key".into()))?;
        all.push((id, row::decode("usage", key, value)?));
        Ok(true)
    })?;
    Ok(all)
}
