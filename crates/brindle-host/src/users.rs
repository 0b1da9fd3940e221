//! Numbers of users and groups by name, and names by number, from wherever this machine has them (files, LDAP, sssd).
//!
//! Built on `nix`, which tells a name that does not exist from a directory service that does not answer.

use std::io;

use nix::unistd::{Gid, Group, Uid, User};

/// The number of a user; `None` if there is none of this name.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    if name.contains('\0') {
        return Ok(None);
    }
    found(User::from_name(name).map(|user| user.map(|user| user.uid.as_raw())))
}

/// The number of a group; `None` if there is none of this name.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    if name.contains('\0') {
        return Ok(None);
    }
    found(Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw())))
}

/// The name of a user; `None` if the number has none.
pub fn user_name(uid: u32) -> io::Result<Option<String>> {
    found(User::from_uid(Uid::from_raw(uid)).map(|user| user.map(|user| user.name)))
}

/// The name of a group; `None` if the number has none.
pub fn group_name(gid: u32) -> io::Result<Option<String>> {
    found(Group::from_gid(Gid::from_raw(gid)).map(|group| group.map(|group| group.name)))
}

/// Turns an error into `None` where a directory service reports a missing entry as an error.
fn found<T>(outcome: nix::Result<Option<T>>) -> io::Result<Option<T>> {
    match outcome {
        Err(nix::Error::ENOENT | nix::Error::ESRCH) => Ok(None),
        outcome => Ok(outcome?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(user_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(group_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(user_name(3_999_999_999).unwrap(), None);
    }

    #[test]
    fn root_is_known_and_nonsense_is_not() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(gid_of("root").unwrap(), Some(0));
        assert_eq!(uid_of("no such user here").unwrap(), None);
        assert_eq!(gid_of("a\0b").unwrap(), None);
    }
}
