//! The real clock, randomness and task runner, over Linux and tokio.

use std::cell::Cell;
use std::sync::Arc;

use crate::real_disk::RealDisk;
use crate::ticks::ns;
use crate::{BoxFuture, Clock, Mono, Rng, Seams, Spawn, Task, Timestamp};

/// CLOCK_BOOTTIME and CLOCK_REALTIME; sleeping through tokio's timer.
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Mono {
        Mono(ns(rustix::time::clock_gettime(rustix::time::ClockId::Boottime)))
    }

    fn wall(&self) -> Timestamp {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Timestamp::new(t.tv_sec, u32::try_from(t.tv_nsec).expect("the kernel gives less than a second"))
    }

    fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
        let left_ns = at.0.saturating_sub(self.now().0);
        Box::pin(tokio::time::sleep(std::time::Duration::from_nanos(left_ns)))
    }
}

/// xorshift64* per thread, seeded from the kernel.
pub struct RealRng;

thread_local! {
    static STATE: Cell<u64> = Cell::new(kernel_seed());
}

fn kernel_seed() -> u64 {
    let mut seed = [0u8; 8];
    // SAFETY: getrandom writes at most `seed.len()` bytes into `seed`.
    let n = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    assert_eq!(n, 8, "getrandom gave no random bytes");
    u64::from_le_bytes(seed) | 1
}

impl Rng for RealRng {
    fn next_u64(&self) -> u64 {
        STATE.with(|s| {
            let mut x = s.get();
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            s.set(x);
            x.wrapping_mul(0x2545_F491_4F6C_DD1D)
        })
    }
}

/// Tasks on a tokio runtime.
pub struct TokioSpawn(pub tokio::runtime::Handle);

impl Spawn for TokioSpawn {
    fn spawn(&self, _name: &'static str, task: Task) {
        drop(self.0.spawn(task));
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let job = self.0.spawn_blocking(job);
        Box::pin(async move {
            // A panic in the job is seen by its owner, who waits for a result that never comes.
            let _ = job.await;
        })
    }

    fn blocking(&self, job: &mut dyn FnMut()) {
        tokio::task::block_in_place(job);
    }
}

/// The real seams for a process that runs on the tokio runtime `handle`.
pub fn seams(handle: tokio::runtime::Handle) -> Seams {
    Seams {
        clock: Arc::new(RealClock),
        rng: Arc::new(RealRng),
        tasks: Arc::new(TokioSpawn(handle.clone())),
        disk: Arc::new(RealDisk::new(handle)),
    }
}
