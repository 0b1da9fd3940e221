//! The kernel's FUSE interface, protocol 7.45: opcodes, flags, structures. Numbers and names are the kernel's.
//!
//! Used by the decoder, the encoder and the session; nothing outside this crate needs it except the bits of
//! [`flags`] that a file system answers an open with. Invariant: every structure has the size and the field offsets
//! of the kernel's, checked when this crate is compiled.

pub mod flags;
pub mod inputs;
pub mod opcode;
pub mod outputs;

/// Protocol major version; the only one there is.
pub const MAJOR: u32 = 7;
/// Newest minor version this layer speaks.
pub const MINOR: u32 = 45;
/// Oldest minor version it accepts (Linux 6.6): the first with STATX and shared mmap of direct files.
pub const MINOR_OLDEST: u32 = 39;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Smallest buffer that the kernel accepts for a read of the device.
pub const MIN_READ_BUFFER_BYTES: usize = 8192;
/// `FUSE_DEV_IOC_CLONE`: binds a fresh device descriptor to an existing connection.
pub const DEV_IOC_CLONE: u64 = 0x8004_E500;
/// Bit of `unique` that marks a request delivered a second time after `NOTIFY_RESEND`.
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// Rounds up to the 8-byte grid of directory records and extensions.
pub const fn align8(n: usize) -> usize {
    (n + 7) & !7
}

/// Declares structures of the interface with their size and the offset of each field, which are asserted.
macro_rules! kernel_structs {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $ty:ty = $offset:literal),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $ty,)* }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    )* };
}
pub(crate) use kernel_structs;
