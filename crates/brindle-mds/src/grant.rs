//! Grants: the right of a client to use an open inode. Mode of the handle, layout, epochs, inline bytes.

use brindle_stdx::planted;
use brindle_types::{ChangeKind, Code, Fault, FileType, Ino, Layout, Pair, Result, SessionId};
use brindle_wire::mds::open::{Access, OpenGrant, OpenMode};
use brindle_wire::mds::session::ReclaimOpen;

use crate::changelog;
use crate::hsm;
use crate::mdt::{Call, Event, SideTask, Step, Stop, Txn};
use crate::namespace;
use crate::opens::{Decision, OPENS_MAX, Writing};
use crate::store::{Inode, inline, inode};

/// Opens an inode that others may have open: decides the mode, after the recalls it needs. The first write open begins
/// the write session in the caller's batch (the caller stores the inode).
pub fn open(t: &mut Txn<'_>, call: &Call, inode: &mut Inode, access: Access, handle: u64) -> Step<OpenMode> {
    t.idle(inode.ino)?;
    if !access.truncate {
        hsm::here(t, inode)?;
    }
    open_idle(t, call, inode, access, handle)
}

/// Like [`open`], also for a released file. Whoever reads it asks which parts have been restored.
pub fn open_restoring(
    t: &mut Txn<'_>,
    call: &Call,
    inode: &mut Inode,
    access: Access,
    handle: u64,
) -> Step<OpenMode> {
    t.idle(inode.ino)?;
    open_idle(t, call, inode, access, handle)
}

fn open_idle(t: &mut Txn<'_>, call: &Call, inode: &mut Inode, access: Access, handle: u64) -> Step<OpenMode> {
    let (ino, live) = (inode.ino, t.live());
    if live.recalling.contains(&ino) {
        return Err(Stop::RetryAfter(Event::Recalled(ino)));
    }
    if access.write && live.recovering {
        return Err(Stop::RetryAfter(Event::Recovered));
    }
    let marked = inode.open_for_write && live.opens.writing(ino) == Writing::Nobody;
    if marked && live.recovering && !planted("mds_read_before_reclaim") {
        // The writer has not declared itself yet, and may hold acknowledged writes in its buffer.
        return Err(Stop::RetryAfter(Event::Recovered));
    }
    if access.write && marked {
        // A writer died, or did not come back after a restart: its file's size is being recovered.
        return Err(Stop::RetryAfter(Event::Idle(ino)));
    }
    match live.opens.decide(ino, call.session, access, marked) {
        Decision::Recall(..) if access.truncate && hsm::is_restoring(t, inode)? => {
            Err(Stop::First(SideTask::CancelRestore { ino }))
        }
        Decision::Recall(right, from) => Err(Stop::First(SideTask::Recall { ino, right, from })),
        Decision::Grant(mode) => {
            // A power cut may have taken the mark of a writer that has not declared itself yet.
            let mode = if mode == OpenMode::Cached && live.recovering { OpenMode::Direct } else { mode };
            if access.write && inode.open_for_write {
                // The first opener was told. If that was another thread of the same caller, the answer may
                // still be on its way.
                t.tell_not_covered(call, ino);
            }
            add_handle(t, call.session, inode, access, handle, mode)?;
            Ok(mode)
        }
    }
}

/// Refuses to write or cut a program that runs on another client, and to start what another one has open for writing. `has_asked`: those
/// clients were asked already to release what is closed there, since what they hold may be that only.
pub fn refuse_busy_programs(
    t: &Txn<'_>,
    call: &Call,
    ino: Ino,
    access: Access,
    has_asked: &mut bool,
) -> Step<()> {
    let from = t.live().opens.forbid(ino, call.session, access);
    if from.is_empty() {
        return Ok(());
    }
    if !std::mem::replace(has_asked, true) {
        return Err(Stop::First(SideTask::Release { ino, from }));
    }
    let host = t.live().sessions.get(&from[0]).map(|s| s.row.host.clone()).unwrap_or_default();
    let what = if access.execute { "it is open for writing" } else { "it is being executed" };
    Err(Fault::new(Code::TextBusy).why(format!("{what} on {host}")).into())
}

/// Whether opening a small file for reading gives the right to keep pages without disturbing or waiting for anybody.
pub fn is_quiet(t: &Txn<'_>, call: &Call, inode: &Inode) -> bool {
    let live = t.live();
    let access = Access { read: true, write: false, truncate: false, execute: false };
    let is_small = inode.kind == FileType::Regular && inode.nlink > 0 && inode.is_inline();
    // Opens ahead of time may use only half of the handles.
    let is_full = live.opens.count() > OPENS_MAX / 2;
    let is_disturbed = is_full
        || live.recovering
        || live.recalling.contains(&inode.ino)
        || t.idle(inode.ino).is_err()
        || hsm::here(t, inode).is_err();
    let decision = || live.opens.decide(inode.ino, call.session, access, inode.open_for_write);
    is_small && !is_disturbed && decision() == Decision::Grant(OpenMode::Cached)
}

/// Opens an inode that this very batch makes.
pub fn open_new(
    t: &mut Txn<'_>,
    call: &Call,
    inode: &mut Inode,
    access: Access,
    handle: u64,
) -> Step<OpenMode> {
    let mode = if access.write { OpenMode::Exclusive } else { OpenMode::Cached };
    add_handle(t, call.session, inode, access, handle, mode)?;
    Ok(mode)
}

