//! The file system behind a mount: takes each request of the kernel to the client, and the answer back.
//!
//! The file system only translates: one file per operation in [`crate::ops`]. The only state kept here is the part that the kernel does not
//! repeat later: the owners of fcntl locks, by open file.
//!
//! Invariant: a request whose caller was killed is answered at once. The operation goes on to its end, and gives back handles and locks
//! that nobody will use.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use brindle_client::{Client, Ctx, Forgetting, KernelCache, job};
use brindle_stdx::cast::nanos;
use brindle_stdx::{BoxFuture, Seams, ticks};
use brindle_types::errno::{EINTR, EIO};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::Cred;
use brindle_wire::mds::lock::{LockKind, LockState};
use futures_util::future::{Either, select};
use tokio::sync::Semaphore;

use crate::interrupt::{Cancel, kill_pending};
use crate::jobs::{JobFrom, Jobs};
use crate::node_ids::NodeIds;
use crate::notify::{Notice, Notifier, Outcome};
use crate::ops;
use crate::ops::beside::Beside;
use crate::ops::caller_syscall::CallerSyscalls;
use crate::ops::failed::FailedWrites;
use crate::ops::kernel_cache::{Awaited, Habit, KernelCacheState, Moment, Pause};
use crate::ops::known::Known;
use crate::ops::owners::Owners;
use crate::ops::recent::Recent;
use crate::ops::releases::Releases;
use crate::ops::stale::{Part, Stale, part};
use crate::reply::Reply;
use crate::request::{Asked, Op, Request};
use crate::session::{
    Connected, EventLoop, MountOptions, ServeOptions, Session, Wanted, have_attributes_asked,
};
use crate::{Ended, Filesystem};

/// Interval of the search for a pending SIGKILL at the caller of an interrupted request.
const KILL_POLL_MS: u64 = 100;

/// Repeats of a notice without a pause, while a thread may still take in an older answer.
const REPEATS_AT_ONCE_MAX: u32 = 16;

/// Files whose size the kernel is made to ask for at once: each takes a thread.
const SIZES_ASKED_MAX: usize = 4;

/// Questions whether files are closed that are answered at once: each takes a thread.
const CLOSES_ASKED_MAX: usize = 4;

/// The file system of one mount.
pub struct BrindleFs {
    /// The client below.
    pub client: Arc<Client>,
    pub(crate) owners: Owners,
    pub(crate) node_ids: NodeIds,
    pub(crate) known: Known,
    pub(crate) recent: Arc<Recent>,
    pub(crate) failed: FailedWrites,
    pub(crate) beside: Beside,
    pub(crate) stale: Stale,
    pub(crate) calls: Arc<CallerSyscalls>,
    pub(crate) kernel_cache: Arc<KernelCacheState>,
    pub(crate) releases: Arc<Releases>,
    jobs: Jobs,
}

/// Context of a request: the caller and the inode.
pub(crate) struct Who {
    pub ino: Ino,
    /// Node id of the inode.
    pub nodeid: u64,
    /// The calling thread; 0 for the kernel itself.
    pub tid: u32,
    pub ctx: Ctx,
    pub cancel: Cancel,
}

/// An answer, and how to take back its resource if nobody will use it.
pub(crate) struct Done {
    pub reply: Reply,
    pub undo: Undo,
}

/// Resource to give back when the kernel did not take an answer.
pub(crate) enum Undo {
    /// No resource.
    Nothing,
    /// A handle on an inode.
    Close(Ino, u64),
    /// A lock; not while this handle is open, of which others may have had it before.
    Unlock(Ino, LockState, Option<u64>),
}

impl From<Reply> for Done {
    fn from(reply: Reply) -> Done {
        Done { reply, undo: Undo::Nothing }
    }
}

