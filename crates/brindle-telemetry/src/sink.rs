//! Sink of log lines: a bounded queue, and one thread that writes them down.
//!
//! A caller that logs never waits for a disk, a pipe or a terminal, and never sees an error: a line that finds the
//! queue full or cannot be written is counted. The count, with the reason, is the first line that can be written
//! again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::Clock;
use brindle_stdx::real::RealClock;
use parking_lot::{Condvar, Mutex};

/// Most bytes of lines that wait to be written.
pub const WAITING_MAX_BYTES: usize = 1 << 20;
/// Most lines that wait to be written.
pub const WAITING_MAX: usize = 8192;

/// Destination of lines.
pub type Destination = Box<dyn Write + Send>;
/// Opens the destination: at first, and again after an error.
pub type Open = Box<dyn Fn() -> io::Result<Destination> + Send>;

/// The queue in front of a log.
pub(crate) struct Sink {
    queue: Mutex<Queue>,
    more: Condvar,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A line was taken out and is being written.
    writing: bool,
    /// Lines that were lost since the log was told of some.
    untold: u64,
    /// Lines that were lost since the process started.
    lost: u64,
    why: String,
}

impl Queue {
    fn lose(&mut self, why: &dyn std::fmt::Display) {
        self.untold += 1;
        self.lost += 1;
        self.why = why.to_string();
    }
}

impl Sink {
    /// Starts the thread that writes. Without it (no thread can be started) every line is lost, and counted.
    pub(crate) fn start(open: Open) -> Arc<Sink> {
        let sink = Arc::new(Sink { queue: Mutex::default(), more: Condvar::new(), idle: Condvar::new() });
        let mine = sink.clone();
        let started = std::thread::Builder::new().name("log".to_owned()).spawn(move || mine.run(&open));
        if let Err(e) = started {
            let mut queue = sink.queue.lock();
            queue.lose(&e);
            queue.bytes = WAITING_MAX_BYTES;
        }
        sink
    }

    /// Takes a line; one that finds no room is counted as lost.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.lines.len() >= WAITING_MAX || queue.bytes + line.len() > WAITING_MAX_BYTES {
            queue.lose(&"the log is written too slowly");
            return;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line.to_vec());
        self.more.notify_one();
    }

    /// Lines that were lost since the process started.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.lock().lost
    }

    /// Waits until everything is written or counted as lost, for `limit` at most.
    pub(crate) fn flush(&self, limit: Duration) {
        let mut queue = self.queue.lock();
        let is_busy = |queue: &mut Queue| queue.writing || !queue.lines.is_empty();
        // A caller that ends does not care whether the line was in time.
        let _ = self.idle.wait_while_for(&mut queue, is_busy, limit);
    }

    fn run(&self, open: &Open) {
        let mut writer = Writer { open, destination: None, torn: false };
        loop {
            let (line, untold, why) = self.next();
            let notice = (untold > 0).then(|| notice(untold, &why));
            let told = notice.map_or(Ok(()), |notice| writer.write(&notice));
            let mut queue = self.queue.lock();
            if told.is_ok() {
                queue.untold -= untold;
            }
            drop(queue);
            let written = told.and_then(|()| writer.write(&line));
            queue = self.queue.lock();
            if let Err(e) = written {
                queue.lose(&e);
            }
            queue.writing = false;
            if queue.lines.is_empty() {
                self.idle.notify_all();
            }
        }
    }

    fn next(&self) -> (Vec<u8>, u64, String) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(line) = queue.lines.pop_front() {
                queue.bytes -= line.len();
                queue.writing = true;
                return (line, queue.untold, queue.why.clone());
            }
            self.more.wait(&mut queue);
        }
    }
}

/// The line that tells of lost ones.
fn notice(lines: u64, why: &str) -> Vec<u8> {
    let time = crate::log::rfc3339(RealClock.wall());
    format!("ts={time} level=warn target=brindle_telemetry msg=\"lines of this log were lost\" lines={lines} why={why:?}\n")
        .into_bytes()
}

