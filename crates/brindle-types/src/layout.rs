//! Layout of a file: the placement of its bytes on targets.

use serde::{Deserialize, Serialize};

use crate::ids::{Gen, Pair, PoolName};

/// Stripe sizes are multiples of this.
pub const STRIPE_SIZE_UNIT_BYTES: u32 = 64 << 10;
/// Default stripe size.
pub const STRIPE_SIZE_DEFAULT_BYTES: u32 = 1 << 20;
/// Largest stripe size.
pub const STRIPE_SIZE_MAX_BYTES: u32 = 1 << 30;
/// Most stripes a component may have.
pub const STRIPE_COUNT_MAX: u32 = 2000;
/// Largest file whose bytes may lie in the MDT.
pub const INLINE_MAX_BYTES: u64 = 8 << 10;
/// Bytes of a file are data or a hole in blocks of this size, in the MDT as in objects.
pub const HOLE_BYTES: usize = 4096;
/// Largest file in bytes (2^63 - 1, what off_t can express).
pub const FILE_SIZE_MAX_BYTES: u64 = i64::MAX as u64;

/// Most components of a layout.
pub const COMPONENTS_MAX: usize = 32;
/// End of a component that reaches to the end of the file, wherever that is.
pub const EOF: u64 = u64::MAX;

/// Choice of the OSTs that a file may lie on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolChoice {
    /// All of the file system, whatever a default says.
    All,
    /// The OSTs of a pool.
    Named(PoolName),
}

/// Wishes of a user, or of a directory's default, for a run of stripes; fields left out are inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripePolicy {
    /// Number of stripes; -1 for all OSTs, 0 for the default.
    pub count: Option<i32>,
    /// Stripe size in bytes; 0 for the default.
    pub size_bytes: Option<u32>,
    /// Index of the first OST; -1 for any.
    pub start_ost: Option<i32>,
    /// OSTs in the wanted order, a stripe each; empty: any OSTs.
    pub osts: Vec<u16>,
    /// Set of OSTs to choose from.
    pub pool: Option<PoolChoice>,
}

impl StripePolicy {
    /// The pool that OSTs are chosen from, if it is not the whole file system.
    pub fn pool(&self) -> Option<&PoolName> {
        match &self.pool {
            Some(PoolChoice::Named(name)) => Some(name),
            Some(PoolChoice::All) | None => None,
        }
    }
}

/// Wishes for one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentPolicy {
    /// End of the component, in bytes of the file; [`EOF`] for the last.
    pub end_bytes: u64,
    /// Stripe policy of the component.
    pub stripe: StripePolicy,
}

/// Wishes of a user, or of a directory's default, for new files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutPolicy {
    /// Stripe policy of the whole file, if there are no components.
    pub stripe: StripePolicy,
    /// Components in order, from the beginning of the file to [`EOF`]; none for a file that is striped alike everywhere.
    pub components: Vec<ComponentPolicy>,
}

impl From<StripePolicy> for LayoutPolicy {
    fn from(stripe: StripePolicy) -> LayoutPolicy {
        LayoutPolicy { stripe, components: Vec::new() }
    }
}

/// Names an object of a file: a stripe of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stripe {
    /// Generation of the component.
    pub generation: Gen,
    /// Within the component.
    pub index: u32,
}

/// One component: a part of the file that is striped over OSTs. Parts of a file in the same objects, between which a
/// part was moved elsewhere, are components of the same generation. They differ only in where they begin and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// First byte in the file.
    pub start: u64,
    /// Byte behind its last in the file; [`EOF`] for the last component.
    pub end: u64,
    /// Byte of the file that its objects begin with: at or in front of [`Component::start`], since what lay there may have
    /// been moved elsewhere.
    pub origin: u64,
    /// Names the objects; new whenever OSTs are chosen.
    pub generation: Gen,
    /// Stripe size in bytes.
    pub stripe_size_bytes: u32,
    /// Policy that was asked for: number of OSTs, and the first one.
    pub asked: StripePolicy,
    /// OST index of each stripe; empty until the first write in it.
    pub osts: Vec<u16>,
    /// One bit a stripe, lowest first: the object is known to exist, so that its absence is a fault, not a hole.
    pub objects: Vec<u64>,
}

impl Component {
    /// Whether the component's OSTs are chosen, so that it can have objects.
    pub fn is_placed(&self) -> bool {
        !self.osts.is_empty()
    }

    /// Stripes of the component and the OST of each, in order.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, u16)> + '_ {
        let stripe = |index: u32| Stripe { generation: self.generation, index };
        (0..).zip(&self.osts).map(move |(index, ost)| (stripe(index), *ost))
    }

    /// Whether the object of a stripe is known to exist.
    pub fn object_known(&self, index: u32) -> bool {
        self.objects.get(index as usize / 64).is_some_and(|w| w >> (index % 64) & 1 == 1)
    }

    /// Records that the object of a stripe exists.
    pub fn set_object_known(&mut self, index: u32) {
        let word = index as usize / 64;
        if self.objects.len() <= word {
            self.objects.resize(word + 1, 0);
        }
        self.objects[word] |= 1 << (index % 64);
    }
}

/// Layout of a regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Changed by every change of the layout; OSTs refuse older ones.
    pub epoch: Pair,
    /// Changed when the file is emptied and when its bytes leave the MDT: whatever was known of its objects is void.
    pub body: Pair,
    /// Whether the bytes lie in the MDT (then no component has objects yet).
    pub inline: bool,
    /// Components in order, without gaps, from 0 to [`EOF`]. Bytes lie there, or will once they leave the
    /// MDT.
    pub components: Vec<Component>,
}

impl Layout {
    /// The component that holds a byte of the file.
    pub fn at(&self, offset: u64) -> Option<&Component> {
        self.components.iter().find(|c| c.start <= offset && offset < c.end)
    }

    /// The first component of a generation, if its objects are still the file's.
    pub fn component(&self, generation: Gen) -> Option<&Component> {
        self.components.iter().find(|c| c.is_placed() && c.generation == generation)
    }

    /// All components of a generation: the parts of the file that lie in its objects, in order.
    pub fn parts_of(&self, generation: Gen) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(move |c| c.is_placed() && c.generation == generation)
    }

    /// Every stripe that there can be an object of, and its OST, each once: by component, then in order.
    pub fn stripes(&self) -> impl Iterator<Item = (Stripe, u16)> + '_ {
        let before =
            |n: usize, c: &Component| self.components[..n].iter().any(|b| b.generation == c.generation);
        let first = self.components.iter().enumerate().filter(move |(n, c)| c.is_placed() && !before(*n, c));
        first.flat_map(|(_, c)| c.stripes())
    }

    /// The OST of a stripe; `None` if it is not this file's any more.
    pub fn ost_of(&self, stripe: Stripe) -> Option<u16> {
        self.component(stripe.generation)?.osts.get(stripe.index as usize).copied()
    }

    /// Whether the object of a stripe is known to exist.
    pub fn object_known(&self, stripe: Stripe) -> bool {
        self.component(stripe.generation).is_some_and(|c| c.object_known(stripe.index))
    }

    /// Records that the object of a stripe exists; nothing happens for one that is not this file's.
    pub fn set_object_known(&mut self, stripe: Stripe) {
        for component in self.components.iter_mut().filter(|c| c.generation == stripe.generation) {
            if (stripe.index as usize) < component.osts.len() {
                component.set_object_known(stripe.index);
            }
        }
    }
}
