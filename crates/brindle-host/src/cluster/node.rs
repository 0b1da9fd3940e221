//! A process of the cluster: starting it, killing it.

use std::path::Path;
use std::time::Duration;

use brindle_admin::nearest::nearest;
use brindle_auth::Mode;
use brindle_stdx::cast::len_u16;
use brindle_types::ids::DEFAULT_PORT;
use brindle_types::{Code, Fault, Nid, Result, TargetId};
use rustix::process::Signal;

use super::down::end_processes;
use super::s3::{BUCKET, CREDENTIALS, S3};
use super::security::identity_of;
use super::state::{AgentState, Cluster, MANAGER, Mount, Reach, Run, Server, alive, port_of_url};
use super::{On, bare, image};
use crate::announcement::{Mounted, Serving, Working};
use crate::process::Starting;
use crate::requirements::free_mount_point;

/// Longest time until a process is usable.
pub const READY_LIMIT: Duration = Duration::from_secs(60);
/// Longest time until a killed process is gone.
pub const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Where servers listen that nobody elsewhere reaches.
const LOOPBACK: &str = "127.0.0.1";
/// Where a host tells its numbers.
const HOST_METRICS_PORT: u16 = 9870;

/// A started server that is not ready yet.
pub struct StartingServer {
    starting: Starting,
    /// Index in the cluster's list of servers.
    index: usize,
}

/// A started mount that is not ready yet.
pub struct StartingMount {
    starting: Starting,
    /// Index in the cluster's list of mounts.
    index: usize,
}

/// Starts a server at the port that it had, or at any free one.
pub fn spawn_server(program: &Path, cluster: &Cluster, index: usize) -> Result<StartingServer> {
    let server = &cluster.servers[index];
    if let Some(image) = &server.image {
        image::attach(image, &server.dir)?;
    }
    let arguments = server_arguments(server, cluster.reach.as_ref());
    Ok(StartingServer { starting: Starting::spawn(program, &server.name, &arguments, &server.log)?, index })
}

fn server_arguments(server: &Server, reach: Option<&Reach>) -> Vec<String> {
    let address = reach.map_or(LOOPBACK, |reach| reach.address.as_str());
    let port = free_at(address, server.port);
    let metrics = free_or_any(server.metrics_port);
    let mut arguments = vec![
        "serve".to_owned(),
        "--ready-json".to_owned(),
        format!("--dir={}", server.dir.display()),
        format!("--listen={address}"),
        format!("--port={port}"),
        format!("--metrics=127.0.0.1:{metrics}"),
        format!("--log={}", server.log.display()),
    ];
    if server.room_wait_s > 0 {
        arguments.push(format!("--room-wait={}", server.room_wait_s));
    }
    if server.lock_memory {
        arguments.push("--lock-memory".to_owned());
    }
    if let Some(reach) = reach {
        arguments.extend([
            format!("--identity={}", reach.identity.display()),
            format!("--security={}", Mode::Auth),
            format!("--refuse={}", reach.refused.display()),
        ]);
    }
    arguments
}

/// The port if nobody has it now; otherwise 0 for any. A restarted server is found at its old address at once.
pub fn free_or_any(port: u16) -> u16 {
    free_at(LOOPBACK, port)
}

fn free_at(address: &str, port: u16) -> u16 {
    if port != 0 && std::net::TcpListener::bind((address, port)).is_ok() { port } else { 0 }
}

/// Waits until a server is ready and records it.
pub fn server_ready(cluster: &mut Cluster, started: StartingServer) -> Result<()> {
    server_ready_or_waiting(cluster, started, false).map(|_| ())
}

