//! The S3 server of a development cluster: SeaweedFS on ports of 127.0.0.1, with one bucket, as a child of this process.
//!
//! The server's directory holds the data, the ports that it had at first, and the keys of its only user, which are made there.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_stdx::cast::{len_u16, low_u16};
use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;

use crate::process::Identity;

/// Name of the server among the processes of a cluster.
pub const S3: &str = "s3";
/// The bucket.
pub const BUCKET: &str = "archive";
/// The file with the keys of its user, in the form that agents read.
pub const CREDENTIALS: &str = "credentials";

/// Name of the program in the search path.
const PROGRAM: &str = "weed";
/// The program, where the set-up of the source tree has put it: from the directory of our own.
const OF_THE_TREE: &str = "../tools/seaweedfs/bin/weed";
/// Environment variable with the path of a program elsewhere.
const PROGRAM_VARIABLE: &str = "BRINDLE_S3_SERVER";
/// Longest time until it serves, on a busy machine; shorter than whoever has started this process waits.
const READY_WITHIN: Duration = Duration::from_secs(50);
/// Interval of the checks whether the server serves.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time of one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Longest answer that is read: none that is of interest has a body.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

const PORTS: [&str; 8] = [
    "-master.port",
    "-master.port.grpc",
    "-volume.port",
    "-volume.port.grpc",
    "-filer.port",
    "-filer.port.grpc",
    "-s3.port",
    "-s3.port.grpc",
];
const FILER: usize = 4;
const S3_PORT: usize = 6;
/// The first port that is tried.
const PORT_FIRST: u16 = 12_000;

/// The running server. The process ends with this value, and with the thread that started it.
pub struct S3Server {
    child: Child,
    ports: Vec<u16>,
}

/// The program of the server.
pub fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().ok();
    let of_the_tree = own.as_deref().and_then(Path::parent).map(|dir| dir.join(OF_THE_TREE));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM));
    of_the_tree.into_iter().chain(installed).find(|path| path.is_file()).ok_or_else(|| {
        Fault::new(Code::NotFound)
            .what("cannot start an S3 server:")
            .subject(PROGRAM)
            .why("SeaweedFS is not installed: it is neither in PATH nor in target/tools of the source tree")
            .data("nothing was changed")
            .next(format!(
                "in the source tree: cargo xtask setup s3; or install SeaweedFS; or name the program in {PROGRAM_VARIABLE}; \
                 or take a directory as archive: --archive DIR"
            ))
    })
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), e)
}

/// A file that is its owner's alone, written once.
fn secret_file(path: &Path, content: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(content.as_bytes())).map_err(|e| cannot_write(path, &e))
}

/// The keys: made at the first start.
fn make_keys(dir: &Path) -> Result<()> {
    let (credentials, users) = (dir.join(CREDENTIALS), dir.join("users.json"));
    if credentials.exists() && users.exists() {
        return Ok(());
    }
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Fault::io(Code::Bug, "cannot read", "/dev/urandom", &e))?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let listed = serde_json::json!({"identities": [{
        "name": "agent",
        "actions": ["Admin", "Read", "Write", "List"],
        "credentials": [{"accessKey": "agent", "secretKey": secret}],
    }]});
    secret_file(&users, &listed.to_string())?;
    secret_file(
        &credentials,
        &format!("[default]\naws_access_key_id = agent\naws_secret_access_key = {secret}\n"),
    )
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Ports beside each other that nobody listens on, below those that the kernel gives to connections: so none of these takes one meanwhile.
fn free_ports() -> Result<Vec<u16>> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end: u16 = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768);
    let count = len_u16(PORTS.len());
    let blocks = (end.saturating_sub(PORT_FIRST) / count).max(1);
    let first = low_u16(std::process::id().into()) % blocks;
    let mut starts = (0..blocks).map(|n| PORT_FIRST + (first + n) % blocks * count);
    let start = starts.find(|start| (*start..start + count).all(is_free)).ok_or_else(|| {
        Fault::new(Code::ProcessFailed)
            .what("cannot start an S3 server")
            .why(format!("no {count} ports beside each other are free"))
    })?;
    Ok((start..start + count).collect())
}

/// The ports of before: the server knows its own parts by them.
fn ports(dir: &Path) -> Result<Vec<u16>> {
    let file = dir.join("ports.json");
    let known = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Vec<u16>>(&bytes).ok());
    if let Some(ports) = known.filter(|ports| ports.len() == PORTS.len()) {
        return Ok(ports);
    }
    let ports = free_ports()?;
    fs::write(&file, serde_json::json!(ports).to_string()).map_err(|e| cannot_write(&file, &e))?;
    Ok(ports)
}

impl S3Server {
    /// Starts the server with its data in a directory, and makes the bucket. Messages of the server go to the end of a log.
    pub fn start(dir: &Path, log: &Path) -> Result<S3Server> {
        let program = program()?;
        fs::create_dir_all(dir).map_err(|e| cannot_write(dir, &e))?;
        make_keys(dir)?;
        let ports = ports(dir)?;
        let opened = fs::OpenOptions::new().create(true).append(true).open(log);
        let log_file = opened.map_err(|e| cannot_write(log, &e))?;
        let mut command = Command::new(&program);
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.iam=false"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]);
        command.args(["-volume.max=64", "-master.volumeSizeLimitMB=256", "-volume.minFreeSpace=0"]);
        command.arg("-master.electionTimeout=1s");
        command.arg(format!("-dir={}", dir.display()));
        command.arg(format!("-s3.config={}", dir.join("users.json").display()));
        command.args(PORTS.iter().zip(&ports).map(|(name, port)| format!("{name}={port}")));
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        // SAFETY: prctl is async-signal-safe, and touches no memory.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let started = command.spawn();
        let child = started
            .map_err(|e| Fault::io(Code::ProcessFailed, "cannot start", program.display().to_string(), &e))?;
        let mut server = S3Server { child, ports };
        let since = Instant::now();
        while !server.serves() {
            let ended = server.child.try_wait().ok().flatten();
            let why = match ended {
                Some(status) => format!("it ended: {status}"),
                None if since.elapsed() > READY_WITHIN => {
                    format!("it did not serve after {} s", READY_WITHIN.as_secs())
                }
                None => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
            };
            return Err(Fault::new(Code::ProcessFailed)
                .what("cannot start the S3 server")
                .subject(program.display().to_string())
                .why(why)
                .next(format!("read {}", log.display())));
        }
        Ok(server)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[S3_PORT])
    }

    /// Process of the server.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.child.id())
    }

    /// Whether it answers, and its bucket takes objects.
    fn serves(&self) -> bool {
        let is_done = |port, method, path: &str, body: &[u8]| {
            // 409: the bucket is there already.
            self.ask(port, method, path, body).is_some_and(|status| status < 300 || status == 409)
        };
        let (bucket, probe) = (format!("/buckets/{BUCKET}/"), format!("/buckets/{BUCKET}/.ready"));
        // To somebody without a key.
        self.ask(S3_PORT, "GET", "/", &[]) == Some(403)
            && is_done(FILER, "POST", &bucket, &[])
            && is_done(FILER, "PUT", &probe, b"x")
            && is_done(FILER, "DELETE", &probe, &[])
    }

    /// The status of the answer to one HTTP request; `None` where nobody answers.
    fn ask(&self, port: usize, method: &str, path: &str, body: &[u8]) -> Option<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[port])).ok()?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
        let head =
            format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).ok()?;
        std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(identity) = self.identity() {
            identity.signal(Signal::TERM);
            identity.wait_end(END_WITHIN);
        }
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