impl BrindleFs {
    /// A file system over `client`, for a kernel that keeps nothing.
    pub fn new(client: Arc<Client>, job_from: JobFrom) -> BrindleFs {
        let calls = Arc::<CallerSyscalls>::default();
        BrindleFs {
            jobs: Jobs::new(job_from, calls.clone()),
            client,
            owners: Owners::default(),
            node_ids: NodeIds::default(),
            known: Known::default(),
            recent: Arc::default(),
            failed: FailedWrites::default(),
            beside: Beside::default(),
            stale: Stale::default(),
            calls,
            kernel_cache: Arc::default(),
            releases: Arc::default(),
        }
    }

    async fn answer(self: Arc<Self>, request: Request) -> Reply {
        let cred = Cred { uid: request.uid, gid: request.gid, groups: request.groups };
        let ino = self.node_ids.ino(request.nodeid);
        let tid = request.pid;
        let who =
            Who { ino, nodeid: request.nodeid, tid, ctx: Ctx::of(cred), cancel: request.cancel.clone() };
        let killed = self.killed(request.cancel, request.pid);
        let (name, changes) = (ops::name(&request.op), changes(&request.op, ino));
        let part = part(&request.op);
        let mut work = Box::pin(ops::dispatch(self.clone(), who, request.op));
        match select(&mut work, pin!(killed)).await {
            Either::Left((Ok(done), _)) => {
                self.stale_answered(tid, part, ino);
                done.reply
            }
            Either::Left((Err(fault), _)) => refuse(name, ino, &self.second_time(tid, part, fault)),
            Either::Right(_) => {
                let this = self.clone();
                let going_on = async move {
                    let done = work.await;
                    // The kernel was answered something else.
                    this.kernel_cache.gone_on(tid, Habit::None, Moment::now(this.client.seams()));
                    let undo = done.map_or(Undo::Nothing, |done| done.undo);
                    let changed = match (changes, &undo) {
                        (Changes::Of(ino), _) => Some(ino),
                        (Changes::OfOpened, Undo::Close(ino, _)) => Some(*ino),
                        _ => None,
                    };
                    if let Some(ino) = changed {
                        this.client.changed_unseen(ino).await;
                    }
                    this.take_back(undo).await;
                };
                self.client.seams().spawn("fuse.abandoned", job::carry(going_on));
                Reply::err(EINTR)
            }
        }
    }

    /// A thread was answered well.
    pub(crate) fn stale_answered(&self, tid: u32, part: Part, ino: Ino) {
        let is_dir = || ino == self.client.root() || self.known.is_dir(ino);
        match part {
            _ if self.stale.is_empty() => {}
            Part::Step => {}
            Part::Look => self.stale.seen(tid, is_dir()),
            Part::Act => self.stale.over(tid),
        }
    }

    /// The answer to a failed operation: ENOENT where the kernel has walked the path again, and it led to nothing again.
    fn second_time(&self, tid: u32, part: Part, fault: Fault) -> Fault {
        if fault.code != Code::HandleStale {
            // A look on the way may well find nothing, as at an ACL.
            match part {
                Part::Look => {}
                Part::Step => self.stale.absent(tid),
                Part::Act => self.stale.over(tid),
            }
            return fault;
        }
        match self.stale.is_second(tid, part, self.client.seams().now()) {
            true => Fault { code: Code::NotFound, ..fault },
            false => fault,
        }
    }

    /// Completes when the caller has SIGKILL pending. The kernel tells only of the first signal, whatever it is.
    fn killed(&self, cancel: Cancel, tid: u32) -> impl Future<Output = ()> + Send + 'static {
        let seams = self.client.seams().clone();
        async move {
            cancel.requested().await;
            while !kill_pending(tid) {
                seams.sleep_ms(KILL_POLL_MS).await;
            }
        }
    }

    async fn take_back(&self, undo: Undo) {
        let outcome = match undo {
            Undo::Nothing => Ok(()),
            Undo::Close(_, handle) => self.client.close(handle).await,
            Undo::Unlock(_, _, Some(shared)) if self.client.is_open(shared) => Ok(()),
            Undo::Unlock(ino, lock, _) => {
                let unlock = LockState { kind: LockKind::Unlock, ..lock };
                self.client.set_lock(&Ctx::root(), ino, unlock, false).await
            }
        };
        if let Err(fault) = outcome {
            tracing::warn!(code = %fault.code, "cannot take back what a killed caller was given: {fault}");
        }
    }
}

