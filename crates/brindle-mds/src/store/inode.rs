//! `I|ino`: attributes, layout, flags, and where the inode hangs in the tree.

use std::sync::Arc;

use brindle_types::attr::{Rights, Time};
use brindle_types::layout::{Component, STRIPE_SIZE_DEFAULT_BYTES};
use brindle_types::{Attr, Code, Fault, FileType, Ino, Layout, LayoutPolicy, Pair, Result, Stripe};
use serde::{Deserialize, Serialize};

mod forms;

use super::changes::InodeEffect;
use super::usage::Owners;
use super::{Changes, Rows, append, keys, row, watch};

/// Size that stat shows for a directory.
pub const DIR_SIZE_BYTES: u64 = 4096;
/// Unit in which the space of inline data is counted.
const SECTOR_BYTES: u64 = 512;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Number.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    /// Names (for a directory: 2 + subdirectories; 0 once it is removed).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device nodes.
    pub rdev: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated bytes, as far as they were reported.
    pub allocated_bytes: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Directory of the one name, or of any of several; itself for the root.
    pub parent: Ino,
    /// Name in the parent directory.
    pub name_hint: Arc<[u8]>,
    /// Changes when contents do; means nothing while `open_for_write` is set.
    pub data_version: Pair,
    /// A POSIX ACL (access or default) exists.
    pub has_acl: bool,
    /// Any other extended attribute exists.
    pub has_xattr: bool,
    /// A write session exists, or existed when the MDT stopped.
    pub open_for_write: bool,
    /// Raised by explicit times and truncates.
    pub attr_epoch: Pair,
    /// Raised by truncates.
    pub truncate_epoch: Pair,
    /// Part of the inode that only regular files have. Shared by copies of the inode, of which each request makes several.
    pub file: Option<Arc<FileBody>>,
    /// Default layout for new files of a directory, if it has one.
    pub layout_policy: Option<LayoutPolicy>,
    /// The project that the inode counts for; 0 for none.
    pub project: u32,
    /// Flag of a directory: new entries get its project, and new subdirectories this flag.
    pub inherits_project: bool,
}

/// The part of an inode that only regular files have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBody {
    /// Layout of the file.
    pub layout: Layout,
    /// Layout changes so far.
    pub layout_gen: u32,
    /// The bytes lie in the MDT, but objects of the first component may have been written (a convert that was cut short).
    pub convert_begun: bool,
    /// Stripes that were written and are not known to be synced, with the boot term of the OST at the write.
    pub unsynced: Vec<(Stripe, u32)>,
    /// Objects beside the layout. They belong to a move that is under way, or a move has left them behind and they may be
    /// destroyed only after all clients know the new layout. After a restart they are garbage.
    pub aside: Vec<Component>,
    /// A partial truncate under way: the size it cuts to, under the inode's truncate epoch.
    pub pending_cut: Option<u64>,
    /// Last change of the contents that the MDT made itself: inline bytes, truncate, move to objects. A client that was
    /// told of a later one has lost it in a power cut.
    pub changed: Pair,
}

impl Inode {
    /// Whether the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether its bytes lie in the MDT.
    pub fn is_inline(&self) -> bool {
        self.file.as_ref().is_some_and(|f| f.layout.inline)
    }

    /// User, group and project that the inode counts for.
    pub fn owners(&self) -> Owners {
        Owners { uid: self.uid, gid: self.gid, project: self.project }
    }

    /// The project of new entries of this directory.
    pub fn project_of_new(&self) -> u32 {
        if self.inherits_project { self.project } else { 0 }
    }

    /// Whether this directory takes in only inodes of its own project, and that is another one.
    pub fn excludes_project_of(&self, child: &Inode) -> bool {
        self.inherits_project && self.project != child.project
    }

    /// Whether the inode must be looked at after a restart: a client has it open for writing, or its objects are being
    /// cut or moved.
    pub fn is_watched(&self) -> bool {
        let unfinished = |f: &Arc<FileBody>| f.pending_cut.is_some() || !f.aside.is_empty();
        self.open_for_write || self.file.as_ref().is_some_and(unfinished)
    }

