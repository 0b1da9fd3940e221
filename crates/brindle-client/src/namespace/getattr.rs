//! getattr: attributes of an inode. A report that is due travels with the request, so that a writer sees its own writes.

use brindle_types::{Attr, Code, Fault, Ino};
use brindle_wire::mds::getattr::GetattrReq;

use crate::Client;
use crate::inodes::{Carry, Naming};

impl Client {
    /// Attributes of an inode that the kernel may keep, and for how many milliseconds: until then
    /// [`crate::KernelCache`] is told when they change. `None` if they are not known here under a lease.
    pub fn lasting_attr(&self, ino: Ino) -> Option<(Attr, u64)> {
        let left_ms = self.session.left_ms();
        let attr = self.dirs.attr(ino).filter(|_| left_ms > 0)?;
        Some((attr, left_ms))
    }

    /// Time in milliseconds for which a name surely leads to `ino`: until then [`crate::KernelCache`] is told
    /// when that changes. `None` if no lease here covers the name.
    pub fn lasting_name(&self, parent: Ino, name: &[u8], ino: Ino) -> Option<u64> {
        let left_ms = self.session.left_ms();
        let lead = self.dirs.lead(parent, name).filter(|_| left_ms > 0)?;
        lead.is_some_and(|(to, _)| to == ino).then_some(left_ms)
    }

    /// The inode that a name leads to, if that is known here under a lease and it leads to one.
    pub fn known_ino(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        self.dirs.lead(parent, name)?.map(|(ino, _)| ino)
    }

    /// Attributes of a directory for a caller that looks at its rights only: all other attributes may be old. `None` if not even the
    /// rights are known here under a lease.
    pub fn rights(&self, ino: Ino) -> Option<Attr> {
        self.dirs.rights(ino).filter(|_| self.session.is_held())
    }

    /// Whether the attributes of a new file are still valid: no other client may write it, and this client has not changed it.
    pub fn is_as_made(&self, attr: &Attr) -> bool {
        self.inodes.get(attr.ino).is_some_and(|inode| {
            let state = inode.lock();
            state.size_exact() && !state.has_news() && state.size_bytes == attr.size_bytes
        })
    }

    /// Attributes of an inode.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr, Fault> {
        if self.session.is_held()
            && let Some(attr) = self.dirs.attr(ino)
        {
            return Ok(attr);
        }
        let Some(inode) = self.inodes.get(ino) else {
            let request = GetattrReq { ino, report: None };
            return Ok(self.unless_failed_out(ino, self.mds.ask(&request)).await?.attr);
        };
        self.flush_behind(&inode).await;
        let asked = inode.asked();
        let due = inode.due(Carry::Changes);
        let request = GetattrReq { ino, report: due.report.clone() };
        let asking = self.unless_failed_out(ino, self.mds.ask(&request)).await;
        // An open file exists, unless the session that had it open was ended.
        let gone = |fault: Fault| match fault.code {
            Code::NotFound => self.handles.death_on(ino).unwrap_or(fault),
            _ => fault,
        };
        let attr = asking.map_err(gone)?.attr;
        due.delivered();
        inode.lock().take_size(asked, attr.size_bytes);
        Ok(attr)
    }
    /// Attributes for the answer to a LOOKUP. The attributes must include all earlier answers to programs here: a kernel that gets a
    /// size from before a write takes it for the size of the file.
    pub(crate) async fn attr_by_name(&self, naming: Naming, attr: Attr) -> Result<Attr, Fault> {
        if !self.inodes.is_older(&naming, attr.ino) {
            return Ok(attr);
        }
        match self.getattr(attr.ino).await {
            // The file was there when the name was looked up.
            Err(fault) if fault.code == Code::NotFound => Ok(attr),
            answer => answer,
        }
    }
}
