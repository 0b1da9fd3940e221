//! How a file's bytes lie on targets.

use serde::{Deserialize, Serialize};

use crate::ids::{Gen, Pair};

/// Stripe sizes are multiples of this.
pub const STRIPE_SIZE_UNIT_BYTES: u32 = 64 << 10;
/// Stripe size where nobody chose one.
pub const STRIPE_SIZE_DEFAULT_BYTES: u32 = 1 << 20;
/// Largest stripe size.
pub const STRIPE_SIZE_MAX_BYTES: u32 = 1 << 30;
/// Most stripes a component may have.
pub const STRIPE_COUNT_MAX: u32 = 2000;
/// Largest file whose bytes may lie in the MDT.
pub const INLINE_MAX_BYTES: u64 = 8 << 10;
/// Largest file in bytes (2^63 - 1, what off_t can express).
pub const FILE_SIZE_MAX_BYTES: u64 = i64::MAX as u64;

/// What a user or a directory's default asks of new files; fields left out are inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripePolicy {
    /// Number of stripes; -1 for all OSTs, 0 for the default.
    pub count: Option<i32>,
    /// Stripe size in bytes; 0 for the default.
    pub size_bytes: Option<u32>,
    /// Index of the first OST; -1 for any.
    pub start_ost: Option<i32>,
}

/// One component: a run of the file striped over OSTs. There is one so far, from 0 to the end of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Names the objects; never changes.
    pub generation: Gen,
    /// Stripe size in bytes.
    pub stripe_size_bytes: u32,
    /// OST index of each stripe.
    pub osts: Vec<u16>,
    /// One bit a stripe, lowest first: the object is known to exist, so that its absence is a fault, not a hole.
    pub objects: Vec<u64>,
}

impl Component {
    /// Whether the object of `stripe` is known to exist.
    pub fn object_known(&self, stripe: u32) -> bool {
        self.objects.get(stripe as usize / 64).is_some_and(|w| w >> (stripe % 64) & 1 == 1)
    }

    /// Records that the object of `stripe` exists.
    pub fn set_object_known(&mut self, stripe: u32) {
        let word = stripe as usize / 64;
        if self.objects.len() <= word {
            self.objects.resize(word + 1, 0);
        }
        self.objects[word] |= 1 << (stripe % 64);
    }
}

/// How a regular file's bytes lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Changed by every change of the layout; OSTs refuse older ones.
    pub epoch: Pair,
    /// Whether the bytes lie in the MDT (then the component has no objects yet).
    pub inline: bool,
    /// Where bytes lie, or will lie once they leave the MDT.
    pub component: Component,
}
