//! A cluster of hosts on one machine: hosts die, hang and lose their links, and no bytes are lost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_auth::{Authority, HostKey, Identity};
use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::{bytes, same_bytes};

const OPTIONS: Options = Options {
    archive: false,
    osts: 4,
    mounts: 2,
    ost_size: None,
    mdt_size: None,
    image_fs: "ext4",
    hosts: Some(4),
    limit: Duration::from_secs(240),
};
/// Bytes of each file that is written meanwhile.
const FILE_BYTES: usize = 3 << 20;

/// `brindle dev host ARGS`, as JSON.
fn host(cluster: &Cluster, args: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = ["host"].iter().chain(args).copied().chain(["-o", "json"]).collect();
    let out = cluster.dev(&words);
    assert!(out.ok(), "{out}");
    serde_json::from_str(&out.stdout).unwrap()
}

fn namespaces(cluster: &Cluster) -> Vec<String> {
    let hosts = host(cluster, &["list"]);
    let hosts = hosts["hosts"].as_array().unwrap();
    hosts.iter().map(|host| host["namespace"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn hosts_that_die_hang_and_lose_their_links_lose_nothing() {
    let cluster = Cluster::up("hosts", &OPTIONS);
    let names = namespaces(&cluster);
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names.iter().all(|name| Path::new(name).exists()), "{names:?}");
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::SeqCst) {
                fs::write(cluster.a().join(format!("f{n}")), bytes(n, FILE_BYTES)).unwrap();
                fs::File::open(cluster.a().join(format!("f{n}"))).unwrap().sync_all().unwrap();
                n += 1;
            }
            n
        });
        let faults: [(&[&str], &[&str]); 6] = [
            (&["kill", "oss1"], &["start", "oss1"]),
            (&["freeze", "oss2"], &["thaw", "oss2"]),
            (&["kill", "mds2"], &["start", "mds2"]),
            (&["cut", "oss1", "--out"], &["heal", "oss1"]),
            (&["cut", "oss2", "--in"], &["heal", "oss2"]),
            (&["cut", "mds2"], &["heal", "mds2"]),
        ];
        for (fault, cure) in faults {
            let hit = host(&cluster, fault);
            let is_hit = hit["state"] != "running" || hit["link"] != "up";
            assert!(is_hit, "{fault:?}: {hit}");
            // The length of the fault; nothing is waited for by it.
            std::thread::sleep(Duration::from_millis(700));
            let cured = host(&cluster, cure);
            assert_eq!((&cured["state"], &cured["link"]), (&"running".into(), &"up".into()), "{cured}");
        }
        done.store(true, Ordering::SeqCst);
        writing.join().unwrap()
    });
    assert!(written > 0);
    for n in 0..written {
        let found = fs::read(cluster.b().join(format!("f{n}"))).unwrap();
        same_bytes(&found, &bytes(n, FILE_BYTES), &format!("f{n}"));
    }
    cluster.assert_sound();
    assert!(names.iter().all(|name| !Path::new(name).exists()), "no namespace is left: {names:?}");
}

#[test]
fn links_are_shaped_and_bad_wishes_change_nothing() {
    let cluster = Cluster::up("hosts-shape", &Options { hosts: Some(2), mounts: 1, ..OPTIONS });
    let shaped = host(&cluster, &["shape", "c1", "80mbit"]);
    assert_eq!(shaped["rate_bits_per_second"], 80_000_000);
    let begun = Instant::now();
    fs::write(cluster.a().join("f"), bytes(1, 8 << 20)).unwrap();
    fs::File::open(cluster.a().join("f")).unwrap().sync_all().unwrap();
    assert!(begun.elapsed() > Duration::from_millis(600), "10 MB a second: {:?}", begun.elapsed());
    assert_eq!(host(&cluster, &["shape", "c1", "none"])["rate_bits_per_second"], serde_json::Value::Null);
    for (words, told) in [
        (&["host", "kill", "oss9"][..], "did you mean 'oss1'"),
        (&["kill", "ost0"][..], "brindle dev host kill"),
        (&["start", "client1"][..], "no such process"),
        (&["add-ost"][..], "it is made of hosts"),
        (&["remove-ost", "ost0"][..], "it is made of hosts"),
        (&["host", "thaw", "c9"][..], "no such host"),
        (&["host", "shape", "c1", "fast"][..], "is not a rate"),
    ] {
        let out = cluster.dev(words);
        assert!(!out.ok() && out.text.contains(told), "{out}");
    }
    assert_eq!(host(&cluster, &["kill", "oss1"])["state"], "dead");
    let thawed = cluster.dev(&["host", "thaw", "oss1"]);
    assert!(!thawed.ok() && thawed.text.contains("dev host start"), "{thawed}");
    let status = cluster.brindle(&["status".to_owned(), format!("--dir={}", cluster.dir().display())]);
    assert!(status.text.contains("dev host start") && status.text.contains("oss1"), "{status}");
    host(&cluster, &["start", "oss1"]);
    cluster.down();
    // The former hosts start again, with their data; other hosts are refused.
    let other = cluster.dev(&["up", "--hosts=3"]);
    assert!(!other.ok() && other.text.contains("keeps the hosts"), "{other}");
    for wish in ["--osts=9", "--mount=/mnt", "--no-mount"] {
        let other = cluster.dev(&["up", wish]);
        assert!(!other.ok() && other.text.contains("nothing was changed"), "{other}");
    }
    cluster.up_again();
    same_bytes(&fs::read(cluster.a().join("f")).unwrap(), &bytes(1, 8 << 20), "f");
    // Hosts that hang or are cut off end all the same.
    host(&cluster, &["freeze", "oss1"]);
    host(&cluster, &["cut", "c1"]);
    cluster.assert_sound();
}

