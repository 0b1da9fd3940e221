//! convert: inline data moves to objects, once; and layout_get.

use brindle_types::{Code, Fault, Ino, ObjectId, Result, SessionId};
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};
use brindle_wire::mds::open::OpenGrant;
use brindle_wire::notify::LayoutNotice;
use brindle_wire::oss::write::WriteReq;
use brindle_wire::oss::{ChangeResp, Ticket};
use bytes::Bytes;

use crate::ask::Notice;
use crate::mdt::{Busy, Call, Mdt, Step, Txn};
use crate::store::{Inode, inline, inode};
use crate::{birth, grant, namespace};

/// Longest time that a file waits for the first OST to be heard of, and how often that is looked at.
const OST_WAIT_MAX_MS: u64 = 60_000;
const OST_LOOK_MS: u64 = 50;

/// Moves a file's bytes from the MDT to its first object. A file that has moved already answers with its layout.
pub async fn handle(mdt: &Mdt, call: &Call, req: ConvertReq) -> Result<OpenGrant> {
    wait_for_ost(mdt).await;
    let busy = Busy::new(mdt, req.ino);
    let begun = mdt.step(call, |t| begin(t, &busy, req.ino, call.session)).await?;
    let written = match &begun {
        Some((file, data)) if !data.is_empty() => Some(write(mdt, file, data.clone()).await?),
        _ => None,
    };
    mdt.complete(call, |t| {
        t.frees_space();
        let mut file = inode::get(t, req.ino)?;
        if begun.is_some() {
            finish(t, call, &mut file, written.as_ref())?;
            inode::put(t, &file)?;
            busy.clear(t);
        }
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// After a restart of everything the OSTs are heard of one by one; until the first one is, nothing can leave the MDT.
async fn wait_for_ost(mdt: &Mdt) {
    let started = mdt.seams().now();
    while mdt.osts().candidates().is_empty() && mdt.seams().now().ms_since(started) < OST_WAIT_MAX_MS {
        mdt.seams().sleep_ms(OST_LOOK_MS).await;
    }
}

/// Layout and epochs as they are now; waits while they change.
pub async fn handle_layout_get(mdt: &Mdt, call: &Call, req: LayoutGetReq) -> Result<OpenGrant> {
    mdt.step(call, |t| {
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// The first batch: nobody else touches the bytes from now on, and a new generation counts as used. `None` if the bytes
/// lie in objects already.
fn begin(t: &mut Txn<'_>, busy: &Busy<'_>, ino: Ino, session: SessionId) -> Step<Option<(Inode, Bytes)>> {
    t.idle(ino)?;
    t.settled(ino, session)?;
    let mut file = inode::get(t, ino)?;
    if !file.file()?.layout.inline {
        return Ok(None);
    }
    busy.set(t)?;
    if file.may_have_objects() {
        // A convert that was cut short has left objects.
        namespace::destroy_objects(t, &file);
    }
    // Always a new one: a convert that a power cut took from the log may have left objects of the old.
    let generation = t.pair();
    file.file_mut()?.layout.component.generation = generation;
    if file.file()?.layout.component.osts.is_empty() {
        let parent = inode::find(t, file.parent)?.unwrap_or_else(|| file.clone());
        let policy = birth::effective_policy(t, &parent)?;
        let (stripe_size_bytes, osts) = t.mdt().osts().place(&policy)?;
        let component = &mut file.file_mut()?.layout.component;
        (component.stripe_size_bytes, component.osts) = (stripe_size_bytes, osts);
        if component.osts.is_empty() {
            return Err(no_ost().into());
        }
    }
    file.file_mut()?.convert_begun = true;
    inode::put(t, &file)?;
    Ok(Some((file, inline::get(t, ino)?)))
}

/// Inline bytes are fewer than a stripe, so they lie in the first object. Durable, and written under the generation
/// that the first batch recorded.
async fn write(mdt: &Mdt, file: &Inode, data: Bytes) -> Result<ChangeResp> {
    let layout = &file.file()?.layout;
    let ost = layout.component.osts.first().ok_or_else(no_ost)?;
    let ticket = Ticket {
        layout_epoch: layout.epoch,
        truncate_epoch: file.truncate_epoch,
        attr_epoch: file.attr_epoch,
    };
    let object = ObjectId { ino: file.ino, generation: layout.component.generation, stripe: 0 };
    mdt.osts().write(*ost, &WriteReq { object, offset: 0, ticket, sync: true, told: Vec::new() }, data).await
}

/// The last batch: the bytes lie in objects, under a new layout epoch.
fn finish(t: &mut Txn<'_>, call: &Call, file: &mut Inode, written: Option<&ChangeResp>) -> Result<()> {
    let ino = file.ino;
    inline::delete(t, ino);
    let (epoch, changed) = (t.pair(), t.pair());
    let body = file.file_mut()?;
    body.changed = changed;
    body.layout.inline = false;
    body.layout.epoch = epoch;
    body.layout_gen += 1;
    body.convert_begun = false;
    if written.is_some() {
        body.layout.component.set_object_known(0);
    }
    file.allocated_bytes = written.map_or(0, |w| w.allocated_bytes);
    for other in t.live().opens.others(ino, call.session) {
        t.notify(other, Notice::Layout(LayoutNotice { ino, drop_from: u64::MAX }));
    }
    t.after(move |live| drop(live.inline_readers.remove(&ino)));
    Ok(())
}

fn no_ost() -> Fault {
    Fault::new(Code::OstFull)
        .what("cannot write more than fits in the MDT")
        .why("no OST is known yet")
        .next("look whether the OSSes run: brindle status")
}
