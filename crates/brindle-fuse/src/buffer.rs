//! Recycled, page-aligned buffers that requests are read into.
//!
//! The readers take a block, read one message into it, and turn it into `Bytes` that the handler owns; when the last
//! slice is dropped the block goes back to the pool. A block is placed so that the data of a WRITE begins on a page.
//! Invariant: a block is in the pool, or owned by one reader, or behind one `Bytes`, never two of these.
//!
//! Blocks in use are bounded by the kernel: one for each request in flight that carries bulk data, which is one for
//! each thread that waits in a write, plus `max_background`. Only free blocks are bounded here.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::abi::inputs::{InHeader, WriteIn};

/// Alignment of blocks and of WRITE data.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a WRITE before its data.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// Where a message begins in its block.
const START: usize = PAGE_BYTES - WRITE_HEAD_BYTES;
/// Messages up to this size are copied out, so that a lock that waits for hours does not hold a whole block.
pub const COPIED_BYTES_MAX: usize = 8192;
/// Free blocks kept for the next requests: as many as the client holds back of written data (64 MiB), and some that are on
/// their way. A writer that keeps its buffer full would otherwise get new memory for half of its writes, which the kernel
/// has to zero (31 page faults a MiB, a tenth of the mount's processor time).
const FREE_BLOCKS_MAX: usize = 72;

/// Memory of one message.
#[derive(Debug)]
struct Block {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block owns its memory alone; the pointer is not shared.
unsafe impl Send for Block {}
// SAFETY: through `&Block` the memory is only read.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Block {
        let layout =
            Layout::from_size_align(bytes, PAGE_BYTES).expect("a block is far smaller than isize::MAX");
        // SAFETY: the layout's size is not 0, since every block holds a page before its data.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Block { memory, layout }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `memory` points to `layout.size()` bytes, initialised by alloc_zeroed, owned by this block.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Where free blocks wait.
#[derive(Debug)]
pub struct Pool {
    block_bytes: usize,
    free: Mutex<Vec<Block>>,
}

impl Pool {
    /// A pool for messages with up to `max_write_bytes` of data.
    pub fn new(max_write_bytes: usize) -> Arc<Pool> {
        let block_bytes = PAGE_BYTES + max_write_bytes.next_multiple_of(PAGE_BYTES);
        Arc::new(Pool { block_bytes, free: Mutex::new(Vec::new()) })
    }

    /// A block to read a message into.
    pub fn take(self: &Arc<Self>) -> Slot {
        let block = self.free.lock().pop().unwrap_or_else(|| Block::new(self.block_bytes));
        Slot { pool: self.clone(), block: Some(block), len: 0 }
    }

    /// Number of blocks that wait.
    pub fn free_blocks(&self) -> usize {
        self.free.lock().len()
    }
}

/// A block on its way: a reader fills it, `Bytes` own it.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<Pool>,
    block: Option<Block>,
    len: usize,
}

impl Slot {
    /// Room for a message; all of it is initialised memory.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.block.as_mut().expect("a slot has its block until it is dropped").bytes_mut()[START..]
    }

    /// The message of `len` bytes that was read into the room, as `Bytes`. A short one is copied and the slot
    /// returned for the next message; a long one takes the block along.
    pub fn message(mut self, len: usize) -> (Bytes, Option<Slot>) {
        if len <= COPIED_BYTES_MAX {
            let bytes = Bytes::copy_from_slice(&self.room()[..len]);
            return (bytes, Some(self));
        }
        self.len = len;
        (Bytes::from_owner(self), None)
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        let block = self.block.as_ref().expect("a slot has its block until it is dropped");
        &block.bytes()[START..START + self.len]
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut free = self.pool.free.lock();
        if free.len() < FREE_BLOCKS_MAX {
            free.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_data_begins_on_a_page_and_is_not_copied() {
        let pool = Pool::new(1 << 20);
        let mut slot = pool.take();
        let at = slot.room().as_ptr() as usize;
        let len = WRITE_HEAD_BYTES + 64 * 1024;
        slot.room()[..len].fill(7);
        let (bytes, kept) = slot.message(len);
        assert!(kept.is_none());
        let data = bytes.slice(WRITE_HEAD_BYTES..);
        assert_eq!(data.as_ptr() as usize, at + WRITE_HEAD_BYTES);
        assert_eq!(data.as_ptr() as usize % PAGE_BYTES, 0);
        assert!(data.iter().all(|b| *b == 7));
    }

    #[test]
    fn a_block_comes_back_only_when_the_last_slice_is_gone() {
        let pool = Pool::new(1 << 20);
        let (bytes, _) = pool.take().message(COPIED_BYTES_MAX + 1);
        let slice = bytes.slice(100..200);
        drop(bytes);
        assert_eq!(pool.free_blocks(), 0);
        drop(slice);
        assert_eq!(pool.free_blocks(), 1);
    }

    #[test]
    fn short_messages_leave_the_block_with_the_reader() {
        let pool = Pool::new(1 << 20);
        let mut slot = pool.take();
        slot.room()[..3].copy_from_slice(b"abc");
        let (bytes, kept) = slot.message(3);
        assert_eq!(&bytes[..], b"abc");
        assert!(kept.is_some());
    }

    #[test]
    fn free_blocks_are_bounded() {
        let pool = Pool::new(4096);
        drop((0..FREE_BLOCKS_MAX * 2).map(|_| pool.take()).collect::<Vec<_>>());
        assert_eq!(pool.free_blocks(), FREE_BLOCKS_MAX);
    }
}