/// `brindle dev up`, killed when it has told of so many hosts.
fn killed_start(cluster: &Cluster, hosts_told: usize) {
    let mut up = Command::new(binary())
        .args(["dev", "up"])
        .arg(format!("--dir={}", cluster.dir().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(up.stderr.take().unwrap()).lines();
    assert_eq!(told.take(hosts_told).filter(|line| line.is_ok()).count(), hosts_told);
    up.kill().unwrap();
    up.wait().unwrap();
}

/// A killed start leaves nothing of the hosts that had been started, or were about to be.
#[test]
fn a_start_that_was_killed_leaves_nothing_behind() {
    let cluster = Cluster::up("hosts-killed", &Options { mounts: 1, ..OPTIONS });
    let names = namespaces(&cluster);
    cluster.down();
    for hosts_told in [0, 1, 3] {
        killed_start(&cluster, hosts_told);
        let down = cluster.dev(&["down"]);
        assert!(down.ok(), "{down}");
        assert!(cluster.processes().iter().all(|process| !process.running()));
        assert!(names.iter().all(|name| !Path::new(name).exists()), "no namespace is left: {names:?}");
    }
    let stopped = cluster.dev(&["host", "kill", "oss1"]);
    assert!(!stopped.ok() && stopped.text.contains("the cluster is stopped"), "{stopped}");
    // The remains of a killed start do not keep the next one from starting either.
    killed_start(&cluster, 1);
    let again = cluster.dev(&["up"]);
    assert!(again.ok() || again.text.contains("a cluster runs there already"), "{again}");
    cluster.assert_sound();
}

/// Runs `brindle ARGS` with the identity in a file; what it says, and whether it was content.
fn with_identity(identity: &Path, args: &[&str]) -> (bool, String) {
    let out = Command::new(binary()).args(args).env("BRINDLE_IDENTITY", identity).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// An identity that another authority has issued, for a host of the same name in a cluster of the same number.
fn forged(cluster: &Cluster) -> String {
    let own = fs::read_to_string(cluster.dir().join("identity.pem")).unwrap();
    let own = Identity::from_pem(&own).unwrap();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_s = i64::try_from(since.as_secs()).unwrap();
    let authority = Authority::new(own.name().cluster, now_s).unwrap();
    let key = HostKey::generate().unwrap();
    let certificate = authority.issue(own.name(), &key.public(), now_s).unwrap();
    Identity::new(key, certificate, authority.certificate().to_vec()).unwrap().to_pem()
}

#[test]
fn hosts_of_the_cluster_alone_are_answered_and_admin_hosts_alone_change_it() {
    let cluster = Cluster::up("hosts-security", &OPTIONS);
    fs::write(cluster.a().join("kept"), "x").unwrap();
    let hosts = host(&cluster, &["list"]);
    let mgs = format!("--mgs={}", hosts["hosts"][0]["address"].as_str().unwrap());
    let status = ["status", &mgs];
    let (admin, client) = (cluster.dir().join("identity.pem"), cluster.dir().join("identities/c1.pem"));
    assert_eq!(with_identity(&admin, &status), (true, String::new()));
    let (is_let_in, said) = with_identity(Path::new(""), &status);
    assert!(!is_let_in && said.contains("E8010"), "nothing proven: {said}");
    let forged_file = cluster.outside().join("forged.pem");
    fs::write(&forged_file, forged(&cluster)).unwrap();
    let (is_let_in, said) = with_identity(&forged_file, &status);
    assert!(!is_let_in && said.contains("E8011"), "of another authority: {said}");
    let create = ["pool", "create", "flash", "OST0000", &mgs];
    let (is_done, said) = with_identity(&client, &create);
    assert!(!is_done && said.contains("joined as client, not as admin"), "{said}");
    assert_eq!(with_identity(&admin, &create), (true, String::new()));
    let mode = fs::metadata(&client).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "whoever reads it is that host");
    assert_eq!(fs::read_to_string(cluster.b().join("kept")).unwrap(), "x");
}

#[test]
fn bytes_pass_in_every_mode() {
    for mode in ["integrity", "privacy", "none"] {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = format!("--dir={}", dir.path().join("c").display());
        let dev = |args: &[&str]| {
            let done = Command::new(binary()).arg("dev").args(args).arg(&at).output().unwrap();
            assert!(done.status.success(), "{mode}: {}", String::from_utf8_lossy(&done.stderr));
        };
        let security = format!("--security={mode}");
        let _down = Down(at.clone());
        dev(&["up", "--hosts=2", "--clients=2", &security]);
        let file = |client: &str| dir.path().join("c/mnt").join(client).join("f");
        fs::write(file("c1"), bytes(1, FILE_BYTES)).unwrap();
        same_bytes(&fs::read(file("c2")).unwrap(), &bytes(1, FILE_BYTES), mode);
    }
}

/// Ends a cluster whatever happens.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        let ended = Command::new(binary()).args(["dev", "down", "--purge", &self.0]).output();
        assert!(ended.is_ok_and(|out| out.status.success()) || std::thread::panicking(), "dev down");
    }
}
