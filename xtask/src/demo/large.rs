//! A large file whose every byte is known from its place: written and compared by a thread, so that the tour can show how
//! far it is, break something meanwhile, and be interrupted even when the thread waits for a server.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::screen::Progress;
use crate::run::interrupted;

/// Bytes of one call.
const PIECE: usize = 1 << 20;
/// Interval at which the screen is drawn.
const DRAW: Duration = Duration::from_millis(50);
/// Longest time without any progress before the tour gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job under way.
pub struct Job {
    bytes: u64,
    done: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
    progress: Progress,
    moved: (u64, Instant),
}

/// Begins to write a file of this size, with an fsync at its end.
pub fn write(path: &Path, bytes: u64) -> Job {
    let path = path.to_owned();
    Job::start(bytes, move |done| write_all(&path, bytes, done))
}

/// Begins to read it and to compare every byte.
pub fn compare(path: &Path, bytes: u64) -> Job {
    let path = path.to_owned();
    Job::start(bytes, move |done| compare_all(path, bytes, done))
}

impl Job {
    fn start(bytes: u64, work: impl FnOnce(&AtomicU64) -> io::Result<()> + Send + 'static) -> Job {
        let done = Arc::new(AtomicU64::new(0));
        let counted = done.clone();
        let thread = std::thread::spawn(move || work(&counted));
        Job { bytes, done, thread, progress: Progress::start(), moved: (0, Instant::now()) }
    }

    /// Bytes done so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Draws until `over`, or until the job has ended.
    pub fn watch(&mut self, remark: &str, mut over: impl FnMut(u64) -> bool) -> Result<(), String> {
        loop {
            let done = self.done();
            self.progress.draw(done, self.bytes, remark);
            if over(done) || self.thread.is_finished() {
                return Ok(());
            }
            if interrupted() {
                self.progress.clear();
                return Err("interrupted; the cluster stays up (make down ends it)".to_owned());
            }
            if done > self.moved.0 {
                self.moved = (done, Instant::now());
            }
            if self.moved.1.elapsed() > PATIENCE {
                self.progress.clear();
                return Err(format!(
                    "no progress for {} s\n  next: look at brindle status, brindle waits",
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(DRAW);
        }
    }

    /// Takes the progress off the screen, to print something else.
    pub fn clear(&mut self) {
        self.progress.clear();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Result<(), String> {
        self.watch("", |_| false)?;
        self.progress.clear();
        let outcome = self.thread.join().map_err(|_| "the writing thread panicked".to_owned())?;
        outcome.map_err(|e| e.to_string())
    }
}

/// The bytes of one piece.
fn fill(piece: &mut [u8], number: u64) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in piece.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn write_all(path: &Path, bytes: u64, done: &AtomicU64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut piece = vec![0; PIECE];
    for number in 0..bytes / PIECE as u64 {
        fill(&mut piece, number);
        file.write_all(&piece)?;
        done.fetch_add(PIECE as u64, Ordering::SeqCst);
    }
    file.sync_all()
}

fn compare_all(path: PathBuf, bytes: u64, done: &AtomicU64) -> io::Result<()> {
    let mut file = File::open(&path)?;
    let (mut wanted, mut found) = (vec![0; PIECE], vec![0; PIECE]);
    for number in 0..bytes / PIECE as u64 {
        fill(&mut wanted, number);
        file.read_exact(&mut found)?;
        if found != wanted {
            return Err(io::Error::other(format!(
                "MiB {number} of {} is not what was written",
                path.display()
            )));
        }
        done.fetch_add(PIECE as u64, Ordering::SeqCst);
    }
    Ok(())
}
