//! New inodes: owner, group, mode, inherited ACLs, layout and project.

use std::sync::Arc;

use brindle_layout::inherit_layout;
use brindle_stdx::cast::low_u16;
use brindle_types::{FileType, Ino, Layout, LayoutPolicy, Pair, Result};
use brindle_wire::Cred;

use crate::acl::{self, Acl};
use crate::mdt::{Step, Txn};
use crate::store::inode::{DIR_SIZE_BYTES, FileBody};
use crate::store::{Inode, inode, xattr};

const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;
const PERM_BITS: u16 = 0o7777;
const RWX_ALL: u16 = 0o777;

/// Wishes for a new inode.
pub struct Birth<'a> {
    /// Type.
    pub kind: FileType,
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number of device nodes.
    pub rdev: u32,
    /// Credentials of the program that asks.
    pub cred: &'a Cred,
}

/// A new inode in `dir`, without a name yet. Its ACL rows are in the batch; the caller names and stores it.
pub fn make(t: &mut Txn<'_>, dir: &Inode, birth: &Birth<'_>) -> Step<Inode> {
    let ino = t.new_ino()?;
    t.within_limits(birth.cred.uid);
    let is_dir = birth.kind == FileType::Directory;
    let (gid, mut perm) = group_and_perm(dir, birth);
    let mut has_acl = false;
    match default_acl(t, dir, birth.kind)? {
        None => perm &= !(low_u16(birth.umask.into()) & RWX_ALL),
        Some(default) => {
            let (access, bits) = default.inherit(perm);
            perm = perm & !RWX_ALL | bits;
            if !access.is_minimal() {
                xattr::put(t, ino, acl::ACCESS, &access.encode());
                has_acl = true;
            }
            if is_dir {
                xattr::put(t, ino, acl::DEFAULT, &default.encode());
                has_acl = true;
            }
        }
    }
    let now = t.now;
    let file = match birth.kind {
        FileType::Regular => Some(new_file(t, dir)?.into()),
        _ => None,
    };
    let size = if is_dir { DIR_SIZE_BYTES } else { 0 };
    Ok(Inode {
        ino,
        kind: birth.kind,
        perm,
        nlink: 0,
        uid: birth.cred.uid,
        gid,
        rdev: birth.rdev,
        size_bytes: size,
        allocated_bytes: size,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: dir.ino,
        name_hint: Arc::default(),
        data_version: t.pair(),
        has_acl,
        has_xattr: false,
        open_for_write: false,
        attr_epoch: t.pair(),
        truncate_epoch: t.pair(),
        file,
        layout_policy: dir.layout_policy.clone().filter(|_| is_dir),
        project: dir.project_of_new(),
        inherits_project: dir.inherits_project && is_dir,
    })
}

/// New entries of a set-group-id directory get its group; new directories also get the bit. The bit is not for
/// programs of a group that their maker is not in.
fn group_and_perm(dir: &Inode, birth: &Birth<'_>) -> (u32, u16) {
    let mut perm = low_u16(birth.mode.into()) & PERM_BITS;
    if birth.kind == FileType::Symlink {
        perm = RWX_ALL;
    }
    if dir.perm & S_ISGID == 0 {
        return (birth.cred.gid, perm);
    }
    let member = birth.cred.uid == 0 || birth.cred.gid == dir.gid || birth.cred.groups.contains(&dir.gid);
    if birth.kind == FileType::Directory {
        perm |= S_ISGID;
    } else if !member && perm & S_IXGRP != 0 {
        perm &= !S_ISGID;
    }
    (dir.gid, perm)
}

fn default_acl(t: &Txn<'_>, dir: &Inode, kind: FileType) -> Result<Option<Acl>> {
    if !dir.has_acl || kind == FileType::Symlink {
        return Ok(None);
    }
    match xattr::find(t, dir.ino, acl::DEFAULT)? {
        Some(bytes) => Acl::decode(&bytes),
        None => Ok(None),
    }
}

/// Layout policy for a new file in `dir`. The directory's default (copied from its parent when it was made) comes
/// first, then the root's default, then the configuration.
pub fn effective_policy(t: &Txn<'_>, dir: &Inode) -> Result<LayoutPolicy> {
    let mut policy = dir.layout_policy.clone().unwrap_or_default();
    if dir.ino != Ino::ROOT {
        let root = inode::find(t, Ino::ROOT)?.and_then(|root| root.layout_policy);
        policy = inherit_layout(&policy, &root.unwrap_or_default());
    }
    Ok(inherit_layout(&policy, &t.mdt().config().layout_default))
}

fn new_file(t: &Txn<'_>, dir: &Inode) -> Result<FileBody> {
    empty_file(t, &effective_policy(t, dir)?)
}

/// An empty file's part of an inode: inline, with components of a new generation. OSTs are chosen for the first one, if any is known yet.
pub fn empty_file(t: &Txn<'_>, policy: &LayoutPolicy) -> Result<FileBody> {
    let mut components = t.mdt().osts().lay_out(policy, t.pair())?;
    if let Some(first) = components.first_mut() {
        first.osts = t.choose_osts(&first.asked)?;
    }
    Ok(FileBody {
        layout: Layout { epoch: t.pair(), body: t.pair(), inline: true, components },
        layout_gen: 0,
        convert_begun: false,
        unsynced: Vec::new(),
        aside: Vec::new(),
        pending_cut: None,
        changed: Pair::ZERO,
    })
}
