//! `brindle dev up --hosts N --copies K`: a cluster with copies on bare hosts of this machine.
//!
//! The cluster is made with the commands that an administrator types on real machines
//! (docs/operations/install.md), each on its host: init, token and join, target add, mount. After a boot, a
//! host runs a script among its files ([`BOOT_SCRIPT`]), as an enabled unit would be.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brindle_host::cluster::Cluster;
use brindle_host::cluster::init::files_of;
use brindle_types::{Code, Fault, FsName, Result};

/// The script that a host runs when it boots, below its `/etc/brindle`.
const BOOT_SCRIPT: &str = "boot.sh";
/// Mount point of clients: in a directory that each host has for itself.
const MOUNT: &str = "/run/brindle/mnt";
/// Longest time until the MGS answers after its start, and the interval of the tries.
const MGS_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The cluster to be made.
pub struct Wanted {
    /// Hosts that serve, the first of them the MGS and the MDT.
    pub servers: usize,
    /// Hosts that mount.
    pub clients: usize,
    /// Copies of each OST.
    pub copies: usize,
    /// Name of the file system.
    pub fs: FsName,
}

/// A host of the cluster in a directory.
pub(super) struct On<'a> {
    /// The directory of the cluster.
    pub(super) dir: &'a Path,
    /// Name of the host.
    pub(super) host: String,
}

/// Refuses copies that need more hosts than there are.
pub fn check(servers: usize, copies: usize) -> Result<()> {
    if servers > copies {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot make a cluster with")
        .subject(format!("{copies} copies on {servers} hosts"))
        .why("each copy lies on a host of its own, and the first host has the MGS")
        .data("nothing was changed")
        .next(format!("give at least --hosts {}", copies + 1)))
}

/// Makes the cluster on bare hosts that run; `tell` hears of each step.
pub fn install(dir: &Path, wanted: &Wanted, tell: impl Fn(&str, &str)) -> Result<()> {
    let on = |host: String| On { dir, host };
    let first = on("h1".to_owned());
    first.brindle(&["cluster", "init", "--fs", wanted.fs.as_str()], "")?;
    first.enable(&serve_script()?)?;
    first.until_answered()?;
    tell("h1", "runs the MGS");
    for n in 2..=wanted.servers {
        let host = on(format!("h{n}"));
        host.join(&first, "server")?;
        host.enable(&serve_script()?)?;
    }
    let hosts: Vec<String> = (0..wanted.copies).map(|n| format!("h{}", 2 + n)).collect();
    first.add_target(&["--mdt", "--dir", "/var/lib/brindle/mdt0"], &hosts)?;
    tell(&hosts[0], &format!("serves the MDT{}", with_copies(&hosts)));
    let osts = wanted.servers - 1;
    for n in 0..osts {
        let hosts: Vec<String> =
            (0..wanted.copies).map(|copy| format!("h{}", 2 + (n + copy) % osts)).collect();
        first.add_target(&["--dir", &format!("/var/lib/brindle/ost{n}")], &hosts)?;
        tell(&hosts[0], &format!("serves OST{n:04x}{}", with_copies(&hosts)));
    }
    for n in wanted.servers + 1..=wanted.servers + wanted.clients {
        let host = on(format!("h{n}"));
        host.join(&first, "client")?;
        host.enable(&mount_script(&wanted.fs)?)?;
        tell(&host.host, &format!("mounted at {}", host.link()?.display()));
    }
    Ok(())
}

/// Has a host that has just booted run what it runs; one on which nothing was installed runs nothing.
pub fn boot(dir: &Path, host: &str) -> Result<()> {
    let on = On { dir, host: host.to_owned() };
    if on.script_file().exists() { on.run_script() } else { Ok(()) }
}

fn with_copies(hosts: &[String]) -> String {
    if hosts.len() > 1 { format!(", with copies on {}", hosts[1..].join(", ")) } else { String::new() }
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Fault::io(Code::Bug, "cannot find the path of", "this program", &e))
}

fn serve_script() -> Result<String> {
    let program = program()?;
    let serve = format!("'{}' serve --log /var/lib/brindle/serve.log", program.display());
    Ok(format!("setsid {serve} < /dev/null > /dev/null 2>&1 &\n"))
}