/// Like [`server_ready`]. With `or_waiting`, a server that waits for others is good enough (then `false`).
pub fn server_ready_or_waiting(
    cluster: &mut Cluster,
    started: StartingServer,
    or_waiting: bool,
) -> Result<bool> {
    let log = cluster.servers[started.index].log.clone();
    let ready = started.starting.ready_or_waiting(READY_LIMIT, or_waiting);
    let (identity, said): (_, Option<Serving>) = ready.map_err(|f| with_log(f, &log))?;
    let server = &mut cluster.servers[started.index];
    let Some(said) = said else {
        // The server will listen at its former addresses.
        let run = server.run.take();
        server.run = Some(Run { identity, ..run.unwrap_or_else(|| Run::of(identity)) });
        return Ok(false);
    };
    let addresses: Vec<String> = said.targets.into_iter().map(|t| t.nid).collect();
    let nid = addresses.first().and_then(|a| a.parse::<brindle_types::Nid>().ok());
    server.port = nid.map_or(server.port, |n| n.port);
    server.metrics_port = port_of_url(&said.metrics_url);
    server.run = Some(Run { identity, addresses, metrics_url: said.metrics_url });
    Ok(true)
}

/// The back end of an agent, as it is named to it.
pub fn backend(agent: &AgentState) -> String {
    match agent.in_bucket {
        true => format!("s3://{BUCKET}/dev"),
        false => format!("posix:{}", agent.archive.display()),
    }
}

/// Arguments of an agent, but for those that every process of its kind has.
fn agent_arguments(cluster: &Cluster, agent: &AgentState) -> Result<Vec<String>> {
    if let Some(file) = &agent.policy {
        example_policy(file)?;
        let state = format!("--state={}", agent.archive.display());
        return Ok(vec!["policy".to_owned(), "run".to_owned(), state, file.display().to_string()]);
    }
    let mut arguments = vec![
        "agent".to_owned(),
        format!("--archive={}", agent.number),
        format!("--backend={}", backend(agent)),
    ];
    if agent.in_bucket {
        let server = cluster.agents.iter().find(|agent| agent.name == S3);
        let run = server.and_then(|server| server.run.as_ref()).filter(|run| alive(Some(run)));
        let endpoint = run.and_then(|run| run.addresses.first()).ok_or_else(|| {
            Fault::new(Code::TargetDown)
                .what("the S3 server of the cluster does not run")
                .next(format!("start it first: brindle dev start {S3}"))
        })?;
        arguments.push(format!("--s3-endpoint={endpoint}"));
        arguments.push(format!("--s3-credentials={}", agent.archive.join(CREDENTIALS).display()));
    }
    Ok(arguments)
}

/// Starts the S3 server, and waits until it works.
fn start_s3(program: &Path, agent: &mut AgentState) -> Result<()> {
    let arguments = [
        "dev".to_owned(),
        "s3-server".to_owned(),
        "--ready-json".to_owned(),
        format!("--data={}", agent.archive.display()),
        format!("--log={}", agent.log.display()),
    ];
    let ready = Starting::spawn(program, &agent.name, &arguments, &agent.log)?.ready(READY_LIMIT);
    let (identity, said): (_, Working) = ready.map_err(|f| with_log(f, &agent.log))?;
    agent.run = Some(Run { addresses: vec![said.archive], ..Run::of(identity) });
    Ok(())
}

/// Starts an agent, and waits until it works.
pub fn start_agent(program: &Path, cluster: &mut Cluster, index: usize) -> Result<()> {
    if cluster.agents[index].name == S3 {
        return start_s3(program, &mut cluster.agents[index]);
    }
    let mgs = cluster.mgs().ok_or_else(|| {
        Fault::new(Code::NoMgs).subject("mgs").next("start it first: brindle dev start mgs")
    })?;
    let agent = &cluster.agents[index];
    std::fs::create_dir_all(&agent.archive)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", agent.archive.display().to_string(), &e))?;
    let log = format!("--log={}", agent.log.display());
    let mut arguments = agent_arguments(cluster, agent)?;
    arguments.extend(["--ready-json".to_owned(), log, format!("{}:{}:/{}", mgs.host, mgs.port, cluster.fs)]);
    let agent = &mut cluster.agents[index];
    let ready = Starting::spawn(program, &agent.name, &arguments, &agent.log)?.ready(READY_LIMIT);
    let (identity, _): (_, Working) = ready.map_err(|f| with_log(f, &agent.log))?;
    agent.run = Some(Run::of(identity));
    Ok(())
}

