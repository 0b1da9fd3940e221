//! close and flush: giving a handle back, with the last report; telling of lost data.

use brindle_types::{Code, Fault};
use brindle_wire::mds::close::CloseReq;

use crate::Client;
use crate::inodes::Carry;

impl Client {
    /// Gives a handle back. What the caller must know of its data was told by [`Client::flush`] and fsync.
    pub async fn close(&self, number: u64) -> Result<(), Fault> {
        let Some(handle) = self.handles.remove(number) else {
            return Err(Fault::new(Code::BadHandle).why(format!("handle {number}")));
        };
        if handle.alive().is_err() {
            // The server has given it up already.
            return Ok(());
        }
        let inode = &handle.inode;
        let last_writer = handle.access.write && inode.lock().writers == 0;
        if last_writer {
            self.note_left_unsynced(inode);
        }
        let carry = if last_writer { Carry::Last } else { Carry::News };
        let due = handle.access.write.then(|| inode.due(carry));
        let report = due.as_ref().and_then(|due| due.report.clone());
        self.mds.ask(&CloseReq { ino: inode.ino, handle: number, report }).await?;
        if let Some(due) = due {
            due.delivered();
        }
        Ok(())
    }

    /// A descriptor of the handle is closed: says whether data written through it was lost.
    pub async fn flush(&self, number: u64) -> Result<(), Fault> {
        let handle = self.handles.get(number)?;
        handle.intact()?;
        if !handle.access.write {
            return Ok(());
        }
        let torn = handle.inode.lock().unsynced.values().any(|u| u.torn().is_some());
        if torn {
            // An OST is known to have lost some: write it again, or say so.
            self.sync_inode(&handle.inode).await?;
        }
        handle.intact()
    }
}
