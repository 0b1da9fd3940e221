//! Rights of a session at one moment, from the rows and from its open files.
//!
//! An operation with credentials is judged by them, as the nodemap maps them. An operation without credentials is allowed if *some* user
//! that the host may name may do it: the host could ask in that user's name as well. Supplementary groups are rarely told: a user is taken
//! to be in every group that the host may name, as its own kernel has checked that.
//!
//! A session *reaches* an inode number if it has the inode open, or if some path from the root leads to the inode through directories that
//! some user of the host may search.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use brindle_net::Limits;
use brindle_types::{Code, Fault, FileType, Ino, Result, SessionId};
use brindle_wire::Cred;
use brindle_wire::mgs::nodemap::Squash;

use crate::access::{self, READ, SEARCH, WRITE};
use crate::acl;
use crate::mdt::Txn;
use crate::namespace;
use crate::opens::Handle;
use crate::store::{Inode, inode, link};

/// Deepest directory that is come to.
const DEPTH_MAX: usize = 4096;
/// Names of an inode that are looked at.
const NAMES_MAX: usize = 1024;
/// Others than their owner do not remove names here.
const S_ISVTX: u16 = 0o1000;
/// Programs run with the group of the file.
const S_ISGID: u32 = 0o2000;
/// Programs run with the user or group of the file.
const SET_ID: u16 = 0o6000;

/// Directories that one request may have looked at on the way to the root: a bound for the time under the lock.
const STEPS_MAX: usize = 16_384;

/// Users whom the credentials of a request may stand for.
enum Asker<'c> {
    /// Exactly this one.
    Only(Cred),
    /// The given user, in any group that the host may name.
    InAnyGroup(&'c Cred),
    /// Any user and group that the host may name.
    Anybody,
}

/// The view of one request.
pub struct Judge<'a, 't> {
    /// Rows and open files.
    pub t: &'a Txn<'t>,
    /// Limits of the host.
    pub limits: &'a Limits,
    /// The session that asks.
    pub session: SessionId,
    /// Directories that the host may come to, as far as this request has found out.
    reached: RefCell<BTreeSet<Ino>>,
    steps: Cell<usize>,
}

/// The refusal of a permission.
pub fn denied(limits: &Limits, what: impl Into<String>) -> Fault {
    let why = format!("nodemap '{}' limits this host: {}", limits.nodemap, what.into());
    Fault::new(Code::PermissionDenied).why(why)
}

/// The refusal of an operation that only the owner may do.
fn not_owner(limits: &Limits) -> Fault {
    let why = format!("nodemap '{}' limits this host, and the file is another user's", limits.nodemap);
    Fault::new(Code::NotPermitted).why(why)
}

impl<'a, 't> Judge<'a, 't> {
    /// The view of a request of a session.
    pub fn new(t: &'a Txn<'t>, limits: &'a Limits, session: SessionId) -> Judge<'a, 't> {
        Judge { t, limits, session, reached: RefCell::default(), steps: Cell::new(0) }
    }
}

impl Judge<'_, '_> {
    /// Rights of the session's open handles of an inode, taken together.
    pub fn held(&self, ino: Ino) -> Option<Handle> {
        self.t.live().opens.held(ino, self.session)
    }

    /// Whether the session has a handle for reading: programs are read to be run.
    pub fn holds_for_reading(&self, ino: Ino) -> Result<()> {
        match self.held(ino) {
            Some(handle) if handle.read || handle.execute => Ok(()),
            _ => Err(denied(self.limits, "it has not opened the file for reading")),
        }
    }

    /// Whether the session has a handle for writing.
    pub fn holds_for_writing(&self, ino: Ino) -> Result<()> {
        match self.held(ino) {
            Some(handle) if handle.write => Ok(()),
            _ => Err(denied(self.limits, "it has not opened the file for writing")),
        }
    }

