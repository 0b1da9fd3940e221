//! The daemon of a mount: client below, kernel above, until somebody unmounts.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brindle_admin::place::Source;
use brindle_auth::Modes;
use brindle_client::{Client, MountConfig, Switches, control};
use brindle_fuse::{Ended, EventLoop, MountHandle, MountOptions, MountSettings};
use brindle_net::{TcpTransport, Transport};
use brindle_stdx::{Seams, Spawn};
use brindle_targets::Introduction;
use brindle_telemetry::{Registry, panic};
use brindle_types::{Code, Fault, Nid, Result};

use super::options::{Settings, source_text};
use super::subdir::Whole;
use crate::control::{make_run_dir, socket};
use crate::cpu_latency;
use crate::exit::Done;
use crate::locked_memory;
use crate::serve::{self, failed, metrics, raise_limits, start_log, stop_signal};
use brindle_host::announcement::Mounted;
use brindle_host::enrolment::{ClusterFile, conf_of};
use brindle_host::identity::IdentityFile;
use brindle_host::mounts;
use brindle_host::process::Said;
use brindle_host::{access, identity};

/// Longest time for the kernel to end the connection after the unmount; longer means that programs still use
/// it.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Longest time of the first look at the new mount.
const USABLE_LIMIT: Duration = Duration::from_secs(20);

/// Mounts and serves in this process.
pub fn run(settings: &Settings) -> Result<Done> {
    start_log(settings.log.as_deref())?;
    panic::install(format!("brindle mount {}", settings.mount_point.display()), panic::After::Abort);
    raise_limits();
    locked_memory::flush_without_recursion();
    if settings.lock_memory {
        locked_memory::lock()?;
    }
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.workers.into())
        .thread_name("client")
        .enable_all()
        .build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(serve(settings));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, settings.ready_json, settings.log.is_some());
    }
    outcome
}

async fn serve(settings: &Settings) -> Result<Done> {
    let source = settings.source_text();
    let at = settings.mount_point.display().to_string();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        source,
        at,
        "brindle mount starts"
    );
    let mut stop = std::pin::pin!(stop_signal()?);
    let registry = Registry::new("process");
    metrics::process(&registry);
    let endpoint = serve::endpoint(&settings.metrics, &registry, Arc::new(|| Ok(()))).await?;
    let metrics_url = endpoint.as_ref().map(|e| e.url()).unwrap_or_default();
    if let Some(endpoint) = endpoint {
        tokio::spawn(endpoint.run());
    }
    let event_loop = EventLoop::start()?;
    let joining = joining(settings);
    let client = tokio::select! {
        biased;
        () = &mut stop => return Ok(Done::Ok),
        connected = connect(&joining, event_loop.tasks()) => connected?,
    };
    metrics::client(&registry, &client);
    let handle = mount(settings, client.clone(), event_loop).await?;
    metrics::kernel(&registry, handle.client(), &handle.session().counts());
    cpu_latency::watch(settings.cpu_latency);
    let connection = handle.session().connection().unwrap_or(0);
    make_run_dir()?;
    let control_path = socket(connection);
    control::serve(client, &control_path).await?;
    let made = inode(&control_path);
    usable(&settings.mount_point).await?;
    tracing::info!(source, at, connection, metrics = metrics_url, "mounted");
    if settings.ready_json {
        serve::say(&Said::Ready(Mounted { mount: at, connection, metrics_url }));
    }
    let how = until_ended(handle, &settings.mount_point, stop).await;
    // The next mount of this number may have its socket there already: without it nobody could wait for its daemon.
    if inode(&control_path) == made {
        // The next mount of this number replaces the file anyway.
        let _ = std::fs::remove_file(&control_path);
    }
    tracing::info!(?how, "unmounted");
    match how {
        Ended::Failed(errno) => Err(Fault::io(
            Code::MountFailed,
            "the mount ended:",
            settings.mount_point.display().to_string(),
            &std::io::Error::from_raw_os_error(errno),
        )),
        _ => Ok(Done::Ok),
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

/// Settings that a client of a file system needs.
pub struct Connect<'a> {
    /// The file system.
    pub source: &'a Source,
    /// The host's identity, if another one than usual.
    pub identity: Option<&'a Path>,
    /// The weakest protection of frames, if another one than usual.
    pub security: Option<Modes>,
    /// Mechanisms that it does without.
    pub switches: Switches,
    /// Whether every write is durable when it is answered.
    pub sync: bool,
    /// Seconds after which what needs an unreachable OST fails; `None`: it waits.
    pub failout_s: Option<u32>,
    /// The mount point, or what takes its place, for people.
    pub mount: String,
    /// Whether it lives long: it renews the host's certificate and follows the addresses of the MGS, as long as the process.
    pub lives_long: bool,
}

