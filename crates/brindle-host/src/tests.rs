//! Enrolment against a real MGS over TCP: a cluster is made, hosts join, renew, serve what they are told, and are removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brindle_auth::{Authority, HostKey, HostRole, Identity, Mode, Name, Roles, Token};
use brindle_net::fair::FairShare;
use brindle_net::{CredentialSource, TcpTransport, Transport};
use brindle_stdx::Seams;
use brindle_targets::{Directory, Introduction};
use brindle_types::{Code, Nid, Result, TargetId};
use brindle_wire::Message;
use brindle_wire::mgs::hosts::{
    ChangeHostReq, CreateTokenReq, HostChange, HostInfo, HostedState, HostedTarget, ListHostsReq,
    WatchHostReq,
};

use crate::access;
use crate::daemon::{Daemon, Shows};
use crate::enrolment::{self, ClusterFile, IDENTITY_FILE, Init, Join};
use crate::identity::{self, IdentityFile, Process, write_secret};
use crate::replica::Control;
use crate::service::{self, How, LockedTarget, Service};

/// Longest wait of a test for an event that is due in a moment.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    dir: tempfile::TempDir,
    seams: Seams,
    first: Token,
    nid: Nid,
    mgs: Option<Service>,
}

struct Nothing;

impl Shows for Nothing {
    fn served(&self, _: &Service) {}
    fn ended(&self, _: &str) {}
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(3 * PATIENCE, test).await.expect("it ends") });
    runtime.shutdown_background();
}

