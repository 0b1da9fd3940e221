//! The first exchange of a connection: which protocol version, which features, which sizes. Pure.

use brindle_stdx::cast::{index, len_u32, low_u32};
use brindle_types::{Code, Fault};

use crate::abi::flags::init::*;
use crate::abi::inputs::InitIn;
use crate::abi::outputs::InitOut;
use crate::abi::{MAJOR, MINOR, MINOR_OLDEST};
use crate::buffer::PAGE_BYTES;

/// Conditions under which the kernel drops cached pages by itself because new attributes differ from the
/// known ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageInvalidation {
    /// Never: pages go only on `NOTIFY_INVAL_INODE`, open without KEEP_CACHE, truncation and direct writes
    /// (EXPLICIT_INVAL_DATA).
    Explicit,
    /// All pages of the inode when its size differs.
    #[default]
    OnSize,
    /// All pages when size or mtime differ, and each cached read refreshes expired attributes first
    /// (AUTO_INVAL_DATA).
    OnSizeOrMtime,
}

/// Features that we ask the kernel for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Largest WRITE and READ in bytes, a multiple of the page size; the kernel's `max_pages_limit` (1 MiB unless an
    /// administrator raised it) bounds it.
    pub max_write_bytes: u32,
    /// Requests of the kernel itself (read-ahead, writeback) in flight at once.
    pub max_background: u16,
    /// Condition for dropping pages.
    pub page_invalidation: PageInvalidation,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            max_write_bytes: 1 << 20,
            max_background: 128,
            page_invalidation: PageInvalidation::default(),
        }
    }
}

/// The agreement: everything a server must know to go on with a connection whose INIT another one answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Protocol minor version spoken.
    pub minor: u32,
    /// Features of both sides, bits of [`crate::abi::flags::init`].
    pub features: u64,
    /// Largest WRITE and READ in bytes.
    pub max_write_bytes: u32,
}

impl Negotiated {
    /// Whether a feature was agreed on.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }
}

/// Features that are used wherever the kernel offers them.
///
/// Left out, with the reason: WRITEBACK_CACHE (the kernel would own size and mtime), CACHE_SYMLINKS and the zero
/// message opens (nothing would recall them), READDIRPLUS_AUTO (attributes are asked for with the first entries only, and
/// programs list a directory to its end before they look at the first file), SPLICE_* (we read into buffers that we own), HANDLE_KILLPRIV (version
/// 2 replaces it), HAS_INODE_DAX, PASSTHROUGH, ALLOW_IDMAP, OVER_IO_URING, SECURITY_CTX, SUBMOUNTS (unused),
/// REQUEST_TIMEOUT (a failover that takes longer would kill the mount).
pub const FEATURES: u64 = ASYNC_READ
    | POSIX_LOCKS
    | ATOMIC_O_TRUNC
    | EXPORT_SUPPORT
    | BIG_WRITES
    | DONT_MASK
    | FLOCK_LOCKS
    | DO_READDIRPLUS
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | POSIX_ACL
    | ABORT_ERROR
    | MAX_PAGES
    | HANDLE_KILLPRIV_V2
    | SETXATTR_EXT
    | INIT_EXT
    | CREATE_SUPP_GROUP
    | HAS_EXPIRE_ONLY
    | DIRECT_IO_ALLOW_MMAP
    | HAS_RESEND;

