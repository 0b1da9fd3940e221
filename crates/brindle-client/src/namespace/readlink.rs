//! readlink.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::readlink::ReadlinkReq;

use crate::Client;

impl Client {
    /// Target of a symbolic link.
    pub async fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Fault> {
        Ok(self.mds.ask(&ReadlinkReq { ino }).await?.target)
    }
}