/// The policies of a new development cluster: those of Intel's paper on storage tiers.
const EXAMPLE_POLICY: &str = "\
# What this cluster archives and releases by itself (docs/operations/policies.md). Change it as you like: it is read again.
Migration_policies {
  policy default {
    condition {
      last_mod > 5min
    }
  }
}
Purge_trigger {
  trigger_on         = global_usage;
  high_threshold_pct = 66%;
  low_threshold_pct  = 33%;
  check_interval     = 5min;
}
";

/// Writes the example where there is no text yet.
fn example_policy(file: &Path) -> Result<()> {
    let cannot =
        |e: std::io::Error| Fault::io(Code::NotWritable, "cannot write", file.display().to_string(), &e);
    match file.try_exists().map_err(cannot)? {
        true => Ok(()),
        false => std::fs::write(file, EXAMPLE_POLICY).map_err(cannot),
    }
}

/// The addresses of the MGS as a mount is told them: one on each rail.
fn mgs_addresses(cluster: &Cluster, mgs: &Nid) -> String {
    let host = cluster.hosts.iter().find(|host| host.address.to_string() == mgs.host);
    let further = host.map(|host| cluster.addresses(host)).unwrap_or_default();
    let further = further.iter().skip(1).map(|address| format!(",{address}:{}", mgs.port));
    format!("{}:{}{}", mgs.host, mgs.port, further.collect::<String>())
}

/// Starts a mount.
pub fn spawn_mount(program: &Path, dir: &Path, cluster: &mut Cluster, index: usize) -> Result<StartingMount> {
    let mgs = cluster.mgs().ok_or_else(|| {
        Fault::new(Code::NoMgs).subject("mgs").next("start it first: brindle dev start mgs")
    })?;
    let source = format!("{}:/{}", mgs_addresses(cluster, &mgs), cluster.fs);
    let host = cluster.mounts[index].host.clone();
    let address = host.as_ref().and_then(|name| Some(cluster.host(name)?.address));
    let within = cluster.within(host.as_deref());
    let identity = host.as_ref().and_then(|name| identity_of(dir, cluster, name));
    let is_reached = cluster.reach.is_some();
    let (identity, security) = match &cluster.reach {
        Some(reach) => (Some(reach.identity.clone()), Mode::Auth),
        None => (identity, cluster.security),
    };
    let mount = &mut cluster.mounts[index];
    prepare_mount_point(mount)?;
    let metrics = match address {
        Some(address) => format!("{address}:{HOST_METRICS_PORT}"),
        None => format!("127.0.0.1:{}", free_or_any(mount.metrics_port)),
    };
    let mut arguments = vec![
        "mount".to_owned(),
        "--foreground".to_owned(),
        "--ready-json".to_owned(),
        format!("--metrics={metrics}"),
        format!("--log={}", mount.log.display()),
        source,
        mount.mount_point.display().to_string(),
    ];
    if is_reached {
        // Hosts elsewhere may put devices and set-user-id programs there.
        arguments.push("-onosuid,nodev".to_owned());
    }
    if let Some(identity) = identity {
        arguments.push(format!("--identity={}", identity.display()));
        arguments.push(format!("--security={security}"));
    }
    Ok(StartingMount {
        starting: Starting::spawn_within(within.as_ref(), program, &mount.name, &arguments, &mount.log)?,
        index,
    })
}

/// Makes the directory, and clears away what a killed daemon left.
fn prepare_mount_point(mount: &mut Mount) -> Result<()> {
    free_mount_point(&mount.mount_point)?;
    if !mount.mount_point.exists() {
        let made = std::fs::create_dir_all(&mount.mount_point);
        made.map_err(|e| {
            Fault::io(Code::NotWritable, "cannot make", mount.mount_point.display().to_string(), &e)
        })?;
        mount.made_dir = true;
    }
    Ok(())
}

/// A started process of a host that is not ready yet.
pub enum StartingHost {
    /// The process serves these servers of the cluster.
    Serves(Starting, Vec<usize>),
    /// The process is a mount.
    Mounts(StartingMount),
    /// A bare host: its place in the cluster's list.
    Boots(Starting, usize),
    /// The host has nothing to do yet.
    Idle,
}

