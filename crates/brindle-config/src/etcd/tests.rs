//! The store over real etcd: members that are killed, hang, lose their majority, and leaders that do not know that they
//! lead no more.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::properties;

/// Longest time that anything may take that is waited for.
const PATIENCE_MS: u64 = 20_000;
/// Pause between two looks whether something has come about.
const LOOK: Duration = Duration::from_millis(20);

struct Member {
    arguments: Vec<String>,
    port: u16,
    process: Option<Child>,
}

/// An etcd of some members; its processes end with it.
struct Etcd {
    _dir: tempfile::TempDir,
    members: Vec<Member>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

/// Ports outside the range that the kernel gives to connections. A port stays this process's until it ends, so no two
/// tests get the same.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    // Processes begin at different places.
    let first = std::process::id().wrapping_mul(64) % span;
    let next = || {
        let number = first + NEXT.fetch_add(1, Ordering::Relaxed);
        PORTS.start + u16::try_from(number % span).expect("less than the span")
    };
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(next).take(span as usize).filter(free).take(count).collect()
}

impl Etcd {
    fn start(count: usize, scheme: &str, more: &[String]) -> Etcd {
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * count);
        let peer = |index: usize| format!("http://127.0.0.1:{}", ports[count + index]);
        let all: Vec<String> = (0..count).map(|index| format!("m{index}={}", peer(index))).collect();
        let all = all.join(",");
        let member = |index: usize| {
            let url = format!("{scheme}://127.0.0.1:{}", ports[index]);
            let data = dir.path().join(format!("m{index}")).to_str().unwrap().to_owned();
            let (name, peer) = (format!("m{index}"), peer(index));
            let pairs: [(&str, &str); 10] = [
                ("--name", &name),
                ("--data-dir", &data),
                ("--listen-client-urls", &url),
                ("--advertise-client-urls", &url),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &all),
                ("--initial-cluster-state", "new"),
                ("--heartbeat-interval", "50"),
                ("--election-timeout", "500"),
            ];
            let pairs = pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
            Member {
                arguments: pairs.chain(more.iter().cloned()).collect(),
                port: ports[index],
                process: None,
            }
        };
        let mut etcd = Etcd { members: (0..count).map(member).collect(), _dir: dir };
        (0..count).for_each(|index| etcd.run(index));
        etcd
    }

    fn run(&mut self, index: usize) {
        let member = &mut self.members[index];
        let mut command = Command::new("etcd");
        command.args(&member.arguments).stdout(Stdio::null()).stderr(Stdio::null());
        member.process = Some(command.spawn().expect("etcd is installed: apt-get install etcd-server"));
    }

    fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().expect("own child");
            process.wait().expect("own child");
        }
    }

    fn address(&self) -> String {
        let names: Vec<String> = self.members.iter().map(|m| format!("127.0.0.1:{}", m.port)).collect();
        format!("etcd://{}", names.join(","))
    }

    fn store(&self) -> EtcdStore {
        store(&self.address(), None)
    }
}

fn store(address: &str, tls: Option<&TlsFiles>) -> EtcdStore {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    EtcdStore::new(seams, address.parse().unwrap(), tls, "brindle/").unwrap()
}

/// Waits until a majority answers.
async fn ready(store: &EtcdStore) {
    let answers = async {
        while store.get("x").await.is_err() {
            tokio::time::sleep(LOOK).await;
        }
    };
    within(PATIENCE_MS, answers).await;
}

async fn within<T>(ms: u64, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_millis(ms), work).await.expect("it takes too long")
}

async fn won(store: &EtcdStore, name: &str) -> EtcdStore {
    match store.try_lead(name).await.unwrap() {
        Lead::Won(store) => store,
        Lead::Held(by) => panic!("{by} leads"),
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test)
}

/// A member as seen through a network: what it is sent arrives; its answers do only while the gate is open.
async fn network(to: u16) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = watch::Sender::new(true);
    let gate = open.subscribe();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let mut gate = gate.clone();
            tokio::spawn(async move {
                let far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut near_in, &mut far_out).await });
                let opened = gate.wait_for(|open| *open).await.is_ok();
                if opened {
                    // The other side may have gone meanwhile.
                    let _ = tokio::io::copy(&mut far_in, &mut near_out).await;
                }
            });
        }
    });
    (port, open)
}

