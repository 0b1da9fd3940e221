//! Messages between clients, MGS, MDS and OSS: the frame, the table of operations and one file per operation.
//!
//! Only this crate knows byte layouts on the wire. A request body is the postcard form of the operation's `...Req`; a
//! reply body is the postcard form of `Result<...Resp, Fault>`. Bytes of files travel as bulk behind the body.
//!
//! Invariant: bytes never change without a version, a golden file and a sentence in [`version`].
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod bb;
pub mod cache_updates;
pub mod earlier;
pub mod extremes;
pub mod form;
pub mod frame;
pub mod job;
pub mod log_level;
pub mod log_lines;
pub mod map;
pub mod mds;
pub mod mgs;
pub mod notify;
pub mod ops;
pub mod oss;
pub mod principal;
pub mod trace;
pub mod version;

pub use ops::Op;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request type: which operation it is, and what answers it.
pub trait Message: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Number in the table of operations.
    const OP: Op;
    /// Type of the answer.
    type Resp: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Ties request and answer types to an operation number.
macro_rules! message {
    ($req:ty => $resp:ty, $op:ident) => {
        impl $crate::Message for $req {
            const OP: $crate::Op = $crate::Op::$op;
            type Resp = $resp;
        }
    };
}
pub(crate) use message;

/// A file name: 1 to 255 bytes, no `/` and no NUL. Checked by the MDS.
pub type Name = Vec<u8>;

/// Credentials: effective user and group of the calling process, and its supplementary groups where they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups (may be empty when the kernel did not tell them).
    pub groups: Vec<u32>,
}
