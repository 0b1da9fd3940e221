//! A process of the cluster: starting it, killing it.

use std::path::Path;
use std::time::Duration;

use brindle_types::{Code, Fault, Result, TargetId};
use rustix::process::Signal;

use super::state::{Cluster, Mount, Run, Server, alive, lock, port_of_url};
use super::{NameArgs, image};
use crate::admin::ask::Asker;
use crate::admin::place::Place;
use crate::exit::Done;
use crate::mount;
use crate::nearest::nearest;
use crate::process::Starting;
use crate::serve::Announcement;

/// How long a process may take until it is usable.
pub const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A started server that is not ready yet.
pub struct StartingServer {
    starting: Starting,
    /// Its place in the cluster's list.
    index: usize,
}

/// A started mount that is not ready yet.
pub struct StartingMount {
    starting: Starting,
    /// Its place in the cluster's list.
    index: usize,
}

/// Starts a server at the port that it had, or at any free one.
pub fn spawn_server(cluster: &Cluster, index: usize) -> Result<StartingServer> {
    let server = &cluster.servers[index];
    if let Some(image) = &server.image {
        image::attach(image, &server.dir)?;
    }
    let arguments = server_arguments(server);
    Ok(StartingServer { starting: Starting::spawn(&server.name, &arguments, &server.log)?, index })
}

fn server_arguments(server: &Server) -> Vec<String> {
    let port = free_or_any(server.port);
    let metrics = free_or_any(server.metrics_port);
    vec![
        "serve".to_owned(),
        "--ready-json".to_owned(),
        format!("--dir={}", server.dir.display()),
        "--listen=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--metrics=127.0.0.1:{metrics}"),
        format!("--log={}", server.log.display()),
    ]
}

/// The port if nobody has it now; otherwise 0 for any. A restarted server is found at its old address at once.
fn free_or_any(port: u16) -> u16 {
    if port != 0 && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() { port } else { 0 }
}

/// Waits until a server is ready and records it.
pub fn server_ready(cluster: &mut Cluster, started: StartingServer) -> Result<()> {
    server_ready_or_waiting(cluster, started, false).map(|_| ())
}

