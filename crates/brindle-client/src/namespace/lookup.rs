//! lookup: a name in a directory.

use brindle_types::{Attr, Fault, Ino};
use brindle_wire::mds::lookup::LookupReq;

use crate::Client;

impl Client {
    /// Attributes of what a name leads to; `.` and `..` are names too.
    pub async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Fault> {
        Ok(self.mds.ask(&LookupReq { parent, name: name.to_vec() }).await?.attr)
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
