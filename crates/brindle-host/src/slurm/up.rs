//! The start of the private Slurm.

use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use brindle_bb::pool::GRANULE_DEFAULT_BYTES;
use brindle_types::{Code, Fault, Result};

use super::conf::{self, Daemon, Daemons, Plugin};
use super::{Places, Tell, down, packages};
use crate::bb::protocol::{self, Request};
use crate::bb::{POOL_DEFAULT, make_dir};
use crate::process::Starting;
use crate::system::{run, run_for_output};
use crate::{Host, mounts, need_root, requirements};

/// Bricks of the pool.
const BRICKS: u64 = 2;
/// Longest time until the nodes are idle.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Longest time until the orchestrator has started.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the key of munge.
const KEY_BYTES: usize = 128;
/// Packages, for advice.
const PACKAGES: &str = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge";

/// Cluster to start.
#[derive(Clone, Debug)]
pub struct Up {
    /// Number of nodes.
    pub nodes: u8,
    /// Size of the pool of bricks.
    pub pool_bytes: u64,
    /// Slurm's plug-in.
    pub plugin: Plugin,
}

/// Starts a cluster in a new or empty directory. Where that fails, what was started ends again; logs stay.
pub fn up(host: &Host, places: &Places, wanted: &Up, tell: Tell) -> Result<()> {
    prepare(places, tell)?;
    match start(host, places, wanted, tell) {
        Ok(()) => Ok(()),
        Err(fault) => {
            if let Err(second) = down::end(host, places, tell) {
                tracing::warn!(fault = %second, "something of the cluster is left");
            }
            Err(fault)
        }
    }
}

/// Refuses a machine that cannot mount, and a directory in which there is something already; installs what is missing.
pub fn prepare(places: &Places, tell: Tell) -> Result<()> {
    need_root("cannot start Slurm")?;
    requirements::check()?;
    refuse_used(&places.dir)?;
    packages::install(tell)
}

fn refuse_used(dir: &Path) -> Result<()> {
    let used = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if !used {
        return Ok(());
    }
    let (why, next) = if dir.join("etc/slurm.conf").exists() {
        (
            "a Slurm cluster is there already",
            format!("end it: brindle dev slurm down --dir {}", dir.display()),
        )
    } else {
        ("it is not empty", "give an empty or a new directory".to_owned())
    };
    Err(Fault::new(Code::ClusterExists)
        .what("cannot start Slurm in")
        .subject(dir.display().to_string())
        .why(why)
        .data("nothing was changed")
        .next(next))
}

fn start(host: &Host, places: &Places, wanted: &Up, tell: Tell) -> Result<()> {
    let names: Vec<String> = (0..usize::from(wanted.nodes)).map(conf::node).collect();
    make_local_dirs(places, &names)?;
    let here = |port| Daemon { host: crate::name(), address: Ipv4Addr::LOCALHOST, port };
    let controller = here(free_port()?);
    let nodes = names.iter().map(|_| free_port().map(here)).collect::<Result<_>>()?;
    make_files(host, places, &Daemons { controller, nodes }, wanted.plugin)?;
    // Later mounts in the nodes' directories appear in the nodes' namespaces.
    let nodes = places.nodes();
    run(Command::new("mount").arg("--bind").arg(&nodes).arg(&nodes), "mount")?;
    run(Command::new("mount").arg("--make-shared").arg(&nodes), "mount")?;
    start_orchestrator(host, places, wanted.pool_bytes)?;
    tell(&format!("orchestrator of burst buffers at {}", places.socket().display()));
    run(Command::new("munged").args(munged_options(places)), PACKAGES)?;
    let mut controller = Command::new("slurmctld");
    controller.arg("-f").arg(places.conf()).current_dir(&places.dir).env("SLURM_CONF", places.conf());
    controller.env(protocol::SOCKET_VARIABLE, places.socket());
    controller.env("BRINDLE_DACCTL", places.dacctl());
    run(&mut controller, PACKAGES)?;
    tell("slurmctld runs");
    for name in &names {
        start_node(places, name)?;
    }
    wait_idle(places, names.len())?;
    tell(&format!("{} nodes are idle", names.len()));
    Ok(())
}

/// slurmd in a mount namespace of its own.
fn start_node(places: &Places, name: &str) -> Result<()> {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        "mount --bind \"$1\" \"$2\" && exec slurmd -f \"$3\" -N \"$4\"",
        "sh",
    ]);
    command.arg(places.nodes().join(name)).arg(places.mount_root()).arg(places.conf()).arg(name);
    run(command.current_dir(&places.dir).env("SLURM_CONF", places.conf()), PACKAGES)
}

