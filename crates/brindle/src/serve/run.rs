//! From directories to running services, and back.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brindle_config::{Expected, Superblock};
use brindle_host::announcement::{ServedTarget, Serving};
use brindle_host::identity::{self, IdentityFile};
use brindle_host::process::Said;
use brindle_host::target_dir::DirLock;
use brindle_net::{TcpTransport, Transport};
use brindle_stdx::Seams;
use brindle_telemetry::http::Health;
use brindle_telemetry::{Endpoint, Registry, log, panic};
use brindle_types::{Code, Fault, Nid, Result, Role};
use futures_util::future::{join_all, select_all};
use tokio::signal::unix::{SignalKind, signal};

use super::options::{self, Args, Options};
use super::{metrics, numa};
use crate::cli;
use crate::cpu_latency;
use crate::exit::Done;
use crate::output::print_line;

/// A target that is not served after this time waits for other servers, and says so.
const WAITING_AFTER: Duration = Duration::from_secs(2);
/// How long a server that listens may take to be known to the MGS until it counts as ready without it, because it is away.
const REGISTERED_WITHIN: Duration = Duration::from_secs(1);

/// A target's directory, locked and known.
struct Found {
    dir: String,
    superblock: Superblock,
    lock: DirLock,
}

/// A running target; its directory stays locked as long.
struct Running {
    service: Service,
    _lock: DirLock,
}

/// A running service.
enum Service {
    Mgs(Arc<brindle_mgs::Handle>),
    Mds(Arc<brindle_mds::Handle>),
    Oss(Arc<brindle_oss::Handle>),
}

/// Runs `brindle serve`.
pub fn run(args: Args) -> Result<Done> {
    let command_line: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let options = options::effective(&args, &command_line)?;
    if options.dir.is_empty() {
        return Err(Fault::new(Code::BadArgument)
            .what("nothing to serve")
            .why("no directory of a target was given")
            .next("add --dir DIR, or 'dir' in the configuration file"));
    }
    start_log(options.log.as_deref())?;
    panic::install("brindle serve".to_owned(), panic::After::Abort);
    if let Some(node) = options.numa_node {
        // Before there are other threads: they inherit it.
        numa::pin(node)?;
    }
    raise_limits();
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.workers)
        .thread_name("serve")
        .enable_all()
        .build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(serve(&options, args.ready_json));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, options.log.is_some());
    }
    outcome
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

async fn serve(options: &Options, ready_json: bool) -> Result<Done> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "brindle serve starts");
    tracing::info!(options = %options.line(), "effective configuration");
    let mut stop = std::pin::pin!(stop_signal()?);
    let serving = Arc::new(AtomicBool::new(false));
    let registry = Registry::new("process");
    metrics::process(&registry);
    let endpoint = endpoint(&options.metrics, &registry, health(&serving)).await?;
    let metrics_url = endpoint.as_ref().map(Endpoint::url).unwrap_or_default();
    if let Some(endpoint) = endpoint {
        tokio::spawn(endpoint.run());
    }
    let starting = start_all(options, &registry, ready_json);
    let (running, targets) = tokio::select! {
        biased;
        () = &mut stop => {
            tracing::info!("asked to end before everything was served");
            return Ok(Done::Ok);
        }
        started = starting => started?,
    };
    for t in &targets {
        tracing::info!(target_name = %t.name, nid = %t.nid, dir = %t.dir, metrics = %metrics_url, "serving");
    }
    serving.store(true, Ordering::Relaxed);
    cpu_latency::watch(options.cpu_latency);
    announce(ready_json, &Serving { targets, metrics_url });
    let failed = wait(&running, stop).await;
    serving.store(false, Ordering::Relaxed);
    tracing::info!("stopping");
    for target in running.into_iter().rev() {
        target.service.stop().await?;
    }
    tracing::info!("stopped");
    failed.map_or(Ok(Done::Ok), Err)
}

/// Healthy while everything is served.
fn health(serving: &Arc<AtomicBool>) -> Health {
    let serving = serving.clone();
    Arc::new(move || match serving.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("starting or stopping".to_owned()),
    })
}

/// Locks the directories and starts what they hold: the MGT first, because the others ask it.
async fn start_all(
    options: &Options,
    registry: &Registry,
    ready_json: bool,
) -> Result<(Vec<Running>, Vec<ServedTarget>)> {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let identity = identity::find(options.identity.as_deref())?;
    let mode = identity::mode(options.security, identity.is_some())?;
    let host = host_name(options, identity.as_deref())?;
    let security = identity::security(identity, mode, identity::Process::Server);
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(seams.clone()).secured(security));
    let mut found = find(options, &seams)?;
    found.sort_by_key(|f| f.superblock.target);
    let (mut running, mut targets) = (Vec::new(), Vec::new());
    for (n, found) in found.into_iter().enumerate() {
        let starting = start((options, &host), n as u16, &found, &seams, &transport);
        let service = patient(starting, &found, ready_json).await?;
        service.show(registry);
        targets.push(ServedTarget {
            name: found.superblock.name(),
            nid: service.nid().to_string(),
            dir: found.dir.clone(),
        });
        running.push(Running { service, _lock: found.lock });
    }
    registered(&running).await?;
    Ok((running, targets))
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

