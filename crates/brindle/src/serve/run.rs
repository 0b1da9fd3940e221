//! From directories to running services, and back.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brindle_auth::Identity;
use brindle_host::access;
use brindle_host::announcement::{ServedTarget, Serving};
use brindle_host::daemon::{Daemon, Shows};
use brindle_host::enrolment::{ClusterFile, conf_of};
use brindle_host::identity::{self, IdentityFile};
use brindle_host::process::Said;
use brindle_host::replica::Control;
use brindle_host::service::{self, How, LockedTarget, Service};
use brindle_host::shared::fence::Program;
use brindle_host::target_dir::DirLock;
use brindle_mgs::shared::Fence;
use brindle_net::{RemovedKeys, Security, TcpTransport, Transport};
use brindle_stdx::Seams;
use brindle_targets::Directory;
use brindle_telemetry::http::Health;
use brindle_telemetry::{Endpoint, Registry, log, panic};
use brindle_types::{Code, Fault, Nid, Result};
use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use tokio::signal::unix::{SignalKind, signal};

use super::options::{self, Args, Options};
use super::{hardware, metrics, numa};
use crate::cpu_latency;
use crate::exit::Done;
use crate::locked_memory;
use crate::output::print_line;

/// A target that is not served after this time waits for other servers, and says so.
const WAITING_AFTER: Duration = Duration::from_secs(2);
/// Longest time for a listening server to be known to the MGS. After it, the server counts as ready without
/// the MGS, because that is away.
const REGISTERED_WITHIN: Duration = Duration::from_secs(1);

/// A running target; its directory stays locked as long.
struct Running {
    service: Service,
    _lock: DirLock,
}

/// Runs `brindle serve`.
pub fn run(args: Args) -> Result<Done> {
    let command_line: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let options = options::effective(&args, &command_line)?;
    if options.dir.is_empty() && !options.assigned {
        return Err(Fault::new(Code::BadArgument)
            .what("nothing to serve")
            .why("no directory of a target was given, and this host has not joined a cluster")
            .next("add --dir DIR, or 'dir' in the configuration file; or let the host join: brindle join"));
    }
    start_log(options.log.as_deref())?;
    panic::install("brindle serve".to_owned(), panic::After::Abort);
    if let Some(node) = options.numa_node {
        // Before there are other threads: they inherit it.
        numa::pin(node)?;
    }
    raise_limits();
    if options.lock_memory {
        locked_memory::lock()?;
    }
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.workers)
        .thread_name("serve")
        .enable_all()
        .build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(serve(&options, args.ready_json));
    runtime.shutdown_background();
    let outcome = match outcome {
        Ok(End::Restart | End::Renamed) => start_anew(&command_line),
        Ok(End::Stop) => Ok(Done::Ok),
        Err(fault) => Err(fault),
    };
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, options.log.is_some());
    }
    outcome
}

/// End of a serving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal ended the process.
    Stop,
    /// An administrator's order to start anew ended the process.
    Restart,
    /// A new name of this host ended the process.
    Renamed,
}

/// Becomes the program that is installed now, with the same arguments and the same pid. Returns only where that is not possible.
fn start_anew(command_line: &[std::ffi::OsString]) -> Result<Done> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::process::CommandExt;
    let failed = |e: &std::io::Error| {
        Fault::io(Code::ProcessFailed, "cannot start anew", "brindle serve", e)
            .data("everything was stopped in order")
            .next("start it: systemctl start brindle-serve")
    };
    let own = std::fs::read_link("/proc/self/exe").map_err(|e| failed(&e))?;
    // If a package has replaced the program, the new one has its name.
    let bytes = own.as_os_str().as_bytes();
    let path = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes).to_vec();
    let mut command = std::process::Command::new(std::ffi::OsString::from_vec(path));
    let mut words = command_line.iter();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    // The queue of the log ends with this program: the last line is the one that says why.
    brindle_telemetry::log::flush();
    Err(failed(&command.args(words).exec()))
}

