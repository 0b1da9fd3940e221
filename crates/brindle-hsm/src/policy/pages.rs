//! Pages of a policy scan, for reports that run no policy.

use std::sync::Arc;

use brindle_client::Client;
use brindle_policy::Entry;
use brindle_types::attr::Time;
use brindle_types::{Ino, Result};
use brindle_wire::mds::policy::{PolicyFound, PolicyScanReq};
use brindle_wire::mds::scan::Term;

use super::engine::{access_times_since, entry, root};

/// Scan to make.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Inode to begin at.
    pub start: Ino,
    /// The predicate, as postfix terms.
    pub predicate: Vec<Term>,
    /// Names of extended attributes to tell.
    pub xattrs: Vec<String>,
}

/// A scan, page by page.
pub struct Pages {
    client: Arc<Client>,
    xattrs: Vec<String>,
    /// `None` behind the last page.
    request: Option<PolicyScanReq>,
    /// Since when access times are kept; asked for with the first page.
    since: Option<Option<Time>>,
}

/// A page.
pub struct Page {
    /// Entries that match, the path below the start.
    pub found: Vec<PolicyFound>,
    /// The clock of the MDT at the beginning of the scan, by which ages are meant.
    pub began: Time,
}

impl Pages {
    /// Begins.
    pub fn new(client: Arc<Client>, wanted: Wanted) -> Pages {
        let request = PolicyScanReq {
            start: wanted.start,
            predicate: wanted.predicate,
            flags: Vec::new(),
            xattrs: wanted.xattrs.iter().map(|name| name.clone().into_bytes()).collect(),
            cursor: None,
            cred: root(),
        };
        Pages { client, xattrs: wanted.xattrs, request: Some(request), since: None }
    }

    /// The next page; `None` behind the last.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        if self.since.is_none() {
            self.since = Some(access_times_since(&self.client).await?);
        }
        let Some(request) = &mut self.request else { return Ok(None) };
        let page = self.client.ask_as_agent(request).await?;
        request.cursor = page.cursor;
        if request.cursor.is_none() {
            self.request = None;
        }
        Ok(Some(Page { found: page.found, began: page.began }))
    }

    /// An entry as the conditions of policies look at it.
    pub fn entry(&self, found: PolicyFound) -> Entry {
        entry(found, &self.xattrs, self.since.flatten())
    }
}
