//! GETATTR and STATX: attributes. The kernel keeps the attributes of directories as long as a lease covers them
//! ([`crate::ops::kernel_cache`]).

use std::time::Duration;

use brindle_types::{Attr, Code, Fault, FileType, Ino};

use super::NOT_KEPT;
use crate::fs::{BrindleFs, Who};

/// The attributes of an inode, and how long the kernel may keep them. An inode that was removed while the kernel still
/// refers to it (a working directory, an O_PATH descriptor, a path that is just being looked up) keeps its last
/// attributes, without links.
pub(crate) async fn handle(fs: &BrindleFs, who: &Who) -> Result<(Attr, Duration), Fault> {
    match fs.client.getattr(who.ino).await {
        Err(fault) if fault.code == Code::NotFound => {
            fs.known.removed(who.ino).map(|attr| (attr, NOT_KEPT)).ok_or(fault)
        }
        Ok(attr) => {
            let attr = fs.client.with_last_access(attr);
            fs.known.note(&attr);
            // Now it may be known under a lease.
            Ok(fast_path(fs, who.ino, who.nodeid).unwrap_or((attr, NOT_KEPT)))
        }
        Err(fault) => Err(fault),
    }
}

/// Answers GETATTR where a lease covers the attributes.
pub(crate) fn fast_path(fs: &BrindleFs, ino: Ino, nodeid: u64) -> Option<(Attr, Duration)> {
    let lasting = |ino| fs.client.lasting_attr(ino);
    if let Some(reply) = fs.kernel_cache.by_number(&lasting, ino, nodeid) {
        return Some(reply);
    }
    let (attr, _) = lasting(ino).filter(|(attr, _)| attr.kind != FileType::Directory)?;
    let attr = fs.client.with_last_access(attr);
    fs.known.note(&attr);
    Some((attr, NOT_KEPT))
}
