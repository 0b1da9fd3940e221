//! hsm_import: an empty file without a name becomes a released one, for a copy that lies in an archive already.
//!
//! The importer makes the file, sets owner, times and layout, and sends this request. Then it puts the copy into the archive under the
//! name in the answer, and only then gives the file its own name. Therefore no user ever finds a name without bytes behind it.

use brindle_types::hsm::{ARCHIVE_ID_MAX, HSM_ARCHIVED, HSM_RELEASED};
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{ArchivedCopy, Code, Fault, Result};
use brindle_wire::mds::hsm::{HsmImportReq, HsmImportResp};

use crate::hsm::{self, RELEASED_BYTES};
use crate::mdt::{Call, Mdt, Txn};
use crate::store::hsm::State;
use crate::store::{Inode, inode};

/// Makes the file a released one.
pub async fn handle(mdt: &Mdt, call: &Call, req: HsmImportReq) -> Result<HsmImportResp> {
    hsm::root_only(&req.cred, "cannot import")?;
    let is_archive = (1..=ARCHIVE_ID_MAX).contains(&req.archive);
    if !is_archive || req.size_bytes > FILE_SIZE_MAX_BYTES {
        let why = format!("archive {}, {} bytes", req.archive, req.size_bytes);
        return Err(Fault::new(Code::InvalidArgument).what("cannot import").why(why));
    }
    mdt.modify(call, |t| {
        t.idle(req.ino)?;
        let mut file = inode::get(t, req.ino)?;
        if !is_untouched(t, &file)? {
            return Err(Fault::new(Code::HsmRefused)
                .what("cannot import into")
                .subject(req.ino.fid().to_string())
                .why("it has a name, bytes, a writer or a copy")
                .data("nothing was changed")
                .into());
        }
        let (data_version, attempt) = (t.pair(), t.pair());
        let HsmImportReq { size_bytes, checksum, .. } = req;
        let copy = ArchivedCopy { data_version, attempt, size_bytes, checksum };
        file.data_version = data_version;
        file.size_bytes = size_bytes;
        // An empty file has no bytes that could lie anywhere.
        let is_released = size_bytes > 0;
        if is_released {
            file.allocated_bytes = RELEASED_BYTES;
        }
        let flags = HSM_ARCHIVED | if is_released { HSM_RELEASED } else { 0 };
        inode::put(t, &file)?;
        hsm::put_state(t, req.ino, State { flags, archive: req.archive, copy: Some(copy) });
        Ok(HsmImportResp { copy })
    })
    .await
}

/// Whether a file is one that was made without a name a moment ago.
fn is_untouched(t: &Txn<'_>, file: &Inode) -> Result<bool> {
    let body = file.file()?;
    let has_no_bytes = file.size_bytes == 0 && body.layout.inline && !body.convert_begun;
    let is_alone = file.nlink == 0 && !file.open_for_write;
    let has_no_copy = hsm::state_of(t, file.ino)? == State::default();
    Ok(has_no_bytes && is_alone && has_no_copy && !t.live().hsm.actions.contains_key(&file.ino))
}
