//! Recycled, page-aligned buffers that requests are read into.
//!
//! The readers take a slot, read one message into it, and turn it into `Bytes` that the handler owns; when the last
//! slice is dropped the memory is free for the next one. A slot is placed so that the data of a WRITE begins on a page.
//!
//! Slots in use are bounded by the kernel: one for each request in flight that carries bulk data, which is one for
//! each thread that waits in a write, plus `max_background`.

use brindle_stdx::buffers::{ALIGN_BYTES, Buffer};
use bytes::Bytes;

use crate::abi::inputs::{InHeader, WriteIn};

/// Alignment of WRITE data.
pub const PAGE_BYTES: usize = ALIGN_BYTES;
/// Bytes of a WRITE before its data.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// Messages up to this size are copied out, so that a lock that waits for hours does not hold a whole block.
pub const COPIED_BYTES_MAX: usize = 8192;

/// Memory for one message on its way: a reader fills it, `Bytes` own it.
#[derive(Debug)]
pub struct Slot(Buffer);

impl Slot {
    /// Memory to read a message into, with up to `max_write_bytes` of data.
    pub fn new(max_write_bytes: usize) -> Slot {
        Slot(Buffer::with_head(WRITE_HEAD_BYTES, max_write_bytes.next_multiple_of(PAGE_BYTES)))
    }

    /// Room for a message; all of it is initialised memory.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The message of `len` bytes that was read into the room, as `Bytes`. A short one is copied and the slot
    /// returned for the next message; a long one takes the memory along.
    pub fn message(self, len: usize) -> (Bytes, Option<Slot>) {
        if len <= COPIED_BYTES_MAX {
            return (Bytes::copy_from_slice(&self.0[..len]), Some(self));
        }
        (self.0.freeze(len), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_data_begins_on_a_page_and_is_not_copied() {
        let mut slot = Slot::new(1 << 20);
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
    fn short_messages_leave_the_memory_with_the_reader() {
        let mut slot = Slot::new(1 << 20);
        slot.room()[..3].copy_from_slice(b"abc");
        let (bytes, kept) = slot.message(3);
        assert_eq!(&bytes[..], b"abc");
        assert!(kept.is_some());
    }

    #[test]
    fn a_slot_of_the_usual_size_is_recycled() {
        let room = Slot::new(1 << 20).room().len();
        assert!(
            (brindle_stdx::buffers::POOLED_BYTES_MIN..=brindle_stdx::buffers::POOLED_BYTES_MAX)
                .contains(&room)
        );
    }
}
