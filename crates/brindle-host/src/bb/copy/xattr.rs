//! Extended attributes and ACLs of a copy.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brindle_types::Result;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::failed;

/// Attributes that belong to the user of a file. All others are the system's.
const USER: &[u8] = b"user.";
/// ACLs, which their owner may set.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Longest list of names, and longest value: the kernel's own limits.
const BYTES_MAX: usize = 64 << 10;

/// The attributes of a file that are copied. A file system without such has none.
fn all(file: &File) -> rustix::io::Result<BTreeMap<CString, Vec<u8>>> {
    let mut names = vec![0; BYTES_MAX];
    let len = match flistxattr(file, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(e) => return Err(e),
    };
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0) {
        let is_copied = name.starts_with(USER) || ACLS.contains(&name);
        let Some(name) = CString::new(name).ok().filter(|_| is_copied) else { continue };
        let mut value = vec![0; BYTES_MAX];
        match fgetxattr(file, &name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.insert(name, value);
            }
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Whether two files have the same attributes; not where that cannot be known.
pub fn are_same(one: &File, other: &File) -> bool {
    matches!((all(one), all(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes the attributes of `to` those of `from`. Returns how many the file system of `to` cannot hold.
pub fn copy(from: &File, to: &File, shown: &Path) -> Result<u64> {
    let cannot = |name: &CString, e: Errno| {
        let name = OsStr::from_bytes(name.as_bytes()).display().to_string();
        failed("cannot copy an extended attribute to", shown, &e.into()).why(name)
    };
    let wanted = all(from).map_err(|e| failed("cannot read extended attributes for", shown, &e.into()))?;
    let there = all(to).map_err(|e| failed("cannot read extended attributes of", shown, &e.into()))?;
    for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
        fremovexattr(to, name).map_err(|e| cannot(name, e))?;
    }
    let mut lost = 0;
    for (name, value) in wanted.iter().filter(|(name, value)| there.get(*name) != Some(*value)) {
        match fsetxattr(to, name, value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOTSUP | Errno::NOSYS) => lost += 1,
            Err(e) => return Err(cannot(name, e)),
        }
    }
    Ok(lost)
}
