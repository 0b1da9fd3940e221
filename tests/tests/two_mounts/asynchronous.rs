//! Asynchronous writes (io_submit, promise 6): a failed write changes nothing.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use brindle_tests::area::{Area, is_local};

const BLOCK: usize = 4096;
/// Offset behind the end of the largest file.
const TOO_FAR: i64 = 1 << 62;
const PWRITE: u16 = 1;
/// An address at which there is nothing.
const NOWHERE: u64 = 4096;

/// A request as `linux/aio_abi.h` has it, on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len_bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    second_result: i64,
}

fn call(number: libc::c_long, args: [usize; 5]) -> io::Result<libc::c_long> {
    // SAFETY: each caller passes addresses of values that outlive the call.
    let answer = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Result of an asynchronous write of one block.
fn write_asynchronously(file: &File, offset: i64) -> i64 {
    let layout = Layout::from_size_align(BLOCK, BLOCK).unwrap();
    // SAFETY: the layout is not empty, and what is given back below is this.
    let buffer = unsafe { alloc_zeroed(layout) };
    let outcome = write_from(file, offset, buffer as u64);
    // SAFETY: nobody uses it any more.
    unsafe { dealloc(buffer, layout) };
    outcome
}

fn write_from(file: &File, offset: i64, buffer: u64) -> i64 {
    let mut context = 0usize;
    call(libc::SYS_io_setup, [1, &raw mut context as usize, 0, 0, 0]).unwrap();
    let (fd, len_bytes) = (file.as_raw_fd() as u32, BLOCK as u64);
    let request = Iocb { opcode: PWRITE, fd, buffer, len_bytes, offset, ..Iocb::default() };
    let list = [&raw const request];
    let submitted = call(libc::SYS_io_submit, [context, 1, list.as_ptr() as usize, 0, 0]);
    let mut event = Event::default();
    let outcome = match submitted {
        Ok(_) => {
            call(libc::SYS_io_getevents, [context, 1, 1, &raw mut event as usize, 0]).unwrap();
            event.result
        }
        Err(error) => -i64::from(error.raw_os_error().unwrap()),
    };
    call(libc::SYS_io_destroy, [context, 0, 0, 0, 0]).unwrap();
    outcome
}

/// The kernel cuts the file to the end that it knows of, behind which another mount has written.
#[test]
fn an_asynchronous_write_that_fails_takes_nothing_that_others_have_written() {
    for flags in [libc::O_DIRECT, 0] {
        let area = Area::on_two_mounts();
        let (ours, theirs) = (area.at("f"), area.other("f"));
        fs::write(&ours, [1; BLOCK]).unwrap();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&ours).unwrap();
        assert_eq!(file.metadata().unwrap().len(), BLOCK as u64);
        let other = OpenOptions::new().write(true).open(&theirs).unwrap();
        other.write_all_at(&[2; BLOCK], BLOCK as u64).unwrap();
        other.sync_all().unwrap();
        assert!(write_asynchronously(&file, TOO_FAR) < 0, "the servers refuse it");
        // (ext4 leaves the file longer.)
        if !is_local() {
            assert!(write_from(&file, 64 << 20, NOWHERE) < 0, "it never gets to them");
        }
        for path in [&ours, &theirs] {
            let mut wanted = vec![1; BLOCK];
            wanted.resize(2 * BLOCK, 2);
            assert_eq!(fs::read(path).unwrap(), wanted, "{}", path.display());
        }
        // A call that succeeds is a real write.
        assert_eq!(write_asynchronously(&file, 0), BLOCK as i64);
        assert_eq!(fs::read(&theirs).unwrap()[..BLOCK], [0; BLOCK]);
    }
}

/// A cut that the program asks for is made, also right behind a write that failed.
#[test]
fn a_program_cuts_a_file_that_it_could_not_write() {
    let area = Area::on_two_mounts();
    let file = File::create(area.at("f")).unwrap();
    file.write_all_at(&[1; BLOCK], 0).unwrap();
    assert!(file.write_at(&[1; BLOCK], TOO_FAR as u64).is_err());
    // (Unlike that of the standard library this one is not repeated.)
    assert_eq!(rustix::fs::ftruncate(&file, 10), Ok(()));
    assert_eq!(fs::metadata(area.other("f")).unwrap().len(), 10);
}