/// Starts the process of a host: it serves all targets of the host, or mounts.
pub fn spawn_host(program: &Path, dir: &Path, cluster: &mut Cluster, index: usize) -> Result<StartingHost> {
    let host = cluster.hosts[index].clone();
    if host.bare {
        return Ok(StartingHost::Boots(bare::spawn(program, dir, cluster, index)?, index));
    }
    let mount = cluster.mounts.iter().position(|m| m.host.as_ref() == Some(&host.name));
    if let Some(mount) = mount {
        return spawn_mount(program, dir, cluster, mount).map(StartingHost::Mounts);
    }
    let is_here = |server: &Server| server.host.as_ref() == Some(&host.name);
    let here: Vec<usize> = (0..cluster.servers.len()).filter(|at| is_here(&cluster.servers[*at])).collect();
    if here.is_empty() {
        return Ok(StartingHost::Idle);
    }
    let mut arguments = vec!["serve".to_owned(), "--ready-json".to_owned()];
    for server in here.iter().map(|at| &cluster.servers[*at]) {
        if let Some(image) = &server.image {
            image::attach(image, &server.dir)?;
        }
        arguments.push(format!("--dir={}", server.dir.display()));
    }
    let listens: Vec<String> = cluster.addresses(&host).iter().map(ToString::to_string).collect();
    arguments.extend([
        format!("--listen={}", listens.join(",")),
        format!("--port={DEFAULT_PORT}"),
        format!("--metrics={}:{HOST_METRICS_PORT}", host.address),
        format!("--log={}", host.log.display()),
        format!("--security={}", cluster.security),
    ]);
    if let Some(identity) = identity_of(dir, cluster, &host.name) {
        arguments.push(format!("--identity={}", identity.display()));
    }
    let within = cluster.within(Some(&host.name));
    let starting = Starting::spawn_within(within.as_ref(), program, &host.name, &arguments, &host.log)?;
    Ok(StartingHost::Serves(starting, here))
}

/// Waits until the process of a host is ready (with `or_waiting`: or waits for other servers; then `false`), and records it.
pub fn host_ready(cluster: &mut Cluster, started: StartingHost, or_waiting: bool) -> Result<bool> {
    let (starting, here) = match started {
        StartingHost::Idle => return Ok(true),
        StartingHost::Boots(starting, index) => return bare::ready(cluster, index, starting).map(|()| true),
        StartingHost::Mounts(mount) => return mount_ready(cluster, mount).map(|()| true),
        StartingHost::Serves(starting, here) => (starting, here),
    };
    let log = here.first().map(|at| cluster.servers[*at].log.clone()).unwrap_or_default();
    let ready = starting.ready_or_waiting(READY_LIMIT, or_waiting);
    let (identity, said): (_, Option<Serving>) = ready.map_err(|f| with_log(f, &log))?;
    for (n, at) in here.into_iter().enumerate() {
        let server = &mut cluster.servers[at];
        let dir = server.dir.display().to_string();
        let served = said.as_ref().and_then(|said| said.targets.iter().find(|target| target.dir == dir));
        let before = server.run.take().unwrap_or_else(|| Run::of(identity));
        server.port = DEFAULT_PORT.saturating_add(len_u16(n));
        server.run = Some(Run {
            identity,
            addresses: served.map_or(before.addresses, |target| vec![target.nid.clone()]),
            metrics_url: said.as_ref().map_or(before.metrics_url, |said| said.metrics_url.clone()),
        });
    }
    Ok(said.is_some())
}

/// Waits until a mount is usable and records it.
pub fn mount_ready(cluster: &mut Cluster, started: StartingMount) -> Result<()> {
    let log = cluster.mounts[started.index].log.clone();
    let ready = started.starting.ready(READY_LIMIT);
    let (identity, said): (_, Mounted) = ready.map_err(|f| with_log(f, &log))?;
    let mount = &mut cluster.mounts[started.index];
    mount.metrics_port = port_of_url(&said.metrics_url);
    mount.run = Some(Run { identity, addresses: Vec::new(), metrics_url: said.metrics_url });
    Ok(())
}

