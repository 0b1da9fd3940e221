//! Tests of output beside the data that cannot be written: logs on a full disk, and the output of commands.
//! A failed output never ends or delays the service, and does not count as a bug.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options, binary};

/// A small file system in memory, until it is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, size_bytes: u64) -> Tmpfs {
        let data = std::ffi::CString::new(format!("size={size_bytes}")).unwrap();
        let options = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", at, "tmpfs", options, Some(data.as_c_str())).unwrap();
        Tmpfs(at.to_owned())
    }

    /// Takes all the room.
    fn fill(&self) {
        let _full = fs::write(self.0.join("fill"), vec![0; 1 << 20]).unwrap_err();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The cluster's own end sweeps what is left.
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Lines of its log that a process could not write, as its metrics say.
fn lost_lines(address: &str) -> u64 {
    use std::io::Write;
    let host = address.trim_start_matches("http://").trim_end_matches("/metrics");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("brindle_process_log_lines_lost_total "));
    line.and_then(|number| number.parse::<f64>().ok()).unwrap_or_else(|| panic!("no such number: {answer}"))
        as u64
}

#[test]
fn logs_on_a_full_disk_end_and_delay_nobody() {
    let cluster = Cluster::up("logs", &Options { osts: 2, mounts: 1, ..Options::default() });
    cluster.down();
    let logs = cluster.processes()[0].log.parent().unwrap().to_owned();
    let disk = Tmpfs::mount(&logs, 256 << 10);
    disk.fill();
    // Every process starts, with a log that takes nothing.
    cluster.up_again();
    let path = cluster.a().join("file");
    let data = bytes(1, 3 << 20);
    fs::write(&path, &data).unwrap();
    // Each of these is told in the logs of all.
    for _ in 0..3 {
        cluster.kill(&["ost0", "mdt0"]);
        cluster.start(&["ost0", "mdt0"]);
        File::open(&path).unwrap().sync_all().unwrap();
    }
    assert!(fs::read(&path).unwrap() == data);
    for process in cluster.processes() {
        assert!(process.running(), "{} has ended", process.name);
        assert!(lost_lines(&process.metrics_url) > 0, "{} has lost no line", process.name);
    }
    // With room again the log says how many are missing, before the next line.
    fs::remove_file(logs.join("fill")).unwrap();
    let client = cluster.processes().into_iter().find(|p| p.kind == "client").unwrap();
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    File::create(cluster.a().join("next")).unwrap().sync_all().unwrap();
    cluster.down();
    let told = fs::read_to_string(&client.log).unwrap();
    let told: Vec<&str> = told.lines().filter(|line| line.contains("lines of this log were lost")).collect();
    assert!(told.len() == 1 && told[0].contains("No space left on device"), "{told:?}");
}

/// Runs `brindle ARGS` with this standard output: exit code and what it said on standard error.
fn with_output(args: &[&str], output: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    // A shell starts programs with the default action of SIGPIPE; the test harness ignores the signal.
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            Ok(())
        })
    };
    let done = command.args(args).stdout(output).stderr(Stdio::piped()).output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn output_that_goes_nowhere_is_a_quiet_end_or_the_real_error() {
    let cluster = Cluster::up("output", &Options { osts: 1, mounts: 1, ..Options::default() });
    let (a, dir) = (cluster.a().display().to_string(), cluster.dir().display().to_string());
    fs::write(cluster.a().join("f"), b"x").unwrap();
    let commands: &[&[&str]] = &[
        &["--help"],
        &["lfs", "df", &a],
        &["lfs", "find", &a],
        &["lfs", "getstripe", &a],
        &["file", "find", "-o", "json", &a],
        &["file", "du", &a],
        &["explain"],
        &["explain", "E1001"],
        &["status", &a],
        &["status", "-o", "json", &a],
        &["target", "list", &a],
        &["pool", "list", "--path", &a],
        &["lctl", "get_param", "--dir", &dir, "lov.*.*"],
        &["dev", "status", "--dir", &dir],
        &["dev", "status", "-o", "json", "--dir", &dir],
        &["completion", "bash"],
        &["config", "default"],
        &["waits", &a],
    ];
    for command in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, said) = with_output(command, full.into());
        assert!(said.contains("No space left on device") && code == Some(1), "{command:?}: {code:?} {said}");
        assert!(!said.contains("E9001"), "{command:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, said) = with_output(command, writer.into());
        assert!(said.is_empty(), "{command:?}: {code:?} {said}");
    }
}
