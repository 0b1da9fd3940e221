//! Recycled memory for bulk data: what is read from a socket, from a disk, from the kernel.
//!
//! A piece of a megabyte that is allocated and freed for each request is new memory each time, which the kernel has to
//! fault in and zero page by page. Here blocks of that size are kept by the process and given out again.
//!
//! Invariants: the memory of a block belongs to one [`Buffer`], or to one `Bytes` that was made of it, or waits in the
//! pool, never two of these. Blocks in use are bounded by those who ask for them; only free ones are bounded here.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::arena::Memory;

/// Alignment in memory, as direct I/O needs it.
pub const ALIGN_BYTES: usize = 4096;
/// Shorter buffers are not blocks of the pool: a whole block would be held for little, and the bound on bytes in flight
/// would not count the rest of the block.
pub const POOLED_BYTES_MIN: usize = 256 << 10;
/// Longer buffers are no blocks of the pool: the longest transfer of a mount (4 MiB), and what may precede it and follow it.
pub const POOLED_BYTES_MAX: usize = (4 << 20) + EXTRA_BYTES;
/// Room for the blocks of a disk that a transfer may begin and end in, and what precedes it in a message.
const EXTRA_BYTES: usize = 3 * ALIGN_BYTES;
/// Lengths of buffers that share one kind of block.
const KINDS: [usize; 3] = [(1 << 20) + EXTRA_BYTES, (2 << 20) + EXTRA_BYTES, POOLED_BYTES_MAX];
/// Memory of free blocks that is kept for the next requests: as much as a mount holds back of written data (64 MiB), and
/// some that is on its way. A writer that keeps its buffer full would otherwise get new memory for half of its writes.
const FREE_BYTES_MAX: usize = 80 << 20;

static SHARED: Pool = Pool::new();

/// Free blocks.
#[derive(Debug)]
struct Pool {
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Blocks of each of the [`KINDS`].
    blocks: [Vec<Memory>; KINDS.len()],
    bytes: usize,
}

impl Pool {
    const fn new() -> Pool {
        Pool { free: Mutex::new(Free { blocks: [const { Vec::new() }; KINDS.len()], bytes: 0 }) }
    }

    /// The shortest kind of block that a buffer of `len` bytes fits into; `None` where it is not taken from the pool.
    fn kind(len: usize) -> Option<usize> {
        if len < POOLED_BYTES_MIN {
            return None;
        }
        KINDS.iter().position(|most| len <= *most)
    }

    fn block(&self, kind: usize) -> Memory {
        let kept = {
            let mut free = self.free.lock();
            let kept = free.blocks[kind].pop();
            free.bytes -= kept.as_ref().map_or(0, |block| block.len());
            kept
        };
        // Zeroed by the kernel, page by page, as it is used for the first time.
        kept.unwrap_or_else(|| Memory::new(KINDS[kind] + ALIGN_BYTES))
    }

    fn give_back(&self, kind: usize, block: Memory) {
        let mut others = Vec::new();
        let mut free = self.free.lock();
        // Blocks of other kinds, which were not asked for as lately, make room.
        while free.bytes + block.len() > FREE_BYTES_MAX
            && let Some(other) =
                (0..KINDS.len()).filter(|other| *other != kind).find_map(|other| free.blocks[other].pop())
        {
            free.bytes -= other.len();
            others.push(other);
        }
        if free.bytes + block.len() <= FREE_BYTES_MAX {
            free.bytes += block.len();
            free.blocks[kind].push(block);
        }
        drop(free);
    }
}

/// Memory to read into. At first it holds zeros, or bytes of its earlier use.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
    /// Pool of the memory, and the kind of the block.
    pool: Option<(&'static Pool, usize)>,
}

impl Buffer {
    /// `len` bytes that begin at a multiple of [`ALIGN_BYTES`].
    pub fn new(len: usize) -> Buffer {
        Buffer::with_head(0, len)
    }

    /// `head + len` bytes, placed so that the byte behind the first `head` lies at a multiple of [`ALIGN_BYTES`].
    pub fn with_head(head: usize, len: usize) -> Buffer {
        Buffer::of(&SHARED, head, len)
    }

