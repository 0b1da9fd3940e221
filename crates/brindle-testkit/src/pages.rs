//! A model of the kernel's page cache, as far as its coherence goes: pages of files that were opened `Cached`, dropped
//! when the client says so.
//!
//! Called by the block workload. Like the kernel it keeps pages over a close, trusts them after an open only if the
//! client says that they are good, and puts a page in only while the read that brought it is guarded.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::file::read::ReadOut;
use brindle_client::{Client, KernelCache, Opened};
use brindle_stdx::BoxFuture;
use brindle_types::{Fault, Ino};
use brindle_wire::mds::open::OpenMode;
use parking_lot::Mutex;

/// Size of a page.
const PAGE_BYTES: u64 = 4096;

/// Pages by inode and number.
type Pages = BTreeMap<(Ino, u64), Arc<Vec<u8>>>;

/// The pages that one mount keeps.
#[derive(Clone, Default)]
pub struct PageCache {
    pages: Arc<Mutex<Pages>>,
}

impl KernelCache for PageCache {
    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()> {
        self.wrote(ino, offset, len_bytes);
        Box::pin(std::future::ready(()))
    }
}

impl PageCache {
    /// Takes in an open, as the kernel does.
    pub fn opened(&self, opened: &Opened) {
        if !opened.keep_cache {
            self.pages.lock().retain(|(ino, _), _| *ino != opened.attr.ino);
        }
    }

    /// Drops the pages of a range: a direct write or a truncate of this mount does so before and after.
    pub fn wrote(&self, ino: Ino, offset: u64, len_bytes: u64) {
        let first = offset / PAGE_BYTES;
        let last = offset.saturating_add(len_bytes.saturating_sub(1)) / PAGE_BYTES;
        self.pages.lock().retain(|(i, n), _| *i != ino || *n < first || *n > last);
    }

    /// Reads whole pages' worth of a range through a handle; pages only where the handle may have them.
    pub async fn read(
        &self,
        client: &Client,
        opened: &Opened,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Vec<u8>, Fault> {
        if opened.mode != OpenMode::Cached {
            return Ok(client.read(opened.handle, offset, len_bytes, false).await?.into_bytes().to_vec());
        }
        // The attributes' time-out is 0, so the size is asked for at every read.
        let size = client.getattr(opened.attr.ino).await?.size_bytes;
        let end = (offset + len_bytes).min(size);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let number = at / PAGE_BYTES;
            let page = self.page(client, opened, number).await?;
            let from = (at - number * PAGE_BYTES) as usize;
            let until = (end - number * PAGE_BYTES).min(PAGE_BYTES) as usize;
            out.extend_from_slice(&page[from..until]);
            at = (number + 1) * PAGE_BYTES;
        }
        Ok(out)
    }

    async fn page(&self, client: &Client, opened: &Opened, number: u64) -> Result<Arc<Vec<u8>>, Fault> {
        let key = (opened.attr.ino, number);
        if let Some(page) = self.pages.lock().get(&key) {
            return Ok(page.clone());
        }
        let read = client.read(opened.handle, number * PAGE_BYTES, PAGE_BYTES, true).await?;
        let ReadOut { pieces, guard } = read;
        let mut bytes = pieces.concat();
        bytes.resize(PAGE_BYTES as usize, 0);
        let page = Arc::new(bytes);
        self.pages.lock().insert(key, page.clone());
        drop(guard);
        Ok(page)
    }
}
