//! O_APPEND of two clients (promise 8).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use brindle_tests::area::Area;
use brindle_tests::child::Child;

/// Writers and their records: length in two bytes, then the writer's number all through.
const WRITERS: usize = 4;
const RECORDS: usize = 200;

fn append_records(path: &Path, writer: u8, len_max: usize, records: usize) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    for n in 0..records {
        let len = 3 + (n * 37 + usize::from(writer) * 11) % len_max;
        let mut record = vec![writer; len];
        record[..2].copy_from_slice(&(len as u16).to_le_bytes());
        if file.write(&record)? != len {
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        // An append that has returned is inside the file for all clients.
        if (file.metadata()?.len() as usize) < len {
            return Err(std::io::Error::from_raw_os_error(libc::ERANGE));
        }
    }
    Ok(())
}

/// Every record is whole, in its writer's order of lengths, and nothing lies between.
fn check(path: &Path, len_max: usize, records: usize) {
    let all = fs::read(path).unwrap();
    let (mut at, mut counts) = (0, [0; WRITERS + 1]);
    while at < all.len() {
        let len = usize::from(u16::from_le_bytes([all[at], all[at + 1]]));
        assert!(len >= 3 && at + len <= all.len(), "no record begins at {at}");
        let writer = all[at + 2];
        assert!(all[at + 2..at + len].iter().all(|b| *b == writer), "the record at {at} is torn");
        let n = &mut counts[usize::from(writer)];
        assert_eq!(len, 3 + (*n * 37 + usize::from(writer) * 11) % len_max, "record {n} of writer {writer}");
        *n += 1;
        at += len;
    }
    assert_eq!(counts, [0, records, records, records, records]);
}

#[test]
fn small_records_of_four_processes_on_two_clients() {
    appends(300);
}

#[test]
fn large_records_of_four_processes_on_two_clients() {
    appends(60_000);
}

/// The rights of the first to open the file come and go: one time in some hundred, a record was lost.
#[test]
fn first_records_of_processes_that_open_a_new_file_at_once() {
    let area = Area::on_two_mounts();
    for file in 0..100 {
        appends_to(&area, &format!("log{file}"), 300, 3);
    }
}

fn appends(len_max: usize) {
    appends_to(&Area::on_two_mounts(), "log", len_max, RECORDS);
}

fn appends_to(area: &Area, name: &str, len_max: usize, records: usize) {
    File::create(area.at(name)).unwrap();
    let start = |writer: usize| {
        let path = if writer.is_multiple_of(2) { area.at(name) } else { area.other(name) };
        Child::start(move |_| append_records(&path, writer as u8, len_max, records))
    };
    let children: Vec<Child> = (1..=WRITERS).map(start).collect();
    children.into_iter().for_each(Child::ok);
    check(&area.at(name), len_max, records);
    check(&area.other(name), len_max, records);
}

#[test]
fn appends_in_turns_go_to_the_end_of_both() {
    let area = Area::on_two_mounts();
    let append = |path| OpenOptions::new().append(true).create(true).open(path).unwrap();
    let (mut a, mut b) = (append(area.at("log")), append(area.other("log")));
    let mut wanted = String::new();
    for n in 0..100 {
        let line = format!("line {n}\n");
        (if n % 3 == 0 { &mut a } else { &mut b }).write_all(line.as_bytes()).unwrap();
        wanted += &line;
        let reader = if n % 3 == 0 { area.other("log") } else { area.at("log") };
        assert_eq!(fs::read_to_string(reader).unwrap(), wanted);
    }
    // A truncate by one moves the end of the other.
    a.set_len(7).unwrap();
    b.write_all(b"after").unwrap();
    assert_eq!(fs::read_to_string(area.at("log")).unwrap(), "line 0\nafter");
}