    fn of(pool: &'static Pool, head: usize, len: usize) -> Buffer {
        let len = head + len;
        let pool = Pool::kind(len).map(|kind| (pool, kind));
        let memory =
            pool.map_or_else(|| Memory::Own(vec![0; len + ALIGN_BYTES]), |(pool, kind)| pool.block(kind));
        let aligned = memory.as_ptr().align_offset(ALIGN_BYTES);
        let start = (aligned + ALIGN_BYTES - head % ALIGN_BYTES) % ALIGN_BYTES;
        Buffer { memory, start, len, pool }
    }

    /// The first `len` bytes, which the caller has filled. The memory is free again when the last slice of them is
    /// dropped.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn freeze(mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "a buffer of {} bytes has no {len}", self.len);
        self.len = len;
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((pool, kind)) = self.pool {
            pool.give_back(kind, std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes: &[u8]) -> usize {
        bytes.as_ptr() as usize
    }

    #[test]
    fn what_is_behind_the_head_begins_on_a_page() {
        for (head, len) in
            [(0, 100), (0, 1 << 20), (80, 1 << 20), (80, 3 << 20), (ALIGN_BYTES, 5), (5000, 70_000)]
        {
            let mut buffer = Buffer::with_head(head, len);
            assert_eq!(buffer.len(), head + len);
            buffer.fill(7);
            assert_eq!((at(&buffer) + head) % ALIGN_BYTES, 0, "{head} {len}");
            let place = at(&buffer);
            let bytes = buffer.freeze(head + len / 2);
            assert_eq!((at(&bytes), bytes.len()), (place, head + len / 2), "it is not copied");
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }

    fn free_blocks(pool: &Pool) -> usize {
        pool.free.lock().blocks.iter().map(Vec::len).sum()
    }

    #[test]
    fn a_block_comes_back_only_when_the_last_slice_is_gone() {
        static POOL: Pool = Pool::new();
        let bytes = Buffer::of(&POOL, 0, POOLED_BYTES_MIN).freeze(1000);
        let slice = bytes.slice(100..200);
        drop(bytes);
        assert_eq!(free_blocks(&POOL), 0);
        drop(slice);
        assert_eq!(free_blocks(&POOL), 1);
        let again = Buffer::of(&POOL, 80, 1 << 20);
        assert_eq!(free_blocks(&POOL), 0);
        drop(again);
        assert_eq!(free_blocks(&POOL), 1);
    }

    #[test]
    fn blocks_are_given_out_to_buffers_of_their_kind() {
        static POOL: Pool = Pool::new();
        drop(Buffer::of(&POOL, 0, 4 << 20));
        let short = Buffer::of(&POOL, 0, 1 << 20);
        assert_eq!(free_blocks(&POOL), 1, "the long block waits for a long buffer");
        let long = Buffer::of(&POOL, 0, (2 << 20) + EXTRA_BYTES + 1);
        assert_eq!(free_blocks(&POOL), 0);
        drop((short, long));
        assert_eq!(free_blocks(&POOL), 2);
        assert_eq!(POOL.free.lock().bytes, KINDS[0] + KINDS[2] + 2 * ALIGN_BYTES);
    }

    #[test]
    fn what_is_too_small_or_too_large_for_a_block_is_freed() {
        static POOL: Pool = Pool::new();
        drop(Buffer::of(&POOL, 0, POOLED_BYTES_MIN - 1));
        drop(Buffer::of(&POOL, 1, POOLED_BYTES_MAX));
        assert_eq!(free_blocks(&POOL), 0);
    }

    #[test]
    fn free_blocks_are_bounded() {
        static POOL: Pool = Pool::new();
        for len in [1 << 20, 4 << 20, 2 << 20] {
            drop((0..100).map(|_| Buffer::of(&POOL, 0, len)).collect::<Vec<_>>());
            let bytes = POOL.free.lock().bytes;
            assert!(bytes <= FREE_BYTES_MAX && bytes > FREE_BYTES_MAX * 9 / 10, "{bytes} bytes are kept");
            let kind = Pool::kind(len).expect("it is pooled");
            let blocks: Vec<usize> = POOL.free.lock().blocks.iter().map(Vec::len).collect();
            assert!(
                blocks[kind] > 1 && blocks.iter().sum::<usize>() == blocks[kind],
                "{blocks:?}: those in use"
            );
        }
    }
}
