//! open_by_handle_at: what an NFS server names files by.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brindle_tests::area::Area;

/// A handle of the kernel: `struct file_handle` with room for 128 bytes.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn handle_of(path: &Path) -> Handle {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let (mut handle, mut mount) = (Handle { bytes: 128, kind: 0, data: [0; 128] }, 0);
    let at = (&raw mut handle).cast();
    // SAFETY: the name ends with a zero byte, and the handle has the room that it says.
    let done = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, name.as_ptr(), at, &mut mount, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    handle
}

fn open(handle: &mut Handle, within: &File) -> std::io::Result<File> {
    let at = (&raw mut *handle).cast();
    // SAFETY: the handle is one that the kernel gave; the descriptor that is returned belongs to nobody.
    unsafe {
        let fd = libc::open_by_handle_at(within.as_raw_fd(), at, libc::O_RDONLY);
        if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

#[test]
fn files_and_directories_are_found_by_handle_after_the_kernel_has_dropped_them() {
    let area = Area::new();
    let root = File::open(area.root()).unwrap();
    fs::create_dir_all(area.at("d/e")).unwrap();
    let names = ["f", "d/f", "d/e/f"];
    let mut handles: Vec<Handle> = names
        .iter()
        .map(|name| {
            fs::write(area.at(name), name).unwrap();
            handle_of(&area.at(name))
        })
        .collect();
    let mut directory = handle_of(&area.at("d/e"));
    let mut gone = handle_of(&area.file("gone", b"x"));
    fs::remove_file(area.at("gone")).unwrap();
    for round in 0..2 {
        for (name, handle) in names.iter().zip(&mut handles) {
            let mut text = String::new();
            open(handle, &root)
                .unwrap_or_else(|e| panic!("{name}, round {round}: {e}"))
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text, *name);
        }
        assert!(open(&mut directory, &root).unwrap().metadata().unwrap().is_dir());
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
    assert_eq!(open(&mut gone, &root).unwrap_err().raw_os_error(), Some(libc::ESTALE));
}
