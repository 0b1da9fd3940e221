//! lookup: name in a directory to attributes.

use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::lookup::LookupReq;

use crate::attrs;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::inode;

/// Finds a name. `.` is what the number itself means, and `..` the directory above.
pub async fn handle(mdt: &Mdt, call: &Call, req: LookupReq) -> Result<EntryResp> {
    let look = mdt.read(|t| {
        if req.name == b"." {
            // By number: of a file too, whose handle somebody has kept (NFS).
            let found = inode::get(t, req.parent)?;
            if found.nlink == 0 {
                return Ok(None);
            }
            let known = found.is_dir().then(|| found.attr());
            return Ok(Some((found.ino, known)));
        }
        let dir = inode::dir(t, req.parent)?;
        match &req.name[..] {
            b".." => return Ok(Some((dir.parent, None))),
            name => namespace::check_name(name)?,
        }
        let entry = namespace::find(t, dir.ino, &req.name)?;
        if t.lease(call, dir.ino) {
            t.tell_name(call, dir.ino, &req.name, entry.as_ref().map(|entry| (entry.ino, entry.kind)));
        }
        let Some(entry) = entry else { return Ok(None) };
        let found = namespace::named(t, dir.ino, &req.name, entry)?;
        t.tell_inode(call, &found)?;
        let known = matches!(attrs::authority(t, &found, call.session), attrs::Authority::Mdt);
        Ok(Some((found.ino, known.then(|| found.attr()))))
    });
    let attr = match look.await? {
        Some((_, Some(attr))) => attr,
        Some((ino, None)) => attrs::fresh(mdt, call.session, ino).await?,
        None => return Err(Fault::new(Code::NotFound)),
    };
    Ok(EntryResp { attr })
}
