//! The seams every service takes as arguments, and small tools used by every layer.
//!
//! A service never reads a clock, draws a random number, spawns a task or touches a disk by itself: it is given a
//! [`Seams`]. Only the binary and the testkit choose between the real implementations ([`real`]) and simulated ones,
//! so that whole clusters replay from one seed.
//!
//! Invariant: nothing outside this crate calls `Instant::now`, `SystemTime::now`, `tokio::spawn` or `std::fs` on
//! data that must survive a crash.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod arena;
pub mod buffers;
pub mod cast;
pub mod caught;
pub mod codec;
pub mod disk;
pub mod fuzz;
pub mod real;
pub mod real_disk;
pub mod request_rate;
pub mod ticks;
pub mod time;
pub mod unless;
pub mod watch;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use disk::{Disk, DiskFile};
pub use time::{Mono, Timestamp};

/// A boxed future that owns what it needs; the unit a [`Spawn`] runs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;
/// A boxed future borrowed for `'a`; what object-safe async trait methods return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Monotonic and civil time.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary origin; goes on during suspend (CLOCK_BOOTTIME). Leases are measured with it.
    fn now(&self) -> Mono;
    /// Civil time, for time stamps that people see. May jump; never used for ordering or leases.
    fn wall(&self) -> Timestamp;
    /// Completes at `at` or a little later.
    fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()>;
}

/// Random numbers: not secret, only distinct (jitter, ids, sampling).
pub trait Rng: Send + Sync {
    /// 64 uniformly distributed bits.
    fn next_u64(&self) -> u64;
}

/// Runs background tasks. Dropping the process (or killing a simulated node) ends them all.
pub trait Spawn: Send + Sync {
    /// Starts `task`; `name` is used in traces and panics.
    fn spawn(&self, name: &'static str, task: Task);

    /// Runs a job that computes or blocks for long (a checkpoint, a directory sync) without holding a runtime thread.
    /// The work runs to its end even when the returned future is dropped. The default runs it at once, inline.
    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        Box::pin(std::future::ready(()))
    }

    /// Runs a job that may block for as long as a device takes, on this thread and to its end, while others take over
    /// what else the thread would have done. The default just runs it.
    fn blocking(&self, job: &mut dyn FnMut()) {
        job();
    }
}

/// The four seams of a process: time, chance, tasks, disk. (The fifth, `Transport`, is in `brindle-net`.)
#[derive(Clone)]
pub struct Seams {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub rng: Arc<dyn Rng>,
    /// Background tasks.
    pub tasks: Arc<dyn Spawn>,
    /// Local storage.
    pub disk: Arc<dyn Disk>,
}

impl Seams {
    /// Starts a background task.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, Box::pin(task));
    }

    /// Runs `job` without holding a runtime thread and returns what it returned; `None` if it panicked.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        let job = Box::new(move || {
            // The receiver is gone only if the caller was dropped; then nobody wants the result.
            let _ = done.send(job());
        });
        self.tasks.run_blocking(job).await;
        result.await.ok()
    }

    /// Runs `job`, which may block for as long as a device takes, without a pause. Unlike [`Seams::run_blocking`] it may
    /// borrow, and no other task runs between the call and its end.
    pub fn blocking<T>(&self, job: impl FnOnce() -> T) -> T {
        let (mut job, mut result) = (Some(job), None);
        self.tasks.blocking(&mut || result = job.take().map(|job| job()));
        result.expect("the seam runs the job")
    }

    /// Monotonic time.
    pub fn now(&self) -> Mono {
        self.clock.now()
    }

    /// Civil time.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Sleeps for `ms` milliseconds.
    pub async fn sleep_ms(&self, ms: u64) {
        self.clock.sleep_until(self.clock.now().plus_ms(ms)).await;
    }

    /// Runs `work` for at most `ms` milliseconds; `None` when the time was up first (the work is then dropped).
    pub fn timeout_ms<W: Future + Send>(
        &self,
        ms: u64,
        work: W,
    ) -> impl Future<Output = Option<W::Output>> + use<W> {
        use futures_util::FutureExt;
        let clock = self.clock.clone();
        // The time begins with the first poll: the caller may not be on a runtime before that.
        let sleep = async move { clock.sleep_until(clock.now().plus_ms(ms)).await };
        unless::unless(work, sleep).map(Result::ok)
    }
}

/// CRC32C (Castagnoli) of `data`: the checksum of every format on wire and disk.
pub fn crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// CRC32C of `data` appended to bytes whose CRC32C is `so_far`.
pub fn crc_append(so_far: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(so_far, data)
}

/// CRC32C of A followed by B, from the checksums of both and the length of B in bytes.
pub fn crc_combine(a: u32, b: u32, len_b_bytes: usize) -> u32 {
    crc32c::crc32c_combine(a, b, len_b_bytes)
}

/// True in the build that carries planted bugs (feature `teeth`) when the fault `name` is chosen for this
/// run. In ordinary builds it is a constant `false`, so that the compiler removes the fault. Only the simulator chooses faults.
#[inline(always)]
pub fn planted(name: &str) -> bool {
    #[cfg(feature = "teeth")]
    {
        teeth::chosen(name)
    }
    #[cfg(not(feature = "teeth"))]
    {
        let _ = name;
        false
    }
}

/// Choice of the planted bug; exists only in the build that carries them.
#[cfg(feature = "teeth")]
pub mod teeth {
    use parking_lot::RwLock;
    static CHOSEN: RwLock<Option<String>> = RwLock::new(None);

    /// Chooses the one fault of this run.
    pub fn choose(name: Option<&str>) {
        *CHOSEN.write() = name.map(str::to_owned);
    }

    /// Whether `name` is the fault of this run.
    pub fn chosen(name: &str) -> bool {
        CHOSEN.read().as_deref() == Some(name)
    }
}
