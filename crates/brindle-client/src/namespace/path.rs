//! Paths of an inode.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::path::PathOfReq;

use crate::Client;

impl Client {
    /// Paths of an inode from the root, without a leading slash; one a hard link.
    pub async fn path_of(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Fault> {
        Ok(self.mds.ask(&PathOfReq { ino }).await?.paths)
    }
}