/// Tells the log, and whoever waits for this process, why it ends.
pub fn failed(fault: &Fault, ready_json: bool, log_is_file: bool) {
    if log_is_file {
        log::fault(tracing::Level::ERROR, fault);
    }
    if ready_json {
        say(&Said::<()>::Failed(fault.clone()));
    }
}

/// Tells whoever started this process and waits for it; a daemon does not end because nobody listens.
pub fn say<T: serde::Serialize>(said: &T) {
    if let Err(e) = print_line(said) {
        tracing::warn!(error = %e, "nobody waits for this process any more");
    }
}

/// Sends the log to a file, or to standard error. A file on a disk that is full or has failed is no reason not to start: its lines
/// are counted as lost until the disk takes them.
pub fn start_log(file: Option<&Path>) -> Result<()> {
    let open = match file {
        None => None,
        Some(path) => {
            let path = path.to_owned();
            let append = move || std::fs::OpenOptions::new().create(true).append(true).open(&path);
            if let Err(e) = append()
                && !is_of_the_disk(&e)
            {
                let path = file.map(|path| path.display().to_string()).unwrap_or_default();
                return Err(Fault::io(Code::NotWritable, "cannot write the log", path, &e));
            }
            let open: log::Open = Box::new(move || Ok(Box::new(append()?)));
            Some(open)
        }
    };
    log::init(open)
        .map_err(|why| Fault::new(Code::BadArgument).what("cannot use").subject("BRINDLE_LOG").why(why))
}

/// Whether the disk is the reason, and not what was asked for.
fn is_of_the_disk(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(e.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded)
        || e.raw_os_error() == Some(libc::EIO)
}

async fn serve(options: &Options, ready_json: bool) -> Result<End> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "brindle serve starts");
    tracing::info!(options = %options.line(), "effective configuration");
    let mut stop = std::pin::pin!(stop_signal()?);
    let serving = Arc::new(AtomicBool::new(false));
    let registry = Registry::new("process");
    metrics::process(&registry);
    let endpoint = endpoint(&options.metrics, &registry, health(&serving)).await?;
    let metrics_url = endpoint.as_ref().map(Endpoint::url).unwrap_or_default();
    if let Some(endpoint) = endpoint {
        tokio::spawn(hardware::shown(options, &registry, endpoint).run());
    }
    let starting = start_all(options, &registry, ready_json);
    let mut served = tokio::select! {
        biased;
        () = &mut stop => {
            tracing::info!("asked to end before everything was served");
            return Ok(End::Stop);
        }
        started = starting => started?,
    };
    for t in &served.targets {
        tracing::info!(target_name = %t.name, nid = %t.nid, dir = %t.dir, metrics = %metrics_url, "serving");
    }
    serving.store(true, Ordering::Relaxed);
    cpu_latency::watch(options.cpu_latency);
    announce(ready_json, &Serving { targets: std::mem::take(&mut served.targets), metrics_url });
    let end = wait(&served, stop.as_mut()).await;
    let named = match (&end, &served.naming) {
        // The MGS that gives the certificate may be in this very process.
        (Ok(End::Renamed), Some(naming)) => naming.ask().await,
        _ => None,
    };
    serving.store(false, Ordering::Relaxed);
    tracing::info!("stopping");
    if let Some(daemon) = &served.daemon {
        daemon.stop().await;
    }
    for target in std::mem::take(&mut served.running).into_iter().rev() {
        target.service.stop().await?;
    }
    tracing::info!("stopped");
    if let (Some(named), Some(naming)) = (named, &served.naming) {
        naming.take(&named);
    }
    match end {
        // A stop of the service meanwhile counts.
        Ok(End::Restart | End::Renamed) if stop.as_mut().now_or_never().is_some() => Ok(End::Stop),
        end => end,
    }
}

/// Healthy while everything is served.
fn health(serving: &Arc<AtomicBool>) -> Health {
    let serving = serving.clone();
    Arc::new(move || match serving.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("starting or stopping".to_owned()),
    })
}

