//! Keyed checksums of frames: mode `integrity`.
//!
//! Behind each frame come sixteen bytes: keyed BLAKE3 over the number of the frame and all of its bytes. Each direction has a key of its own,
//! derived from the handshake. A frame that was changed, left out, repeated or put elsewhere does not fit.

use brindle_wire::frame::HEADER_LEN;

/// Length of a key.
pub(super) const KEY_BYTES: usize = 32;
/// Length of a checksum.
pub(super) const TAG_BYTES: usize = 16;

/// The key of one direction, and the number of the next frame.
pub(super) struct FrameKey {
    key: [u8; KEY_BYTES],
    next: u64,
}

impl FrameKey {
    pub(super) fn new(key: [u8; KEY_BYTES]) -> FrameKey {
        FrameKey { key, next: 0 }
    }

    /// The checksum of the next frame, whose bytes are those of its header and of `parts`, in order.
    pub(super) fn tag<'a>(
        &mut self,
        header: &[u8; HEADER_LEN],
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.next.to_le_bytes());
        hasher.update(header);
        for part in parts {
            hasher.update(part);
        }
        self.next += 1;
        let whole = hasher.finalize();
        whole.as_bytes()[..TAG_BYTES].try_into().expect("a hash has 32 bytes")
    }
}

/// Whether two checksums are equal, in a time that does not tell where they differ.
pub(super) fn are_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
