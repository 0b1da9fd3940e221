//! changelog_register, changelog_deregister, changelog_clear, changelog_mask and changelog_info: who reads the changelog, and
//! how far each reader is.

use brindle_stdx::cast::from_i64;
use brindle_types::changelog::reader_name;
use brindle_types::{ChangeMask, Code, Fault, Result};
use brindle_wire::Cred;
use brindle_wire::mds::Empty;
use brindle_wire::mds::changelog::{
    ChangelogClearReq, ChangelogDeregisterReq, ChangelogInfoReq, ChangelogInfoResp, ChangelogMaskReq,
    ChangelogReader, ChangelogRegisterReq, ChangelogRegisterResp, READER_NAME_BYTES_MAX,
};

use crate::changelog::{READERS_MAX, change_state};
use crate::mdt::{Call, Mdt, Txn};
use crate::store::changelog::{Reader, State};

/// Registers a reader. Records begin with the first change behind it.
pub async fn handle_register(
    mdt: &Mdt,
    call: &Call,
    req: ChangelogRegisterReq,
) -> Result<ChangelogRegisterResp> {
    root_only(&req.cred, "register a reader of")?;
    check_name(&req.name)?;
    req.mask.map_or(Ok(()), check_mask)?;
    let registered = mdt.step(call, |t| {
        let mut state = t.live().changelog.state.clone();
        if let Some(known) = state.readers.iter().find(|reader| reader.nonce == req.nonce) {
            // The answer was lost.
            return Ok(known.id);
        }
        if state.readers.len() >= READERS_MAX {
            return Err(Fault::new(Code::Overloaded)
                .what("cannot register another reader of the changelog of")
                .subject(t.mdt().identity().name())
                .why(format!("it has {READERS_MAX}, which is as many as there can be"))
                .data("nothing was changed")
                .next("deregister one that is not used any more: lctl get_param mdd.*.changelog_users")
                .into());
        }
        let id = state.next_id;
        state.next_id += 1;
        let cleared = t.mdt().changelog().current();
        let (name, nonce, mask) = (req.name.clone(), req.nonce, req.mask);
        state.readers.push(Reader { id, name, nonce, mask, cleared, active: t.now });
        change_state(t, state);
        Ok(id)
    });
    let id = registered.await?;
    // The registration must survive a power cut before its number is told.
    mdt.synced().await?;
    Ok(ChangelogRegisterResp { id })
}

/// Removes a reader. Records that only it needed go in the background.
pub async fn handle_deregister(mdt: &Mdt, call: &Call, req: ChangelogDeregisterReq) -> Result<Empty> {
    root_only(&req.cred, "deregister a reader of")?;
    mdt.step(call, |t| {
        t.frees_space();
        let mut state = t.live().changelog.state.clone();
        find(t, &state, req.id)?;
        state.readers.retain(|reader| reader.id != req.id);
        change_state(t, state);
        Ok(())
    })
    .await?;
    mdt.synced().await?;
    mdt.changelog().cleared();
    Ok(Empty {})
}

/// A reader needs less than before. Records that it has cleared already stay cleared.
pub async fn handle_clear(mdt: &Mdt, call: &Call, req: ChangelogClearReq) -> Result<Empty> {
    root_only(&req.cred, "clear")?;
    mdt.step(call, |t| {
        t.frees_space();
        let mut state = t.live().changelog.state.clone();
        let at = find(t, &state, req.id)?;
        let current = t.mdt().changelog().current();
        if req.end > current {
            return Err(Fault::new(Code::InvalidArgument)
                .what("cannot clear the changelog of")
                .subject(t.mdt().identity().name())
                .why(format!("record {} does not exist yet; the last one is {current}", req.end))
                .data("nothing was cleared")
                .next("give the index of a record that was read, or 0 for all")
                .into());
        }
        let end = if req.end == 0 { current } else { req.end };
        let reader = &mut state.readers[at];
        reader.cleared = reader.cleared.max(end);
        reader.active = t.now;
        change_state(t, state);
        Ok(())
    })
    .await?;
    mdt.synced().await?;
    mdt.changelog().cleared();
    Ok(Empty {})
}

/// Sets the types that are recorded for readers that did not ask for others.
pub async fn handle_mask(mdt: &Mdt, call: &Call, req: ChangelogMaskReq) -> Result<Empty> {
    root_only(&req.cred, "set what is recorded in")?;
    check_mask(req.mask)?;
    mdt.step(call, |t| {
        let state = State { mask: req.mask, ..t.live().changelog.state.clone() };
        change_state(t, state);
        Ok(())
    })
    .await?;
    mdt.synced().await?;
    Ok(Empty {})
}

/// Readers and size of the changelog.
pub async fn handle_info(mdt: &Mdt, _call: &Call, req: ChangelogInfoReq) -> Result<ChangelogInfoResp> {
    root_only(&req.cred, "look at the readers of")?;
    mdt.read(|t| {
        let known = &t.live().changelog;
        let reader = |reader: &Reader| ChangelogReader {
            id: reader.id,
            name: reader.name.clone(),
            mask: reader.mask,
            cleared: reader.cleared,
            idle_secs: from_i64(t.now.secs.saturating_sub(reader.active.secs)),
        };
        Ok(ChangelogInfoResp {
            current: t.mdt().changelog().current(),
            mask: known.state.mask,
            records: known.size.records,
            bytes: known.size.bytes,
            bytes_max: t.mdt().changelog().bytes_max(),
            dropped_to: known.state.dropped_to,
            readers: known.state.readers.iter().map(reader).collect(),
        })
    })
    .await
}

/// Refuses everybody but root: the changelog names what others must not see.
pub fn root_only(cred: &Cred, what: &'static str) -> Result<()> {
    if cred.uid == 0 {
        return Ok(());
    }
    Err(Fault::new(Code::NotPermitted)
        .what(format!("cannot {what} a changelog"))
        .why("it names files of everybody; only root may")
        .data("nothing was changed")
        .next("do it as root"))
}

/// The place of a reader; a refusal that names those that there are.
pub fn find(t: &Txn<'_>, state: &State, id: u32) -> Result<usize> {
    state.readers.iter().position(|reader| reader.id == id).ok_or_else(|| {
        let known: Vec<String> = state.readers.iter().map(|r| reader_name(r.id, &r.name)).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
        Fault::new(Code::NotFound)
            .what("no such reader of the changelog of")
            .subject(format!("{}: cl{id}", t.mdt().identity().name()))
            .why(format!("its readers: {known}"))
            .next("list them: lctl get_param mdd.*.changelog_users")
    })
}

fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.len() <= READER_NAME_BYTES_MAX && name.chars().all(is_good) {
        return Ok(());
    }
    Err(Fault::new(Code::InvalidArgument)
        .what("cannot name a reader of a changelog")
        .subject(format!("'{}'", name.escape_debug()))
        .why(format!("names have at most {READER_NAME_BYTES_MAX} letters, digits, '_', '-' and '.'"))
        .data("nothing was changed"))
}

fn check_mask(mask: ChangeMask) -> Result<()> {
    if mask.0 & !ChangeMask::ALL.0 == 0 && mask != ChangeMask::NONE {
        return Ok(());
    }
    Err(Fault::new(Code::InvalidArgument)
        .what("cannot record")
        .subject(format!("types {:#x}", mask.0))
        .why("there are no such types, or none is named")
        .data("nothing was changed"))
}