/// Targets that this process serves.
struct Served {
    running: Vec<Running>,
    targets: Vec<ServedTarget>,
    daemon: Option<Arc<Daemon>>,
    /// The way to another name for this host, where it has a daemon.
    naming: Option<Naming>,
    _control: Option<ControlThreads>,
    _daemon_lock: Option<DirLock>,
}

/// Gets this host the certificate for the name that an administrator has given it.
struct Naming {
    seams: Seams,
    identity: Arc<IdentityFile>,
    over_tcp: Arc<dyn Transport>,
    mgs: Vec<Nid>,
}

impl Naming {
    /// Asks for the certificate with the new name. Where that fails the host starts anew under the former one, and is told again.
    async fn ask(&self) -> Option<Identity> {
        let way = || {
            let introduction = access::introduction(&self.identity)?;
            access::mgs(&self.seams, self.over_tcp.clone(), introduction, self.mgs.clone(), None)
        };
        access::new_name(&self.seams, &way, &self.identity).await.map_err(|fault| cannot_take(&fault)).ok()
    }

    /// Takes the name, once nothing of this process goes by the former one.
    fn take(&self, named: &Identity) {
        if let Err(fault) = access::write_new_name(named, &self.identity) {
            cannot_take(&fault);
        }
    }
}

fn cannot_take(fault: &Fault) {
    tracing::error!(code = %fault.code, "cannot take the new name of this host: {fault}");
}

/// Shows numbers of the targets that the daemon serves.
struct InRegistry(Registry);

impl Shows for InRegistry {
    fn served(&self, service: &Service) {
        show(&self.0, service);
    }

    fn ended(&self, name: &str) {
        self.0.forget("target", name);
    }
}

fn show(registry: &Registry, service: &Service) {
    match service {
        Service::Mgs(handle) => metrics::mgs(registry, handle),
        Service::Mds(handle) => metrics::mds(registry, handle),
        // The primary shows the metrics of the MDT.
        Service::MdsFollower(_) => {}
        Service::Oss(handle) => metrics::oss(registry, handle),
    }
}

/// Locks the directories and starts what they hold, the MGT first, because the others ask it; then the daemon of this host.
async fn start_all(options: &Options, registry: &Registry, ready_json: bool) -> Result<Served> {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let identity = identity::find(options.identity.as_deref())?;
    let modes = identity::modes(options.security, identity.is_some())?;
    let host = host_name(options, identity.as_deref())?;
    let daemon_lock = match &identity {
        Some(identity) if options.assigned => Some(daemon_lock(conf_of(identity.path()))?),
        _ => None,
    };
    let security = identity::security(identity.clone(), modes, identity::Process::Server);
    let mut found = Vec::new();
    for dir in &options.dir {
        found.push(LockedTarget::lock(dir, &seams)?);
    }
    found.sort_by_key(|f| f.superblock.target);
    if let Some(identity) = &identity {
        take_from_file(identity, options.refuse.as_deref(), &security.removed)?;
    }
    let (removed, control_security) = (security.removed.clone(), security.clone());
    // A local socket proves a user, and no key: certificates are renewed over TCP.
    let over_tcp = TcpTransport::new(seams.clone()).over_tcp_only().secured(security.clone());
    let fence = options.fence.clone().map(Program::new).transpose()?;
    let how = How {
        fence: fence.map(|program| Arc::new(program) as Arc<dyn Fence>),
        failback_after_ms: options.failback_after.map(|s| s.saturating_mul(1000)),
        lease: None,
        seat: None,
        // Hosts that want to join ask the MGS.
        mgs_transport: Arc::new(
            TcpTransport::new(seams.clone()).secured(Security { admits_strangers: true, ..security.clone() }),
        ),
        transport: Arc::new(TcpTransport::new(seams.clone()).secured(security)),
        seams,
        host,
        listen: options.listen.clone(),
        advertise: options.advertise.clone(),
        high_water_percent: options.high_water,
        room_wait_ms: options.room_wait.saturating_mul(1000),
        divide_above_bytes: options.hsm_divide_above,
        fair_share: options.fair_share,
        read_cache: options.read_cache,
    };
    let mgs_of_targets = found.iter().map(|f| f.superblock.mgs.clone()).find(|mgs| !mgs.is_empty());
    let mut cluster = match &identity {
        Some(identity) => Some(OfTheCluster::new(identity, mgs_of_targets, (removed, Arc::new(over_tcp)))?),
        None => None,
    };
    if let Some(cluster) = &mut cluster {
        // Before anybody is let in.
        cluster.follow(&how, None)?;
    }
    let starting = Starting { how: &how, port: options.port, registry, ready_json };
    let (running, targets) = starting.all(found, cluster.as_mut()).await?;
    registered(&running).await?;
    let naming = cluster.as_ref().filter(|_| options.assigned).map(|cluster| Naming {
        seams: how.seams.clone(),
        identity: cluster.identity.clone(),
        over_tcp: cluster.over_tcp.clone(),
        mgs: cluster.nids.clone(),
    });
    let mut threads = None;
    let daemon = match cluster.filter(|_| options.assigned) {
        Some(cluster) => {
            let (daemon, control) = cluster.daemon(registry, how, control_security)?;
            threads = Some(control);
            Some(daemon)
        }
        None if options.assigned => return Err(no_cluster()),
        None => None,
    };
    Ok(Served { running, targets, daemon, naming, _control: threads, _daemon_lock: daemon_lock })
}

