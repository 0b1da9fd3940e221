//! READDIR and READDIRPLUS.
//!
//! The kernel may keep attributes for a tick of its clock at most. Neither form therefore brings them: entries of
//! READDIRPLUS are plain, and the kernel takes no reference to their inodes. The MDT sends the attributes all the same:
//! the client answers the lookups that follow from its cache.

use brindle_client::Client;
use brindle_client::namespace::readdir::ENTRIES_MAX;
use brindle_types::{Fault, FileType, Ino};
use brindle_wire::mds::readdir::COOKIE_FIRST;

use crate::fs::Who;
use crate::reply::{DirBuffer, Reply};
use crate::request::Readdir;

/// Cookie behind `.`.
const BEHIND_DOT: u64 = 1;
/// Cookie behind `..`.
const BEHIND_DOTDOT: u64 = 2;
/// Size of a record with a name of middling length, to ask for about as many entries as there is room for.
const RECORD_BYTES: u32 = 48;
const RECORD_PLUS_BYTES: u32 = 176;

/// Adds records in the form that was asked for.
struct Records {
    buffer: DirBuffer,
    plus: bool,
}

impl Records {
    fn add(&mut self, name: &[u8], ino: Ino, kind: FileType, cookie: u64) -> bool {
        if self.plus {
            self.buffer.add_plain(name, ino.0, kind, cookie)
        } else {
            self.buffer.add(name, ino.0, kind, cookie)
        }
    }
}

pub(crate) async fn handle(client: &Client, who: &Who, op: Readdir) -> Result<Reply, Fault> {
    let record_bytes = if op.plus { RECORD_PLUS_BYTES } else { RECORD_BYTES };
    let mut entries_max = (op.size / record_bytes).clamp(1, ENTRIES_MAX);
    let mut records = Records { buffer: DirBuffer::new(op.size), plus: op.plus };
    let mut after = op.offset;
    loop {
        let listing = client.readdir(who.ino, after, entries_max, op.plus).await?;
        if after < COOKIE_FIRST {
            let dots: [(&[u8], Ino, u64); 2] =
                [(b".", who.ino, BEHIND_DOT), (b"..", listing.parent, BEHIND_DOTDOT)];
            for (name, ino, cookie) in dots {
                if after < cookie && !records.add(name, ino, FileType::Directory, cookie) {
                    return Ok(Reply::directory(records.buffer));
                }
            }
        }
        for entry in &listing.entries {
            if !records.add(&entry.name, entry.ino, entry.kind, entry.cookie) {
                return Ok(Reply::directory(records.buffer));
            }
            after = entry.cookie;
        }
        if listing.end || !records.buffer.is_empty() {
            return Ok(Reply::directory(records.buffer));
        }
        // No entry and not the end: everything so far was removed meanwhile. Go on behind it.
        entries_max = ENTRIES_MAX;
    }
}