    /// Whether objects of its components may exist.
    pub fn may_have_objects(&self) -> bool {
        self.file.as_ref().is_some_and(|f| !f.layout.inline || f.convert_begun || !f.aside.is_empty())
    }

    /// The directory whose lease may cover the attributes ([`covered`] has the last word). A directory covers its own.
    /// For other inodes it is the directory of the only name, while nobody has the inode open for writing.
    pub fn covered_by(&self) -> Option<Ino> {
        if self.is_dir() {
            return Some(self.ino);
        }
        (self.nlink == 1 && !self.open_for_write).then_some(self.parent)
    }

    /// The directory whose lease covers the rights of a directory, also while several clients change what is in it: its parent.
    pub fn rights_covered_by(&self) -> Option<Ino> {
        let is_named = self.nlink > 0 && self.parent != self.ino;
        (self.is_dir() && is_named).then_some(self.parent)
    }

    /// Permissions: kind, mode bits, owner, and whether there is an ACL.
    pub fn rights(&self) -> Rights {
        let Inode { kind, perm, uid, gid, has_acl, has_xattr, .. } = *self;
        Rights { kind, perm, uid, gid, has_acl, has_xattr }
    }

    /// The regular file's part; `InvalidArgument` (or `IsDirectory`) for everything else.
    pub fn file(&self) -> Result<&FileBody> {
        match (&self.file, self.is_dir()) {
            (Some(file), _) => Ok(file),
            (None, true) => Err(Fault::new(Code::IsDirectory)),
            (None, false) => Err(Fault::new(Code::InvalidArgument).why("it is not a regular file")),
        }
    }

    /// Like `file`, for changes.
    pub fn file_mut(&mut self) -> Result<&mut FileBody> {
        self.file()?;
        Ok(Arc::make_mut(self.file.as_mut().expect("checked one line above")))
    }

    /// Attributes of the inode, valid while no client writes it.
    pub fn attr(&self) -> Attr {
        let first = self.file.as_ref().and_then(|f| f.layout.components.first());
        let stripe_size = first.map(|component| component.stripe_size_bytes);
        Attr {
            ino: self.ino,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size_bytes: self.size_bytes,
            allocated_bytes: self.allocated_bytes,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            has_acl: self.has_acl,
            has_xattr: self.has_xattr,
            data_version: (!self.open_for_write).then_some(self.data_version),
            blksize_bytes: stripe_size.unwrap_or(STRIPE_SIZE_DEFAULT_BYTES),
        }
    }

    /// Whether clients that know the attributes of one need not be told of the other: what differs is told by no lease.
    fn looks_like(&self, other: &Inode) -> bool {
        self.attr() == other.attr()
            && self.covered_by() == other.covered_by()
            && self.rights_covered_by() == other.rights_covered_by()
    }

    /// Space that inline data of this length counts for.
    pub fn inline_allocation(len_bytes: usize) -> u64 {
        (len_bytes as u64).next_multiple_of(SECTOR_BYTES)
    }
}

