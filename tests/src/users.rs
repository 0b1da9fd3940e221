//! Calls as another user.

use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{process::Gid, process::Uid};

/// A user of the tests: numbers that need no entry in /etc/passwd.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// User number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// More groups.
    pub groups: &'static [u32],
}

/// A user.
pub const ANN: User = User { uid: 64_001, gid: 64_001, groups: &[64_101] };
/// A second user, in no common group.
pub const BOB: User = User { uid: 64_002, gid: 64_002, groups: &[] };
/// User in Ann's second group.
pub const CID: User = User { uid: 64_003, gid: 64_003, groups: &[64_101, 64_102] };

/// Runs `work` on a thread of its own with this user's identity and without capabilities.
///
/// # Panics
/// When the tests do not run as root, or `work` panics.
pub fn run_as<T: Send>(user: User, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let groups: Vec<Gid> = user.groups.iter().map(|&g| Gid::from_raw(g)).collect();
            set_thread_groups(&groups).expect("these tests need root, to become other users");
            let gid = Gid::from_raw(user.gid);
            set_thread_res_gid(gid, gid, gid).expect("root may change its group");
            let uid = Uid::from_raw(user.uid);
            set_thread_res_uid(uid, uid, uid).expect("root may change its user");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