/// How targets are started.
struct Starting<'a> {
    how: &'a How,
    /// Port of the first one; 0 for any free one for each.
    port: u16,
    registry: &'a Registry,
    ready_json: bool,
}

impl Starting<'_> {
    /// Starts what directories hold, in their order.
    async fn all(
        &self,
        found: Vec<LockedTarget>,
        mut cluster: Option<&mut OfTheCluster>,
    ) -> Result<(Vec<Running>, Vec<ServedTarget>)> {
        let (mut running, mut targets) = (Vec::new(), Vec::new());
        for (n, found) in (0..).zip(found) {
            let port = if self.port == 0 { 0 } else { self.port.saturating_add(n) };
            let service = patient(service::start(self.how, &found, port), &found, self.ready_json).await?;
            if let (Service::Mgs(_), Some(cluster)) = (&service, &mut cluster) {
                cluster.follow(self.how, Some(service.nid()))?;
            }
            show(self.registry, &service);
            targets.push(ServedTarget {
                name: found.superblock.name(),
                nid: service.nid().to_string(),
                dir: found.dir.clone(),
            });
            running.push(Running { service, _lock: found.lock });
        }
        Ok((running, targets))
    }
}

/// Takes in who was removed and what hosts may do, as far as it is on file.
fn take_from_file(identity: &IdentityFile, refuse: Option<&Path>, removed: &RemovedKeys) -> Result<()> {
    removed.replace(access::on_file(identity.path())?);
    if let Some(file) = refuse {
        removed.refuse(access::removed_in(file)?);
    }
    match access::nodemaps_on_file(identity.path())? {
        Some(nodemaps) => removed.nodemaps.replace(&nodemaps),
        None => removed.nodemaps.wait_for_first(),
    }
    Ok(())
}

/// A host has one daemon.
fn daemon_lock(conf: &Path) -> Result<DirLock> {
    let busy = Fault::new(Code::TargetBusy).what("the daemon of this host runs already:");
    DirLock::take(conf, busy.subject(conf.display().to_string()))
}

/// The cluster that this host belongs to, as this process knows it.
struct OfTheCluster {
    identity: Arc<IdentityFile>,
    file: Option<ClusterFile>,
    /// Addresses of the MGS; empty where only a target of this process may tell them.
    nids: Vec<Nid>,
    removed: Arc<RemovedKeys>,
    over_tcp: Arc<dyn Transport>,
    /// The way to the MGS, once it is followed.
    mgs: Option<Arc<Directory>>,
}