fn add_handle(
    t: &mut Txn<'_>,
    session: SessionId,
    inode: &mut Inode,
    access: Access,
    handle: u64,
    mode: OpenMode,
) -> Step<()> {
    if t.live().opens.count() >= OPENS_MAX {
        return Err(Fault::new(Code::TooManyOpens).into());
    }
    if t.live().opens.get(inode.ino, session, handle).is_some_and(|known| !known.is_of(access)) {
        // The replaced handle would never be closed, and a wait for its end would last for ever.
        return Err(Fault::new(Code::BadHandle)
            .subject(inode.ino.fid().to_string())
            .why(format!("its client has handle {handle} of it open already, for other access"))
            .data("nothing was changed")
            .into());
    }
    if access.write && !inode.open_for_write {
        inode.open_for_write = true;
        inode.data_version = t.pair();
    }
    let ino = inode.ino;
    let inline_reader = access.read && inode.is_inline();
    t.after(move |live| {
        live.opens.add(ino, session, handle, access, mode);
        if inline_reader {
            live.inline_readers.entry(ino).or_default().insert(session);
        }
    });
    Ok(())
}

/// A handle that the client had before the MDT restarted. A write session that a power cut took from the rows begins
/// again.
pub fn restore(
    t: &mut Txn<'_>,
    session: SessionId,
    inode: &mut Inode,
    open: &ReclaimOpen,
    mode: OpenMode,
) -> Step<()> {
    let begun = inode.open_for_write;
    add_handle(t, session, inode, open.access, open.handle, mode)?;
    if inode.open_for_write != begun {
        inode::put(t, inode)?;
    }
    if open.access.write && inode.may_have_objects() {
        // Allocated bytes from reports before the restart are not known any more.
        let (ino, owners) = (inode.ino, inode.owners());
        t.after(move |live| live.uncount(ino, owners));
    }
    Ok(())
}

/// Closes a handle, and stores or removes the inode. The last writer ends the write session, unless a recovery is to do
/// that. The last handle of an inode without a name removes the inode. A missing handle is ignored.
pub fn close(t: &mut Txn<'_>, session: SessionId, inode: &mut Inode, handle: u64) -> Step<()> {
    let (ino, opens) = (inode.ino, &t.live().opens);
    let Some(entry) = opens.get(ino, session, handle) else { return Ok(()) };
    let (write, last) = (entry.write, opens.is_last(ino, session, handle));
    let last_writer = write && opens.is_last_writer(ino, session, handle);
    t.after(move |live| {
        live.opens.remove(ino, session, handle);
        if last {
            live.inline_readers.remove(&ino);
        }
    });
    if last && inode.nlink == 0 && !t.live().recovering && !t.live().replaced.holds(ino) {
        t.idle(ino)?;
        return namespace::purge(t, inode);
    }
    // While clients declare what they had open, others may write the file: files that nobody declares are recovered after that. Only
    // the objects know the writes of a client that has vanished: the recovery that asks them ends the write session.
    if last_writer && !t.live().recovering && t.live().recoveries_due(ino) == 0 {
        end_writing(t, inode)?;
    }
    Ok(())
}

/// Ends the write session of a file that nobody has open for writing any more.
pub fn end_writing(t: &mut Txn<'_>, inode: &mut Inode) -> Result<()> {
    inode.open_for_write = false;
    inode.data_version = t.pair();
    changelog::about(t, ChangeKind::Close, inode.ino, None);
    if !inode.is_inline() {
        let ino = inode.ino;
        t.after(move |live| {
            if live.uncounted.remove(&ino) {
                live.recount(ino);
            }
        });
    }
    inode::put(t, inode)
}

/// The grant for I/O in this mode. `readable`: the client may want the inline bytes.
pub fn grant(t: &Txn<'_>, inode: &Inode, mode: OpenMode, readable: bool) -> Result<OpenGrant> {
    let has_inline = inode.kind == FileType::Regular && inode.is_inline() && readable;
    let inline = match has_inline && !hsm::is_released(t, inode)? {
        true => Some(inline::get(t, inode.ino)?),
        false => None,
    };
    let layout = inode.file.as_ref().map_or_else(no_layout, |file| file.layout.clone());
    Ok(OpenGrant {
        mode,
        layout,
        truncate_epoch: inode.truncate_epoch,
        attr_epoch: inode.attr_epoch,
        data_version: (!inode.open_for_write).then_some(inode.data_version),
        changed: inode.file.as_ref().map_or(Pair::ZERO, |file| file.changed),
        inline,
    })
}

/// The grant of a session's handles as they are now.
pub fn grant_now(t: &Txn<'_>, inode: &Inode, session: SessionId) -> Result<OpenGrant> {
    let opens = &t.live().opens;
    let reads = opens.held(inode.ino, session).is_some_and(|handle| handle.read || handle.execute);
    let readable = reads || t.live().limits(session).is_none();
    grant(t, inode, opens.mode(inode.ino, session), readable)
}

/// The grant of an open directory, which has no layout.
fn no_layout() -> Layout {
    Layout { epoch: Pair::ZERO, body: Pair::ZERO, inline: true, components: Vec::new() }
}
