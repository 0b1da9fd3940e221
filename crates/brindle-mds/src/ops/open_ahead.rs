//! open_ahead: handles for reading of small files that nobody writes, before a program opens them.

use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::frame::BODY_MAX;
use brindle_wire::mds::open::Access;
use brindle_wire::mds::open_ahead::{OPENS_AHEAD_MAX, OpenAheadReq, OpenAheadResp, OpenedAhead};

use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::{Inode, inode};
use crate::{admission, grant};

/// Bytes of one answer. Layouts of many stripes may be longer than contents; what has no room is opened one by one.
const ANSWER_BYTES_MAX: usize = BODY_MAX / 2;
/// Attributes and epochs of a file, and a stripe or component of its layout, are shorter than this when they are encoded.
const FILE_BYTES_MAX: usize = 512;
const STRIPE_BYTES_MAX: usize = 128;

/// Opens what can be opened without asking or waiting for anybody. Changes no row but that of the reply.
pub async fn handle(mdt: &Mdt, call: &Call, req: OpenAheadReq) -> Result<OpenAheadResp> {
    if req.opens.len() > OPENS_AHEAD_MAX {
        let why = format!("{} files at once; at most {OPENS_AHEAD_MAX} are allowed", req.opens.len());
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    mdt.modify_storing(call, nothing, |t| {
        t.frees_space();
        let mut room = ANSWER_BYTES_MAX;
        let opened = req.opens.iter().map(|(ino, handle)| open(t, call, *ino, *handle, &mut room));
        Ok(OpenAheadResp { opened: opened.collect::<Step<_>>()? })
    })
    .await
}

fn open(t: &mut Txn<'_>, call: &Call, ino: Ino, handle: u64, room: &mut usize) -> Step<Option<OpenedAhead>> {
    let Some(mut file) = inode::find(t, ino)?.filter(|file| grant::is_quiet(t, call, file)) else {
        return Ok(None);
    };
    if !admission::may_open_ahead(t, call, &file)? {
        return Ok(None);
    }
    let Some(left) = room.checked_sub(bytes_at_most(&file)) else { return Ok(None) };
    *room = left;
    let access = Access { read: true, write: false, truncate: false, execute: false };
    let mode = grant::open(t, call, &mut file, access, handle)?;
    Ok(Some(OpenedAhead { attr: file.attr(), grant: grant::grant(t, &file, mode, true)? }))
}

/// More bytes than the answer about a file has.
pub(crate) fn bytes_at_most(file: &Inode) -> usize {
    let layout = file.file.as_ref().map(|body| &body.layout);
    let stripes: usize = layout.map_or(0, |layout| layout.components.iter().map(|c| 1 + c.osts.len()).sum());
    FILE_BYTES_MAX + to_usize(file.size_bytes) + stripes * STRIPE_BYTES_MAX
}

/// Answer to a request that is sent again.
fn nothing(whole: &OpenAheadResp) -> OpenAheadResp {
    OpenAheadResp { opened: vec![None; whole.opened.len()] }
}
