//! The client: one mount's session, open files, leases and locks, over the callers of its servers.
//!
//! Operations are methods in [`crate::namespace`], [`crate::file`], [`crate::locks`] and [`crate::control`].

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use brindle_net::peer::NoNotifies;
use brindle_net::{NotifyHandler, Peer, Transport};
use brindle_stdx::{Seams, Spawn};
use brindle_targets::{Caller, Directory, Endpoint, Host, Identity, Introduction, Options};
use brindle_types::{Code, Fault, FsName, Ino, Nid, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::session::SessionCloseReq;
use brindle_wire::oss::grant::ReturnGrantReq;
use futures_util::future::{join, join_all};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::accesses::Accesses;
use crate::cache::{KeptVersions, KernelCache, NoCache};
use crate::clock::ServerClock;
use crate::closed_unsynced::ClosedUnsynced;
use crate::dirs::Dirs;
use crate::file::close::Closes;
use crate::file::restored::WAITS_MAX as RESTORE_WAITS_MAX;
use crate::grants::Grants;
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::locks::Locks;
use crate::mark_acks::MarkAcks;
use crate::notices::Notices;
use crate::open_prefetch::OpenPrefetch;
use crate::quota::QuotaReservations;
use crate::readahead::{CHUNKS_BYTES_MAX, PIECES_BYTES_MAX};
use crate::session::{MdtHost, OstHost, Session};
use crate::unsynced::{Budget, KEPT_BYTES_MAX};

/// Longest wait of a mount for the MGS, and then for the MDT.
const MOUNT_TIMEOUT_MS: u64 = 15_000;
/// Longest wait of a call for a map that names its target.
const TARGET_TIMEOUT_MS: u64 = 30_000;
/// Longest wait of an unmount for the MDT to take the goodbye.
const GOODBYE_TIMEOUT_MS: u64 = 2_000;
/// Part of that time that OSTs may take to answer.
const RETURN_TIMEOUT_MS: u64 = 500;

/// Mechanisms that a mount can do without; all are on unless turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The sole writer of a file is answered before its bytes are sent (note 008).
    pub write_behind: bool,
    /// Bytes that follow are fetched ahead of reads that fill no pages (note 001).
    pub readahead: bool,
    /// Directories are listed ahead of lookups (note 005).
    pub readdir_prefetch: bool,
    /// Small files are opened ahead of programs (note 012).
    pub open_prefetch: bool,
    /// The kernel keeps names for a tick of its clock (note 005).
    pub kernel_names: bool,
    /// A single thread reads the device and takes the MDT's answers (note 013).
    pub event_loop: bool,
    /// Servers of this machine are called over local sockets, and long bulk is lent (notes 011, 015).
    pub local_sockets: bool,
    /// Opening a released file brings it back, and waits for that (note 028).
    pub recall: bool,
    /// Opening a released file with O_NONBLOCK recalls it, too.
    pub nonblock_recall: bool,
    /// Reads change times of last access (note 045).
    pub access_times: bool,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches {
            write_behind: true,
            readahead: true,
            readdir_prefetch: true,
            open_prefetch: true,
            kernel_names: true,
            event_loop: true,
            local_sockets: true,
            recall: true,
            nonblock_recall: true,
            access_times: true,
        }
    }
}

/// Configuration of a mount.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// Addresses of the MGS, best first.
    pub mgs: Vec<Nid>,
    /// Name of the file system.
    pub fs: FsName,
    /// Name of this host, for people.
    pub host: String,
    /// Mount point, for people.
    pub mount: String,
    /// Mechanisms of the mount.
    pub switches: Switches,
    /// Whether every write(2) is treated like a write to a file opened with O_SYNC.
    pub sync: bool,
    /// Longest time that an OST may be unreachable before a call to it fails; `None`: calls wait without
    /// limit.
    pub failout_ms: Option<u64>,
}

/// A mounted file system.
pub struct Client {
    pub(crate) config: MountConfig,
    pub(crate) seams: Seams,
    pub(crate) uuid: [u8; 16],
    pub(crate) targets: Arc<Directory>,
    pub(crate) mds: Caller,
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Arc<ServerClock>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) dirs: Arc<Dirs>,
    pub(crate) handles: Handles,
    /// Handles that were opened ahead.
    pub(crate) open_prefetch: OpenPrefetch,
    pub(crate) closes: Closes,
    /// Files that were read.
    pub(crate) accesses: Accesses,
    pub(crate) locks: Locks,
    /// Reads of released files that wait at the MDT.
    pub(crate) restore_waits: Semaphore,
    /// The next number of an append at a place of the MDT.
    pub(crate) append_numbers: AtomicU64,
    pub(crate) kept: Arc<Budget>,
    /// Budget of readahead bytes, and of long pieces among them.
    pub(crate) ahead: Arc<Budget>,
    pub(crate) pieces: Arc<Budget>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: Arc<QuotaReservations>,
    pub(crate) kept_versions: KeptVersions,
    /// Marks that were dealt with, for the OSTs that gave them.
    pub(crate) mark_acks: MarkAcks,
    /// Objects of closed files that may not be synced.
    pub(crate) closed_unsynced: ClosedUnsynced,
    pub(crate) cache: RwLock<Arc<dyn KernelCache>>,
    pub(crate) this: Weak<Client>,
}

