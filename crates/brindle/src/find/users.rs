//! Numbers of users and groups by name, and names by number, from wherever this machine has them (files, LDAP, sssd).

use std::ffi::{CStr, CString};
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

/// The name of a user; `None` if the number has none.
pub fn user_name(uid: u32) -> io::Result<Option<String>> {
    let mut buffer = vec![0 as libc::c_char; ENTRY_BYTES_MAX];
    // SAFETY: a passwd is plain numbers and pointers, for which zeros are valid values.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are to live values, and the buffer has the length that is told.
    let error =
        unsafe { libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
    // SAFETY: a name that was found is a C string in `buffer`, which is still there.
    Ok(outcome(error, found.is_null(), uid)?.map(|_| unsafe { text_of(entry.pw_name) }))
}

/// The name of a group; `None` if the number has none.
pub fn group_name(gid: u32) -> io::Result<Option<String>> {
    let mut buffer = vec![0 as libc::c_char; ENTRY_BYTES_MAX];
    // SAFETY: a group is plain numbers and pointers, for which zeros are valid values.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are to live values, and the buffer has the length that is told.
    let error =
        unsafe { libc::getgrgid_r(gid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
    // SAFETY: a name that was found is a C string in `buffer`, which is still there.
    Ok(outcome(error, found.is_null(), gid)?.map(|_| unsafe { text_of(entry.gr_name) }))
}

/// # Safety
/// `name` is a C string.
unsafe fn text_of(name: *const libc::c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
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
