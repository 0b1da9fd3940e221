//! Names, links and the end of inodes: the common part of create, link, unlink and rename.
//!
//! Invariants kept here: nlink is the number of entries (2 + subdirectories for directories); link rows exist exactly
//! while an inode has several names, and otherwise the hint in the inode is its name; an inode without a name is an
//! orphan row or gone.

use std::collections::BTreeSet;

use brindle_types::layout::Component;
use brindle_types::{Code, Fault, FileType, Ino, Result};

use crate::hsm;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::dirent::Dirent;
use crate::store::{Inode, Rows, destroy_queue, dirent, inline, inode, link, orphan, xattr};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most names of an inode that is not a directory.
pub const LINKS_MAX: u32 = 65_000;

/// Refuses what cannot be a name of an entry.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Fault::new(Code::NameTooLong).why(format!("the name has {} bytes", name.len())));
    }
    if name.is_empty() {
        return Err(Fault::new(Code::NotFound).why("the name is empty"));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Fault::new(Code::InvalidArgument).why("a name has no '/' and no zero byte"));
    }
    Ok(())
}

/// Refuses what cannot be the name of something new.
pub fn check_new_name(name: &[u8]) -> Result<()> {
    if is_dots(name) {
        return Err(Fault::new(Code::Exists));
    }
    check_name(name)
}

/// Whether a name is `.` or `..`.
pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The entry of a name.
pub fn find(t: &Txn<'_>, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
    dirent::find(t, t.hash_key(), dir, name)
}

/// The entry of a name and its inode; `NotFound` if there is none.
pub fn get(t: &Txn<'_>, dir: Ino, name: &[u8]) -> Result<Inode> {
    let entry = find(t, dir, name)?.ok_or_else(|| Fault::new(Code::NotFound))?;
    named(t, dir, name, entry)
}

/// The inode of an entry, which must be there.
pub fn named(rows: &(impl Rows + ?Sized), dir: Ino, name: &[u8], entry: Dirent) -> Result<Inode> {
    inode::find(rows, entry.ino)?.ok_or_else(|| {
        Fault::new(Code::KvDamaged)
            .what("a directory entry leads nowhere:")
            .subject(format!("'{}' in {}", name.escape_ascii(), dir.fid()))
            .why(format!("inode {} does not exist", entry.ino.fid()))
            .next("run: brindle fsck")
    })
}

/// Passes the outcome of a change of names on. If the change was refused, the caller also gets cache updates of the names. Another
/// thread of the caller may have caused the refusal, and until that thread has its reply, the caller's cache has the old names.
pub async fn tell_if_refused<R>(
    mdt: &Mdt,
    call: &Call,
    names: &[(Ino, &[u8])],
    outcome: Result<R>,
) -> Result<R> {
    if let Err(refusal) = &outcome {
        let telling = mdt.read(|t| names.iter().try_for_each(|(dir, name)| tell(t, call, *dir, name)));
        if let Err(fault) = telling.await {
            // The refusal stands.
            tracing::debug!(code = %refusal.code, %fault, "a change of names was refused, and why cannot be told");
        }
    }
    outcome
}

fn tell(t: &Txn<'_>, call: &Call, dir: Ino, name: &[u8]) -> Result<()> {
    if inode::find(t, dir)?.is_none_or(|dir| dir.nlink == 0) {
        t.tell_not_covered(call, dir);
        return Ok(());
    }
    let entry = find(t, dir, name)?;
    t.tell_name(call, dir, name, entry.map(|entry| (entry.ino, entry.kind)));
    entry.map_or(Ok(()), |entry| t.tell_inode(call, &named(t, dir, name, entry)?))
}

/// The refusal to name an inode in a directory whose project is inherited, and another one. `mv` copies then.
pub fn other_project(dir: &Inode, child: &Inode) -> Fault {
    Fault::new(Code::CrossDevice)
        .subject(child.ino.fid().to_string())
        .why(format!("it is in project {}, and the directory is for project {}", child.project, dir.project))
        .data("nothing was changed")
}

/// The directory's contents changed.
pub fn touch_dir(t: &Txn<'_>, dir: &mut Inode) {
    dir.mtime = t.now;
    dir.ctime = t.now;
}

/// Enters `child` into `dir`. Counts the link on both; the caller stores both inodes.
pub fn add_name(t: &mut Txn<'_>, dir: &mut Inode, name: &[u8], child: &mut Inode) {
    let key = t.hash_key();
    dirent::put(t, key, dir.ino, name, &Dirent { ino: child.ino, kind: child.kind });
    touch_dir(t, dir);
    if child.is_dir() {
        dir.nlink += 1;
        child.nlink = child.nlink.max(2);
        set_hint(child, dir.ino, name);
        return;
    }
    match child.nlink {
        0 => set_hint(child, dir.ino, name),
        1 => {
            link::put(t, child.ino, child.parent, &child.name_hint);
            link::put(t, child.ino, dir.ino, name);
        }
        _ => link::put(t, child.ino, dir.ino, name),
    }
    child.nlink += 1;
}

