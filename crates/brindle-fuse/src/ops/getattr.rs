//! GETATTR and STATX: attributes, never cached by the kernel.

use brindle_types::{Attr, Code, Fault};

use crate::fs::{BrindleFs, Who};

/// The attributes of an inode. One that was removed while the kernel still refers to it (a working directory, an
/// O_PATH descriptor, a path that is just being looked up) keeps its last ones, without links.
pub(crate) async fn handle(fs: &BrindleFs, who: &Who) -> Result<Attr, Fault> {
    match fs.client.getattr(who.ino).await {
        Err(fault) if fault.code == Code::NotFound => fs.known.removed(who.ino).ok_or(fault),
        Ok(attr) => {
            fs.known.note(&attr);
            Ok(attr)
        }
        failed => failed,
    }
}
