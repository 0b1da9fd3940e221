//! note_access: reads of files become times of their last access (design note 045).
//!
//! The operation recalls no lease and syncs nothing: other holders of a lease show the access time that they were told
//! before.

use brindle_types::attr::{Time, access_counts};
use brindle_types::{Code, Fault, FileType, Result};
use brindle_wire::mds::note_access::{ACCESSES_MAX, Accessed, NoteAccessReq, NoteAccessResp};

use crate::admission;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::{Inode, inode};

/// Notes what counts of the reads, in one batch.
pub async fn handle(mdt: &Mdt, call: &Call, req: NoteAccessReq) -> Result<NoteAccessResp> {
    if req.files.len() > ACCESSES_MAX {
        let why = format!("{} files at once; at most {ACCESSES_MAX} are allowed", req.files.len());
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    if let Some(wrong) = req.files.iter().find(|read| !read.at.is_valid()) {
        let why = format!("the read of inode {} has a second or more of nanoseconds", wrong.ino.0);
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    if !req.files.is_empty() {
        mdt.step(call, |t| {
            // Rows do not grow.
            t.frees_space();
            req.files.iter().try_for_each(|read| note(t, call, read))
        })
        .await?;
    }
    Ok(NoteAccessResp { since: mdt.access_times_since() })
}

fn note(t: &mut Txn<'_>, call: &Call, read: &Accessed) -> Step<()> {
    let found = match inode::find(t, read.ino) {
        Err(fault) if matches!(fault.code, Code::KvDamaged | Code::NewerFormat) => {
            tracing::warn!(
                ino = read.ino.0,
                "the time of a read is not kept, those of other files are: {fault}"
            );
            return Ok(());
        }
        found => found?,
    };
    let Some(mut file) = found.filter(|file| file.kind == FileType::Regular) else { return Ok(()) };
    if !admission::may_note_access(t, call, &file)? {
        return Ok(());
    }
    let Some(at) = counted(&file, read, t.now) else { return Ok(()) };
    file.atime = at;
    Ok(inode::put_accessed(t, &file)?)
}

/// The time that a read gives a file; `None` if it changes nothing.
fn counted(file: &Inode, read: &Accessed, now: Time) -> Option<Time> {
    let at = read.at.min(now);
    // Times that somebody set are undone only by reads of after that.
    let is_set_since = read.attr_epoch != file.attr_epoch && at <= file.ctime;
    (!is_set_since && access_counts(file.atime, (file.mtime, file.ctime), at)).then_some(at)
}
