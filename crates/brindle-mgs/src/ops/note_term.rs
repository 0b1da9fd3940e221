//! note_term: an MDT has opened under a term.

use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::mgs::{NoteTermReq, NoteTermResp};

use crate::Mgs;

/// Keeps the highest term of each MDT, durably.
pub(crate) async fn handle(mgs: &Mgs, req: NoteTermReq) -> Result<NoteTermResp> {
    mgs.check_fs(&req.fs)?;
    let map = mgs.store.current();
    if req.target.role != Role::Mdt || map.target(req.target).is_none_or(|t| t.uuid != req.uuid) {
        return Err(Fault::new(Code::UnknownTarget).subject(req.fs.target(req.target)));
    }
    Ok(NoteTermResp { highest: mgs.store.note_term(req.target, req.term).await? })
}