/// The inode as its row tells, if it exists.
pub(super) fn decode(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Option<Inode>> {
    let key = keys::of_ino(keys::INODE, ino);
    rows.row(&key)?.map(|value| row::decode("inode", &key, &value)).transpose()
}

/// The inode, if it exists.
pub fn find(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Option<Inode>> {
    rows.inode(ino)
}

/// The inode; `NotFound` if it does not exist.
pub fn get(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Inode> {
    find(rows, ino)?.ok_or_else(|| Fault::new(Code::NotFound))
}

/// The directory; `NotDirectory` if it is something else, `NotFound` if it was removed.
pub fn dir(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Inode> {
    let inode = get(rows, ino)?;
    if !inode.is_dir() {
        return Err(Fault::new(Code::NotDirectory));
    }
    if inode.nlink == 0 {
        return Err(Fault::new(Code::NotFound).why("the directory was removed"));
    }
    Ok(inode)
}

/// The directory whose lease covers the attributes of an inode: they are in its row, and cannot change without a change
/// of the row.
pub fn covered(rows: &(impl Rows + ?Sized), inode: &Inode) -> Result<Option<Ino>> {
    let by = inode.covered_by();
    // An append that is not finished hides what lies behind it.
    let may_hide = by.is_some() && inode.file.is_some() && !inode.is_inline();
    if may_hide && !append::list(rows, inode.ino)?.is_empty() {
        return Ok(None);
    }
    Ok(by)
}

/// Stores an inode and charges what changed to its owners. Keeps the list of inodes to look at after a restart.
pub fn put(t: &mut Changes<'_>, inode: &Inode) -> Result<()> {
    let old = t.change_inode(inode.ino, Some(inode.clone()))?;
    assert_follows(old.as_ref(), inode);
    t.charge(old.as_ref(), Some(inode));
    let had_other_rights = old.as_ref().filter(|old| old.rights() != inode.rights());
    if !old.as_ref().is_some_and(|old| old.looks_like(inode)) {
        let effect = InodeEffect {
            ino: inode.ino,
            was_covered_by: old.as_ref().and_then(Inode::covered_by),
            rights_were_covered_by: had_other_rights.and_then(Inode::rights_covered_by),
            now: covered(t, inode)?.map(|by| (inode.attr(), by)),
            rights_covered_by: inode.rights_covered_by(),
            is_new_dir: old.is_none() && inode.is_dir(),
            is_gone: false,
        };
        t.effects_mut().inodes.push(effect);
    }
    match (old.is_some_and(|old| old.is_watched()), inode.is_watched()) {
        (false, true) => watch::put(t, inode.ino),
        (true, false) => watch::delete(t, inode.ino),
        _ => {}
    }
    t.put_row(keys::of_ino(keys::INODE, inode.ino), inode);
    Ok(())
}

/// Panics before a row is written that only a mistake of this server can have made.
fn assert_follows(old: Option<&Inode>, new: &Inode) {
    let ino = new.ino;
    assert_eq!(
        new.file.is_some(),
        new.kind == FileType::Regular,
        "inode {ino:?}: a file has a body, others none"
    );
    let Some(old) = old else { return };
    assert_eq!(old.kind, new.kind, "inode {ino:?} keeps its type");
    assert!(old.attr_epoch <= new.attr_epoch, "inode {ino:?}: the attribute epoch never goes back");
    assert!(old.truncate_epoch <= new.truncate_epoch, "inode {ino:?}: the truncate epoch never goes back");
    if let (Some(old), Some(new)) = (&old.file, &new.file) {
        assert!(
            old.layout_gen <= new.layout_gen,
            "inode {ino:?}: the generation of the layout never goes back"
        );
    }
}

/// Stores an inode of which only the time of the last access has changed. The caller is told; leases of others stay.
pub fn put_accessed(t: &mut Changes<'_>, inode: &Inode) -> Result<()> {
    t.change_inode(inode.ino, Some(inode.clone()))?;
    let effect = InodeEffect {
        ino: inode.ino,
        was_covered_by: None,
        rights_were_covered_by: None,
        now: covered(t, inode)?.map(|by| (inode.attr(), by)),
        rights_covered_by: None,
        is_new_dir: false,
        is_gone: false,
    };
    t.effects_mut().inodes.push(effect);
    t.put_row(keys::of_ino(keys::INODE, inode.ino), inode);
    Ok(())
}

/// Removes an inode and credits its owners.
pub fn delete(t: &mut Changes<'_>, inode: &Inode) -> Result<()> {
    let old = t.change_inode(inode.ino, None)?;
    t.charge(old.as_ref(), None);
    let effect = InodeEffect {
        ino: inode.ino,
        was_covered_by: old.as_ref().and_then(Inode::covered_by),
        // The name of the inode was removed first.
        rights_were_covered_by: None,
        now: None,
        rights_covered_by: None,
        is_new_dir: false,
        is_gone: true,
    };
    t.effects_mut().inodes.push(effect);
    if old.is_some_and(|old| old.is_watched()) {
        watch::delete(t, inode.ino);
    }
    t.delete(keys::of_ino(keys::INODE, inode.ino));
    Ok(())
}