impl OfTheCluster {
    fn new(
        identity: &Arc<IdentityFile>,
        mgs_of_targets: Option<Vec<Nid>>,
        (removed, over_tcp): (Arc<RemovedKeys>, Arc<dyn Transport>),
    ) -> Result<OfTheCluster> {
        let file = ClusterFile::read(conf_of(identity.path()))?;
        let nids = file.as_ref().map_or(Ok(mgs_of_targets.unwrap_or_default()), ClusterFile::nids)?;
        Ok(OfTheCluster { identity: identity.clone(), file, nids, removed, over_tcp, mgs: None })
    }

    /// Begins to follow who is let in and what hosts may do, and to keep the certificate, as soon as an address of the MGS is known: `own` is that of an
    /// MGS in this process.
    fn follow(&mut self, how: &How, own: Option<Nid>) -> Result<()> {
        if self.nids.is_empty() {
            self.nids.extend(own);
        }
        if self.nids.is_empty() || self.mgs.is_some() {
            return Ok(());
        }
        let path = self.identity.path().to_owned();
        let introduction = access::introduction(&self.identity)?;
        let fs = self.file.as_ref().map(|file| file.fs.clone());
        let seams = how.seams.clone();
        let mgs = access::mgs(&seams, how.transport.clone(), introduction.clone(), self.nids.clone(), fs)?;
        if let Some(file) = self.file.clone() {
            tokio::spawn(file.follow_mgs(conf_of(&path).to_owned(), mgs.clone()));
        }
        let removed = self.removed.clone();
        tokio::spawn(access::follow_removed(seams.clone(), mgs.clone(), path.clone(), removed.clone()));
        tokio::spawn(access::follow_nodemaps(seams.clone(), mgs.clone(), path, removed));
        let (own, over_tcp, to) = (seams.clone(), self.over_tcp.clone(), self.nids.clone());
        let way = move || access::mgs(&own, over_tcp.clone(), introduction.clone(), to.clone(), None);
        tokio::spawn(access::keep_certificate(seams, way, self.identity.clone()));
        self.mgs = Some(mgs);
        Ok(())
    }

    /// Starts the daemon of this host.
    fn daemon(
        self,
        registry: &Registry,
        how: How,
        security: Security,
    ) -> Result<(Arc<Daemon>, ControlThreads)> {
        let (Some(file), Some(mgs)) = (self.file, self.mgs) else { return Err(no_cluster()) };
        let threads = ControlThreads::new()?;
        let seams = threads.seams();
        let transport = Arc::new(TcpTransport::new(seams.clone()).secured(security));
        let introduction = access::introduction(&self.identity)?;
        let own = access::mgs(&seams, transport, introduction, self.nids, Some(file.fs.clone()))?;
        let control = Control { seams, mgs: own };
        let shows = Arc::new(InRegistry(registry.clone()));
        Ok((Daemon::start(how, (mgs, control), file.fs, shows), threads))
    }
}

/// Threads of the daemon that no target runs on: they go on where those that serve targets wait for a disk that hangs.
struct ControlThreads(Option<tokio::runtime::Runtime>);

impl ControlThreads {
    fn new() -> Result<ControlThreads> {
        let built = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("daemon")
            .enable_all()
            .build();
        let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
        Ok(ControlThreads(Some(runtime)))
    }

    fn seams(&self) -> Seams {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        brindle_stdx::real::seams(runtime.handle().clone())
    }
}