/// The same; with `or_waiting` a server that waits for others is good enough (then `false`).
fn server_ready_or_waiting(cluster: &mut Cluster, started: StartingServer, or_waiting: bool) -> Result<bool> {
    let log = cluster.servers[started.index].log.clone();
    let ready = started.starting.ready_or_waiting(READY_LIMIT, or_waiting);
    let (identity, said): (_, Option<Announcement>) = ready.map_err(|f| with_log(f, &log))?;
    let server = &mut cluster.servers[started.index];
    let Some(said) = said else {
        // It listens where it did before, as soon as it does.
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

/// Starts a mount.
pub fn spawn_mount(cluster: &mut Cluster, index: usize) -> Result<StartingMount> {
    let mgs = cluster.mgs().ok_or_else(|| {
        Fault::new(Code::NoMgs).subject("mgs").next("start it first: brindle dev start mgs")
    })?;
    let source = format!("{}:{}:/{}", mgs.host, mgs.port, cluster.fs);
    let mount = &mut cluster.mounts[index];
    prepare_mount_point(mount)?;
    let metrics = free_or_any(mount.metrics_port);
    let arguments = [
        "mount".to_owned(),
        "--foreground".to_owned(),
        "--ready-json".to_owned(),
        format!("--metrics=127.0.0.1:{metrics}"),
        format!("--log={}", mount.log.display()),
        source,
        mount.mount_point.display().to_string(),
    ];
    Ok(StartingMount { starting: Starting::spawn(&mount.name, &arguments, &mount.log)?, index })
}

/// Makes the directory, and clears away what a killed daemon left.
fn prepare_mount_point(mount: &mut Mount) -> Result<()> {
    mount::free_mount_point(&mount.mount_point)?;
    if !mount.mount_point.exists() {
        let made = std::fs::create_dir_all(&mount.mount_point);
        made.map_err(|e| {
            Fault::io(Code::NotWritable, "cannot make", mount.mount_point.display().to_string(), &e)
        })?;
        mount.made_dir = true;
    }
    Ok(())
}

/// Waits until a mount is usable and records it.
pub fn mount_ready(cluster: &mut Cluster, started: StartingMount) -> Result<()> {
    let log = cluster.mounts[started.index].log.clone();
    let ready = started.starting.ready(READY_LIMIT);
    let (identity, said): (_, mount::Announcement) = ready.map_err(|f| with_log(f, &log))?;
    let mount = &mut cluster.mounts[started.index];
    mount.metrics_port = port_of_url(&said.metrics_url);
    mount.run = Some(Run { identity, addresses: Vec::new(), metrics_url: said.metrics_url });
    Ok(())
}

/// Names the log, where more may stand.
fn with_log(fault: Fault, log: &Path) -> Fault {
    if fault.code == Code::ProcessFailed { fault } else { fault.why(format!("its log: {}", log.display())) }
}

enum Named {
    Server(usize),
    Mount(usize),
}

fn named(cluster: &Cluster, name: &str) -> Result<Named> {
    if let Some(index) = cluster.servers.iter().position(|s| s.name == name) {
        return Ok(Named::Server(index));
    }
    if let Some(index) = cluster.mounts.iter().position(|m| m.name == name) {
        return Ok(Named::Mount(index));
    }
    let fault = Fault::new(Code::UnknownTarget).what("no such process").subject(name.to_owned());
    Err(match nearest(name, cluster.names()) {
        Some(near) => fault.next(format!("did you mean '{near}'? All names: {}", cluster.names().join(", "))),
        None => fault.next(format!("the names are: {}", cluster.names().join(", "))),
    })
}

/// Runs `brindle dev kill`.
pub fn kill(args: &NameArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    let cluster = Cluster::load(&dir)?;
    let run = match named(&cluster, &args.name)? {
        Named::Server(index) => &cluster.servers[index].run,
        Named::Mount(index) => &cluster.mounts[index].run,
    };
    let Some(run) = run.as_ref().filter(|r| r.identity.alive()) else {
        println!("{} does not run", args.name);
        return Ok(Done::Ok);
    };
    run.identity.try_signal(Signal::KILL).map_err(|e| {
        let code = if e.kind() == std::io::ErrorKind::PermissionDenied {
            Code::NeedsRoot
        } else {
            Code::ProcessFailed
        };
        Fault::io(code, "cannot kill", format!("{} (process {})", args.name, run.identity.pid), &e)
    })?;
    if !run.identity.wait_end(KILL_LIMIT) {
        return Err(Fault::new(Code::ProcessFailed)
            .what("cannot kill")
            .subject(format!("{} (process {})", args.name, run.identity.pid))
            .why(format!("it was sent SIGKILL and is there after {} s", KILL_LIMIT.as_secs())));
    }
    println!("{} killed (process {})", args.name, run.identity.pid);
    Ok(Done::Ok)
}

/// Runs `brindle dev start`.
pub fn start(args: &NameArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    Cluster::load(&dir)?;
    let _lock = lock(&dir)?;
    let mut cluster = Cluster::load(&dir)?;
    let place = named(&cluster, &args.name)?;
    let run = match place {
        Named::Server(index) => cluster.servers[index].run.as_ref(),
        Named::Mount(index) => cluster.mounts[index].run.as_ref(),
    };
    if let Some(run) = run.filter(|r| alive(Some(r))) {
        println!("{} runs already (process {})", args.name, run.identity.pid);
        return Ok(Done::Ok);
    }
    match place {
        Named::Server(index) => {
            let started = spawn_server(&cluster, index)?;
            if !server_ready_or_waiting(&mut cluster, started, true)? {
                eprintln!("{} runs, and waits for other servers", args.name);
            }
        }
        Named::Mount(index) => {
            let started = spawn_mount(&mut cluster, index)?;
            cluster.save(&dir)?;
            mount_ready(&mut cluster, started)?;
        }
    }
    cluster.save(&dir)?;
    println!("{} started", args.name);
    warn_of_moved_mgs(&cluster, place, &dir);
    Ok(Done::Ok)
}

/// Waits until the MDTs know the servers that there are now, so that what is made next may lie on a new one.
pub fn until_used(cluster: &Cluster, dir: &Path) -> Result<()> {
    let mgs: Vec<_> = cluster.mgs().into_iter().collect();
    let place = Place { mgs, fs: Some(cluster.fs.clone()), dev_dir: Some(dir.to_owned()) };
    crate::format::runtime()?.block_on(async {
        let asker = Asker::new();
        let map = asker.map(&place).await?;
        for name in asker.until_known(&map).await {
            eprintln!("warning: {name} does not know of it yet; it takes it in when it finds the MGS");
        }
        Ok(())
    })
}

/// Everybody knows the MGS by its address; another port means that nobody finds it.
fn warn_of_moved_mgs(cluster: &Cluster, place: Named, dir: &Path) {
    let Named::Server(index) = place else { return };
    let server = &cluster.servers[index];
    let told = cluster.mgs().map(|m| m.port);
    if server.target == TargetId::MGT && told != Some(server.port) {
        eprintln!(
            "warning: the MGS has another port now, so running servers and mounts do not find it\n  next: brindle dev down --dir {0}; brindle dev up --dir {0}",
            dir.display()
        );
    }
}