fn mount_script(fs: &FsName) -> Result<String> {
    let mount = format!("'{}' mount --log /var/lib/brindle/mount.log h1:/{fs} {MOUNT}", program()?.display());
    Ok(format!("mkdir -p {MOUNT} && {mount}\n"))
}

impl On<'_> {
    /// A command of this program on the host; what it prints.
    pub(super) fn brindle(&self, words: &[&str], input: &str) -> Result<String> {
        let program = program()?;
        let program = program.to_string_lossy();
        let all: Vec<&str> = std::iter::once(&*program).chain(words.iter().copied()).collect();
        self.run(&all, input)
    }

    /// Adds a target with a copy on each of these hosts.
    fn add_target(&self, what: &[&str], hosts: &[String]) -> Result<()> {
        let copies = hosts.len().to_string();
        let mut words = [&["target", "add"], what].concat();
        words.extend(["--copies", &copies].into_iter().filter(|_| hosts.len() > 1));
        hosts.iter().for_each(|host| words.extend(["--node", host]));
        self.brindle(&words, "").map(drop)
    }

    /// A command on the host; what it prints.
    pub(super) fn run(&self, words: &[&str], input: &str) -> Result<String> {
        let failed = |why: String| {
            Fault::new(Code::CommandFailed)
                .what("a command failed on the host")
                .subject(format!("{}: {}", self.host, words[1..].join(" ")))
                .why(why)
                .next(format!(
                    "look at it: brindle dev host run --dir {} {} -- bash",
                    self.dir.display(),
                    self.host
                ))
        };
        let io = |e: std::io::Error| failed(e.to_string());
        let mut command = Command::new(program()?);
        command.args(["dev", "host", "run", "--dir"]).arg(self.dir).args([&self.host, "--"]).args(words);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().map_err(io)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that ends without reading says why by itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(io)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(failed(text(&output.stderr))),
        }
    }

    /// Lets the host join with a token of the first one.
    pub(super) fn join(&self, first: &On, role: &str) -> Result<()> {
        let token = first.brindle(&["cluster", "token", "--role", role, "--host", &self.host], "")?;
        self.brindle(&["join"], &token).map(drop)
    }

    /// Waits until the MGS on this host answers.
    pub(super) fn until_answered(&self) -> Result<()> {
        let since = Instant::now();
        loop {
            match self.brindle(&["node", "list"], "") {
                Ok(_) => return Ok(()),
                Err(fault) if since.elapsed() > MGS_WITHIN => return Err(fault),
                Err(_) => std::thread::sleep(ASK_EVERY),
            }
        }
    }

    fn script_file(&self) -> PathBuf {
        files_of(self.dir, &self.host).join("etc").join(BOOT_SCRIPT)
    }

    /// Has the host run this now and after each boot.
    pub(super) fn enable(&self, script: &str) -> Result<()> {
        self.enable_later(script)?;
        self.run_script()
    }

    /// Has the host run this after each boot.
    pub(super) fn enable_later(&self, script: &str) -> Result<()> {
        let file = self.script_file();
        fs::write(&file, script)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", file.display().to_string(), &e))
    }

    fn run_script(&self) -> Result<()> {
        self.run(&["sh", &format!("/etc/brindle/{BOOT_SCRIPT}")], "")?;
        if fs::read_to_string(self.script_file()).is_ok_and(|script| script.contains(MOUNT)) {
            self.link()?;
        }
        Ok(())
    }

    /// A way to the mount of the host from outside, which follows its present init.
    fn link(&self) -> Result<PathBuf> {
        let link = self.dir.join("mnt").join(&self.host);
        let cannot =
            |e: std::io::Error| Fault::io(Code::NotWritable, "cannot make", link.display().to_string(), &e);
        let cluster = Cluster::load(self.dir)?;
        let host = cluster.hosts.iter().find(|host| host.name == self.host);
        let init = host.and_then(|host| host.init.as_ref()).map_or(0, |run| run.identity.pid);
        fs::create_dir_all(self.dir.join("mnt")).map_err(cannot)?;
        match fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(e)),
            _ => {}
        }
        std::os::unix::fs::symlink(format!("/proc/{init}/root{MOUNT}"), &link).map_err(cannot)?;
        Ok(link)
    }
}