    /// The directory that the host sees as its root.
    fn root(&self) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in &self.limits.subtree {
            let entry = namespace::find(self.t, at, name)?.filter(|entry| entry.kind == FileType::Directory);
            at = entry.ok_or_else(|| denied(self.limits, "its tree does not exist"))?.ino;
        }
        Ok(at)
    }

    /// Refuses an inode that the host does not reach. A missing inode is left to the operation.
    pub fn reaches(&self, ino: Ino) -> Result<()> {
        let sees_all = self.limits.believes_all_users() && self.limits.subtree.is_empty();
        if sees_all || self.held(ino).is_some() {
            return Ok(());
        }
        match inode::find(self.t, ino)? {
            Some(found) if !self.comes_to(&found)? => {
                Err(denied(self.limits, "no user of it may come to the file"))
            }
            _ => Ok(()),
        }
    }

    fn comes_to(&self, found: &Inode) -> Result<bool> {
        let root = self.root()?;
        if found.ino == root {
            return Ok(true);
        }
        if found.ino == Ino::ROOT || found.nlink == 0 {
            return Ok(false);
        }
        if found.is_dir() || found.nlink == 1 {
            return self.comes_through(found.parent, root);
        }
        for (parent, _) in link::list(self.t, found.ino)?.into_iter().take(NAMES_MAX) {
            if self.comes_through(parent, root)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether some user of the host may search a directory and all above it.
    fn comes_through(&self, dir: Ino, root: Ino) -> Result<bool> {
        let (mut at, mut passed) = (dir, Vec::new());
        for _ in 0..DEPTH_MAX {
            if self.reached.borrow().contains(&at) {
                self.reached.borrow_mut().extend(passed);
                return Ok(true);
            }
            self.steps.set(self.steps.get() + 1);
            if self.steps.get() > STEPS_MAX {
                return Err(denied(self.limits, format!("more than {STEPS_MAX} directories lie on the way")));
            }
            let Some(dir) = inode::find(self.t, at)? else { return Ok(false) };
            if !self.allows(&dir, None, SEARCH)? {
                return Ok(false);
            }
            passed.push(at);
            if at == root {
                self.reached.borrow_mut().extend(passed);
                return Ok(true);
            }
            if at == Ino::ROOT {
                return Ok(false);
            }
            at = dir.parent;
        }
        Ok(false)
    }

    /// Whether mode bits or ACL allow it; without credentials, to some user.
    pub fn allows(&self, inode: &Inode, cred: Option<&Cred>, wanted: u16) -> Result<bool> {
        if self.limits.believes_all_users() {
            return Ok(true);
        }
        let acl = access::acl_of(self.t, inode)?;
        let covers = |perm: u16| perm & wanted == wanted;
        Ok(match self.asker(cred) {
            Asker::Only(cred) => acl.allows(inode.uid, inode.gid, &cred, wanted),
            Asker::InAnyGroup(cred) => {
                let decides_alone = cred.uid == inode.uid || acl.names_user(cred.uid);
                acl.allows(inode.uid, inode.gid, cred, wanted)
                    || !decides_alone && acl.group_perms(inode.gid, self.in_group()).any(covers)
            }
            Asker::Anybody => self.perms(&acl, inode).any(covers),
        })
    }

    /// Whether mode bits and ACL allow it to every user of the host.
    pub fn allows_everybody(&self, inode: &Inode, wanted: u16) -> Result<bool> {
        if self.limits.believes_all_users() {
            return Ok(true);
        }
        let acl = access::acl_of(self.t, inode)?;
        Ok(match self.asker(None) {
            Asker::Only(cred) => acl.allows(inode.uid, inode.gid, &cred, wanted),
            _ => self.perms(&acl, inode).all(|perm| perm & wanted == wanted),
        })
    }

    /// Groups of the file system that users of the host may be in.
    fn in_group(&self) -> impl Fn(u32) -> bool + Copy {
        |gid| self.limits.may_be_in_group(gid)
    }

    /// All permissions that users of the host can have.
    fn perms(&self, acl: &acl::Acl, inode: &Inode) -> impl Iterator<Item = u16> {
        acl.perms(inode.uid, inode.gid, |uid| self.limits.may_be_user(uid), self.in_group())
    }

    /// The users whom the credentials of a request may stand for.
    fn asker<'c>(&self, cred: Option<&'c Cred>) -> Asker<'c> {
        let nobody = Cred { uid: self.limits.uid, gid: self.limits.gid, groups: Vec::new() };
        match cred {
            _ if self.limits.squash == Squash::All => Asker::Only(nobody),
            Some(cred) if (cred.uid, cred.gid) == (nobody.uid, nobody.gid) => Asker::Only(cred.clone()),
            Some(cred) => Asker::InAnyGroup(cred),
            None => Asker::Anybody,
        }
    }

    /// Whether the host may come to an inode, and the user may do this with it.
    pub fn may(&self, ino: Ino, cred: Option<&Cred>, wanted: u16) -> Result<()> {
        self.reaches(ino)?;
        match inode::find(self.t, ino)? {
            Some(found) if !self.allows(&found, cred, wanted)? => {
                Err(denied(self.limits, "mode or ACL of the file do not allow it"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the user may open a file like that.
    pub fn may_open(&self, ino: Ino, cred: &Cred, access: brindle_wire::mds::open::Access) -> Result<()> {
        self.reaches(ino)?;
        let Some(found) = inode::find(self.t, ino)? else { return Ok(()) };
        let refused = || Err(denied(self.limits, "mode or ACL of the file do not allow it"));
        let (reads, writes) = (access.read || access.execute, access.write || access.truncate);
        if !found.is_dir() && !reads && !writes {
            // A handle is a right to lock the file, and to keep others from it.
            return refused();
        }
        // To run a program is to read it, so execute permission is enough. While the program runs, it cannot be
        // written.
        let runs = access.execute && !found.is_dir();
        if runs && !self.allows(&found, Some(cred), SEARCH)? {
            return refused();
        }
        if reads && !runs && !self.allows(&found, Some(cred), READ)? {
            return refused();
        }
        if writes && !self.allows(&found, Some(cred), WRITE)? {
            return refused();
        }
        self.check_set_id(&found, access.write)
    }

    /// Refuses to open a set-id file for writing. A write clears these bits, and only the host would know whether one happened.
    pub fn check_set_id(&self, found: &Inode, writes: bool) -> Result<()> {
        let believed = self.limits.believes_all_users();
        if believed || !writes || found.kind != FileType::Regular || found.perm & SET_ID == 0 {
            return Ok(());
        }
        let why = "files with set-user-id or set-group-id are not opened for writing from such hosts";
        Err(denied(self.limits, why).next("clear the bits first: chmod ug-s FILE"))
    }

    /// Whether the user may make a name in a directory; an existing one is found by whoever may search it.
    pub fn may_make(&self, dir: Ino, name: &[u8], cred: &Cred, opens_existing: bool) -> Result<()> {
        if opens_existing && namespace::find(self.t, dir, name)?.is_some() {
            return self.may(dir, Some(cred), SEARCH);
        }
        self.may(dir, Some(cred), WRITE | SEARCH)
    }

    /// Whether the user may open what a name leads to already, as open(2) with O_CREAT does.
    pub fn may_open_existing(
        &self,
        dir: Ino,
        name: &[u8],
        cred: &Cred,
        access: brindle_wire::mds::open::Access,
    ) -> Result<()> {
        match namespace::find(self.t, dir, name)? {
            Some(entry) if entry.kind == FileType::Regular => self.may_open(entry.ino, cred, access),
            _ => Ok(()),
        }
    }

    /// Device nodes are made by root only.
    pub fn may_make_kind(&self, kind: FileType) -> Result<()> {
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        match is_device && !self.limits.believes_all_users() {
            true => Err(Fault::new(Code::NotPermitted).why("only root makes device nodes")),
            false => Ok(()),
        }
    }

    /// Whether the user may do anything with the contents of a file.
    pub fn may_use(&self, ino: Ino, cred: &Cred) -> Result<()> {
        if self.held(ino).is_some() {
            return Ok(());
        }
        self.may(ino, Some(cred), READ).or_else(|_| self.may(ino, Some(cred), WRITE))
    }

    /// Whether a directory is the one that the host sees as its root, and not that of the file system.
    pub fn is_own_root(&self, dir: Ino) -> Result<bool> {
        Ok(!self.limits.subtree.is_empty() && self.root()? == dir)
    }

    /// The name that leads on from a directory above the host's tree. A mount walks from the root of the file system to its tree, and sees
    /// no other names on the way.
    fn leads_on(&self, dir: Ino) -> Result<Option<&[u8]>> {
        let mut at = Ino::ROOT;
        for name in &self.limits.subtree {
            if at == dir {
                return Ok(Some(name));
            }
            let entry = namespace::find(self.t, at, name)?.filter(|entry| entry.kind == FileType::Directory);
            let Some(entry) = entry else { return Ok(None) };
            at = entry.ino;
        }
        Ok(None)
    }

    /// Whether the host may look a name up.
    pub fn may_look_up(&self, dir: Ino, name: &[u8]) -> Result<()> {
        if self.leads_on(dir)? == Some(name) {
            return Ok(());
        }
        self.may(dir, None, SEARCH)
    }

    /// Whether the host may see the attributes of an inode.
    pub fn may_see(&self, ino: Ino) -> Result<()> {
        if self.leads_on(ino)?.is_some() {
            return Ok(());
        }
        self.reaches(ino)
    }

    /// Whether the user may take a name away; one that does not exist is left to the operation.
    pub fn may_remove(&self, dir: Ino, name: &[u8], cred: &Cred) -> Result<()> {
        self.may(dir, Some(cred), WRITE | SEARCH)?;
        if self.limits.believes_all_users() {
            return Ok(());
        }
        let (Some(dir), Some(entry)) = (inode::find(self.t, dir)?, namespace::find(self.t, dir, name)?)
        else {
            return Ok(());
        };
        let child = inode::find(self.t, entry.ino)?;
        let is_own = dir.uid == cred.uid || child.is_some_and(|child| child.uid == cred.uid);
        if dir.perm & S_ISVTX == 0 || is_own { Ok(()) } else { Err(not_owner(self.limits)) }
    }

    /// Whether the user may move a directory away from its parent.
    pub fn may_move(&self, from: Ino, name: &[u8], to: Ino, cred: &Cred) -> Result<()> {
        let entry = namespace::find(self.t, from, name)?;
        match entry.filter(|entry| entry.kind == FileType::Directory && from != to) {
            Some(entry) => self.may(entry.ino, Some(cred), WRITE),
            None => Ok(()),
        }
    }

    /// Whether the user owns an inode.
    pub fn owns(&self, ino: Ino, cred: &Cred) -> Result<()> {
        self.reaches(ino)?;
        if self.limits.believes_all_users() {
            return Ok(());
        }
        match inode::find(self.t, ino)? {
            Some(found) if found.uid != cred.uid => Err(not_owner(self.limits)),
            _ => Ok(()),
        }
    }

    /// Whether the user may change attributes like that.
    pub fn may_set(&self, req: &brindle_wire::mds::setattr::SetattrReq) -> Result<()> {
        use brindle_wire::mds::setattr::SetTime;
        let (ino, cred) = (req.ino, &req.cred);
        self.reaches(ino)?;
        let Some(found) = inode::find(self.t, ino)?.filter(|_| !self.limits.believes_all_users()) else {
            return Ok(());
        };
        let writes_by_handle = self
            .t
            .live()
            .opens
            .get(ino, self.session, req.handle)
            .is_some_and(|handle| req.handle != 0 && handle.write);
        if req.size_bytes.is_some() && !writes_by_handle {
            self.may(ino, Some(cred), WRITE)?;
        }
        let is_own = found.uid == cred.uid;
        let sets = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
        let touches = req.atime.is_some() || req.mtime.is_some();
        if (req.mode.is_some() || req.gid.is_some() || sets(req.atime) || sets(req.mtime)) && !is_own {
            return Err(not_owner(self.limits));
        }
        if touches && !is_own && !writes_by_handle {
            self.may(ino, Some(cred), WRITE)?;
        }
        if req.uid.is_some_and(|uid| uid != found.uid || !is_own) {
            return Err(not_owner(self.limits));
        }
        self.may_give_group(&found, req)
    }

    /// Whether the user may give a file to this group, or have programs run with its group.
    fn may_give_group(&self, found: &Inode, req: &brindle_wire::mds::setattr::SetattrReq) -> Result<()> {
        let gid = req.gid.unwrap_or(found.gid);
        let runs_with_group = !found.is_dir() && req.mode.is_some_and(|mode| mode & S_ISGID != 0);
        if (gid == found.gid || req.gid.is_none()) && !runs_with_group {
            return Ok(());
        }
        self.may_name_group(gid, &req.cred)
    }

    /// Whether the user may be in a group, as far as the MDT can tell: only the host knows the groups of its users, and may name
    /// every group but root's.
    fn may_name_group(&self, gid: u32, cred: &Cred) -> Result<()> {
        let may_name = match self.limits.squash {
            Squash::None => true,
            Squash::Root if cred.uid != self.limits.uid => self.limits.may_be_in_group(gid),
            Squash::Root | Squash::All => gid == cred.gid || cred.groups.contains(&gid),
        };
        if may_name { Ok(()) } else { Err(not_owner(self.limits)) }
    }

    /// Whether a file that runs with its group, and has it from its directory, may get permissions by which somebody can run it.
    fn may_keep_group(&self, ino: Ino, cred: &Cred) -> Result<()> {
        let found = inode::find(self.t, ino)?;
        match found.filter(|found| !found.is_dir() && u32::from(found.perm) & S_ISGID != 0) {
            Some(found) => self.may_name_group(found.gid, cred),
            None => Ok(()),
        }
    }

    /// Whether room in the quota is asked for of the owner and the group of a file that the session writes.
    pub fn may_reserve(&self, ino: Ino, owners: (u32, u32)) -> Result<()> {
        self.holds_for_writing(ino)?;
        match inode::find(self.t, ino)? {
            // A host with numbers of its own is given room of the file's owner, whatever it says.
            _ if self.limits.ids.maps() => Ok(()),
            Some(found) if (found.uid, found.gid) != owners => Err(not_owner(self.limits)),
            _ => Ok(()),
        }
    }

    /// Whether the user may read an extended attribute.
    pub fn may_get_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        if name.starts_with(b"trusted.") && !self.limits.believes_all_users() {
            return Err(Fault::new(Code::NoXattr));
        }
        if name.starts_with(b"user.") && self.held(ino).is_none_or(|handle| !handle.read) {
            return self.may(ino, None, READ);
        }
        self.reaches(ino)
    }

    /// Whether the user may change an extended attribute.
    pub fn may_set_xattr(&self, ino: Ino, name: &[u8], cred: &Cred) -> Result<()> {
        self.reaches(ino)?;
        if self.limits.believes_all_users() {
            return Ok(());
        }
        if acl::is_acl(name) {
            self.owns(ino, cred)?;
            return self.may_keep_group(ino, cred);
        }
        if !name.starts_with(b"user.") {
            return Err(not_owner(self.limits));
        }
        let Some(found) = inode::find(self.t, ino)? else { return Ok(()) };
        if found.is_dir() && found.perm & S_ISVTX != 0 && found.uid != cred.uid {
            return Err(not_owner(self.limits));
        }
        self.may(ino, Some(cred), WRITE)
    }
}
