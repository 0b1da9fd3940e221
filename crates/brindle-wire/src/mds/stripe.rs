//! Stripe settings of files and defaults of directories.

use brindle_types::{Ino, Layout, LayoutPolicy};
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::{Cred, message};

/// Sets the layout of an empty file, or the default of a directory (`None` deletes the default).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetStripeReq {
    /// File or directory.
    pub ino: Ino,
    /// The wanted policy.
    pub policy: Option<LayoutPolicy>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(SetStripeReq => Empty, SetStripe);

/// Asks how a file lies, or what a directory's default is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetStripeReq {
    /// File or directory.
    pub ino: Ino,
}

/// The layout of a file, or the default of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetStripeResp {
    /// Layout; of a regular file only.
    pub layout: Option<Layout>,
    /// Policy; only of a directory that has a default of its own.
    pub policy: Option<LayoutPolicy>,
    /// Policy of a new file here, with everything inherited filled in.
    pub effective: LayoutPolicy,
    /// Number of layout changes so far.
    pub layout_gen: u32,
}
message!(GetStripeReq => GetStripeResp, GetStripe);
