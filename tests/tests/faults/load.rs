//! Programs at work while faults happen: one thread a worker, each checking every answer that it gets.
//!
//! A worker owns what it changes (a directory, a file, its records), so that it always knows what must be there.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brindle_tests::history::History;

/// Interval of checks for progress.
const POLL: Duration = Duration::from_millis(10);

/// Data that all workers of a test share.
#[derive(Clone)]
pub struct Ground {
    /// The witness.
    pub history: History,
    /// Raised before each power cut, and again after it.
    pub cuts: Arc<AtomicU64>,
}

impl Ground {
    pub fn new(outside: &Path) -> Ground {
        Ground { history: History::create(&outside.join("history")), cuts: Arc::default() }
    }

    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// A program.
pub trait Worker: Send {
    /// Name for the history and messages.
    fn name(&self) -> &str;

    /// Does an operation; `Err` says which promise was broken.
    fn step(&mut self) -> Result<(), String>;

    /// Whether the program goes on through a power cut. A program that does not is stopped at the cut, because what
    /// it knows may be gone, and continues after [`Worker::after_cut`].
    fn goes_on_through_cuts(&self) -> bool {
        true
    }

    /// Brings what it did to its end (a last fsync), so that everything it knows is certain.
    fn settle(&mut self) -> Result<(), String>;

    /// Compares what a mount shows with what must be there.
    fn verify(&self, mount: &Path) -> Result<(), String>;
}

/// An answer that programs may not get here.
pub fn unexpected<T>(what: impl std::fmt::Display, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// Counts the steps of one worker.
#[derive(Default)]
struct Beat {
    steps: AtomicU64,
    ended: AtomicBool,
}

type Ended<W> = (W, Result<(), String>);

/// Workers at work.
pub struct Load<W: Worker + 'static> {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Ended<W>>>,
    beats: Vec<Arc<Beat>>,
    names: Vec<String>,
}

impl<W: Worker + 'static> Load<W> {
    pub fn start(ground: &Ground, workers: Vec<W>) -> Load<W> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Load { stop, threads: Vec::new(), beats: Vec::new(), names: Vec::new() };
        let cuts = ground.cuts();
        for worker in workers {
            let beat = Arc::new(Beat::default());
            load.names.push(worker.name().to_owned());
            load.beats.push(beat.clone());
            let (stop, ground) = (load.stop.clone(), ground.clone());
            load.threads.push(std::thread::spawn(move || work(worker, &stop, &beat, &ground, cuts)));
        }
        load
    }

    /// Returns when every worker has ended two more steps (one of them was asked after the call), or panics.
    pub fn progresses_within(&self, limit: Duration) -> Duration {
        let since = Instant::now();
        let before: Vec<u64> = self.beats.iter().map(|b| b.steps.load(Ordering::SeqCst)).collect();
        loop {
            let waits = |n: usize| {
                let beat = &self.beats[n];
                !beat.ended.load(Ordering::SeqCst) && beat.steps.load(Ordering::SeqCst) < before[n] + 2
            };
            let waiting: Vec<&str> =
                (0..before.len()).filter(|n| waits(*n)).map(|n| self.names[n].as_str()).collect();
            if waiting.is_empty() {
                return since.elapsed();
            }
            assert!(since.elapsed() < limit, "no progress in {} s: {}", limit.as_secs(), waiting.join(", "));
            std::thread::sleep(POLL);
        }
    }

    /// Steps done by all workers.
    pub fn steps(&self) -> u64 {
        self.beats.iter().map(|b| b.steps.load(Ordering::SeqCst)).sum()
    }

    /// Ends the workers and gives them back; panics with what they found broken.
    pub fn stop(self) -> Vec<W> {
        self.stop.store(true, Ordering::SeqCst);
        let mut broken = Vec::new();
        let mut workers = Vec::new();
        for thread in self.threads {
            let (worker, result) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            broken.extend(result.err().map(|why| format!("{}: {why}", worker.name())));
            workers.push(worker);
        }
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        workers
    }
}

fn work<W: Worker>(mut worker: W, stop: &AtomicBool, beat: &Beat, ground: &Ground, cuts: u64) -> Ended<W> {
    let mut result = Ok(());
    while result.is_ok() && !stop.load(Ordering::SeqCst) {
        if ground.cuts() > cuts && !worker.goes_on_through_cuts() {
            break;
        }
        result = worker.step();
        beat.steps.fetch_add(1, Ordering::SeqCst);
    }
    if let Err(why) = &result {
        ground.history.note(worker.name(), &format!("BROKEN {why}"));
    }
    beat.ended.store(true, Ordering::SeqCst);
    (worker, result)
}

/// Settles every worker, then has every mount show what they know.
pub fn verify<W: Worker + ?Sized>(workers: &mut [Box<W>], mounts: &[std::path::PathBuf]) {
    let mut broken = Vec::new();
    for worker in workers.iter_mut() {
        broken.extend(worker.settle().err().map(|why| format!("{} at its end: {why}", worker.name())));
    }
    for mount in mounts {
        let shown = mount.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for worker in workers.iter() {
            let found = worker.verify(mount);
            broken.extend(found.err().map(|why| format!("{} seen from mount {shown}: {why}", worker.name())));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

impl<W: Worker + ?Sized> Worker for Box<W> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn step(&mut self) -> Result<(), String> {
        (**self).step()
    }

    fn goes_on_through_cuts(&self) -> bool {
        (**self).goes_on_through_cuts()
    }

    fn settle(&mut self) -> Result<(), String> {
        (**self).settle()
    }

    fn verify(&self, mount: &Path) -> Result<(), String> {
        (**self).verify(mount)
    }
}
