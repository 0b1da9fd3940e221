//! rename, with NOREPLACE, EXCHANGE and WHITEOUT.
//!
//! The MDT checks what the caller's kernel cannot know of other clients' changes: types, emptiness, loops. Two names of
//! one inode: nothing happens, as POSIX says.

use brindle_types::changelog::FLAG_LAST;
use brindle_types::{ChangeKind, ChangeSource, Code, Fault, FileType, Ino, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::rename::RenameReq;

use crate::birth::{self, Birth};
use crate::changelog;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::namespace;
use crate::store::{Inode, dirent, inode};

/// Deepest tree that the loop check walks; a longer chain of parents is a circle.
const DEPTH_MAX: usize = 1 << 20;

/// Moves a name.
pub async fn handle(mdt: &Mdt, call: &Call, req: RenameReq) -> Result<Empty> {
    if namespace::is_dots(&req.name) || namespace::is_dots(&req.new_name) {
        return Err(Fault::new(Code::FileBusy).why("'.' and '..' cannot be renamed"));
    }
    namespace::check_name(&req.name)?;
    namespace::check_name(&req.new_name)?;
    if req.no_replace && req.exchange {
        return Err(Fault::new(Code::InvalidArgument).why("NOREPLACE and EXCHANGE exclude each other"));
    }
    if req.whiteout && req.exchange {
        return Err(Fault::new(Code::InvalidArgument).why("WHITEOUT and EXCHANGE exclude each other"));
    }
    let names = [(req.parent, &req.name[..]), (req.new_parent, &req.new_name[..])];
    let renamed = mdt.modify(call, |t| rename(t, &req)).await;
    namespace::tell_if_refused(mdt, call, &names, renamed).await
}

/// The two directories; one inode where both are the same.
struct Dirs {
    old: Inode,
    new: Option<Inode>,
}

impl Dirs {
    fn load(t: &Txn<'_>, req: &RenameReq) -> Result<Dirs> {
        let old = inode::dir(t, req.parent)?;
        let new = match req.parent == req.new_parent {
            true => None,
            false => Some(inode::dir(t, req.new_parent)?),
        };
        Ok(Dirs { old, new })
    }

    fn target(&mut self) -> &mut Inode {
        self.new.as_mut().unwrap_or(&mut self.old)
    }

    fn touch(&mut self, t: &Txn<'_>) {
        namespace::touch_dir(t, &mut self.old);
        namespace::touch_dir(t, self.target());
    }

    /// Refuses to move an entry of another project into a directory whose project is inherited: the usage of the
    /// project would be wrong.
    fn refuse_other_project(&self, source: &Inode) -> Result<()> {
        match &self.new {
            Some(new) if new.excludes_project_of(source) => Err(namespace::other_project(new, source)),
            _ => Ok(()),
        }
    }

    /// Like `refuse_other_project`, for the entry that comes back in an exchange.
    fn refuse_other_project_back(&self, target: &Inode) -> Result<()> {
        match self.new.is_some() && self.old.excludes_project_of(target) {
            true => Err(namespace::other_project(&self.old, target)),
            false => Ok(()),
        }
    }

    /// A directory went from the old to the new one.
    fn count_moved(&mut self, child: &Inode) {
        if let (true, Some(new)) = (child.is_dir(), &mut self.new) {
            self.old.nlink = self.old.nlink.saturating_sub(1);
            new.nlink += 1;
        }
    }

    /// A directory went from the new to the old one.
    fn count_moved_back(&mut self, child: &Inode) {
        if let (true, Some(new)) = (child.is_dir(), &mut self.new) {
            new.nlink = new.nlink.saturating_sub(1);
            self.old.nlink += 1;
        }
    }

    fn store(&self, t: &mut Txn<'_>) -> Result<()> {
        inode::put(t, &self.old)?;
        self.new.iter().try_for_each(|new| inode::put(t, new))
    }
}

fn rename(t: &mut Txn<'_>, req: &RenameReq) -> Step<Empty> {
    let mut dirs = Dirs::load(t, req)?;
    let source = namespace::get(t, req.parent, &req.name)?;
    let target = match namespace::find(t, req.new_parent, &req.new_name)? {
        Some(entry) => Some(namespace::named(t, req.new_parent, &req.new_name, entry)?),
        None => None,
    };
    if source.is_dir() {
        refuse_loop(t, source.ino, req.new_parent)?;
    }
    match target {
        None if req.exchange => return Err(Fault::new(Code::NotFound).into()),
        Some(_) if req.no_replace => return Err(Fault::new(Code::Exists).into()),
        Some(target) if target.ino == source.ino => return Ok(Empty {}),
        Some(target) if req.exchange => {
            if target.is_dir() {
                refuse_loop(t, target.ino, req.parent)?;
            }
            dirs.refuse_other_project(&source)?;
            dirs.refuse_other_project_back(&target)?;
            note(t, req, source.ino, None);
            note_back(t, req, target.ino);
            exchange(t, req, &mut dirs, source, target)?;
        }
        Some(target) => {
            dirs.refuse_other_project(&source)?;
            let last = replace(t, req, &mut dirs, &source, target)?;
            note(t, req, source.ino, Some(last));
            shift(t, req, &mut dirs, source)?;
        }
        None => {
            dirs.refuse_other_project(&source)?;
            note(t, req, source.ino, None);
            shift(t, req, &mut dirs, source)?;
        }
    }
    dirs.store(t)?;
    Ok(Empty {})
}

/// Refuses to move a directory into itself or below.
fn refuse_loop(t: &Txn<'_>, moved: Ino, into: Ino) -> Result<()> {
    let mut at = into;
    for _ in 0..DEPTH_MAX {
        if at == moved {
            return Err(Fault::new(Code::RenameLoop));
        }
        if at == Ino::ROOT {
            return Ok(());
        }
        at = inode::get(t, at)?.parent;
    }
    Err(Fault::new(Code::KvDamaged).what("the tree has a circle above").subject(into.fid().to_string()))
}

/// Tells readers of the changelog. `replaced`: what stood at the new name, and how many names it has left.
fn note(t: &mut Txn<'_>, req: &RenameReq, source: Ino, replaced: Option<(Ino, u32)>) {
    changelog::note(t, ChangeKind::Rename, |change| {
        change.target = replaced.map(|(ino, _)| ino);
        change.flags = if replaced.is_some_and(|(_, nlink)| nlink == 0) { FLAG_LAST } else { 0 };
        (change.parent, change.name) = (Some(req.new_parent), req.new_name.clone());
        change.source = Some(ChangeSource { ino: source, parent: req.parent, name: req.name.clone() });
        change.user = Some((req.cred.uid, req.cred.gid));
    });
}

/// Records the other half of an exchange.
fn note_back(t: &mut Txn<'_>, req: &RenameReq, target: Ino) {
    changelog::note(t, ChangeKind::Rename, |change| {
        (change.parent, change.name) = (Some(req.parent), req.name.clone());
        change.source =
            Some(ChangeSource { ino: target, parent: req.new_parent, name: req.new_name.clone() });
        change.user = Some((req.cred.uid, req.cred.gid));
    });
}

/// Removes what stands at the new name; what it was, and how many names it has left.
fn replace(
    t: &mut Txn<'_>,
    req: &RenameReq,
    dirs: &mut Dirs,
    source: &Inode,
    mut target: Inode,
) -> Step<(Ino, u32)> {
    match (source.is_dir(), target.is_dir()) {
        (true, false) => return Err(Fault::new(Code::NotDirectory).into()),
        (false, true) => return Err(Fault::new(Code::IsDirectory).into()),
        (true, true) if !dirent::is_empty(t, target.ino)? => return Err(Fault::new(Code::NotEmpty).into()),
        _ => {}
    }
    namespace::remove_name(t, dirs.target(), &req.new_name, &mut target)?;
    namespace::store_or_keep(t, &target)?;
    Ok((target.ino, target.nlink))
}

/// Moves the name of `source` to a place that is free now.
fn shift(t: &mut Txn<'_>, req: &RenameReq, dirs: &mut Dirs, mut source: Inode) -> Step<()> {
    let (from, to) = ((req.parent, &req.name[..]), (req.new_parent, &req.new_name[..]));
    namespace::leave(t, from);
    namespace::enter(t, to, &source);
    namespace::moved(t, &mut source, from, to);
    dirs.count_moved(&source);
    dirs.touch(t);
    inode::put(t, &source)?;
    if req.whiteout {
        leave_whiteout(t, req, dirs)?;
    }
    Ok(())
}

/// Makes the device node 0:0 at the old name, which is free now: what overlayfs hides a name of a lower layer with.
fn leave_whiteout(t: &mut Txn<'_>, req: &RenameReq, dirs: &mut Dirs) -> Step<()> {
    let birth = Birth { kind: FileType::CharDevice, mode: 0, umask: 0, rdev: 0, cred: &req.cred };
    let mut node = birth::make(t, &dirs.old, &birth)?;
    namespace::add_name(t, &mut dirs.old, &req.name, &mut node);
    inode::put(t, &node)?;
    changelog::named(t, ChangeKind::Mknod, (req.parent, &req.name), node.ino, &req.cred, 0);
    Ok(())
}

/// Swaps what two names lead to.
fn exchange(
    t: &mut Txn<'_>,
    req: &RenameReq,
    dirs: &mut Dirs,
    mut source: Inode,
    mut target: Inode,
) -> Step<()> {
    let (old, new) = ((req.parent, &req.name[..]), (req.new_parent, &req.new_name[..]));
    namespace::enter(t, old, &target);
    namespace::enter(t, new, &source);
    namespace::moved(t, &mut source, old, new);
    namespace::moved(t, &mut target, new, old);
    dirs.count_moved(&source);
    dirs.count_moved_back(&target);
    dirs.touch(t);
    inode::put(t, &source)?;
    inode::put(t, &target)?;
    Ok(())
}