#[test]
fn keeps_the_promises_of_every_store() {
    let etcd = Etcd::start(1, "http", &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let plain = runtime.block_on(async { etcd.store() });
    runtime.block_on(ready(&plain));
    let leading = runtime.block_on(won(&plain, "mgs1"));
    for (name, store) in [("plain", &plain), ("leading", &leading)] {
        let case = std::sync::atomic::AtomicU32::new(0);
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(16) });
        let tried = runner.run(&properties::steps(), |steps| {
            let case = case.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            runtime.block_on(properties::check(store, &format!("{name}/{case}/"), steps))
        });
        tried.unwrap();
    }
}

#[test]
fn watches_tell_of_changes_and_end_with_the_store() {
    let etcd = Etcd::start(1, "http", &[]);
    run(async {
        let (store, other) = (etcd.store(), etcd.store());
        ready(&store).await;
        let mut watch = store.watch("fs/");
        assert!(within(PATIENCE_MS, watch.changed()).await, "a watch tells when it begins");
        other.compare_and_swap("other", 0, Some(b"1")).await.unwrap();
        other.compare_and_swap("fs/a", 0, Some(b"1")).await.unwrap();
        assert!(within(PATIENCE_MS, watch.changed()).await);
        let nothing = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
        assert!(nothing.is_err(), "another prefix is not told");
        drop(store);
        assert!(!within(PATIENCE_MS, watch.changed()).await, "the end of the store is told");
    });
}

#[test]
fn a_member_that_does_not_answer_stops_nobody_and_writes_nothing_twice() {
    let etcd = Etcd::start(1, "http", &[]);
    run(async {
        ready(&etcd.store()).await;
        let real = etcd.members[0].port;
        let (slow, gate) = network(real).await;
        let store = store(&format!("etcd://127.0.0.1:{slow},127.0.0.1:{real}"), None);
        assert_eq!(store.get("a").await.unwrap(), None);
        gate.send_replace(false);
        let swap = within(5_000, store.compare_and_swap("b", 0, Some(b"1"))).await.unwrap();
        assert!(matches!(swap, Swap::Done(_)));
        // The slow member is asked first; it does what it is asked, and its answer is lost.
        let (lease, _) = store.gateway.grant(NOTE_SECONDS).await.unwrap();
        let fresh = self::store(&format!("etcd://127.0.0.1:{slow},127.0.0.1:{real}"), None);
        let writes = [Write { key: "a".to_owned(), expected_version: 0, value: Some(b"1".to_vec()) }];
        let transaction = fresh.transaction(&writes, 0, ("1", &lease));
        let outcome = within(5_000, fresh.commit(&transaction, &writes, (0, "1"))).await.unwrap();
        let Outcome::Swapped(Swap::Done(version)) = outcome else {
            panic!("the writer that won is told that it lost")
        };
        let entry = store.get("a").await.unwrap().unwrap();
        assert_eq!(version, entry.version);
        let again = store.compare_and_swap("a", 0, Some(b"2")).await.unwrap();
        assert_eq!(again, Swap::Lost(entry.version));
    });
}

#[test]
fn a_leader_that_lost_its_lease_and_does_not_know_writes_nothing() {
    let etcd = Etcd::start(1, "http", &[]);
    run(async {
        let plain = etcd.store();
        ready(&plain).await;
        let old = won(&plain, "mgs1").await;
        let Swap::Done(version) = old.compare_and_swap("a", 0, Some(b"1")).await.unwrap() else { panic!() };
        assert!(matches!(plain.try_lead("mgs2").await.unwrap(), Lead::Held(by) if by == "mgs1"));
        let lease = old.leadership().unwrap().lease();
        plain.gateway.call("/v3/lease/revoke", &json!({ "ID": lease })).await.unwrap();
        let new = won(&plain, "mgs2").await;
        old.leadership().unwrap().check().expect("by its own clock it still leads");
        let writes = [Write { key: "a".to_owned(), expected_version: version, value: Some(b"2".to_vec()) }];
        let transaction = old.transaction(&writes, 0, ("9", new.leadership().unwrap().lease()));
        let fault = old.commit(&transaction, &writes, (0, "9")).await.err().expect("its key is another's");
        assert_eq!(fault.code, Code::NotLeading);
        assert!(fault.to_string().contains("mgs2"), "{fault}");
        assert!(old.leadership().unwrap().check().is_err(), "now it knows");
        assert_eq!(old.compare_and_swap("a", version, None).await.unwrap_err().code, Code::NotLeading);
        assert_eq!(plain.get("a").await.unwrap().unwrap().value, b"1");
        assert!(matches!(new.compare_and_swap("a", version, Some(b"3")).await.unwrap(), Swap::Done(_)));
    });
}