/// The options of munged.
pub fn munged_options(places: &Places) -> Vec<String> {
    let run_dir = places.dir.join("run");
    let files = [("socket", "munge.sock"), ("pid-file", "munge.pid"), ("seed-file", "munge.seed")];
    let mut options = vec![format!("--key-file={}", places.key().display())];
    options.extend(files.map(|(option, file)| format!("--{option}={}", run_dir.join(file).display())));
    options.push(format!("--log-file={}", places.log("munge").display()));
    options
}

/// Directories that a cluster has which is on this machine alone.
fn make_local_dirs(places: &Places, names: &[String]) -> Result<()> {
    for name in ["mnt", "nodes", "bb"] {
        make_dir(&places.dir.join(name))?;
    }
    names.iter().try_for_each(|name| make_dir(&places.nodes().join(name)))?;
    (0..BRICKS).try_for_each(|n| make_dir(&places.dir.join(format!("brick{n}"))))
}

/// Makes the files that Slurm reads, and the directories that it writes to.
pub fn make_files(host: &Host, places: &Places, daemons: &Daemons, plugin: Plugin) -> Result<()> {
    for name in ["", "etc", "run", "log", "state", "spool", "bin"] {
        make_dir(&places.dir.join(name))?;
    }
    for index in 0..daemons.nodes.len() {
        make_dir(&places.dir.join("spool").join(conf::node(index)))?;
    }
    let cannot = |path: &Path, e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), e)
    };
    // Users pass through on their way to their buffers.
    let passable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&places.dir, passable).map_err(|e| cannot(&places.dir, &e))?;
    write_key(&places.key()).map_err(|e| cannot(&places.key(), &e))?;
    let text = conf::slurm_conf(places, daemons, plugin);
    std::fs::write(places.conf(), text).map_err(|e| cannot(&places.conf(), &e))?;
    let bb_conf = places.dir.join("etc/burst_buffer.conf");
    std::fs::write(&bb_conf, conf::burst_buffer_conf(places, plugin)).map_err(|e| cannot(&bb_conf, &e))?;
    if plugin == Plugin::Lua {
        let lua = places.dir.join("etc/burst_buffer.lua");
        std::fs::write(&lua, conf::LUA).map_err(|e| cannot(&lua, &e))?;
    }
    symlink(&host.program, places.dacctl()).map_err(|e| cannot(&places.dacctl(), &e))
}

fn write_key(path: &Path) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let mut key = [0; KEY_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(&key)
}

/// A port that nobody has now.
fn free_port() -> Result<u16> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(|e| Fault::io(Code::AddressInUse, "cannot find a free port", "127.0.0.1", &e))
}

fn start_orchestrator(host: &Host, places: &Places, pool_bytes: u64) -> Result<()> {
    let config = places.bb();
    let arguments = vec![
        "bb".to_owned(),
        "serve".to_owned(),
        "--ready-json".to_owned(),
        format!("--dir={}", config.dir.display()),
        format!("--socket={}", places.socket().display()),
        format!("--mount-root={}", config.mount_root.display()),
        format!("--nodes-dir={}", places.nodes().display()),
        format!("--log={}", places.log("bb").display()),
    ];
    let starting = Starting::spawn(&host.program, "the orchestrator", &arguments, &places.log("bb"))?;
    starting.ready::<()>(READY_LIMIT)?;
    let each = pool_bytes / BRICKS / GRANULE_DEFAULT_BYTES * GRANULE_DEFAULT_BYTES;
    for n in 0..BRICKS {
        let name = format!("brick{n}");
        let dir = places.dir.join(&name).display().to_string();
        let add = Request::AddBrick { pool: POOL_DEFAULT.to_owned(), name, dir, bytes: each, node: None };
        protocol::ask(&places.socket(), &add, Duration::ZERO)?;
    }
    Ok(())
}

/// Waits until all nodes are idle.
pub fn wait_idle(places: &Places, nodes: usize) -> Result<()> {
    let deadline = Instant::now() + IDLE_LIMIT;
    loop {
        let mut sinfo = Command::new("sinfo");
        sinfo.args(["-h", "-N", "-o", "%T"]).env("SLURM_CONF", places.conf());
        let said = run_for_output(&mut sinfo, PACKAGES, &[0, 1])?;
        if said.lines().filter(|line| *line == "idle").count() == nodes {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Fault::new(Code::ProcessFailed)
                .what("the nodes of Slurm are not idle after")
                .subject(format!("{} s", IDLE_LIMIT.as_secs()))
                .why(format!("sinfo says: {}", said.trim().replace('\n', ", ")))
                .next(format!("read the logs in {}", places.dir.join("log").display())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether something is mounted below a directory.
pub fn anything_mounted(dir: &Path) -> Option<String> {
    mounts::all()
        .into_iter()
        .find(|line| line.mount_point.starts_with(dir))
        .map(|line| line.mount_point.display().to_string())
}
