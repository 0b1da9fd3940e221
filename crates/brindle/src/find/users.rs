//! Numbers of users and groups by name, from wherever this machine has them (files, LDAP, sssd).

use std::ffi::CString;
use std::io;
use std::ptr;

/// Room for an entry; the largest groups of a site need it.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The number of a user; `None` if there is none of this name.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; ENTRY_BYTES_MAX];
    // SAFETY: a passwd is plain numbers and pointers, for which zeros are valid values.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are to live values, and the buffer has the length that is told.
    let error = unsafe {
        libc::getpwnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    outcome(error, found.is_null(), entry.pw_uid)
}

/// The number of a group; `None` if there is none of this name.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; ENTRY_BYTES_MAX];
    // SAFETY: a group is plain numbers and pointers, for which zeros are valid values.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are to live values, and the buffer has the length that is told.
    let error = unsafe {
        libc::getgrnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    outcome(error, found.is_null(), entry.gr_gid)
}

fn outcome(error: libc::c_int, is_missing: bool, id: u32) -> io::Result<Option<u32>> {
    match error {
        0 if is_missing => Ok(None),
        0 => Ok(Some(id)),
        libc::ENOENT | libc::ESRCH => Ok(None),
        other => Err(io::Error::from_raw_os_error(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nonsense_is_not() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(gid_of("root").unwrap(), Some(0));
        assert_eq!(uid_of("no such user here").unwrap(), None);
        assert_eq!(gid_of("a\0b").unwrap(), None);
    }
}
