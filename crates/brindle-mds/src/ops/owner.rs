//! owner_query: the MDT's verdict on objects. An object whose generation the MDT disowns is garbage. An object of an
//! inode or term that the MDT never issued is quarantined. The verdict follows from durable state only, and never from
//! age.

use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::mds::owner::{OWNER_ITEMS_MAX, OwnerQueryReq, OwnerQueryResp, Verdict};

use crate::mdt::{Call, Mdt, Txn};
use crate::store::inode;

/// Gives a verdict on every object.
pub async fn handle(mdt: &Mdt, _call: &Call, req: OwnerQueryReq) -> Result<OwnerQueryResp> {
    if req.objects.len() > OWNER_ITEMS_MAX {
        let why = format!("{} objects were asked about; {OWNER_ITEMS_MAX} are possible", req.objects.len());
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    let all = |t: &Txn<'_>| req.objects.iter().map(|object| verdict(t, object, req.ost)).collect();
    let verdicts: Vec<Verdict> = mdt.read(all).await?;
    // Disowned objects are destroyed. A power cut must not bring their file back.
    if !brindle_stdx::planted("mds_destroy_before_durable") {
        mdt.synced().await?;
    }
    Ok(OwnerQueryResp { verdicts })
}

fn verdict(t: &Txn<'_>, object: &ObjectId, ost: u16) -> Result<Verdict> {
    let numbers = t.mdt().numbers();
    let term = object.generation.term;
    if !numbers.issued(object.ino) || term == 0 || term > numbers.term() {
        return Ok(Verdict::Unknown);
    }
    // Objects made after the backup that this MDT was restored from may be all that is left of a user's work.
    let nobodys = if numbers.is_lost(term) { Verdict::Unknown } else { Verdict::Disowned };
    let Some(found) = inode::find(t, object.ino)? else { return Ok(nobodys) };
    let Some(file) = &found.file else { return Ok(Verdict::Unknown) };
    // A file in the MDT has objects only from a convert that has begun; others are of one that a power cut took.
    let mine = (object.named(), ost);
    let owned = found.may_have_objects() && file.layout.ost_of(mine.0) == Some(ost)
        || file.aside.iter().any(|c| c.stripes().any(|stripe| stripe == mine));
    Ok(if owned { Verdict::Owned } else { nobodys })
}