/// Answers INIT, or says why this kernel cannot be served. `release` is the kernel's, for the message.
pub fn negotiate(offer: &InitIn, wanted: &Wanted, release: &str) -> Result<(InitOut, Negotiated), Fault> {
    if (offer.major, offer.minor) < (MAJOR, MINOR_OLDEST) {
        let spoken = format!(
            "its FUSE protocol is {}.{}, and Brindle needs {MAJOR}.{MINOR_OLDEST}",
            offer.major, offer.minor
        );
        return Err(Fault::new(Code::KernelTooOld).subject(format!("Linux {release}")).why(spoken));
    }
    let offered = u64::from(offer.flags) | u64::from(offer.flags2) << 32;
    let invalidation = match wanted.page_invalidation {
        PageInvalidation::Explicit => EXPLICIT_INVAL_DATA,
        PageInvalidation::OnSize => 0,
        PageInvalidation::OnSizeOrMtime => AUTO_INVAL_DATA,
    };
    let features = (FEATURES | invalidation) & offered;
    let pages = u16::try_from(index(wanted.max_write_bytes) / PAGE_BYTES).unwrap_or(u16::MAX).max(1);
    let agreed = Negotiated {
        minor: offer.minor.min(MINOR),
        features,
        max_write_bytes: len_u32(usize::from(pages) * PAGE_BYTES),
    };
    let answer = InitOut {
        major: MAJOR,
        minor: agreed.minor,
        max_readahead: offer.max_readahead,
        flags: low_u32(features),
        flags2: (features >> 32) as u32,
        max_background: wanted.max_background,
        congestion_threshold: wanted.max_background / 4 * 3,
        max_write: agreed.max_write_bytes,
        time_gran: 1,
        max_pages: pages,
        ..Default::default()
    };
    Ok((answer, agreed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, features: u64) -> InitIn {
        let (flags, flags2) = (features as u32, (features >> 32) as u32);
        InitIn { major: 7, minor, max_readahead: 131072, flags, flags2, unused: [0; 11] }
    }

    #[test]
    fn an_old_kernel_is_refused_by_name() {
        let fault = negotiate(&offer(38, u64::MAX), &Wanted::default(), "6.1.0-18-amd64")
            .expect_err("7.38 is too old");
        let text = "cannot mount: the kernel is too old Linux 6.1.0-18-amd64\n  \
            why:  its FUSE protocol is 7.38, and Brindle needs 7.39\n  \
            next: boot Linux 6.6 or newer\n  code: E1010 (brindle explain E1010)";
        assert_eq!(fault.to_string(), text);
        assert_eq!(fault.code, Code::KernelTooOld);
    }

    #[test]
    fn only_what_is_offered_is_accepted() {
        let few = ASYNC_READ | INIT_EXT | MAX_PAGES;
        let (answer, agreed) = negotiate(&offer(39, few), &Wanted::default(), "6.6").expect("7.39 is served");
        assert_eq!((answer.minor, u64::from(answer.flags), answer.flags2), (39, few, 0));
        assert_eq!(agreed.features, few);
    }

    #[test]
    fn a_newer_kernel_speaks_our_version_and_never_gets_writeback() {
        let (answer, agreed) =
            negotiate(&offer(99, u64::MAX), &Wanted::default(), "9.9").expect("newer is served");
        assert_eq!((answer.minor, agreed.minor), (MINOR, MINOR));
        for never in
            [WRITEBACK_CACHE, CACHE_SYMLINKS, SPLICE_READ, REQUEST_TIMEOUT, NO_OPEN_SUPPORT, PASSTHROUGH]
        {
            assert!(!agreed.has(never), "{never:#x}");
        }
        assert!(agreed.has(HAS_RESEND) && agreed.has(DIRECT_IO_ALLOW_MMAP) && agreed.has(INIT_EXT));
        assert_eq!((answer.max_write, answer.max_pages), (1 << 20, 256));
    }

    #[test]
    fn page_invalidation_is_one_of_three() {
        let with = |page_invalidation| {
            let wanted = Wanted { page_invalidation, ..Wanted::default() };
            let (_, agreed) = negotiate(&offer(45, u64::MAX), &wanted, "6.18").expect("served");
            (agreed.has(EXPLICIT_INVAL_DATA), agreed.has(AUTO_INVAL_DATA))
        };
        assert_eq!(with(PageInvalidation::Explicit), (true, false));
        assert_eq!(with(PageInvalidation::OnSize), (false, false));
        assert_eq!(with(PageInvalidation::OnSizeOrMtime), (false, true));
    }
}
