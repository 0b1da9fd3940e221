//! A model of the kernel's page cache, as far as its coherence goes: pages of files that were opened `Cached`, dropped
//! when the client says so.
//!
//! Called by the block workload. Like the kernel it keeps pages over a close, trusts them after an open only if the
//! client says that they are good, and puts a page in only while the read that brought it is guarded. A read of pages
//! that are there, inside the size that is known, asks nobody anything (`docs/design/001-mixed-state.md`, "Attributes").

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

#[derive(Default)]
struct CachedPage {
    /// Pages by inode and number.
    pages: BTreeMap<(Ino, u64), Arc<Vec<u8>>>,
    /// Sizes as they were last seen. A size that is too small only makes a read ask.
    sizes: BTreeMap<Ino, u64>,
}

/// The pages that one mount keeps.
#[derive(Clone, Default)]
pub struct PageCache {
    kept: Arc<Mutex<CachedPage>>,
}

impl CachedPage {
    /// Takes in a size that came with attributes: with a larger one all pages go, with a smaller one those behind it.
    fn saw_size(&mut self, ino: Ino, size_bytes: u64) {
        let before = self.sizes.insert(ino, size_bytes);
        let keep_below = match before {
            Some(before) if before >= size_bytes => size_bytes.div_ceil(PAGE_BYTES),
            _ => 0,
        };
        self.pages.retain(|(i, n), _| *i != ino || *n < keep_below);
    }
}

impl KernelCache for PageCache {
    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()> {
        self.wrote(ino, offset, len_bytes);
        Box::pin(std::future::ready(()))
    }
}

impl PageCache {
    /// An open returns, which the kernel does some time after it was answered, or never: pages go that are not to be kept.
    pub fn opened(&self, opened: &Opened) {
        let mut kept = self.kept.lock();
        if !opened.keep_cache {
            kept.pages.retain(|(ino, _), _| *ino != opened.attr.ino);
        }
        kept.saw_size(opened.attr.ino, opened.attr.size_bytes);
    }

    /// Drops the pages of a range: a direct write or a truncate of this mount does so before and after.
    pub fn wrote(&self, ino: Ino, offset: u64, len_bytes: u64) {
        let first = offset / PAGE_BYTES;
        let last = offset.saturating_add(len_bytes.saturating_sub(1)) / PAGE_BYTES;
        self.kept.lock().pages.retain(|(i, n), _| *i != ino || *n < first || *n > last);
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
        let ino = opened.attr.ino;
        let known = self.kept.lock().sizes.get(&ino).copied().unwrap_or(0);
        if offset + len_bytes > known {
            let size_bytes = client.getattr(ino).await?.size_bytes;
            self.kept.lock().saw_size(ino, size_bytes);
        }
        let mut out = Vec::new();
        let mut at = offset;
        loop {
            // A page that ends early has told where the file ends.
            let end = (offset + len_bytes).min(self.kept.lock().sizes.get(&ino).copied().unwrap_or(0));
            if at >= end {
                return Ok(out);
            }
            let number = at / PAGE_BYTES;
            let page = self.page(client, opened, number).await?;
            let from = (at - number * PAGE_BYTES) as usize;
            let until = (end - number * PAGE_BYTES).min(PAGE_BYTES) as usize;
            out.extend_from_slice(&page[from..until]);
            at = (number + 1) * PAGE_BYTES;
        }
    }

    async fn page(&self, client: &Client, opened: &Opened, number: u64) -> Result<Arc<Vec<u8>>, Fault> {
        let key = (opened.attr.ino, number);
        if let Some(page) = self.kept.lock().pages.get(&key) {
            return Ok(page.clone());
        }
        // Like every READ it shows that the open has returned, and with it the pages have gone that were not to be kept.
        client.open_returned(opened.handle);
        let read = client.read(opened.handle, number * PAGE_BYTES, PAGE_BYTES, true).await?;
        let ReadOut { pieces, guard } = read;
        let mut bytes = pieces.concat();
        let end = number * PAGE_BYTES + bytes.len() as u64;
        bytes.resize(PAGE_BYTES as usize, 0);
        let page = Arc::new(bytes);
        let mut kept = self.kept.lock();
        kept.pages.insert(key, page.clone());
        if end < (number + 1) * PAGE_BYTES
            && let Some(size) = kept.sizes.get_mut(&key.0)
        {
            *size = end.min(*size);
        }
        drop(kept);
        drop(guard);
        Ok(page)
    }
}
