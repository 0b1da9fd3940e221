//! Bytes of a file in pages; a page that is not there reads as zeros.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::content::SECTOR_LEN;

/// Bytes of a page.
const PAGE_LEN: usize = 4096;
const PAGE: u64 = PAGE_LEN as u64;

type Page = [u8; PAGE_LEN];

/// Pages of a file. A copy shares them until one of both is written.
#[derive(Clone, Default)]
pub(super) struct Pages(BTreeMap<u64, Arc<Page>>);

/// Numbers of the pages that hold a range of bytes.
fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

/// Where a range lies within a page; it must touch the page.
fn within(range: &Range<u64>, page: u64) -> Range<usize> {
    let start = page * PAGE;
    (range.start.max(start) - start) as usize..(range.end.min(start + PAGE) - start) as usize
}

impl Pages {
    fn page_mut(&mut self, page: u64) -> &mut Page {
        Arc::make_mut(self.0.entry(page).or_insert_with(|| Arc::new([0; PAGE_LEN])))
    }

    pub fn read(&self, buf: &mut [u8], offset: u64) {
        buf.fill(0);
        let range = offset..offset + buf.len() as u64;
        for (number, page) in self.0.range(pages_of(&range)) {
            let part = within(&range, *number);
            let at = (number * PAGE + part.start as u64 - offset) as usize;
            buf[at..at + part.len()].copy_from_slice(&page[part]);
        }
    }

    pub fn write(&mut self, data: &[u8], offset: u64) {
        let range = offset..offset + data.len() as u64;
        for number in pages_of(&range) {
            let part = within(&range, number);
            let at = (number * PAGE + part.start as u64 - offset) as usize;
            let (from, len) = (&data[at..], part.len());
            self.page_mut(number)[part].copy_from_slice(&from[..len]);
        }
    }

    /// Makes a range read as zeros.
    pub fn zero(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let hit: Vec<u64> = self.0.range(pages_of(&range)).map(|(number, _)| *number).collect();
        for number in hit {
            let part = within(&range, number);
            match part.len() {
                PAGE_LEN => drop(self.0.remove(&number)),
                _ => self.page_mut(number)[part].fill(0),
            }
        }
    }

    /// Sectors within a range of bytes that may hold something else than zeros: all of each page that is there.
    pub fn sectors(&self, range: &Range<u64>) -> Vec<u64> {
        let sectors = range.start / SECTOR_LEN as u64..range.end.div_ceil(SECTOR_LEN as u64);
        let per_page = PAGE / SECTOR_LEN as u64;
        let pages = self.0.range(pages_of(range)).map(|(number, _)| *number);
        pages
            .flat_map(|page| page * per_page..(page + 1) * per_page)
            .filter(|at| sectors.contains(at))
            .collect()
    }

    /// Inverts the bits of `mask` in one byte.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        self.page_mut(offset / PAGE)[(offset % PAGE) as usize] ^= mask;
    }

    /// Whether a range holds nothing but zeros.
    pub fn is_zero(&self, range: &Range<u64>) -> bool {
        self.0
            .range(pages_of(range))
            .all(|(number, page)| page[within(range, *number)].iter().all(|b| *b == 0))
    }
}