struct Writer<'a> {
    open: &'a Open,
    destination: Option<Destination>,
    /// The last line was cut off in the middle.
    torn: bool,
}

impl Writer<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let destination = match &mut self.destination {
            Some(destination) => destination,
            none => none.insert((self.open)()?),
        };
        if self.torn {
            destination.write_all(b"\n")?;
            self.torn = false;
        }
        let written = destination.write_all(line);
        if written.is_err() {
            self.torn = true;
            // The file may have been replaced meanwhile, for example by a disk that was mounted again.
            self.destination = None;
        }
        written
    }
}

/// Standard error, without the lock and the buffers that other threads use.
pub(crate) fn stderr() -> Open {
    Box::new(|| Ok(Box::new(io::stderr())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Longest wait of a test for the thread.
    const SOON: Duration = Duration::from_secs(10);

    /// A disk that has room, or not, or hangs.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        bytes: Vec<u8>,
        room: Option<usize>,
        opened: u32,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock();
            let room = state.room.unwrap_or(usize::MAX).min(bytes.len());
            if room == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            if let Some(left) = &mut state.room {
                *left -= room;
            }
            state.bytes.extend_from_slice(&bytes[..room]);
            Ok(room)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_took_are_counted_and_told_when_it_has_room() {
        let disk = Disk::default();
        let opened = disk.clone();
        let sink = Sink::start(Box::new(move || {
            opened.0.lock().opened += 1;
            Ok(Box::new(opened.clone()))
        }));
        sink.push(b"one\n");
        sink.flush(SOON);
        disk.0.lock().room = Some(2);
        sink.push(b"two\n");
        sink.push(b"three\n");
        sink.flush(SOON);
        assert_eq!(sink.lost(), 2);
        disk.0.lock().room = None;
        sink.push(b"four\n");
        sink.flush(SOON);
        let text = String::from_utf8(disk.0.lock().bytes.clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1], lines[3]), ("one", "tw", "four"), "{text}");
        assert!(lines[2].contains("lines of this log were lost\" lines=2 why=\""), "{text}");
        assert!(disk.0.lock().opened > 1, "a disk that failed is opened again");
        sink.push(b"five\n");
        sink.flush(SOON);
        assert!(disk.0.lock().bytes.ends_with(b"four\nfive\n"), "told once");
        assert_eq!(sink.lost(), 2);
    }

    #[test]
    fn a_log_that_hangs_delays_nobody_and_is_bounded() {
        struct Hung(mpsc::Receiver<()>);
        impl Write for Hung {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                // The test's end lets go.
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (let_go, hung) = mpsc::channel();
        let hung = Mutex::new(Some(Hung(hung)));
        let sink = Sink::start(Box::new(move || Ok(Box::new(hung.lock().take().expect("opened once")))));
        for _ in 0..3 * WAITING_MAX {
            sink.push(b"x\n");
        }
        assert!(sink.lost() >= 2 * WAITING_MAX as u64 - 1, "{}", sink.lost());
        let many = vec![b'x'; WAITING_MAX_BYTES];
        let lost = sink.lost();
        sink.push(&many);
        assert_eq!(sink.lost(), lost + 1);
        sink.flush(Duration::from_millis(1));
        drop(let_go);
        sink.flush(SOON);
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_tried_again() {
        let disk = Disk::default();
        let (there, opened) = (Arc::new(Mutex::new(false)), disk.clone());
        let now = there.clone();
        let sink = Sink::start(Box::new(move || match *now.lock() {
            true => Ok(Box::new(opened.clone())),
            false => Err(io::Error::from(io::ErrorKind::NotFound)),
        }));
        sink.push(b"one\n");
        sink.flush(SOON);
        *there.lock() = true;
        sink.push(b"two\n");
        sink.flush(SOON);
        let text = String::from_utf8(disk.0.lock().bytes.clone()).expect("text");
        assert!(text.contains("lines=1") && text.ends_with("two\n"), "{text}");
    }
}
