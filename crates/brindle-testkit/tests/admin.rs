//! Tests of administration while a cluster is used and while it breaks: the jobs of `brindle-admin` in the
//! simulator.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use brindle_admin::drain::Drain;
use brindle_admin::job;
use brindle_admin::mount::InProcess;
use brindle_admin::moving::WholeMount;
use brindle_admin::place::FsLocation;
use brindle_admin::rebalance::Rebalance;
use brindle_admin::servers::{OnlyTheMgs, Servers};
use brindle_admin::status::Report;
use brindle_admin::{target, upgrade};
use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster, fs_name, nid};
use brindle_types::{Code, Ino, LayoutPolicy, StripePolicy};
use brindle_wire::mds::open::Access;
use brindle_wire::mgs::TargetChange;

const RUN_MS: u64 = 600_000;
const SEEDS: u64 = 6;
const OSTS: u16 = 3;
/// The OST that leaves.
const LEAVES: u16 = 1;
const FILES: usize = 8;
const FILE_BYTES: usize = 300_000;
/// Slow enough that a job is in the middle when something happens.
const BANDWIDTH_BYTES: Option<u64> = Some(1 << 20);
const BOTH: Access = Access { read: true, write: true, truncate: false, execute: false };

/// A cluster with files on the OST that leaves.
struct Bench {
    cluster: SimCluster,
    client: Arc<Client>,
    servers: Servers,
    place: FsLocation,
    files: Vec<(Ino, u64)>,
}

fn contents(n: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 7 + n * 31) as u8).collect()
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let cluster = SimCluster::new(seed, Options { osts: OSTS, clients: 1 });
        let (node, admin) = (cluster.world().node("c0"), cluster.world().node("admin"));
        let client = cluster.world().run_until(RUN_MS, SimCluster::mount(&node)).unwrap();
        let servers = Servers::new(admin.seams, admin.transport, Arc::new(OnlyTheMgs), "admin");
        let place = FsLocation { mgs: vec![nid("mgs")], fs: Some(fs_name()), dev: None };
        let mut bench = Bench { cluster, client, servers, place, files: Vec::new() };
        bench.files = bench.run(async {
            let mut files = Vec::new();
            for n in 0..FILES {
                files.push(bench.make(n).await);
            }
            files
        });
        bench
    }

    fn run<T>(&self, history: impl Future<Output = T>) -> T {
        self.cluster.world().run_until(RUN_MS, history).unwrap()
    }

    async fn make(&self, n: usize) -> (Ino, u64) {
        let (client, name) = (&self.client, format!("f{n}"));
        let parent = client.root();
        let create =
            CreateIn { parent, name: name.as_bytes(), mode: 0o644, umask: 0, exclusive: true, access: BOTH };
        let opened = client.create(&Ctx::root(), create).await.unwrap().opened;
        let ino = opened.attr.ino;
        let stripe = StripePolicy { start_ost: Some(i32::from(LEAVES)), ..StripePolicy::default() };
        let policy = LayoutPolicy::from(stripe);
        while let Err(fault) = client.set_stripe(&Ctx::root(), ino, Some(policy.clone())).await {
            assert_eq!(fault.code, Code::BadStripe, "not all OSTs have joined yet");
            self.servers.seams().sleep_ms(100).await;
        }
        let write = WriteIn { offset: 0, data: contents(n).into(), ..WriteIn::default() };
        client.write(&Ctx::root(), opened.handle, write).await.unwrap();
        client.fsync(opened.handle).await.unwrap();
        (ino, opened.handle)
    }

    fn whole(&self) -> WholeMount {
        WholeMount { mount: Arc::new(InProcess::new(self.client.clone(), Ctx::root())), root: "/mnt".into() }
    }

    async fn drained(&self) -> Drain {
        let changed = target::change(&self.servers, &self.place, LEAVES, TargetChange::Drain).await.unwrap();
        Drain { map: changed.map, ost: LEAVES, whole: self.whole(), bandwidth_bytes: BANDWIDTH_BYTES }
    }

    async fn check_files(&self) {
        for (n, (_, handle)) in self.files.iter().enumerate() {
            let read = self.client.read(*handle, 0, FILE_BYTES as u64 + 1, false).await.unwrap().into_bytes();
            assert!(read[..] == contents(n)[..], "file {n} is what it was");
        }
    }
}

