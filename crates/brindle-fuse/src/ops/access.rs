//! ACCESS: not sent under `default_permissions`; the kernel checks rights itself.

use crate::reply::Reply;

pub(crate) fn handle() -> Reply {
    Reply::ok()
}