/// A free port; another process may take it, which is seen when it is used.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let port = free_port();
        let init = Init {
            fs: "scratch".parse().unwrap(),
            dir: dir.path().join("mgt"),
            conf: dir.path().join("mgs1"),
            host: "mgs1".into(),
            address: "127.0.0.1".into(),
            port,
            etcd: None,
        };
        let (own, handle) = (seams.clone(), tokio::runtime::Handle::current());
        let made = tokio::task::spawn_blocking(move || enrolment::init(&own, &handle, &init)).await.unwrap();
        let nid = format!("127.0.0.1:{port}").parse().unwrap();
        let mut world = World { dir, seams, first: made.unwrap().token, nid, mgs: None };
        world.start_mgs().await;
        world
    }

    async fn start_mgs(&mut self) {
        let found = LockedTarget::lock(&self.dir.path().join("mgt"), &self.seams).unwrap();
        let how = self.how("mgs1", true).unwrap();
        self.mgs = Some(service::start(&how, &found, self.nid.port).await.unwrap());
    }

    fn conf(&self, host: &str) -> PathBuf {
        self.dir.path().join(host)
    }

    fn identity(&self, host: &str) -> Arc<IdentityFile> {
        IdentityFile::open(self.conf(host).join(IDENTITY_FILE)).unwrap()
    }

    /// Settings for a server of a host; over TCP only, as from another machine.
    fn how(&self, host: &str, admits_strangers: bool) -> Result<How> {
        let mut security = identity::security(Some(self.identity(host)), Mode::Auth, Process::Server);
        security.admits_strangers = admits_strangers;
        let transport: Arc<dyn Transport> =
            Arc::new(TcpTransport::new(self.seams.clone()).over_tcp_only().secured(security));
        Ok(How {
            seams: self.seams.clone(),
            mgs_transport: transport.clone(),
            transport,
            host: host.to_owned(),
            listen: "127.0.0.1".into(),
            advertise: None,
            high_water_percent: 97,
            room_wait_ms: 0,
            divide_above_bytes: brindle_types::hsm::DIVIDE_ABOVE_BYTES_DEFAULT,
            fair_share: FairShare::default(),
            read_cache: brindle_oss::ReadCache::default(),
            fence: None,
            failback_after_ms: None,
            lease: None,
            seat: None,
        })
    }

    async fn join(&self, token: &Token, host: &str) -> Result<enrolment::Joined> {
        let join = Join {
            token: token.clone(),
            mgs: Vec::new(),
            conf: self.conf(host),
            host: host.to_owned(),
            address: Some("127.0.0.1".into()),
            again: false,
        };
        enrolment::join(&self.seams, &join).await
    }

    /// The way of a process of `host` to the MGS.
    fn way(&self, host: &str, introduction: Introduction) -> Arc<Directory> {
        let security = identity::security(Some(self.identity(host)), Mode::Auth, Process::Command);
        let transport = TcpTransport::new(self.seams.clone()).over_tcp_only().secured(security);
        access::mgs(&self.seams, Arc::new(transport), introduction, vec![self.nid.clone()], None).unwrap()
    }

    async fn ask<M: Message>(&self, host: &str, request: &M) -> Result<M::Resp> {
        self.way(host, Introduction::command(host)).mgs().probe_within(request, 5_000).await
    }

    async fn token(&self, roles: &str) -> Token {
        let request = CreateTokenReq { roles: roles.into(), host: String::new(), lifetime_s: 60 };
        self.ask("mgs1", &request).await.unwrap().token.parse().unwrap()
    }

    async fn host(&self, name: &str) -> Option<HostInfo> {
        let listed = self.ask("mgs1", &ListHostsReq {}).await.unwrap();
        listed.hosts.into_iter().find(|host| host.name == name)
    }

    async fn change(&self, host: &str, change: HostChange) -> Result<Option<TargetId>> {
        let request = ChangeHostReq { host: host.into(), change, is_dry_run: false };
        Ok(self.ask("mgs1", &request).await?.target.map(|a| a.target))
    }

    /// Waits until the MGS knows of a host what is wanted.
    async fn until(&self, host: &str, wanted: impl Fn(&HostInfo) -> bool) -> HostInfo {
        let looking = async {
            loop {
                if let Some(info) = self.host(host).await.filter(|info| wanted(info)) {
                    return info;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.expect("it comes")
    }

    fn daemon(&self, host: &str) -> Arc<Daemon> {
        let cluster = ClusterFile::read(&self.conf(host)).unwrap().unwrap();
        let mgs = self.way(host, Introduction::agent(host));
        let how = self.how(host, false).unwrap();
        let control = Control { seams: how.seams.clone(), mgs: mgs.clone() };
        Daemon::start(how, (mgs, control), cluster.fs, Arc::new(Nothing))
    }
}

fn serves(info: &HostInfo) -> bool {
    info.hosted.iter().any(|t| t.target == TargetId::ost(0) && is_served(t))
}

fn is_served(hosted: &HostedTarget) -> bool {
    hosted.state == HostedState::Serving
}

#[test]
fn hosts_join_with_a_token_once_and_keep_their_key_over_a_lost_answer() {
    run(async {
        let world = World::new().await;
        let joined = world.join(&world.first, "oss1").await.unwrap();
        assert_eq!((joined.roles.to_string(), joined.fs.as_str()), ("server".to_owned(), "scratch"));
        assert_eq!(world.join(&world.first, "oss2").await.unwrap_err().code, Code::BadToken, "it was used");
        assert_eq!(
            world.join(&world.first, "oss1").await.unwrap_err().code,
            Code::HostNameInUse,
            "it has joined"
        );
        // The answer to oss3 was lost: all that it has is its key.
        let token = world.token("client").await;
        world.join(&token, "oss3").await.unwrap();
        let identity = world.identity("oss3").current().unwrap();
        let key = identity.identity().key().to_pem();
        std::fs::remove_file(world.conf("oss3").join(IDENTITY_FILE)).unwrap();
        write_secret(&world.conf("oss3").join("identity.key"), &key).unwrap();
        world.join(&token, "oss3").await.expect("the same host with the same key");
        assert_eq!(
            world.identity("oss3").current().unwrap().identity().key_id(),
            identity.identity().key_id()
        );
        // A second host cannot take the name, and the refusal uses nothing up.
        let token = world.token("client").await;
        std::fs::create_dir(world.dir.path().join("other")).unwrap();
        let posing = Join {
            token: token.clone(),
            mgs: Vec::new(),
            conf: world.conf("other"),
            host: "oss3".into(),
            address: None,
            again: false,
        };
        assert_eq!(enrolment::join(&world.seams, &posing).await.unwrap_err().code, Code::HostNameInUse);
        world.join(&token, "c4").await.unwrap();
    });
}

#[test]
fn a_token_is_shown_to_its_own_cluster_only() {
    run(async {
        let (world, other) = (World::new().await, World::new().await);
        let mut token = world.first.clone();
        token.mgs = vec![other.nid.clone()];
        let fault = world.join(&token, "oss1").await.unwrap_err();
        assert_eq!(fault.code, Code::ForeignCertificate, "{fault}");
        assert!(other.host("oss1").await.is_none());
        token.authority = other.first.authority;
        assert!(world.join(&token, "oss1").await.is_err(), "the fingerprint alone makes no token");
        assert!(other.host("oss1").await.is_none() && world.host("oss1").await.is_none());
    });
}

#[test]
fn only_administrators_administer_and_only_daemons_ask_for_orders() {
    run(async {
        let world = World::new().await;
        world.join(&world.first, "oss1").await.unwrap();
        world.join(&world.token("client").await, "c1").await.unwrap();
        for host in ["oss1", "c1"] {
            assert_eq!(world.ask(host, &ListHostsReq {}).await.unwrap_err().code, Code::NeedsRoot, "{host}");
        }
        let orders = WatchHostReq { known_version: 0, wait_ms: 0 };
        let of_server =
            world.way("oss1", Introduction::agent("oss1")).mgs().probe_within(&orders, 5_000).await;
        assert_eq!(of_server.unwrap().assignments, Some(Vec::new()));
        let of_client = world.way("c1", Introduction::agent("c1")).mgs().probe_within(&orders, 5_000).await;
        let fault = of_client.unwrap_err();
        assert!(fault.to_string().contains("the host has joined as client"), "{fault}");
    });
}

#[test]
fn certificates_are_renewed_for_the_key_that_is_shown() {
    run(async {
        let world = World::new().await;
        world.join(&world.token("client").await, "c1").await.unwrap();
        let file = world.identity("c1");
        let way = || Ok(world.way("c1", access::introduction(&file)?));
        assert_eq!(access::renew(&world.seams, &way, &file).await, Ok(false), "it is new");
        // The host of before presents a certificate of fifty days ago.
        let authority = Authority::from_pem(
            &std::fs::read_to_string(world.dir.path().join("mgt/authority.pem")).unwrap(),
        )
        .unwrap();
        let current = file.current().unwrap();
        let now_s = world.seams.wall().secs;
        let public = current.identity().key().public();
        let old = authority.issue(current.identity().name(), &public, now_s - 50 * 24 * 3600).unwrap();
        write_secret(file.path(), &current.identity().renewed(old).unwrap().to_pem()).unwrap();
        assert!(file.current().unwrap().wants_renewal(now_s));
        assert_eq!(access::renew(&world.seams, &way, &file).await, Ok(true));
        let renewed = file.current().unwrap();
        assert!(!renewed.wants_renewal(now_s));
        assert_eq!(renewed.identity().key_id(), current.identity().key_id());
    });
}

#[test]
fn a_host_serves_what_it_is_told_and_never_formats_twice() {
    run(async {
        let mut world = World::new().await;
        world.join(&world.first, "oss1").await.unwrap();
        let daemon = world.daemon("oss1");
        let dir = world.dir.path().join("ost0");
        let add = HostChange::AddTarget { is_mdt: false, index: None, dir: dir.display().to_string() };
        let target = world.change("oss1", add).await.unwrap().unwrap();
        world.until("oss1", serves).await;
        let mdt = world.dir.path().join("mdt0").display().to_string();
        world.change("oss1", HostChange::AddTarget { is_mdt: true, index: None, dir: mdt }).await.unwrap();
        world.until("oss1", |info| info.hosted.len() == 2 && info.hosted.iter().all(is_served)).await;
        let mdt = TargetId::mdt(0);
        world.change("oss1", HostChange::WantTarget { target: mdt, is_wanted: false }).await.unwrap();
        world.until("oss1", |info| info.hosted[0].state == HostedState::Stopped).await;
        world.change("oss1", HostChange::WantTarget { target: mdt, is_wanted: true }).await.unwrap();
        world.until("oss1", |info| info.hosted.iter().all(is_served)).await;
        // Stopped and started again, by order.
        world.change("oss1", HostChange::WantTarget { target, is_wanted: false }).await.unwrap();
        world.until("oss1", |info| info.hosted.iter().any(|t| t.state == HostedState::Stopped)).await;
        world.change("oss1", HostChange::WantTarget { target, is_wanted: true }).await.unwrap();
        world.until("oss1", serves).await;
        // The MGS comes and goes; the target stays.
        world.mgs.take().unwrap().stop().await.unwrap();
        world.start_mgs().await;
        world.until("oss1", serves).await;
        // The daemon ends, and the disk is not mounted when it comes back.
        daemon.stop().await;
        let away = world.dir.path().join("away");
        std::fs::rename(&dir, &away).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let daemon = world.daemon("oss1");
        let failed = |info: &HostInfo| info.hosted.iter().any(|t| matches!(t.state, HostedState::Failed(_)));
        world.until("oss1", failed).await;
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().collect();
        assert!(left.is_empty(), "nothing was formatted: {left:?}");
        std::fs::remove_dir(&dir).unwrap();
        std::fs::rename(&away, &dir).unwrap();
        world.until("oss1", serves).await;
        daemon.stop().await;
    });
}

#[test]
fn a_removed_host_is_out_at_once_and_stays_out() {
    run(async {
        let world = World::new().await;
        world.join(&world.first, "oss1").await.unwrap();
        let daemon = world.daemon("oss1");
        world.until("oss1", |info| info.heard_ms_ago.is_some()).await;
        world.change("oss1", HostChange::Remove { with_targets: false }).await.unwrap();
        let fault = tokio::time::timeout(PATIENCE, daemon.until_failed()).await.expect("it hears so");
        assert_eq!(fault.code, Code::HostRemoved);
        daemon.stop().await;
        let refused = world.ask("oss1", &ListHostsReq {}).await.unwrap_err();
        assert_eq!(refused.code, Code::HostRemoved);
        // A server that cannot ask the MGS refuses, too: the list is on file.
        world.join(&world.token("server").await, "oss2").await.unwrap();
        let (identity, removed) = (world.identity("oss2"), Arc::<brindle_net::RemovedKeys>::default());
        let way = world.way("oss2", Introduction::agent("oss2"));
        let path = identity.path().to_owned();
        let following = access::follow_removed(world.seams.clone(), way, path.clone(), removed);
        tokio::select! {
            () = following => {}
            () = async {
                while access::on_file(&path).expect("read").is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            } => {}
        }
        let key = world.identity("oss1").current().unwrap().identity().key_id();
        assert!(access::on_file(&path).expect("read").contains(&key));
    });
}

#[test]
fn a_host_that_was_installed_anew_has_its_targets_back() {
    run(async {
        let world = World::new().await;
        world.join(&world.first, "oss1").await.unwrap();
        let dir = world.dir.path().join("ost0").display().to_string();
        world.change("oss1", HostChange::AddTarget { is_mdt: false, index: None, dir }).await.unwrap();
        let before = world.identity("oss1").current().unwrap().identity().key_id();
        // Other roles: the same key, and a token for any host will do.
        let again = Join {
            token: world.token("server,admin").await,
            mgs: Vec::new(),
            conf: world.conf("oss1"),
            host: "oss1".into(),
            address: None,
            again: true,
        };
        assert_eq!(enrolment::join(&world.seams, &again).await.unwrap().roles.to_string(), "server,admin");
        assert_eq!(world.identity("oss1").current().unwrap().identity().key_id(), before);
        // The host has lost its disk with /etc: a new key needs a token for this very host.
        std::fs::remove_dir_all(world.conf("oss1")).unwrap();
        let any = world.token("server").await;
        assert_eq!(world.join(&any, "oss1").await.unwrap_err().code, Code::HostNameInUse);
        let request = CreateTokenReq { roles: "server".into(), host: "oss1".into(), lifetime_s: 60 };
        let own: Token = world.ask("mgs1", &request).await.unwrap().token.parse().unwrap();
        world.join(&own, "oss1").await.unwrap();
        let info = world.host("oss1").await.unwrap();
        assert!(info.assignments.len() == 1 && info.key != before.0, "{info:?}");
        // The old key is out.
        let rows = world.ask("mgs1", &ListHostsReq {}).await.unwrap();
        assert_eq!(rows.hosts.iter().filter(|host| host.name == "oss1").count(), 1);
    });
}

#[test]
fn an_interrupted_format_is_begun_again_and_other_contents_are_left() {
    run(async {
        let world = World::new().await;
        world.join(&world.first, "oss1").await.unwrap();
        let dir = world.dir.path().join("ost0");
        let add = HostChange::AddTarget { is_mdt: false, index: None, dir: dir.display().to_string() };
        world.change("oss1", add).await.unwrap();
        let uuid = world.host("oss1").await.unwrap().assignments[0].uuid;
        // The host died between the first file and the last.
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("superblock.new"), "half").unwrap();
        let daemon = world.daemon("oss1");
        let failed = |info: &HostInfo| info.hosted.iter().any(|t| matches!(t.state, HostedState::Failed(_)));
        world.until("oss1", failed).await;
        assert!(dir.join("superblock.new").exists(), "nobody knows that it is of this target");
        std::fs::write(dir.join("formatting"), brindle_admin::target::hex(&uuid)).unwrap();
        world.until("oss1", serves).await;
        assert!(!dir.join("superblock.new").exists() && !dir.join("formatting").exists());
        daemon.stop().await;
    });
}

#[test]
fn init_changes_nothing_where_something_is() {
    run(async {
        let world = World::new().await;
        let init = |dir: &str, conf: &str| Init {
            fs: "other".parse().unwrap(),
            dir: world.dir.path().join(dir),
            conf: world.dir.path().join(conf),
            host: "mgs2".into(),
            address: "127.0.0.1".into(),
            port: free_port(),
            etcd: None,
        };
        std::fs::create_dir(world.dir.path().join("options")).unwrap();
        std::fs::write(world.dir.path().join("options/serve.toml"), "").unwrap();
        std::fs::create_dir(world.dir.path().join("data")).unwrap();
        std::fs::write(world.dir.path().join("data/thesis"), "text").unwrap();
        let before = listing(world.dir.path());
        for (dir, conf, code) in [
            ("new", "mgs1", Code::HostNameInUse),
            ("mgt", "new-conf", Code::AlreadyFormatted),
            ("data", "new-conf", Code::BadArgument),
            ("new", "options", Code::BadArgument),
        ] {
            let (seams, handle, init) =
                (world.seams.clone(), tokio::runtime::Handle::current(), init(dir, conf));
            let made =
                tokio::task::spawn_blocking(move || enrolment::init(&seams, &handle, &init)).await.unwrap();
            assert_eq!(made.unwrap_err().code, code, "{dir} {conf}");
        }
        assert_eq!(listing(world.dir.path()), before);
    });
}

/// Paths below a directory, without those of files that the MGS, which runs meanwhile, is about to replace.
fn listing(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        found.push(entry.path());
        if entry.path().is_dir() {
            found.extend(listing(&entry.path()));
        }
    }
    found.sort();
    found
}

/// A certificate says who its host is; a key without one says nothing.
#[test]
fn an_identity_is_of_one_cluster() {
    run(async {
        let (world, other) = (World::new().await, World::new().await);
        let authority = Authority::from_pem(
            &std::fs::read_to_string(other.dir.path().join("mgt/authority.pem")).unwrap(),
        )
        .unwrap();
        let key = HostKey::generate().unwrap();
        let name = Name {
            cluster: authority.cluster(),
            host: "mgs1".into(),
            roles: Roles::of(&[HostRole::Admin, HostRole::Server]),
        };
        let certificate = authority.issue(&name, &key.public(), world.seams.wall().secs).unwrap();
        let identity = Identity::new(key, certificate, authority.certificate().to_vec()).unwrap();
        std::fs::create_dir(world.conf("foreign")).unwrap();
        write_secret(&world.conf("foreign").join(IDENTITY_FILE), &identity.to_pem()).unwrap();
        let fault = world.ask("foreign", &ListHostsReq {}).await.unwrap_err();
        assert_eq!(fault.code, Code::ForeignCertificate, "{fault}");
    });
}