/// Names the log, where more may stand.
pub fn with_log(fault: Fault, log: &Path) -> Fault {
    if fault.code == Code::ProcessFailed { fault } else { fault.why(format!("its log: {}", log.display())) }
}

enum Named {
    Server(usize),
    Mount(usize),
    Agent(usize),
    Manager,
}

impl Named {
    /// The process, as it was started last.
    fn run<'a>(&self, cluster: &'a Cluster) -> Option<&'a Run> {
        match self {
            Named::Server(index) => cluster.servers[*index].run.as_ref(),
            Named::Mount(index) => cluster.mounts[*index].run.as_ref(),
            Named::Agent(index) => cluster.agents[*index].run.as_ref(),
            Named::Manager => cluster.manager.as_ref()?.run.as_ref(),
        }
    }
}

fn named(cluster: &Cluster, name: &str) -> Result<Named> {
    if cluster.is_bare() {
        return Err(only_hosts(cluster, name));
    }
    if let Some(index) = cluster.servers.iter().position(|s| s.name == name) {
        return Ok(Named::Server(index));
    }
    if let Some(index) = cluster.mounts.iter().position(|m| m.name == name) {
        return Ok(Named::Mount(index));
    }
    if let Some(index) = cluster.agents.iter().position(|a| a.name == name) {
        return Ok(Named::Agent(index));
    }
    if name == MANAGER && cluster.manager.is_some() {
        return Ok(Named::Manager);
    }
    let fault = Fault::new(Code::UnknownTarget).what("no such process").subject(name.to_owned());
    Err(match nearest(name, cluster.names()) {
        Some(near) => fault.next(format!("did you mean '{near}'? All names: {}", cluster.names().join(", "))),
        None => fault.next(format!("the names are: {}", cluster.names().join(", "))),
    })
}

/// A bare cluster has no processes with names.
fn only_hosts(cluster: &Cluster, name: &str) -> Fault {
    let hosts: Vec<&str> = cluster.hosts.iter().map(|host| host.name.as_str()).collect();
    Fault::new(Code::UnknownTarget)
        .what("no such process")
        .subject(name.to_owned())
        .why(format!("the hosts of this cluster are bare: {}", hosts.join(", ")))
        .data("nothing was changed")
        .next("kill or start a host: brindle dev host --help")
}

/// The host that a process is on, unless it is this one.
fn host_of<'a>(cluster: &'a Cluster, place: &Named) -> Option<&'a str> {
    match place {
        Named::Server(index) => cluster.servers[*index].host.as_deref(),
        Named::Mount(index) => cluster.mounts[*index].host.as_deref(),
        Named::Agent(_) | Named::Manager => None,
    }
}

/// A process is its host's: it lives and dies with that.
fn on_a_host(name: &str, host: &str, verb: &str, dir: &Path) -> Fault {
    Fault::new(Code::BadArgument)
        .what("one process does all that a host does; alone it is not possible to")
        .subject(format!("{verb} {name}"))
        .why(format!("it is on the host {host}"))
        .data("nothing was changed")
        .next(match verb {
            // A host has no order to end but its power switch.
            "stop" => format!("brindle dev host kill --dir {} {host}", dir.display()),
            verb => format!("brindle dev host {verb} --dir {} {host}", dir.display()),
        })
}

/// A process that was to be killed.
pub enum Killed {
    /// The process does not run.
    DidNotRun,
    /// The process with this pid is gone.
    Now(u32),
}

/// A process that was to be started.
pub enum Started {
    /// The process with this pid runs already.
    Before(u32),
    /// The process runs. `waits`: it waits for other servers, before it is usable.
    Now {
        /// Whether it waits.
        waits: bool,
    },
}

