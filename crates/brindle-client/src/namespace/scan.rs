//! Scans: the entries below a directory that match a predicate, found by the MDT.

use brindle_types::Fault;
use brindle_wire::mds::scan::{ScanReq, ScanResp};

use crate::Client;

impl Client {
    /// A page of a scan; its cursor is put into the request for the next one.
    pub async fn scan_page(&self, req: &ScanReq) -> Result<ScanResp, Fault> {
        self.mds.ask(req).await
    }
}