#[test]
fn a_drain_that_is_cancelled_and_given_again_empties_the_ost_which_then_leaves() {
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        bench.run(async {
            let (seams, servers) = (bench.servers.seams().clone(), bench.servers.clone());
            let refused =
                target::remove(&servers, &bench.place, &bench.drained().await.map, LEAVES, "/mnt").await;
            assert_eq!(refused.unwrap_err().code, Code::TargetInUse, "files lie on it");
            let drain = bench.drained().await;
            let again = drain.clone();
            let mut first = job::start(&seams, "drain", |job| drain.run(servers.clone(), job));
            // The job has begun when it tells of the first file.
            first.event().await.unwrap();
            first.canceller().cancel();
            let fault = first.result().await.unwrap_err();
            assert_eq!(fault.code, Code::Interrupted, "{fault}");
            bench.check_files().await;
            let second = job::start(&seams, "drain", |job| again.run(servers.clone(), job));
            let done = second.result().await.unwrap();
            assert!(done.empty && done.failed == 0, "{done:?}");
            assert!(done.files < FILES as u64 + 1, "{done:?}");
            bench.check_files().await;
            let (map, _) = servers.map(&bench.place).await.unwrap();
            target::remove(&servers, &bench.place, &map, LEAVES, "/mnt").await.unwrap();
            bench.check_files().await;
        });
        bench.cluster.world().end();
    }
}

#[test]
fn a_drain_goes_on_when_the_mdt_or_an_ost_was_away() {
    for seed in 0..SEEDS {
        for victim in ["mdt0", "ost0", "ost1"] {
            let bench = Bench::new(seed);
            let (seams, servers) = (bench.servers.seams().clone(), bench.servers.clone());
            let mut running = bench.run(async {
                let drain = bench.drained().await;
                let mut running = job::start(&seams, "drain", |job| drain.run(servers.clone(), job));
                running.event().await.unwrap();
                running
            });
            bench.cluster.world().kill(victim);
            bench.cluster.world().run_for(1_000 + seed * 700);
            bench.cluster.restart(victim);
            bench.run(async {
                let mut warnings = Vec::new();
                while let Some(event) = running.event().await {
                    if let job::Event::Warning(fault) = event {
                        warnings.push(fault);
                    }
                }
                let mut done = running.result().await;
                // Files that could not be moved meanwhile are moved by the same request.
                while !done.as_ref().is_ok_and(|done| done.empty) {
                    let drain = bench.drained().await;
                    done = job::start(&seams, "drain", |job| drain.run(servers.clone(), job)).result().await;
                    assert!(done.is_ok(), "seed {seed}, {victim}: {done:?}, {warnings:?}");
                }
                bench.check_files().await;
            });
            bench.cluster.world().end();
        }
    }
}

#[test]
fn status_upgrade_and_rebalance_tell_what_is() {
    let bench = Bench::new(0);
    bench.run(async {
        let report = Report::of(&bench.servers, bench.place.clone()).await.unwrap();
        let names: Vec<String> = report.view().targets.into_iter().map(|target| target.name).collect();
        assert_eq!(names.len(), usize::from(OSTS) + 2, "{names:?}");
        let done = upgrade::upgrade(&bench.servers, &bench.place, false).await.unwrap();
        assert!(!done.changed && done.level == done.level_before, "{done:?}");
        let request = Rebalance {
            place: bench.place.clone(),
            whole: bench.whole(),
            spread_percent: 1,
            bandwidth_bytes: None,
            dry_run: false,
        };
        let seams = bench.servers.seams().clone();
        let servers = bench.servers.clone();
        let done = job::start(&seams, "rebalance", |job| request.run(servers, job)).result().await.unwrap();
        assert_eq!((done.failed, done.targets.len()), (0, usize::from(OSTS)), "{done:?}");
        bench.check_files().await;
    });
    bench.cluster.world().kill("ost2");
    bench.run(async {
        let report = Report::of(&bench.servers, bench.place.clone()).await.unwrap();
        let problems = report.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].code, Code::TargetDown);
        assert!(problems[0].subject.contains("OST0002"), "{}", problems[0]);
    });
    bench.cluster.world().end();
}
