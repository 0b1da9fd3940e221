//! open_ahead: handles for reading of small files that nobody writes, before a program opens them.

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::open::Access;
use brindle_wire::mds::open_ahead::{OPENS_AHEAD_MAX, OpenAheadReq, OpenAheadResp, OpenedAhead};

use crate::grant;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::inode;

/// Opens what can be opened without asking or waiting for anybody. Changes no row but that of the reply.
pub async fn handle(mdt: &Mdt, call: &Call, req: OpenAheadReq) -> Result<OpenAheadResp> {
    if req.opens.len() > OPENS_AHEAD_MAX {
        let why = format!("{} files at once; at most {OPENS_AHEAD_MAX} are allowed", req.opens.len());
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    mdt.modify_storing(call, nothing, |t| {
        t.frees_space();
        let opened = req.opens.iter().map(|(ino, handle)| open(t, call, *ino, *handle));
        Ok(OpenAheadResp { opened: opened.collect::<Step<_>>()? })
    })
    .await
}

fn open(t: &mut Txn<'_>, call: &Call, ino: Ino, handle: u64) -> Step<Option<OpenedAhead>> {
    let Some(mut file) = inode::find(t, ino)?.filter(|file| grant::is_quiet(t, call, file)) else {
        return Ok(None);
    };
    let access = Access { read: true, write: false, truncate: false };
    let mode = grant::open(t, call, &mut file, access, handle)?;
    Ok(Some(OpenedAhead { attr: file.attr(), grant: grant::grant(t, &file, mode, true)? }))
}

/// What whoever sends the request again is told.
fn nothing(whole: &OpenAheadResp) -> OpenAheadResp {
    OpenAheadResp { opened: vec![None; whole.opened.len()] }
}