impl Client {
    /// The targets of the file system.
    pub fn targets(&self) -> &Arc<Directory> {
        &self.targets
    }

    /// Connects to the MGS, fetches the map and opens a session at the MDT. `mdt_tasks` takes in the messages
    /// of the MDT.
    pub async fn mount(
        config: MountConfig,
        seams: Seams,
        mdt_tasks: Arc<dyn Spawn>,
        transport: Arc<dyn Transport>,
    ) -> Result<Arc<Client>, Fault> {
        let endpoint = Arc::new(MountEndpoint {
            this: Arc::default(),
            mdt_tasks,
            session: Arc::new(Session::new(seams.clock.clone())),
            dirs: Arc::default(),
            clock: Arc::default(),
            seams: seams.clone(),
            failout_ms: config.failout_ms,
        });
        let targets = Directory::new(
            &seams,
            transport,
            Introduction::client(&config.host),
            endpoint.clone(),
            config.mgs.clone(),
            config.fs.clone(),
            0,
        );
        match seams.timeout_ms(MOUNT_TIMEOUT_MS, targets.map().fetch()).await {
            Some(map) => drop(map?),
            None => return Err(no_mgs(&config, &targets)),
        }
        let mds = targets.caller_within(TargetId::mdt(0), MOUNT_TIMEOUT_MS).await?;
        let client = Client::build(config, seams, endpoint, targets, mds);
        match client.seams.timeout_ms(MOUNT_TIMEOUT_MS, client.open_session()).await {
            Some(Ok(())) => {}
            Some(Err(fault)) => {
                client.stop();
                return Err(fault);
            }
            None => {
                client.stop();
                return Err(no_mdt(&client));
            }
        }
        client.start();
        Ok(client)
    }

    fn build(
        config: MountConfig,
        seams: Seams,
        endpoint: Arc<MountEndpoint>,
        targets: Arc<Directory>,
        mds: Caller,
    ) -> Arc<Client> {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&seams.rng.next_u64().to_be_bytes());
        uuid[8..].copy_from_slice(&seams.rng.next_u64().to_be_bytes());
        Arc::new_cyclic(|this: &Weak<Client>| {
            // The pointer is set here only.
            let _ = endpoint.this.set(this.clone());
            Client {
                config,
                seams,
                uuid,
                targets,
                mds,
                session: endpoint.session.clone(),
                clock: endpoint.clock.clone(),
                inodes: Arc::default(),
                dirs: endpoint.dirs.clone(),
                handles: Handles::default(),
                open_prefetch: OpenPrefetch::default(),
                closes: Closes::default(),
                accesses: Accesses::default(),
                locks: Locks::default(),
                restore_waits: Semaphore::new(RESTORE_WAITS_MAX),
                append_numbers: AtomicU64::new(1),
                kept: Arc::new(Budget::new(KEPT_BYTES_MAX)),
                ahead: Arc::new(Budget::new(CHUNKS_BYTES_MAX)),
                pieces: Arc::new(Budget::new(PIECES_BYTES_MAX)),
                grants: Arc::default(),
                limits: Arc::default(),
                kept_versions: KeptVersions::default(),
                mark_acks: MarkAcks::default(),
                closed_unsynced: ClosedUnsynced::default(),
                cache: RwLock::new(Arc::new(NoCache)),
                this: this.clone(),
            }
        })
    }

    fn start(self: &Arc<Self>) {
        let this = self.clone();
        self.seams.spawn("client.session", async move { this.keep_session().await });
        let this = self.clone();
        self.seams.spawn("client.renew", async move { this.renew_session().await });
        let this = self.clone();
        self.seams.spawn("client.reports", async move { this.background().await });
        let this = self.clone();
        self.seams.spawn("client.closes", async move { this.give_back().await });
        let this = self.clone();
        self.seams.spawn("client.behind", async move { this.send_what_waits().await });
        let this = self.clone();
        self.seams.spawn("client.left", async move { this.look_after_left().await });
        if self.config.switches.access_times {
            let this = self.clone();
            self.seams.spawn("client.accesses", async move { this.tell_accesses_now_and_then().await });
        }
    }

    /// Sets the keeper of pages of our files. Called once, before the first open.
    pub fn set_cache(&self, cache: Arc<dyn KernelCache>) {
        self.dirs.set_kernel(cache.clone());
        *self.cache.write() = cache;
    }

    /// Says goodbye to the MDT: reports and closes open files, ends the session, stops everything. Calls fail from now on.
    pub async fn unmount(&self) {
        self.flush_all_behind().await;
        let goodbye = async {
            let closing =
                self.handles.all().into_iter().filter_map(|handle| self.close_later(handle.number).ok());
            let closing: Vec<_> = closing.collect();
            self.closes.hurry();
            // A report that cannot be sent now is lost, as in a crash of this client. The unmount does not
            // wait for it.
            join(join_all(closing), self.return_grants()).await;
            self.tell_accesses(true).await;
            // Files that were closed a moment ago, too.
            for inode in self.inodes.all() {
                inode.wait_until(|state| state.closing == 0).await;
            }
            self.mds.ask_high(&SessionCloseReq {}).await
        };
        if !matches!(self.seams.timeout_ms(GOODBYE_TIMEOUT_MS, goodbye).await, Some(Ok(_))) {
            tracing::warn!("unmounted without a goodbye; the server ends the session with its lease");
        }
        self.stop();
    }

    /// Gives the grants back to the OSTs. An OST that does not get the message keeps the grant for the session until the
    /// session counts as idle.
    async fn return_grants(&self) {
        let options = Options { only_as: Some(self.session.identity()), ..Options::default() };
        let unused = self.grants.take_unused();
        let callers = unused.iter().filter_map(|index| self.targets.known(TargetId::ost(*index)));
        let returning = callers
            .map(|caller| async move { caller.call_with(&ReturnGrantReq {}, Vec::new(), options).await });
        let returned = self.seams.timeout_ms(RETURN_TIMEOUT_MS, join_all(returning)).await;
        if let Some(fault) = returned.unwrap_or_default().into_iter().find_map(Result::err) {
            tracing::debug!("a grant was not given back: {fault}");
        }
    }

    /// Stops everything at once, as a crash would, except that calls under way end with `Shutdown`.
    pub fn stop(&self) {
        self.session.end();
        self.closes.end();
        self.targets.stop();
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        Ino::ROOT
    }

    /// The map as this client knows it.
    pub fn map(&self) -> Arc<Map> {
        self.targets.map().current()
    }

    /// Identity of this mount, for the MDT.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Identity of the current session.
    pub fn identity(&self) -> Identity {
        self.session.identity()
    }

    /// Configuration of the mount.
    pub fn config(&self) -> &MountConfig {
        &self.config
    }

    /// The seams it runs on.
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// The caller of an OST.
    pub(crate) async fn ost(&self, index: u16) -> Result<Caller, Fault> {
        let target = TargetId::ost(index);
        match self.targets.known(target) {
            Some(caller) => Ok(caller),
            None => self.targets.caller_within(target, TARGET_TIMEOUT_MS).await,
        }
    }

    /// Callers of every target that was needed so far: the MDT, then OSTs in order.
    pub(crate) fn callers(&self) -> Vec<Caller> {
        self.targets.callers()
    }
}