fn joining(settings: &Settings) -> Connect<'_> {
    Connect {
        source: &settings.source,
        identity: settings.identity.as_deref(),
        security: settings.security,
        switches: settings.switches,
        sync: settings.sync,
        failout_s: settings.failout_s,
        mount: settings.mount_point.display().to_string(),
        lives_long: true,
    }
}

/// Makes a client; what the MDT sends is taken in by `mdt_tasks`.
pub async fn connect(settings: &Connect<'_>, mdt_tasks: Arc<dyn Spawn>) -> Result<Arc<Client>> {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let identity = identity::find(settings.identity)?;
    let modes = identity::modes(settings.security, identity.is_some())?;
    let host = identity.as_ref().map_or_else(|| Ok(brindle_host::name()), |identity| identity.host())?;
    let security = identity::security(identity.clone(), modes, identity::Process::Mount);
    let over_tcp = TcpTransport::new(seams.clone()).over_tcp_only().secured(security.clone());
    let tcp = TcpTransport::new(seams.clone()).secured(security);
    let tcp = if settings.switches.local_sockets { tcp } else { tcp.over_tcp_only() };
    let transport: Arc<dyn Transport> = Arc::new(tcp);
    let conf = identity.as_ref().map(|identity| conf_of(identity.path()).to_owned());
    let cluster = conf.as_deref().map(ClusterFile::read).transpose()?.flatten();
    let cluster = cluster.filter(|file| file.fs == settings.source.fs);
    let mut mgs = settings.source.mgs.clone();
    for nid in cluster.as_ref().map(ClusterFile::nids).transpose()?.unwrap_or_default() {
        // The host that was named may be the one that is down.
        if !mgs.contains(&nid) {
            mgs.push(nid);
        }
    }
    let config = MountConfig {
        mgs,
        fs: settings.source.fs.clone(),
        host,
        mount: settings.mount.clone(),
        switches: settings.switches,
        sync: settings.sync,
        failout_ms: settings.failout_s.map(|seconds| u64::from(seconds) * 1_000),
    };
    let refused = |fault: Fault| match fault.code {
        // The server that listens there is no MGS.
        Code::WrongTarget => fault.why.into_iter().fold(
            Fault::new(Code::NoMgs)
                .what("no MGS at the address in")
                .subject(source_text(settings.source))
                .next("name the MGS's address; brindle target list, on a server or another client, shows it"),
            Fault::why,
        ),
        Code::NoMgs if fault.next.is_empty() => fault.next(
            "on the MGS's host: systemctl status brindle-serve; and compare the address with the one given",
        ),
        _ => fault,
    };
    if let Some(identity) = identity.filter(|_| settings.lives_long) {
        keep(&seams, over_tcp, identity, &config.host, config.mgs.clone());
    }
    let client = Client::mount(config, seams, mdt_tasks, transport).await.map_err(refused)?;
    if let (Some(file), Some(conf)) = (cluster.filter(|_| settings.lives_long), conf) {
        tokio::spawn(file.follow_mgs(conf, client.targets().clone()));
    }
    Ok(client)
}

/// Renews the certificate of a host, as long as the process. A host that only mounts has no other daemon that does.
fn keep(seams: &Seams, over_tcp: TcpTransport, identity: Arc<IdentityFile>, host: &str, nids: Vec<Nid>) {
    let (own, introduction) = (seams.clone(), Introduction::client(host));
    // A local socket proves a user, and no key.
    let over_tcp: Arc<dyn Transport> = Arc::new(over_tcp);
    let way = move || access::mgs(&own, over_tcp.clone(), introduction.clone(), nids.clone(), None);
    tokio::spawn(access::keep_certificate(seams.clone(), way, identity));
}