/// Contents that an operation changes, or may have changed where it fails. The kernel considers its cached
/// state of them outdated only if it is told of the success.
#[derive(Clone, Copy)]
enum Changes {
    Nothing,
    Of(Ino),
    /// The file that the operation opens.
    OfOpened,
}

/// The file whose contents an operation of the kernel on `ino` changes.
fn changes(op: &Op, ino: Ino) -> Changes {
    let empties = |flags: u32| flags & libc::O_TRUNC as u32 != 0;
    match op {
        Op::Setattr(op) if op.size.is_some() => Changes::Of(ino),
        Op::Open(op) if empties(op.flags) => Changes::Of(ino),
        Op::Create(op) if empties(op.flags) => Changes::OfOpened,
        Op::Write(_) | Op::Fallocate(_) => Changes::Of(ino),
        // Node ids of files are inode numbers.
        Op::CopyFileRange(op) => Changes::Of(Ino(op.ino_out)),
        _ => Changes::Nothing,
    }
}

/// The kernel gives up references to a node id. Notes about the node go with the last reference.
fn forgotten(node_ids: &NodeIds, known: &Known, kernel_cache: &KernelCacheState, nodeid: u64, lookups: u64) {
    node_ids.forget(nodeid, lookups, |ino| {
        known.forget(ino);
        kernel_cache.forget(ino, nodeid);
    });
}

