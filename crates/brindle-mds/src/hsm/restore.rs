//! The end of a restore: bytes that an agent has put into a file without a name become the contents of the released file.
//!
//! OSTs copy the bytes into objects of a new generation on any OSTs that have space; one batch makes these the file's. If that batch
//! never comes, the file stays released, and the copied objects are set aside and given up. Contents, size, times and `data_version`
//! stay.

use brindle_layout::copies;
use brindle_types::hsm::HSM_RELEASED;
use brindle_types::layout::Component;
use brindle_types::{Code, Fault, Ino, Result, Stripe};
use brindle_wire::Op;
use brindle_wire::mds::hsm::{HsmAttempt, HsmStatus};

use crate::hsm::{self, HsmEvent};
use crate::mdt::{Busy, Call, Mdt, Step, Txn};
use crate::relocate::{copy_all, give_up_aside, round_up};
use crate::store::hsm::State;
use crate::store::{Inode, inline, inode};

/// Ends the restore of a file that is to be emptied, before others give back what they have of the file: a page that waits for its bytes
/// cannot be given back.
pub async fn cancel(mdt: &Mdt, ino: Ino) -> Result<()> {
    mdt.step(&Call::internal(Op::HsmAct), |t| {
        t.frees_space();
        t.idle(ino)?;
        let Some(file) = inode::find(t, ino)? else { return Ok(()) };
        if hsm::is_restoring(t, &file)? {
            hsm::end_action(t, ino, HsmStatus::Cancelled);
            hsm::tell(t, HsmEvent::Cancel, ino, None, false);
        }
        Ok(())
    })
    .await
}

/// A restore that is about to end.
struct Begun {
    /// The released file, under its new layout epoch.
    file: Inode,
    /// The file that has its bytes.
    source: Inode,
    /// Destination of the bytes; empty if they lie in the MDT.
    parts: Vec<Component>,
}

/// Makes the bytes of `from` those of the released file.
pub async fn complete(mdt: &Mdt, call: &Call, attempt: &HsmAttempt, from: Ino) -> Result<()> {
    let ino = attempt.ino;
    let busy = Busy::new(mdt, ino);
    let begun = mdt.step(call, |t| begin(t, &busy, attempt, from)).await?;
    let done = match copy(mdt, &begun).await {
        Ok(made) => finish(mdt, call, &busy, attempt, &begun, &made).await,
        Err(fault) => Err(fault),
    };
    if done.is_err() {
        give_up_aside(mdt, ino, Some(&busy)).await?;
    }
    done
}

fn begin(t: &mut Txn<'_>, busy: &Busy<'_>, attempt: &HsmAttempt, from: Ino) -> Step<Begun> {
    busy.set(t)?;
    hsm::attempt(t, attempt)?;
    let mut file = inode::get(t, attempt.ino)?;
    if !hsm::is_released(t, &file)? {
        return Err(Fault::new(Code::StaleAttempt).why("the file is not released any more").into());
    }
    let source = inode::get(t, from)?;
    source.file()?;
    if source.size_bytes != file.size_bytes || source.nlink > 0 || source.ino == file.ino {
        let why = format!(
            "the file with the bytes has {} of {} bytes and {} names",
            source.size_bytes, file.size_bytes, source.nlink
        );
        return Err(Fault::new(Code::InvalidArgument).what("cannot restore from").why(why).into());
    }
    let parts = if source.is_inline() { Vec::new() } else { places(t, &file)? };
    let epoch = t.pair();
    let body = file.file_mut()?;
    body.layout.epoch = epoch;
    body.aside.extend(parts.iter().cloned());
    inode::put(t, &file)?;
    Ok(Begun { file, source, parts })
}

/// OSTs for every component that the file reaches, as for a new file of this layout.
fn places(t: &Txn<'_>, file: &Inode) -> Result<Vec<Component>> {
    let reached = file.file()?.layout.components.iter().filter(|c| c.start < file.size_bytes);
    let placed = reached.map(|c| {
        let osts = t.choose_osts(&c.asked)?;
        if osts.is_empty() {
            return Err(Fault::new(Code::OstFull).subject(file.ino.fid().to_string()).why("no OST is known"));
        }
        Ok(Component { generation: t.pair(), origin: c.start, osts, objects: Vec::new(), ..c.clone() })
    });
    placed.collect()
}

/// Copies everything, durably. The objects that exist now.
async fn copy(mdt: &Mdt, begun: &Begun) -> Result<Vec<Stripe>> {
    // The new objects must be recorded as set aside before an OST has any of them.
    mdt.synced().await?;
    let Begun { file, source, parts } = begun;
    let layout = &source.file()?.layout;
    let end = round_up(file.size_bytes);
    let mut made = Vec::new();
    for part in parts {
        let runs = copies(layout, part, part.start..part.end.min(end));
        let copied = copy_all(mdt, file, (source.ino, layout), &runs, u64::MAX).await;
        made.extend(copied.map_err(|fault| fault.data("the file stays released; nothing was changed"))?);
    }
    Ok(made)
}

/// The batch that ends the restore.
async fn finish(
    mdt: &Mdt,
    call: &Call,
    busy: &Busy<'_>,
    attempt: &HsmAttempt,
    begun: &Begun,
    made: &[Stripe],
) -> Result<()> {
    let (ino, from) = (attempt.ino, begun.source.ino);
    mdt.step(call, |t| {
        t.frees_space();
        hsm::attempt(t, attempt)?;
        let mut file = inode::get(t, ino)?;
        let source = inode::get(t, from)?;
        let layout_of = |inode: &Inode| inode.file.as_ref().map(|body| body.layout.clone());
        if layout_of(&source) != layout_of(&begun.source) || source.size_bytes != file.size_bytes {
            let why = "the file with the bytes was changed while they were copied";
            return Err(Fault::new(Code::StaleLayout).why(why).into());
        }
        let (epoch, body_id) = (t.pair(), t.pair());
        // A program wants to read the file: it is not released again before that.
        file.atime = file.atime.max(t.now);
        let body = file.file_mut()?;
        body.layout_gen += 1;
        body.layout.epoch = epoch;
        body.layout.body = body_id;
        if begun.parts.is_empty() {
            let bytes = inline::get(t, from)?;
            file.allocated_bytes = Inode::inline_allocation(bytes.len());
            inline::put(t, ino, &bytes);
        } else {
            body.layout.inline = false;
            for c in &mut body.layout.components {
                if let Some(part) = begun.parts.iter().find(|part| part.start == c.start) {
                    *c = part.clone();
                }
            }
            made.iter().for_each(|stripe| body.layout.set_object_known(*stripe));
            body.aside.retain(|c| !begun.parts.contains(c));
            t.after(move |live| live.recount(ino));
        }
        let state = hsm::state_of(t, ino)?;
        hsm::put_state(t, ino, State { flags: state.flags & !HSM_RELEASED, ..state });
        inode::put(t, &file)?;
        hsm::end_action(t, ino, HsmStatus::Succeeded);
        hsm::tell(t, HsmEvent::Restore, ino, None, false);
        busy.clear(t);
        Ok(())
    })
    .await
}
