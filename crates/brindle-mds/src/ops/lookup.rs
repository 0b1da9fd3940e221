//! lookup: name in a directory to attributes.

use brindle_types::Result;
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::lookup::LookupReq;

use crate::attrs;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::inode;

/// Finds a name; `.` and `..` too.
pub async fn handle(mdt: &Mdt, call: &Call, req: LookupReq) -> Result<EntryResp> {
    let look = mdt.read(|t| {
        let dir = inode::dir(t, req.parent)?;
        match &req.name[..] {
            b"." => return Ok((dir.ino, Some(dir.attr()))),
            b".." => return Ok((dir.parent, None)),
            name => namespace::check_name(name)?,
        }
        let found = namespace::get(t, dir.ino, &req.name)?;
        let known = matches!(attrs::authority(t, &found, call.session), attrs::Authority::Mdt);
        Ok((found.ino, known.then(|| found.attr())))
    });
    let attr = match look.await? {
        (_, Some(attr)) => attr,
        (ino, None) => attrs::fresh(mdt, call.session, ino).await?,
    };
    Ok(EntryResp { attr })
}