impl On<'_> {
    /// Kills one of the processes (SIGKILL), as a crash would.
    pub fn kill(&self, name: &str) -> Result<Killed> {
        let cluster = Cluster::load(&self.dir)?;
        let place = named(&cluster, name)?;
        if let Some(host) = host_of(&cluster, &place) {
            return Err(on_a_host(name, host, "kill", &self.dir));
        }
        let run = place.run(&cluster).filter(|run| run.identity.alive());
        let Some(run) = run else { return Ok(Killed::DidNotRun) };
        let subject = format!("{name} (process {})", run.identity.pid);
        run.identity.try_signal(Signal::KILL).map_err(|e| {
            let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
            let code = if denied { Code::NeedsRoot } else { Code::ProcessFailed };
            Fault::io(code, "cannot kill", subject.clone(), &e)
        })?;
        if !run.identity.wait_end(KILL_LIMIT) {
            let why = format!("it was sent SIGKILL and is there after {} s", KILL_LIMIT.as_secs());
            return Err(Fault::new(Code::ProcessFailed).what("cannot kill").subject(subject).why(why));
        }
        Ok(Killed::Now(run.identity.pid))
    }

    /// Ends one of the processes in order (SIGTERM), as an administrator would; programs that need it wait.
    pub fn stop(&self, name: &str) -> Result<Killed> {
        Cluster::load(&self.dir)?;
        let _lock = self.lock()?;
        let cluster = Cluster::load(&self.dir)?;
        let place = named(&cluster, name)?;
        if let Some(host) = host_of(&cluster, &place) {
            return Err(on_a_host(name, host, "stop", &self.dir));
        }
        if let Named::Mount(index) = place {
            let at = cluster.mounts[index].mount_point.display();
            return Err(Fault::new(Code::BadArgument)
                .what("cannot stop a mount:")
                .subject(name.to_owned())
                .why("a mount ends when it is unmounted")
                .data("nothing was changed")
                .next(format!("umount {at}")));
        }
        let run = place.run(&cluster).filter(|run| run.identity.alive());
        let Some(run) = run else { return Ok(Killed::DidNotRun) };
        end_processes(self, std::iter::once((name, Some(run))))?;
        Ok(Killed::Now(run.identity.pid))
    }

    /// Starts one of the processes again.
    pub fn start(&self, name: &str) -> Result<Started> {
        Cluster::load(&self.dir)?;
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        let place = named(&cluster, name)?;
        if let Some(host) = host_of(&cluster, &place) {
            return Err(on_a_host(name, host, "start", &self.dir));
        }
        if let Some(run) = place.run(&cluster).filter(|run| alive(Some(run))) {
            return Ok(Started::Before(run.identity.pid));
        }
        let program = &self.host.program;
        let mut waits = false;
        match place {
            Named::Server(index) => {
                let started = spawn_server(program, &cluster, index)?;
                waits = !server_ready_or_waiting(&mut cluster, started, true)?;
            }
            Named::Mount(index) => {
                let started = spawn_mount(program, &self.dir, &mut cluster, index)?;
                cluster.save(&self.dir)?;
                mount_ready(&mut cluster, started)?;
            }
            Named::Agent(index) => start_agent(program, &mut cluster, index)?,
            Named::Manager => self.start_manager(&mut cluster)?,
        }
        cluster.save(&self.dir)?;
        self.warn_of_moved_mgs(&cluster, place);
        Ok(Started::Now { waits })
    }

    /// Waits until the MDTs know the servers that there are now, so that what is made next may lie on a new one.
    pub(super) fn until_used(&self, cluster: &Cluster) -> Result<()> {
        let servers = &self.host.servers;
        let not_told = self.host.wait(async {
            let (map, _) = servers.map(&self.place(cluster)).await?;
            Ok::<_, Fault>(servers.until_known(&map).await)
        })?;
        self.not_told(not_told);
        Ok(())
    }

    /// Warns if the MGS has moved to another port: all processes know the MGS by its address, and would not
    /// find it.
    fn warn_of_moved_mgs(&self, cluster: &Cluster, place: Named) {
        let Named::Server(index) = place else { return };
        let server = &cluster.servers[index];
        let told = cluster.mgs().map(|m| m.port);
        if server.target == TargetId::MGT && told != Some(server.port) {
            let dir = self.dir.display();
            self.warn(
                Fault::new(Code::NoMgs)
                    .what("the MGS has another port now, so running servers and mounts do not find it:")
                    .subject(server.name.clone())
                    .next(format!("brindle dev down --dir {dir}; brindle dev up --dir {dir}")),
            );
        }
    }
}
