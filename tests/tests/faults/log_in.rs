//! Log-in at the manager: a user whose password the host knows, by the host's real PAM; a program with a token.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use brindle_tests::cluster::{Cluster, Options, binary};
use serde_json::Value;

/// Rules of PAM of this test, in `/etc/pam.d`, and what they run; gone at the end.
struct Rules {
    service: String,
    file: PathBuf,
}

impl Rules {
    /// A program checks the password, which PAM gives it on standard input. The account of `locked` may not be used.
    fn new(cluster: &Cluster) -> Rules {
        let service = format!("brindle-test-{}", std::process::id());
        let check = cluster.outside().join("check");
        let script = "#!/bin/sh\nread -r given\n[ \"$given\" = \"known to $PAM_USER\" ]\n";
        fs::write(&check, script).unwrap();
        let account = cluster.outside().join("account");
        fs::write(&account, "#!/bin/sh\n[ \"$PAM_USER\" != locked ]\n").unwrap();
        for program in [&check, &account] {
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let file = PathBuf::from("/etc/pam.d").join(&service);
        let rules = format!(
            "auth required pam_exec.so quiet expose_authtok {}\naccount required pam_exec.so quiet {}\n",
            check.display(),
            account.display()
        );
        fs::write(&file, rules).unwrap();
        Rules { service, file }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

struct Manager {
    child: Child,
    dir: String,
    url: String,
}

impl Manager {
    fn start(cluster: &Cluster, service: &str) -> Manager {
        let dir = cluster.outside().join("manager").display().to_string();
        let mut child = Command::new(binary())
            .args(["manager", "--insecure-http", "--listen=127.0.0.1:0", "--ready-json"])
            .args(["--pam-service", service, "--dir", &dir])
            .arg(format!("--dev={}", cluster.dir().display()))
            .arg(format!("--log={}", cluster.outside().join("manager.log").display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let from = ready.find("http://").unwrap_or_else(|| panic!("{ready}"));
        let url = ready[from..].split('"').next().unwrap().trim_end_matches('/').to_owned();
        Manager { child, dir, url }
    }

    fn command(&self, words: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(binary())
            .arg("manager")
            .args(words)
            .args(["--manager", &self.dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command may end without reading its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
    }

    /// The answer to a request by curl: its status, and its body.
    fn ask(&self, path: &str, words: &[&str]) -> (u16, Value) {
        let url = format!("{}/api/v1/{path}", self.url);
        let output =
            Command::new("curl").args(["-s", "-w", "\n%{http_code}", &url]).args(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    fn log_in(&self, name: &str, password: &str) -> (u16, Value) {
        let body = serde_json::json!({ "name": name, "password": password }).to_string();
        let headers = ["-H", "content-type: application/json", "-H", "x-brindle-csrf: log-in"];
        self.ask("session", &[&headers[..], &["-d", &body]].concat())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_host_is_asked_for_passwords_that_it_knows_and_programs_show_tokens() {
    let cluster = Cluster::up("log-in", &Options { osts: 1, mounts: 0, ..Options::default() });
    let rules = Rules::new(&cluster);
    let manager = Manager::start(&cluster, &rules.service);
    manager.command(&["user", "add", "ada", "--role", "administrator"], "a good password\n").unwrap();
    for name in ["hans", "locked"] {
        manager.command(&["user", "add", name, "--role", "operator", "--pam"], "").unwrap();
    }
    let list = manager.command(&["user", "list"], "").unwrap();
    assert!(list.lines().any(|line| line.starts_with("hans") && line.ends_with("PAM")), "{list}");
    let refused = manager.command(&["user", "add", "eve"], "short\n").unwrap_err();
    assert!(refused.contains("fewer than 10 characters"), "{refused}");

    let (status, session) = manager.log_in("hans", "known to hans");
    assert_eq!((status, &session["role"]), (200, &"operator".into()), "{session}");
    for (name, password) in [
        ("hans", "known to locked"),
        ("hans", ""),
        ("locked", "known to locked"),
        ("ada", "known to ada"),
        // The host knows this one, and the manager does not.
        ("nobody", "known to nobody"),
        ("--service=other", "x"),
    ] {
        let (status, fault) = manager.log_in(name, password);
        assert_eq!((status, &fault["code"]), (401, &"E5040".into()), "{name}: {fault}");
    }
    assert_eq!(manager.log_in("ada", "a good password").0, 200);

    let secret = manager.command(&["token", "add", "report", "--days", "2"], "").unwrap();
    let bearer = format!("authorization: Bearer {}", secret.trim());
    assert_eq!(manager.ask("tasks", &["-H", &bearer]).0, 200);
    assert_eq!(manager.ask("users", &["-H", &bearer]).0, 403, "a viewer's token");
    manager.command(&["token", "revoke", "1"], "").unwrap();
    assert_eq!(manager.ask("tasks", &["-H", &bearer]).0, 401);
    // Rules that are not there are PAM's refusal or its failure, and never a way in.
    drop(rules);
    assert_eq!(manager.log_in("hans", "known to hans").0, 401);
    let audit = fs::read_to_string(cluster.outside().join("manager/audit.log")).unwrap();
    assert!(audit.contains("token.revoke") && !audit.contains("known to"), "{audit}");
}
