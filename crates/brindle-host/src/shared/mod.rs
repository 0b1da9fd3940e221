//! Targets on devices that two hosts reach: one host owns such a target and serves it, the other stands by (design note 027).
//!
//! [`block`] is the owner block, [`device`] every access to the device, [`keeper`] the owner's lease, [`daemon`] follows the MGS's orders,
//! [`fence`] runs the program that switches hosts off.
//!
//! Invariant: a device is mounted only by the host that the owner block names, under the turn that the MGS has given to it.

pub mod block;
pub mod daemon;
pub mod device;
pub mod fence;
pub(crate) mod keeper;
mod patience;
