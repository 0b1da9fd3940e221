//! Reads and writes of files whose bytes lie in the MDT.

use brindle_stdx::cast::to_usize;
use brindle_types::layout::INLINE_MAX_BYTES;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::inline::{InlineReadReq, InlineReadResp, InlineWriteReq, InlineWriteResp};
use brindle_wire::notify::InvalidateNotice;

use crate::ask::Notice;
use crate::hsm;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::reports;
use crate::store::{Inode, inline, inode};

/// The whole contents. Marks the reader, so that a write has it drop its pages.
pub async fn handle_read(mdt: &Mdt, call: &Call, req: InlineReadReq) -> Result<InlineReadResp> {
    let ino = req.ino;
    mdt.step(call, |t| {
        let file = inode::get(t, ino)?;
        file.file()?;
        hsm::here(t, &file)?;
        let data = match file.is_inline() {
            true => Some(inline::get(t, ino)?),
            false => None,
        };
        let session = call.session;
        if data.is_some() && t.live().opens.is_open(ino) {
            t.after(move |live| {
                live.inline_readers.entry(ino).or_default().insert(session);
            });
        }
        Ok(InlineReadResp { data, size_bytes: file.size_bytes })
    })
    .await
}

/// Writes bytes into the batch. `StaleLayout` when the bytes no longer fit here, or lie elsewhere by now: the client
/// fetches the layout, and if that is still inline, converts.
pub async fn handle_write(mdt: &Mdt, call: &Call, req: InlineWriteReq) -> Result<InlineWriteResp> {
    let done = mdt.modify(call, |t| {
        if req.promised {
            t.frees_space();
        }
        t.idle(req.ino)?;
        t.settled(req.ino, call.session)?;
        let mut file = inode::get(t, req.ino)?;
        check_handle(t, call, &req)?;
        let body = file.file()?;
        if !body.layout.inline || body.layout.epoch != req.layout_epoch {
            return Err(Fault::new(Code::StaleLayout).into());
        }
        let offset = if req.append { file.size_bytes } else { req.offset };
        write(t, call, &mut file, offset, &req)?;
        inode::put(t, &file)?;
        Ok(InlineWriteResp { offset, attr: file.attr(), changed: file.file()?.changed })
    });
    let done = done.await?;
    if req.sync {
        mdt.synced_as_asked().await?;
    }
    Ok(done)
}

fn check_handle(t: &Txn<'_>, call: &Call, req: &InlineWriteReq) -> Result<()> {
    match t.live().opens.get(req.ino, call.session, req.handle) {
        Some(handle) if handle.write => Ok(()),
        Some(_) => Err(Fault::new(Code::BadHandle).why("it is not open for writing")),
        None => Err(Fault::new(Code::SessionLost).why("the MDT does not know the handle")),
    }
}

fn write(t: &mut Txn<'_>, call: &Call, file: &mut Inode, offset: u64, req: &InlineWriteReq) -> Step<()> {
    let end = offset.checked_add(req.data.len() as u64).filter(|end| *end <= INLINE_MAX_BYTES);
    let Some(end) = end else {
        return Err(Fault::new(Code::StaleLayout)
            .why("the bytes do not fit in the MDT: convert first")
            .into());
    };
    let mut bytes = inline::get(t, file.ino)?.to_vec();
    if bytes.len() < to_usize(end) {
        bytes.resize(to_usize(end), 0);
    }
    bytes[to_usize(offset)..to_usize(end)].copy_from_slice(&req.data);
    inline::put(t, file.ino, &bytes);
    file.size_bytes = file.size_bytes.max(end);
    file.allocated_bytes = Inode::inline_allocation(bytes.len());
    file.mtime = reports::written_time(file.mtime, req.written_at, t.now);
    file.ctime = t.now;
    file.file_mut()?.changed = t.pair();
    reports::contents_changed(t, file, req.kill_suidgid)?;
    drop_pages(t, call, file.ino);
    Ok(())
}

/// Has readers of other sessions drop their pages before the write is answered. A reader drops all pages of the file, since later
/// writes notify only readers that are known to hold some.
fn drop_pages(t: &mut Txn<'_>, call: &Call, ino: Ino) {
    let Some(readers) = t.live().inline_readers.get(&ino) else { return };
    let others: Vec<_> = readers.iter().copied().filter(|s| *s != call.session).collect();
    for session in &others {
        t.notify(*session, Notice::Invalidate(InvalidateNotice { ino, offset: 0, len_bytes: u64::MAX }));
    }
    t.after(move |live| {
        if let Some(readers) = live.inline_readers.get_mut(&ino) {
            readers.retain(|s| !others.contains(s));
        }
    });
}