/// Whether a thread exists.
fn is_there(tid: u32) -> bool {
    let pid = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
    // Any other error means that the thread exists and may not be signalled.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// The answer of a failed operation. Ordinary outcomes are not worth a line in the log.
pub(crate) fn refuse(op: &'static str, ino: Ino, fault: &Fault) -> Reply {
    if fault.errno() == EIO {
        tracing::warn!(op, ino = ino.0, code = %fault.code, "{fault}");
    } else {
        tracing::debug!(op, ino = ino.0, code = %fault.code, what = %fault.what);
    }
    Reply::fault(fault)
}

impl Filesystem for BrindleFs {
    fn handle(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Reply> {
        let this = self.clone();
        Box::pin(async move {
            let job = this.jobs.of(&this.client, &request).await;
            job::with(job, this.answer(request)).await
        })
    }

    fn fast_path(&self, asked: Asked, op: &Op) -> Option<Reply> {
        ops::fast_path::answer(self, asked, op)
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        forgotten(&self.node_ids, &self.known, &self.kernel_cache, nodeid, nlookup);
    }
}

/// The kernel's cache of a mount.
struct Kernel {
    notifier: Notifier,
    kernel_cache: Arc<KernelCacheState>,
    recent: Arc<Recent>,
    calls: Arc<CallerSyscalls>,
    mountpoint: PathBuf,
    seams: Seams,
    asking: Arc<Semaphore>,
    closing: Arc<Semaphore>,
    releases: Arc<Releases>,
}

/// Duration of `ticks` ticks of the kernel's clock, in milliseconds.
fn ticks_ms(ticks: u64) -> u64 {
    ticks * nanos(ticks::length()).div_ceil(1_000_000)
}

/// Looks whether threads that are waited for have gone on without asking for anything.
fn settle(kernel_cache: &KernelCacheState, calls: &CallerSyscalls, awaited: Awaited, seams: &Seams) {
    let has_gone_on = |tid, given| !is_there(tid) || given && calls.has_gone_on(tid);
    kernel_cache.settle(awaited, has_gone_on, || Moment::now(seams));
}

/// Waits until the kernel keeps none of these names any more; of which no more are kept.
async fn names_run_out(
    kernel_cache: &KernelCacheState,
    calls: &CallerSyscalls,
    names: Awaited<'_>,
    seams: &Seams,
) {
    while let Some(left) = kernel_cache.names_left_ticks(names, Moment::now(seams)) {
        if left == 0 {
            settle(kernel_cache, calls, names, seams);
        }
        seams.sleep_ms(ticks_ms(left).max(1)).await;
    }
}

impl BrindleFs {
    /// Waits until the kernel keeps nothing of a name that is to be moved to another directory: it would take that along. Nor does it
    /// until the result is dropped, which is for when the name is told to nobody any more.
    pub(crate) async fn about_to_move(&self, dir: Ino, name: &[u8]) -> Pause {
        let pause = self.kernel_cache.pause(dir);
        let ino = self.client.known_ino(dir, name);
        names_run_out(&self.kernel_cache, &self.calls, Awaited::Name(Some(&[dir]), ino), self.client.seams())
            .await;
        pause
    }

    /// Waits until the kernel keeps no names in a directory that it knows in another place now.
    pub(crate) async fn names_gone(&self, dir: Ino) {
        names_run_out(
            &self.kernel_cache,
            &self.calls,
            Awaited::Name(Some(&[dir]), None),
            self.client.seams(),
        )
        .await;
    }
}

impl KernelCache for Kernel {
    fn forget_attr(&self, ino: Ino) -> Forgetting {
        self.forget_nodes(self.kernel_cache.take(ino, Moment::now(&self.seams)))
    }

    fn forget_files(&self) -> Forgetting {
        self.recent.forget_extras();
        self.forget_nodes(self.kernel_cache.take_files(Moment::now(&self.seams)))
    }

    fn forget_attrs(&self) -> Forgetting {
        self.recent.forget_extras();
        self.forget_nodes(self.kernel_cache.take_all(Moment::now(&self.seams)))
    }

    fn names_gone(&self, dirs: Option<Vec<Ino>>) -> BoxFuture<'static, ()> {
        let (kernel_cache, calls, seams) =
            (self.kernel_cache.clone(), self.calls.clone(), self.seams.clone());
        Box::pin(async move {
            names_run_out(&kernel_cache, &calls, Awaited::Name(dirs.as_deref(), None), &seams).await;
        })
    }

    fn refresh_size(&self, ino: Ino) -> BoxFuture<'static, ()> {
        let (asking, seams, mountpoint) = (self.asking.clone(), self.seams.clone(), self.mountpoint.clone());
        Box::pin(async move {
            // Closed by nobody.
            let permit = asking.acquire_owned().await;
            let asked = seams.run_blocking(move || {
                let asked = have_attributes_asked(&mountpoint, ino.0);
                drop(permit);
                asked
            });
            match asked.await {
                // (The kernel does not know the file any more, or it is gone, which is as good.)
                Some(Err(error)) if !matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => {
                    tracing::warn!(ino = ino.0, %error, "the kernel cannot be made to ask for the new size of a file that was cut; \
                        reads behind its end may give zeros. The mount needs CAP_DAC_READ_SEARCH");
                }
                None | Some(_) => {}
            }
        })
    }

    fn closed(&self, ino: Ino) -> BoxFuture<'static, ()> {
        let (closing, seams, mountpoint) =
            (self.closing.clone(), self.seams.clone(), self.mountpoint.clone());
        let (calls, releases, readers) =
            (self.calls.clone(), self.releases.clone(), self.notifier.readers().clone());
        Box::pin(async move {
            // Closed by nobody.
            let permit = closing.acquire_owned().await;
            let read = seams.run_blocking(move || {
                // The kernel gives what was closed before to a reader before it gives this request to one. If it fails there is no mount
                // any more to close anything on.
                drop(rustix::fs::statvfs(&mountpoint));
                readers.pass(|tid| calls.sleeps(tid));
                drop(permit);
            });
            // A job that ended early has panicked, and its panic is in the log.
            let _ = read.await;
            releases.over(ino).await;
        })
    }

    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()> {
        let len = if len_bytes == u64::MAX { 0 } else { len_bytes };
        let gone = self.notifier.post(Notice::InvalInode { ino: ino.0, offset, len });
        Box::pin(async move {
            let outcome = gone.await;
            if !outcome.is_gone() {
                tracing::warn!(ino = ino.0, offset, len, ?outcome, "the kernel keeps pages that are old");
            }
        })
    }
}

