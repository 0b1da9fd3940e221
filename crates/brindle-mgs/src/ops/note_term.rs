//! note_term: an MDT has opened under a term.

use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::mgs::{NoteTermReq, NoteTermResp};

use crate::Mgs;
use crate::store::TermRow;

/// Keeps the highest term of each MDT, and which opening has it, durably.
pub(crate) async fn handle(mgs: &Mgs, req: NoteTermReq) -> Result<NoteTermResp> {
    mgs.check_fs(&req.fs)?;
    let map = mgs.store.current();
    if req.target.role != Role::Mdt || map.target(req.target).is_none_or(|t| t.uuid != req.uuid) {
        return Err(Fault::new(Code::UnknownTarget).subject(req.fs.target(req.target)));
    }
    let newest = mgs.store.note_term(req.target, TermRow { term: req.term, opening: req.opening }).await?;
    let is_newest = newest.term == req.term && newest.opening == req.opening;
    Ok(NoteTermResp { highest: newest.term, is_newest })
}