/// Endpoint of a mount: it calls as its session, and answers notices of the MDT.
struct MountEndpoint {
    this: Arc<OnceLock<Weak<Client>>>,
    /// Runs what takes in the MDT's answers.
    mdt_tasks: Arc<dyn Spawn>,
    session: Arc<Session>,
    dirs: Arc<Dirs>,
    clock: Arc<ServerClock>,
    seams: Seams,
    failout_ms: Option<u64>,
}

impl Endpoint for MountEndpoint {
    fn host(&self, target: TargetId, peer: &Arc<Peer>) -> Arc<dyn Host> {
        let session = self.session.clone();
        if target.role != Role::Mdt {
            return Arc::new(OstHost { session, failout_ms: self.failout_ms });
        }
        let (peer, dirs, clock, seams) =
            (peer.clone(), self.dirs.clone(), self.clock.clone(), self.seams.clone());
        Arc::new(MdtHost { session, peer, dirs, clock, seams })
    }

    fn seams(&self, target: TargetId, seams: &Seams) -> Seams {
        match target.role {
            Role::Mdt => Seams { tasks: self.mdt_tasks.clone(), ..seams.clone() },
            _ => seams.clone(),
        }
    }

    fn notifies(&self, target: TargetId) -> Arc<dyn NotifyHandler> {
        match target.role {
            Role::Mdt => Arc::new(Notices(self.this.clone())),
            _ => Arc::new(NoNotifies),
        }
    }
}

fn no_mgs(config: &MountConfig, targets: &Directory) -> Fault {
    let fault = Fault::new(Code::NoMgs)
        .what("cannot mount")
        .subject(format!("{} on {}", config.fs, config.mount))
        .why(format!("no answer from the MGS within {} s", MOUNT_TIMEOUT_MS / 1000));
    let fault = match targets.mgs().peer().state().last_error {
        Some(last) => {
            let why = last.why.into_iter().map(|w| format!("{}: {w}", last.subject));
            why.fold(fault, Fault::why)
        }
        None => fault,
    };
    targets.stop();
    fault
}

fn no_mdt(client: &Client) -> Fault {
    let name = client.config.fs.target(client.mds.target());
    let fault = Fault::new(Code::TargetDown)
        .what("cannot mount")
        .subject(format!("{} on {}", client.config.fs, client.config.mount))
        .why(format!("no answer from {name} within {} s", MOUNT_TIMEOUT_MS / 1000));
    match client.mds.peer().state().last_error {
        Some(last) => last.why.into_iter().fold(fault, Fault::why),
        None => fault,
    }
}