/// Removes the entry of `child` from `dir`. Counts the link on both; the caller stores both inodes.
pub fn remove_name(t: &mut Txn<'_>, dir: &mut Inode, name: &[u8], child: &mut Inode) -> Result<()> {
    let key = t.hash_key();
    dirent::delete(t, key, dir.ino, name);
    touch_dir(t, dir);
    child.ctime = t.now;
    if child.is_dir() {
        dir.nlink = dir.nlink.saturating_sub(1);
        child.nlink = 0;
        return Ok(());
    }
    child.nlink = child.nlink.saturating_sub(1);
    if child.nlink == 0 {
        return Ok(());
    }
    link::delete(t, child.ino, dir.ino, name);
    let was_hint = (child.parent, &child.name_hint[..]) == (dir.ino, name);
    if !was_hint && child.nlink > 1 {
        return Ok(());
    }
    if let Some((parent, name)) = link::another(t, child.ino, (dir.ino, name))? {
        if child.nlink == 1 {
            link::delete(t, child.ino, parent, &name);
        }
        set_hint(child, parent, &name);
    }
    Ok(())
}

/// Makes a name lead to `child`, whatever it led to before.
pub fn enter(t: &mut Txn<'_>, (dir, name): (Ino, &[u8]), child: &Inode) {
    let key = t.hash_key();
    dirent::put(t, key, dir, name, &Dirent { ino: child.ino, kind: child.kind });
}

/// Makes a name lead nowhere.
pub fn leave(t: &mut Txn<'_>, (dir, name): (Ino, &[u8])) {
    let key = t.hash_key();
    dirent::delete(t, key, dir, name);
}

/// Notes that a name of `child` changed; the caller stores the inode.
pub fn moved(t: &mut Txn<'_>, child: &mut Inode, from: (Ino, &[u8]), to: (Ino, &[u8])) {
    child.ctime = t.now;
    let several = !child.is_dir() && child.nlink > 1;
    if several {
        link::delete(t, child.ino, from.0, from.1);
        link::put(t, child.ino, to.0, to.1);
    }
    if !several || (child.parent, &child.name_hint[..]) == from {
        set_hint(child, to.0, to.1);
    }
}

fn set_hint(child: &mut Inode, parent: Ino, name: &[u8]) {
    child.parent = parent;
    child.name_hint = name.into();
}

/// Stores an inode that lost a name, or lets it go: at once, or as an orphan while somebody has it open.
pub fn store_or_drop(t: &mut Txn<'_>, child: &Inode) -> Step<()> {
    if child.nlink > 0 {
        inode::put(t, child)?;
        return Ok(());
    }
    t.idle(child.ino)?;
    if t.live().may_purge(child.ino) {
        return purge(t, child);
    }
    orphan::put(t, child.ino);
    inode::put(t, child)?;
    Ok(())
}

/// Like [`store_or_drop`], for an inode whose name leads to another one now. A file is kept for a moment ([`crate::mdt::Replaced`]).
pub fn store_or_keep(t: &mut Txn<'_>, child: &Inode) -> Step<()> {
    let keep = child.nlink == 0 && child.kind == FileType::Regular && t.live().replaced.has_room();
    if !keep {
        return store_or_drop(t, child);
    }
    t.idle(child.ino)?;
    orphan::put(t, child.ino);
    inode::put(t, child)?;
    let (ino, now) = (child.ino, t.mdt().seams().now());
    t.after(move |live| live.replaced.keep(ino, now));
    t.mdt().replaced().notify_one();
    Ok(())
}

/// Removes everything of an inode without a name; its objects go to the destroy queue.
pub fn purge(t: &mut Txn<'_>, child: &Inode) -> Step<()> {
    if child.may_have_objects() {
        destroy_objects(t, child);
    }
    if child.has_acl || child.has_xattr {
        for (name, _) in xattr::list(t, child.ino)? {
            xattr::delete(t, child.ino, &name);
        }
    }
    inline::delete(t, child.ino);
    hsm::forget(t, child.ino);
    orphan::delete(t, child.ino);
    inode::delete(t, child)?;
    let ino = child.ino;
    t.after(move |live| {
        live.inline_readers.remove(&ino);
        live.uncounted.remove(&ino);
    });
    Ok(())
}

/// Queues the objects of a file; the queue's task is woken once the batch is in the log.
pub fn destroy_objects(t: &mut Txn<'_>, file: &Inode) {
    if let Some(body) = &file.file {
        let aside = body.aside.iter().flat_map(Component::stripes);
        let objects: BTreeSet<_> = body.layout.stripes().chain(aside).collect();
        destroy_queue::put_all(t, file.ino, objects);
        t.mdt().destroy_queue().notify_one();
    }
}
