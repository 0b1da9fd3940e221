//! A real S3 server, SeaweedFS, as a process of its own: started on free ports with one bucket, killed,
//! started again. Tests look at objects of the bucket, and damage them, behind its back, through its filer.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The bucket.
pub const BUCKET: &str = "arch";
/// The user.
pub const ACCESS_KEY: &str = "tester";
/// Secret key of the user, which must not appear anywhere.
pub const SECRET_KEY: &str = "hG5-secret-of-the-tester";
/// Longest time until it serves, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// Interval at which the server is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time of one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
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
/// The first port that is tried.
const PORT_FIRST: u16 = 12_000;
const FILER: usize = 4;
const S3: usize = 6;

/// The server.
pub struct Server {
    dir: PathBuf,
    ports: Vec<u16>,
    process: Option<Child>,
}

/// The program: as `cargo xtask test` has installed it, or the system's.
pub fn program() -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/seaweedfs/bin/weed");
    match std::env::var_os("BRINDLE_S3_SERVER") {
        Some(path) => path.into(),
        None if installed.exists() => installed,
        None => "weed".into(),
    }
}

/// Ports beside each other that nobody listens on, below those that the kernel gives to connections: so none of these takes one meanwhile.
fn free_ports() -> Vec<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel tells");
    let end: u16 = range.split_whitespace().next().and_then(|low| low.parse().ok()).expect("a number");
    let count = PORTS.len() as u16;
    let blocks = (end.saturating_sub(PORT_FIRST) / count).max(1);
    let first = std::process::id() % u32::from(blocks);
    let starts = (0..blocks).map(|n| PORT_FIRST + (first as u16 + n) % blocks * count);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = starts.into_iter().find(|start| (*start..start + count).all(is_free));
    let start = start.expect("free ports");
    (start..start + count).collect()
}

impl Server {
    /// Starts one with its data in a directory, and makes the bucket.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn start(dir: &Path) -> Server {
        fs::create_dir_all(dir).expect("a directory of our own");
        let users = format!(
            r#"{{"identities": [{{"name": "tester", "actions": ["Admin", "Read", "Write", "List"],
                "credentials": [{{"accessKey": "{ACCESS_KEY}", "secretKey": "{SECRET_KEY}"}}]}}]}}"#
        );
        fs::write(dir.join("users.json"), users).expect("written");
        let mut server = Server { dir: dir.to_owned(), ports: free_ports(), process: None };
        server.start_again();
        server
    }

    /// Starts it where it was, after [`Server::kill`].
    ///
    /// # Panics
    /// When it does not serve.
    pub fn start_again(&mut self) {
        let log = fs::File::create(self.dir.join("log")).expect("written");
        let mut command = Command::new(program());
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.iam=false"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]);
        command.args(["-volume.max=8", "-master.volumeSizeLimitMB=128", "-volume.minFreeSpace=0"]);
        command.arg("-master.electionTimeout=1s");
        command.arg(format!("-dir={}", self.dir.display()));
        command.arg(format!("-s3.config={}", self.dir.join("users.json").display()));
        command.args(PORTS.iter().zip(&self.ports).map(|(name, port)| format!("{name}={port}")));
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let started = command.spawn();
        self.process = Some(started.unwrap_or_else(|e| {
            panic!("no S3 server ({}): {e}; 'cargo xtask test faults' installs one", program().display())
        }));
        let since = Instant::now();
        while !self.serves() {
            let log = self.dir.join("log");
            let ended =
                self.process.as_mut().and_then(|process| process.try_wait().expect("a child of ours"));
            if ended.is_some() || since.elapsed() > READY_WITHIN {
                let said = fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = said.lines().rev().take(30).collect();
                panic!(
                    "the S3 server does not serve ({ended:?}), its log from the end:\n{}",
                    lines.join("\n")
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it answers, and takes objects.
    fn serves(&self) -> bool {
        // To somebody without a key.
        let answers = self.ask(S3, "GET", "/", &[]).is_some_and(|(status, _)| status == 403);
        let bucket = format!("/buckets/{BUCKET}");
        // 409: it is there already.
        let has_bucket = |status: u16| status < 300 || status == 409;
        answers
            && self
                .ask(FILER, "POST", &format!("{bucket}/"), &[])
                .is_some_and(|(status, _)| has_bucket(status))
            && self
                .ask(FILER, "PUT", &format!("{bucket}/ready"), b"x")
                .is_some_and(|(status, _)| status < 300)
            && self.ask(FILER, "GET", &format!("{bucket}/ready"), &[]).is_some_and(|(_, body)| body == b"x")
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The process may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[S3])
    }

    /// Writes a file with keys, that nobody else may read.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn credentials(&self, name: &str, secret: &str) -> PathBuf {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.dir.join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).expect("made");
        writeln!(file, "[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {secret}")
            .expect("written");
        path
    }

    /// Arguments of an agent whose archive is in the bucket.
    pub fn arguments(&self, credentials: &Path) -> Vec<String> {
        vec![
            format!("--backend=s3://{BUCKET}/tests"),
            format!("--s3-endpoint={}", self.endpoint()),
            format!("--s3-credentials={}", credentials.display()),
        ]
    }

    /// Sends an HTTP request; `None` where no server answers.
    fn ask(&self, port: usize, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[port])).ok()?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
        // 1.0: the answer ends with the connection, and comes in one piece.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
        let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
        Some((status, answer.split_off(end + 4)))
    }

    fn done(&self, method: &str, key: &str, body: &[u8]) -> Vec<u8> {
        let answer = self.ask(FILER, method, &format!("/buckets/{BUCKET}/{key}"), body);
        let (status, body) = answer.unwrap_or_else(|| panic!("{method} {key}: no answer"));
        assert!(status < 300, "{method} {key}: {status}");
        body
    }

    /// Contents of an object.
    pub fn get(&self, key: &str) -> Vec<u8> {
        self.done("GET", key, &[])
    }

    /// Puts other contents in the place of an object, as damage would.
    pub fn put(&self, key: &str, body: &[u8]) {
        self.done("PUT", key, body);
    }

    /// Removes an object.
    pub fn delete(&self, key: &str) {
        self.done("DELETE", key, &[]);
    }

    /// Keys of all objects that are complete, in order.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        self.list(&format!("/buckets/{BUCKET}"), &mut keys);
        keys.retain(|key| key != "ready");
        keys.sort();
        keys
    }

    fn list(&self, dir: &str, keys: &mut Vec<String>) {
        let answer = self.ask(FILER, "GET", &format!("{dir}/?limit=1000"), &[]);
        let (status, body) = answer.unwrap_or_else(|| panic!("{dir}: no answer"));
        assert_eq!(status, 200, "{dir}");
        let listed: Value = serde_json::from_slice(&body).expect("JSON");
        for entry in listed["Entries"].as_array().into_iter().flatten() {
            let path = entry["FullPath"].as_str().expect("a path");
            let is_dir = entry["Mode"].as_u64().expect("a mode") & 1 << 31 != 0;
            match path.strip_prefix(&format!("/buckets/{BUCKET}/")) {
                // Uploads that are under way.
                Some(key) if key.starts_with(".uploads") => {}
                Some(key) if !is_dir => keys.push(key.to_owned()),
                _ => self.list(path, keys),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