impl Kernel {
    fn forget_nodes(&self, nodeids: BTreeSet<u64>) -> Forgetting {
        let forget = Forget {
            notifier: self.notifier.clone(),
            kernel_cache: self.kernel_cache.clone(),
            calls: self.calls.clone(),
            seams: self.seams.clone(),
        };
        let left: Vec<u64> = nodeids.into_iter().filter(|nodeid| !forget.once(*nodeid)).collect();
        if left.is_empty() { None } else { Some(Box::pin(forget.until_gone(left))) }
    }
}

/// Has the kernel forget attributes.
struct Forget {
    notifier: Notifier,
    kernel_cache: Arc<KernelCacheState>,
    calls: Arc<CallerSyscalls>,
    seams: Seams,
}

impl Forget {
    /// Whether they are gone. Not if a thread is just taking in an answer, which the notice may not have reached. Never blocks.
    fn once(&self, nodeid: u64) -> bool {
        let is_awaited = self.kernel_cache.is_awaited(nodeid, Moment::now(&self.seams));
        let outcome = self.notifier.forget_attr(nodeid);
        if outcome == Outcome::NotCached && is_awaited {
            return false;
        }
        if !outcome.is_gone() {
            tracing::warn!(nodeid, ?outcome, "the kernel keeps attributes that are old");
        }
        true
    }

    /// Repeats the notices until they have reached what those threads have taken in, or the threads have gone on.
    async fn until_gone(self, nodeids: Vec<u64>) {
        for nodeid in nodeids {
            let mut repeats = 0;
            loop {
                settle(&self.kernel_cache, &self.calls, Awaited::Attr(nodeid), &self.seams);
                if self.once(nodeid) {
                    break;
                }
                repeats += 1;
                // A thread that runs needs some microseconds; one that waits for a processor longer.
                if repeats < REPEATS_AT_ONCE_MAX { turn().await } else { self.seams.sleep_ms(1).await }
            }
        }
    }
}