/// Renews the certificate of this host, as long as the process, for one whose mounts live for a moment only. Without an identity there is
/// nothing to renew.
pub fn keep_certificate(mgs: Vec<Nid>) -> Result<()> {
    let Some(identity) = identity::find(None)? else { return Ok(()) };
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let modes = identity::modes(None, true)?;
    let security = identity::security(Some(identity.clone()), modes, identity::Process::Mount);
    let over_tcp = TcpTransport::new(seams.clone()).over_tcp_only().secured(security);
    let host = identity.host()?;
    keep(&seams, over_tcp, identity, &host, mgs);
    Ok(())
}

async fn mount(settings: &Settings, client: Arc<Client>, event_loop: EventLoop) -> Result<MountHandle> {
    let whole = if settings.source.subdir.is_empty() { None } else { Some(Whole::prepare()?) };
    let place = whole.as_ref().map_or(settings.mount_point.as_path(), Whole::at);
    let mut options = MountOptions::new(place, settings.source_text());
    options.read_only = settings.read_only;
    options.nodev = settings.nodev;
    options.nosuid = settings.nosuid;
    options.noatime = !settings.switches.access_times;
    options.noexec = settings.noexec;
    let mut mount = MountSettings::new(options, tokio::runtime::Handle::current(), event_loop);
    mount.job_from = settings.job_from.clone();
    mount.serve.event_loop_reads = settings.switches.event_loop;
    let outcome = brindle_fuse::mount(client.clone(), mount).await;
    let (subdir, mount_point) = (settings.source.subdir.clone(), settings.mount_point.clone());
    let placed = match (&outcome, whole) {
        (Ok(_), Some(whole)) => off_thread(move || whole.put(&subdir, &mount_point)).await,
        _ => Ok(()),
    };
    match (outcome, placed) {
        (Ok(handle), Ok(())) => Ok(handle),
        (Err(fault), _) | (_, Err(fault)) => {
            client.unmount().await;
            Err(fault)
        }
    }
}

/// Runs what waits for this very daemon without holding one of the threads that serve.
async fn off_thread(job: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let joined = tokio::task::spawn_blocking(job).await;
    joined.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())))
}

/// Looks at the root through the kernel, in a thread of its own, because it waits for this process.
async fn usable(at: &Path) -> Result<()> {
    let path = at.to_owned();
    let shown = at.display().to_string();
    let failed = |why: String| {
        Fault::new(Code::MountFailed).what("mounted, and not usable:").subject(shown.clone()).why(why)
    };
    let looking = tokio::task::spawn_blocking(move || std::fs::metadata(path));
    match tokio::time::timeout(USABLE_LIMIT, looking).await {
        Ok(Ok(Ok(_))) => Ok(()),
        Ok(Ok(Err(e))) => Err(failed(e.to_string())),
        Ok(Err(e)) => Err(failed(e.to_string())),
        Err(_) => Err(failed(format!("no answer in {} s", USABLE_LIMIT.as_secs()))),
    }
}

/// Serves until somebody unmounts, or until a signal asks this process to do so.
async fn until_ended(handle: MountHandle, at: &Path, stop: impl Future<Output = ()>) -> Ended {
    let asked = tokio::select! {
        biased;
        _ = handle.session().ended() => false,
        () = stop => true,
    };
    if asked {
        tracing::info!("asked to end; unmounting");
        if !leave(&handle, at).await {
            // The connection ends with this process; only the servers still have to be told.
            handle.client().unmount().await;
            return Ended::Aborted;
        }
    }
    handle.ended().await
}

/// Unmounts; programs that still use the mount lose it. (It may have been taken out of the tree already, with programs
/// still in it.) False: the connection is still there.
async fn leave(handle: &MountHandle, at: &Path) -> bool {
    let path = at.to_owned();
    let politely = off_thread(move || mounts::unmount(&path, false)).await;
    let ended = tokio::time::timeout(LEAVE_LIMIT, handle.session().ended());
    if politely.is_ok() && ended.await.is_ok() {
        return true;
    }
    tracing::warn!("programs use the mount; it is taken from them");
    let path = at.to_owned();
    let taken =
        off_thread(move || mounts::unmount(&path, true)).await.and_then(|()| handle.session().abort());
    if let Err(fault) = &taken {
        tracing::warn!(code = %fault.code, "{fault}");
    }
    taken.is_ok()
}
