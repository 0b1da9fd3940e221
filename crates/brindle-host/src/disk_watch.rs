//! Watch over the disk of a member of a replica set: a small write that has to come back, every second.
//!
//! A disk that fails says so, and the request that met the error ends the service. A disk that hangs says nothing: requests wait for it, and nobody
//! serves the target. The daemon (`replica.rs`) runs the watch for as long as a member is open. It does not look at reads: a device that takes a
//! write and a sync answers.

use brindle_stdx::Seams;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_types::{Code, Fault};

/// File that is written, in the directory of the target.
const FILE: &str = "disk-watch";
/// Length of the file: one block, which is written over, so that a sync costs the device one write.
const BLOCK_BYTES: usize = 4096;
/// Pause between two writes, milliseconds.
const EVERY_MS: u64 = 1_000;
/// A write that takes longer has met a disk that hangs, milliseconds. With the pause, and the time in which another member takes over, clients wait for
/// less than ten seconds.
pub(crate) const HANGS_MS: u64 = 5_000;
/// Interval at which a disk that hangs is looked at again, where no other member has everything, milliseconds.
const LOOK_EVERY_MS: u64 = 500;

/// Completes when the disk with `dir` hangs or fails while another member can go on, with the reason. Where none can, the target waits for its disk.
pub(crate) async fn until_bad(seams: &Seams, dir: &str, can_another_go_on: impl Fn() -> bool) -> Fault {
    loop {
        let (disk, path, began) = (seams.disk.clone(), format!("{dir}/{FILE}"), seams.now());
        let mut writing = std::pin::pin!(seams.run_blocking(move || write(&*disk, &path)));
        let mut wait_ms = HANGS_MS;
        let written = loop {
            if let Some(written) = seams.timeout_ms(wait_ms, &mut writing).await {
                break written;
            }
            let fault = hangs(dir, seams.now().ms_since(began));
            if can_another_go_on() {
                return fault;
            }
            if wait_ms == HANGS_MS {
                tracing::error!(code = %fault.code, "{fault}");
            }
            wait_ms = LOOK_EVERY_MS;
        };
        match written {
            Some(Err(e)) if !is_full(&e) && can_another_go_on() => {
                return Fault::io(Code::OstIo, "cannot write to the disk of", dir.to_owned(), &e);
            }
            Some(Err(e)) => tracing::debug!(error = %e, dir, "cannot watch the disk"),
            // The process ends, or the block has come back.
            None | Some(Ok(())) => {}
        }
        seams.sleep_ms(EVERY_MS).await;
    }
}

fn write(disk: &dyn Disk, path: &str) -> std::io::Result<()> {
    let file = disk.open(path, OpenHow::OpenOrCreate)?;
    file.write_at(&[0; BLOCK_BYTES], 0)?;
    file.sync_data()
}

/// A disk that is full does not hang.
fn is_full(e: &std::io::Error) -> bool {
    matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn hangs(dir: &str, ms: u64) -> Fault {
    Fault::new(Code::DiskHangs)
        .subject(dir.to_owned())
        .why(format!("a write of {BLOCK_BYTES} bytes has not come back for {} s", ms / 1_000))
        .data("what was acknowledged is on the other copies")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use brindle_stdx::{BoxFuture, Clock, Mono, Spawn, Timestamp};

    use super::*;

    /// Jobs that wait for a disk for ever.
    struct Hanging;

    impl Spawn for Hanging {
        fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

        fn run_blocking(&self, _: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    /// A clock whose time passes when somebody waits for it.
    #[derive(Default)]
    struct Passing(AtomicU64);

    impl Clock for Passing {
        fn now(&self) -> Mono {
            Mono(self.0.load(Ordering::Acquire))
        }

        fn wall(&self) -> Timestamp {
            Timestamp { secs: 0, nanos: 0 }
        }

        fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
            self.0.fetch_max(at.0, Ordering::AcqRel);
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn a_disk_that_hangs_is_told_once_another_member_can_go_on() {
        on_a_runtime(async {
            let real = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let clock = Arc::new(Passing::default());
            let seams = Seams { clock: clock.clone(), tasks: Arc::new(Hanging), ..real };
            let since = |fault: Fault| (fault.code, clock.now().ms_since(Mono::default()));
            assert_eq!(since(until_bad(&seams, "/d", || true).await), (Code::DiskHangs, HANGS_MS));
            // Alone it waits for its disk, and is asked again and again.
            let (asked, before) = (AtomicU64::new(0), clock.now());
            let later = || asked.fetch_add(1, Ordering::AcqRel) == 9;
            let fault = until_bad(&seams, "/d", later).await;
            assert_eq!((fault.code, asked.into_inner()), (Code::DiskHangs, 10));
            assert_eq!(clock.now().ms_since(before), HANGS_MS + 9 * LOOK_EVERY_MS);
        });
    }

    fn on_a_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(test);
        runtime.shutdown_background();
    }

    #[test]
    fn a_disk_that_answers_is_watched_without_a_word_and_one_that_fails_is_told() {
        on_a_runtime(async {
            let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().to_str().unwrap();
            let two_rounds_ms = 2 * EVERY_MS;
            assert!(seams.timeout_ms(two_rounds_ms, until_bad(&seams, path, || true)).await.is_none());
            assert_eq!(std::fs::metadata(dir.path().join(FILE)).unwrap().len(), BLOCK_BYTES as u64);
            let missing = format!("{path}/missing");
            assert!(seams.timeout_ms(EVERY_MS, until_bad(&seams, &missing, || false)).await.is_none());
            assert_eq!(until_bad(&seams, &missing, || true).await.code, Code::OstIo);
        });
    }
}
