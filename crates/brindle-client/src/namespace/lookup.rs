//! lookup: a name in a directory.

use brindle_net::job;
use brindle_types::{Attr, Code, Fault, Ino};
use brindle_wire::mds::lookup::LookupReq;

use crate::Client;
use crate::dirs::{Ahead, Listed};

/// Longest name of an entry in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Client {
    /// Attributes of what a name leads to; `.` and `..` are names too.
    pub async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Fault> {
        if let Some(known) = self.known_lead(parent, name) {
            return known;
        }
        let naming = self.inodes.naming();
        let request = LookupReq { parent, name: name.to_vec() };
        let asking = self.mds.ask(&request);
        // The MDT may have to ask the OSTs of the file for its size.
        let answer = match self.dirs.lead(parent, name).flatten() {
            Some((ino, _)) => self.unless_failed_out(ino, asking).await,
            None => asking.await,
        };
        let attr = answer?.attr;
        self.look_ahead(parent);
        self.attr_by_name(naming, attr).await
    }

    /// A name had to be asked for: lists a part of its directory, if that seems worth it, so that the next ones are known.
    fn look_ahead(&self, dir: Ino) {
        if let Some(ahead) = self.dirs.ahead(dir) {
            self.list_ahead(dir, ahead);
        }
    }

    fn list_ahead(&self, dir: Ino, ahead: Ahead) {
        let Some(this) = self.this.upgrade() else { return };
        if !self.config.switches.readdir_prefetch {
            return this.dirs.listed_ahead(dir, &[]);
        }
        let looking = async move {
            let listed = this.list(dir, ahead.after, ahead.entries_max, true, Listed::Asked).await;
            let entries = listed.as_ref().map_or(&[][..], |(listed, _)| &listed.entries);
            this.dirs.listed_ahead(dir, entries);
            if let Err(fault) = listed {
                // A listing ahead has no caller to hear of a fault.
                tracing::debug!(dir = dir.0, code = %fault.code, "cannot list ahead: {fault}");
            }
        };
        self.seams.spawn("client.look_ahead", job::carry(looking));
    }

    /// The target of a name as far as it is known here, under leases that are held.
    pub fn known_lead(&self, parent: Ino, name: &[u8]) -> Option<Result<Attr, Fault>> {
        // The MDT answers for names that cannot be entries.
        let is_name = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX;
        if !is_name || !self.session.is_held() {
            return None;
        }
        let (lead, ahead) = self.dirs.walk(parent, name);
        if let Some(ahead) = ahead {
            self.list_ahead(parent, ahead);
        }
        match lead? {
            Some((ino, _)) => self.dirs.attr(ino).map(Ok),
            None => Some(Err(Fault::new(Code::NotFound))),
        }
    }

    /// Attributes of the directory that a name leads to, of which only the rights are sure to be right ([`Client::rights`]), if
    /// the name is known here, too.
    pub fn known_dir(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        let (ino, _) = self.dirs.lead(parent, name)??;
        self.rights(ino)
    }

    /// Attributes of what a path leads to, from the root, `/`-separated; symbolic links are not followed.
    pub async fn lookup_path(&self, path: &str) -> Result<Attr, Fault> {
        let mut attr = self.getattr(self.root()).await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.lookup(attr.ino, name.as_bytes()).await?;
        }
        Ok(attr)
    }
}