/// Lets whatever else can run go first.
async fn turn() {
    let mut has_waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Settings of a mount.
#[derive(Clone)]
pub struct MountSettings {
    /// Mount point, and options of mount(2).
    pub mount: MountOptions,
    /// Features to ask the kernel for.
    pub wanted: Wanted,
    /// Options of serving the connection.
    pub serve: ServeOptions,
    /// Path of the socket for commands ([`brindle_client::control`]); `None` for no socket.
    pub control: Option<PathBuf>,
    /// The source of the job's name.
    pub job_from: JobFrom,
}

impl MountSettings {
    /// The usual settings; handlers run in the tokio runtime `handle`, and on `event_loop`, whose tasks the client should have been given for its MDT.
    pub fn new(mount: MountOptions, handle: tokio::runtime::Handle, event_loop: EventLoop) -> MountSettings {
        let serve =
            ServeOptions { event_loop: Some(event_loop), ..ServeOptions::default() }.in_runtime(handle);
        MountSettings { mount, wanted: Wanted::default(), serve, control: None, job_from: JobFrom::default() }
    }
}

/// A file system that is mounted and served.
pub struct MountHandle {
    client: Arc<Client>,
    session: Session,
    control: Option<PathBuf>,
}

/// Mounts what `client` is connected to. Needs root; call it within a tokio runtime.
pub async fn mount(client: Arc<Client>, settings: MountSettings) -> Result<MountHandle, Fault> {
    if let Some(path) = &settings.control {
        brindle_client::control::serve(client.clone(), path).await?;
    }
    let (options, wanted) = (settings.mount.clone(), settings.wanted);
    let mountpoint = settings.mount.mountpoint.clone();
    let connecting = client.seams().run_blocking(move || Connected::mount(&options, &wanted));
    let bug = || Fault::new(brindle_types::Code::Bug).why("the mount panicked");
    let connected = connecting.await.ok_or_else(bug)??;
    let tasks = client.seams().tasks.clone();
    let (served, job_from) = (client.clone(), settings.job_from.clone());
    let session = connected.serve(&settings.serve, tasks, |notifier, _| {
        let fs = BrindleFs::new(served.clone(), job_from);
        let asking = Arc::new(Semaphore::new(SIZES_ASKED_MAX));
        let closing = Arc::new(Semaphore::new(CLOSES_ASKED_MAX));
        let (kernel_cache, recent, calls) = (fs.kernel_cache.clone(), fs.recent.clone(), fs.calls.clone());
        let (seams, releases) = (served.seams().clone(), fs.releases.clone());
        let kernel =
            Kernel { notifier, kernel_cache, recent, calls, mountpoint, seams, asking, closing, releases };
        served.set_cache(Arc::new(kernel));
        Arc::new(fs)
    })?;
    Ok(MountHandle { client, session, control: settings.control })
}

impl MountHandle {
    /// The client below.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The connection to the kernel.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Unmounts; fails with `FileBusy` while files are open, unless `lazy`.
    pub fn unmount(&self, lazy: bool) -> Result<(), Fault> {
        self.session.unmount(lazy)
    }

    /// Waits until the kernel has ended the connection (somebody unmounted), says goodbye to the servers, and says how
    /// it ended.
    pub async fn ended(self) -> Ended {
        let how = self.session.ended().await;
        self.client.unmount().await;
        if let Some(path) = &self.control {
            // The mount is gone; a socket that stays is replaced by the next one.
            let _ = std::fs::remove_file(path);
        }
        how
    }
}

/// The operations that [`ops::dispatch`] gets; for tests that drive a file system without a kernel.
pub async fn run_op(fs: &Arc<BrindleFs>, ino: Ino, cred: Cred, op: Op) -> Reply {
    let name = ops::name(&op);
    let who = Who { ino, nodeid: ino.0, tid: 0, ctx: Ctx::of(cred), cancel: Cancel::new() };
    match ops::dispatch(fs.clone(), who, op).await {
        Ok(done) => done.reply,
        Err(fault) => refuse(name, ino, &fault),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use brindle_stdx::Mono;
    use brindle_types::{Attr, FileType};

    use super::*;
    use crate::ops::kernel_cache::LookedUpName;

    #[test]
    fn a_directory_that_was_looked_up_again_stays_known_when_the_kernel_gives_up_what_it_had_before() {
        const D: Ino = Ino(50);
        let (node_ids, known, kernel_cache) =
            (NodeIds::default(), Known::default(), KernelCacheState::default());
        let attr = Attr::plain(D, FileType::Directory, 0);
        let lasting = |_: Ino| Some((attr.clone(), 3000_u64));
        let now = Moment { at: Mono::default(), tick: 0 };
        for _ in 0..2 {
            let nodeid = node_ids.found(1, b"d", D);
            let found = LookedUpName { tid: 7, parent: Ino::ROOT, ino: D, nodeid, kind: attr.kind, now };
            assert!(kernel_cache.by_name(found, &lasting, &|| None).attr.is_some());
        }
        known.note(&attr);
        kernel_cache.gone_on(7, Habit::None, now);
        forgotten(&node_ids, &known, &kernel_cache, D.0, 1);
        assert!(known.removed(D).is_some());
        assert_eq!(kernel_cache.take(D, now), BTreeSet::from([D.0]), "a notice must still reach it");
        assert!(kernel_cache.by_number(&lasting, D, D.0).is_some());
        forgotten(&node_ids, &known, &kernel_cache, D.0, 1);
        assert!(known.removed(D).is_none() && kernel_cache.take(D, now).is_empty());
    }

    #[test]
    fn threads_are_there_until_they_end_also_those_that_are_not_the_first_of_their_process() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).expect("somebody listens");
            // An error means that the test has failed.
            let _ = ended.recv();
        });
        let tid = told.recv().expect("it says its number");
        assert_ne!(tid, std::process::id());
        assert!(is_there(tid) && is_there(std::process::id()) && is_there(1));
        drop(end);
        thread.join().expect("it ends");
        // The kernel wakes a thread that joins another shortly before the other's number is free.
        while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
            std::thread::yield_now();
        }
        assert!(!is_there(tid));
        assert!(!is_there(0) && !is_there(u32::MAX));
    }
}
