//! A mount of a [`MemFs`] that goes away with its value, also when a test fails or hangs.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use brindle_fuse::request::Op;
use brindle_fuse::session::{MountOptions, ServeOptions};
use brindle_fuse::{Connected, EventLoop, Notice, Outcome, Session, Wanted};
use brindle_stdx::real::TokioSpawn;

use parking_lot::{Mutex, MutexGuard};

use super::MemFs;

/// Mounts live one after the other: a forked process holds every descriptor open for a moment, of any mount.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A test that takes longer hangs: its connection is aborted, so that it fails.
const HANG_LIMIT: Duration = Duration::from_secs(60);

pub struct Mount {
    pub fs: Arc<MemFs>,
    pub session: Session,
    pub event_loop: EventLoop,
    pub runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    _watchdog: mpsc::Sender<()>,
    _turn: MutexGuard<'static, ()>,
}

impl Mount {
    pub fn new() -> Mount {
        Mount::with(&Wanted::default())
    }

    pub fn with(wanted: &Wanted) -> Mount {
        let turn = turn();
        let dir = tempfile::Builder::new().prefix("brindle-fuse-test").tempdir().expect("a directory");
        let connected =
            Connected::mount(&MountOptions::new(dir.path(), "memfs"), wanted).expect("mount (as root)");
        Mount::serve(connected, dir, turn)
    }

    pub fn serve(connected: Connected, dir: tempfile::TempDir, turn: MutexGuard<'static, ()>) -> Mount {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("tokio");
        let tasks = Arc::new(TokioSpawn(runtime.handle().clone()));
        let mut fs = None;
        let event_loop = EventLoop::start().expect("a thread");
        let options =
            ServeOptions { readers: 3, event_loop: Some(event_loop.clone()), ..ServeOptions::default() };
        let options = options.in_runtime(runtime.handle().clone());
        let session = connected
            .serve(&options, tasks, |notifier, _| fs.insert(MemFs::new(notifier)).clone())
            .expect("serve");
        let path = dir.path().to_owned();
        let (watchdog, gone) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if gone.recv_timeout(HANG_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::error!(path = %path.display(), "a test hangs; its mount is taken away");
                let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
                let _ = rustix::mount::unmount(&path, flags);
            }
        });
        Mount {
            fs: fs.expect("made by serve"),
            session,
            event_loop,
            runtime,
            dir,
            _watchdog: watchdog,
            _turn: turn,
        }
    }

    /// Path of a name in the root directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file there behind the kernel's back and gives its inode.
    pub fn put(&self, name: &str, data: &[u8]) -> u64 {
        self.fs.take_log();
        std::fs::write(self.path(name), data).expect("write");
        // The kernel does not wait for it.
        eventually("RELEASE", || self.fs.count(|s| matches!(s.op, Op::Release(_))) > 0);
        let ino = self.fs.ino(name);
        self.notify(Notice::InvalInode { ino, offset: 0, len: 0 });
        self.fs.take_log();
        ino
    }

    /// Posts a notice and waits for the answer.
    pub fn notify(&self, notice: Notice) -> Outcome {
        self.runtime.block_on(self.session.notifier().post(notice))
    }

    /// Posts a notice; the answer comes over the channel.
    pub fn notify_later(&self, notice: Notice) -> mpsc::Receiver<Outcome> {
        let (send, receive) = mpsc::channel();
        let answer = self.session.notifier().post(notice);
        self.runtime.spawn(async move {
            let _ = send.send(answer.await);
        });
        receive
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Handlers that still wait end with the connection.
        let _ = self.session.abort();
    }
}

/// The right to have a mount.
pub fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock()
}

/// Waits until `done`, for ten seconds at most.
pub fn eventually(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