impl Drop for ControlThreads {
    fn drop(&mut self) {
        // A runtime must not be waited for in another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn no_cluster() -> Fault {
    Fault::new(Code::NotEnrolled)
        .what("cannot serve what the cluster assigns to this host")
        .why("this host has not joined a cluster")
}

/// Name of this host: its identity has it, if there is one.
fn host_name(options: &Options, identity: Option<&IdentityFile>) -> Result<String> {
    let Some(identity) = identity else {
        return Ok(options.host.clone().unwrap_or_else(brindle_host::name));
    };
    let proven = identity.host()?;
    match &options.host {
        Some(host) if *host != proven => Err(Fault::new(Code::BadArgument)
            .what("cannot use the host name")
            .subject(host.clone())
            .why(format!("the identity of this host says '{proven}'"))
            .next("leave --host out")),
        _ => Ok(proven),
    }
}

/// Waits until the MGS knows the servers, if it answers at all: users that are told that a server is ready
/// mean to use it. Fails if the MGS refuses one.
async fn registered(running: &[Running]) -> Result<()> {
    if running.is_empty() {
        return Ok(());
    }
    let all = join_all(running.iter().map(|r| r.service.until_registered()));
    let refused = select_all(running.iter().map(|r| Box::pin(r.service.until_failed())));
    tokio::select! {
        biased;
        // Whether in time or not.
        _ = tokio::time::timeout(REGISTERED_WITHIN, all) => Ok(()),
        (fault, ..) = refused => Err(fault),
    }
}

/// Waits for a service to start; tells whoever waits for this process when that takes long, because a target may wait
/// for other servers.
async fn patient(
    starting: impl Future<Output = Result<Service>>,
    found: &LockedTarget,
    ready_json: bool,
) -> Result<Service> {
    let mut starting = std::pin::pin!(starting);
    if let Ok(started) = tokio::time::timeout(WAITING_AFTER, &mut starting).await {
        return started;
    }
    tracing::info!(target_name = %found.superblock.name(), "waits for other servers");
    if ready_json {
        say(&Said::<()>::Waiting);
    }
    starting.await
}

/// Completes when this process is asked to end, or to start anew, or when one of the targets of its options can no longer serve, or when its host
/// has left the cluster: then all end, because whoever supervises the process starts them again, and the others lose nothing by it.
async fn wait(served: &Served, stop: impl Future<Output = ()>) -> Result<End> {
    type Failure<'a> = std::pin::Pin<Box<dyn Future<Output = Fault> + 'a>>;
    let of_targets = served.running.iter().map(|r| Box::pin(r.service.until_failed()) as Failure<'_>);
    let of_daemon = served.daemon.iter().map(|daemon| Box::pin(daemon.until_failed()) as Failure<'_>);
    let never = std::iter::once(Box::pin(std::future::pending()) as Failure<'_>);
    let restart = async {
        match &served.daemon {
            Some(daemon) => daemon.until_restart().await,
            None => std::future::pending().await,
        }
    };
    let renamed = async {
        match &served.daemon {
            Some(daemon) => daemon.until_renamed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop => Ok(End::Stop),
        () = restart => {
            tracing::info!("an administrator has this host start anew");
            Ok(End::Restart)
        }
        () = renamed => {
            tracing::info!("an administrator has given this host another name");
            Ok(End::Renamed)
        }
        (fault, ..) = select_all(of_targets.chain(of_daemon).chain(never)) => Err(fault),
    }
}

/// Completes at SIGTERM or SIGINT. The handlers are in place when this returns.
pub fn stop_signal() -> Result<impl Future<Output = ()>> {
    let handler = |kind| signal(kind).map_err(|e| Fault::io(Code::Bug, "cannot catch signals", "", &e));
    let (mut term, mut int) = (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Listens for whoever wants numbers; `none` for nowhere.
pub async fn endpoint(metrics: &str, registry: &Registry, health: Health) -> Result<Option<Endpoint>> {
    if metrics == "none" {
        return Ok(None);
    }
    let address: SocketAddr = metrics.parse().map_err(|_| {
        Fault::new(Code::BadArgument)
            .what("cannot serve metrics at")
            .subject(metrics.to_owned())
            .why("it is not an address such as 127.0.0.1:9881, nor 'none'")
    })?;
    Ok(Some(Endpoint::bind(address, registry.clone(), health).await?))
}

/// Raises the limit of open files to the system's maximum: an OST keeps many objects open.
pub fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::info!(error = %e, "the limit of open files stays as it is");
    }
}

/// Tells whoever waits for it that everything is served: JSON on standard output, a word to systemd.
fn announce(ready_json: bool, announcement: &Serving) {
    if ready_json {
        say(&Said::Ready(announcement));
    }
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let sent = std::os::unix::net::UnixDatagram::unbound().and_then(|s| s.send_to(b"READY=1", &socket));
        if let Err(e) = sent {
            tracing::warn!(error = %e, "cannot tell systemd that the server is ready");
        }
    }
}