/// Who is told that a server is ready means to use it: the MGS knows it then, if it answers at all. Fails if it refuses one.
async fn registered(running: &[Running]) -> Result<()> {
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
    found: &Found,
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

/// Completes when this process is asked to end, or when one of its targets can no longer serve: then all end, because
/// whoever supervises the process starts them again, and the others lose nothing by it.
async fn wait(running: &[Running], stop: impl Future<Output = ()>) -> Option<Fault> {
    let failures = running.iter().map(|r| Box::pin(r.service.until_failed()));
    tokio::select! {
        biased;
        () = stop => None,
        (fault, ..) = select_all(failures) => Some(fault),
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

/// Locks each directory and reads what it is.
fn find(options: &Options, seams: &Seams) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for dir in &options.dir {
        found.push(find_one(dir, seams)?);
    }
    Ok(found)
}

fn find_one(dir: &Path, seams: &Seams) -> Result<Found> {
    let text = cli::text(dir)?;
    if !dir.is_dir() {
        return Err(Fault::new(Code::NotATarget)
            .what("cannot serve")
            .subject(text)
            .why("there is no such directory"));
    }
    // Nothing is written, not even a lock, where no target is: it may be the mount point of a disk that is not mounted.
    Superblock::load(&*seams.disk, &text, &Expected::default())?;
    let lock = DirLock::target(dir)?;
    let loaded = Superblock::load(&*seams.disk, &text, &Expected::default())?;
    let mut superblock = loaded.superblock;
    if let Some(warning) = loaded.warning {
        log::fault(tracing::Level::WARN, &warning);
        superblock.save(&*seams.disk, &text)?;
    }
    Ok(Found { dir: text, superblock, lock })
}

async fn start(
    (options, host): (&Options, &str),
    n: u16,
    found: &Found,
    seams: &Seams,
    transport: &Arc<dyn Transport>,
) -> Result<Service> {
    let port = if options.port == 0 { 0 } else { options.port.saturating_add(n) };
    let listen = Nid { host: options.listen.clone(), port, rail: 0 };
    let started = match found.superblock.target.role {
        Role::Mgt => {
            let mut config = brindle_mgs::Config::new(found.dir.clone(), listen.clone(), host);
            config.advertise = advertised(options, &listen)?;
            let handle = brindle_mgs::start(config, seams.clone(), transport.clone()).await;
            handle.map(|h| Service::Mgs(Arc::new(h)))
        }
        Role::Mdt => {
            let mut config = brindle_mds::Config::new(found.dir.clone(), listen.clone(), host);
            config.high_water_percent = options.high_water;
            config.advertise = advertised(options, &listen)?;
            let handle = brindle_mds::start(config, seams.clone(), transport.clone()).await;
            handle.map(|h| Service::Mds(Arc::new(h)))
        }
        Role::Ost => {
            let mut config = brindle_oss::Config::new(found.dir.clone(), listen.clone(), host);
            config.advertise = advertised(options, &listen)?;
            let handle = brindle_oss::start(config, seams.clone(), transport.clone()).await;
            handle.map(|h| Service::Oss(Arc::new(h)))
        }
    };
    started.map_err(|fault| crate::cluster::name_listener(fault, &listen))
}

/// Addresses to register, where they are not the one that is listened at.
fn advertised(options: &Options, listen: &Nid) -> Result<Vec<Nid>> {
    let everywhere = matches!(listen.host.as_str(), "0.0.0.0" | "::");
    let host = options.advertise.clone().or_else(|| everywhere.then(brindle_host::name));
    let Some(host) = host else { return Ok(Vec::new()) };
    if listen.port == 0 {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot tell others the address of")
            .subject(format!("port {}", options.port))
            .why("any free port is taken, and 'advertise' needs a fixed one")
            .next("give --port N"));
    }
    Ok(vec![Nid { host, ..listen.clone() }])
}

/// As many open files as the system allows: an OST keeps many objects open.
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

impl Service {
    fn nid(&self) -> Nid {
        match self {
            Service::Mgs(handle) => handle.local_nid().clone(),
            Service::Mds(handle) => handle.local_nid().clone(),
            Service::Oss(handle) => handle.local_nid().clone(),
        }
    }

    fn show(&self, registry: &Registry) {
        match self {
            Service::Mgs(handle) => metrics::mgs(registry, handle),
            Service::Mds(handle) => metrics::mds(registry, handle),
            Service::Oss(handle) => metrics::oss(registry, handle),
        }
    }

    /// Stops it; its store is synced and closed.
    async fn stop(self) -> Result<()> {
        match self {
            Service::Mgs(handle) => {
                handle.stop();
                Ok(())
            }
            Service::Mds(handle) => {
                handle.stop();
                handle.mdt().engine().close().await
            }
            Service::Oss(handle) => {
                handle.stop();
                handle.oss().store.close().await
            }
        }
    }

    /// Completes when the MGS knows it.
    async fn until_registered(&self) {
        match self {
            Service::Mgs(_) => {}
            Service::Mds(handle) => handle.until_registered().await,
            Service::Oss(handle) => handle.until_registered().await,
        }
    }

    /// Completes when it can no longer serve, with the reason.
    async fn until_failed(&self) -> Fault {
        match self {
            Service::Mgs(_) => std::future::pending().await,
            Service::Mds(handle) => handle.until_failed().await,
            Service::Oss(handle) => handle.until_failed().await,
        }
    }
}