#[test]
fn a_leader_that_is_cut_off_ends_before_the_next_one_begins() {
    let etcd = Etcd::start(1, "http", &[]);
    run(async {
        let plain = etcd.store();
        ready(&plain).await;
        let (port, gate) = network(etcd.members[0].port).await;
        let old = won(&store(&format!("etcd://127.0.0.1:{port}"), None), "mgs1").await;
        gate.send_replace(false);
        let new = within((LEASE_SECONDS + 3) * 1_000, plain.lead("mgs2")).await;
        // A renewal of the old leader may have arrived, its answer did not.
        assert_eq!(old.leadership().unwrap().check().unwrap_err().code, Code::NotLeading);
        within(PATIENCE_MS, old.leadership().unwrap().ended()).await;
        gate.send_replace(true);
        assert!(old.leadership().unwrap().check().is_err(), "what has ended never begins again");
        new.leadership().unwrap().check().unwrap();
        new.leadership().unwrap().resign().await.unwrap();
        let third = within(1_000, plain.lead("mgs3")).await;
        assert_eq!(plain.leader().await.unwrap().as_deref(), Some("mgs3"));
        // Longer than the lease: it is renewed.
        tokio::time::sleep(Duration::from_secs(LEASE_SECONDS + 1)).await;
        third.leadership().unwrap().check().unwrap();
    });
}

#[test]
fn a_member_may_die_and_a_lost_majority_is_told_and_comes_back() {
    let mut etcd = Etcd::start(3, "http", &[]);
    run(async {
        let plain = etcd.store();
        ready(&plain).await;
        let leading = won(&plain, "mgs1").await;
        etcd.kill(0);
        let first = within(PATIENCE_MS, leading.compare_and_swap("a", 0, Some(b"1"))).await.unwrap();
        assert!(matches!(first, Swap::Done(_)));
        leading.leadership().unwrap().check().unwrap();
        etcd.kill(1);
        let fault = within(PATIENCE_MS, plain.get("a")).await.unwrap_err();
        assert_eq!(fault.code, Code::StoreUnreachable);
        let text = fault.to_string();
        for member in &etcd.members {
            assert!(text.contains(&member.port.to_string()), "every member is named: {text}");
        }
        within(PATIENCE_MS, leading.leadership().unwrap().ended()).await;
        assert_eq!(leading.compare_and_swap("b", 0, Some(b"1")).await.unwrap_err().code, Code::NotLeading);
        etcd.run(0);
        let new = within(PATIENCE_MS, plain.lead("mgs2")).await;
        let entry = plain.get("a").await.unwrap().expect("nothing is lost");
        assert!(matches!(new.compare_and_swap("a", entry.version, Some(b"2")).await.unwrap(), Swap::Done(_)));
    });
}

/// An authority's own certificate and what it has signed, as PEM.
fn certificates() -> TlsFiles {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    TlsFiles {
        authority: pem_of("CERTIFICATE", authority.der()),
        certificate: pem_of("CERTIFICATE", certificate.der()),
        key: pem_of("PRIVATE KEY", key.serialized_der()),
    }
}

fn pem_of(tag: &str, der: &[u8]) -> Vec<u8> {
    pem::encode(&pem::Pem::new(tag, der)).into_bytes()
}

#[test]
fn tls_shows_a_certificate_and_a_wrong_one_is_explained() {
    let (good, bad) = (certificates(), certificates());
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = vec!["--client-cert-auth".to_owned()];
    let files = [
        ("--trusted-ca-file", &good.authority),
        ("--cert-file", &good.certificate),
        ("--key-file", &good.key),
    ];
    for (option, text) in files {
        let path = dir.path().join(option);
        std::fs::write(&path, text).unwrap();
        arguments.push(format!("{option}={}", path.display()));
    }
    let etcd = Etcd::start(1, "https", &arguments);
    run(async {
        let member = store(&etcd.address(), Some(&good));
        ready(&member).await;
        assert!(matches!(member.compare_and_swap("a", 0, Some(b"1")).await.unwrap(), Swap::Done(_)));
        let foreign = store(&etcd.address(), Some(&bad)).get("a").await.unwrap_err();
        assert!(foreign.to_string().contains("invalid peer certificate"), "{foreign}");
        let mixed = TlsFiles { authority: good.authority.clone(), ..bad };
        let refused = store(&etcd.address(), Some(&mixed)).get("a").await.unwrap_err();
        assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
        let plain = store(&etcd.address(), None).get("a").await.unwrap_err();
        assert_eq!(plain.code, Code::StoreUnreachable);
    });
}
