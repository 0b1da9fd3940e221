//! Membership: the steps that every server of a target takes. It reads its superblock, listens, joins the cluster, fails, stops.
//!
//! MDS and OSS keep a [`Member`] each beside their service. States: *serving* (it listens), *registered* (the MGS knows it under its
//! address), *failed* (it cannot serve any more, with the reason), *stopped*.

use std::sync::Arc;

use brindle_config::{Expected, Superblock};
use brindle_net::fair::{Fair, FairConfig};
use brindle_net::latch::Latch;
use brindle_net::usage::Usage;
use brindle_net::{RpcServer, ServerConfig, ServerHandle, ServerStats, Service, Transport};
use brindle_stdx::{Seams, watch};
use brindle_types::{Code, Fault, Nid, Result, Role};
use brindle_wire::Op;
use brindle_wire::form::FormatLevel;
use brindle_wire::mgs::RegisterReq;

use crate::{Directory, Gate, Registration, limits};

/// Addresses and role of a served target.
#[derive(Clone, Debug)]
pub struct ServedTarget {
    /// Directory of the formatted target.
    pub dir: String,
    /// Address to listen at; port 0 chooses a free one.
    pub listen: Nid,
    /// Addresses of further rails to listen at, with the same port.
    pub rails: Vec<Nid>,
    /// Addresses that others reach it at; empty for the one that it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host.
    pub host: String,
    /// Requests of jobs that are served at once, in turns; `None` for all, as they come.
    pub places: Option<usize>,
}

/// Reads the superblock of a target of `role`.
pub fn load(seams: &Seams, dir: &str, role: Role) -> Result<Superblock> {
    let loaded = Superblock::load(&*seams.disk, dir, &Expected { fs: None, target: None })?;
    let mut superblock = loaded.superblock;
    if superblock.target.role != role {
        let wanted = if role == Role::Mdt { "an MDT" } else { "an OST" };
        return Err(Fault::new(Code::ForeignTarget)
            .subject(dir.to_owned())
            .why(format!("it holds {}, not {wanted}", superblock.name())));
    }
    if let Some(warning) = loaded.warning {
        tracing::warn!(code = %warning.code, subject = %warning.subject, "{}", warning.what);
        superblock.save(&*seams.disk, dir)?;
    }
    Ok(superblock)
}

/// A target on the network; stops when dropped.
pub struct Member {
    seams: Seams,
    server: ServerHandle,
    gate: Arc<Gate>,
    targets: Arc<Directory>,
    superblock: Superblock,
    place: ServedTarget,
    stop: Arc<Latch>,
    failed: watch::Sender<Option<Fault>>,
    registered: Arc<Latch>,
}

impl Member {
    /// Listens, and answers with `service`, which stands behind `gate`.
    pub async fn serve(
        seams: &Seams,
        transport: Arc<dyn Transport>,
        (superblock, place): (Superblock, ServedTarget),
        (gate, targets): (Arc<Gate>, Arc<Directory>),
        service: Arc<dyn Service>,
    ) -> Result<Member> {
        gate.behind(&*transport);
        let fair = FairConfig { role: superblock.target.role, places: place.places };
        let config = ServerConfig { fair: Some(fair), ..ServerConfig::default() };
        let server = RpcServer::serve(transport.clone(), seams, &place.listen, config, service).await?;
        server.serve_rails(&*transport, &place.rails).await?;
        let member = Member {
            seams: seams.clone(),
            server,
            gate,
            targets,
            superblock,
            place,
            stop: Arc::default(),
            failed: watch::Sender::default(),
            registered: Arc::default(),
        };
        if let Some(fair) = member.fair() {
            member
                .spawn("member.limits", limits::follow(seams.clone(), member.targets.clone(), fair.clone()));
        }
        Ok(member)
    }

    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.server.local_nid()
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Counts requests of some operations, for as long as the result is kept.
    pub fn counts_requests(&self, of: fn(Op) -> bool) -> Box<dyn Fn() -> u64 + Send + Sync> {
        self.server.counts_requests(of)
    }

    /// Requests by client, user and job.
    pub fn usage(&self) -> &Arc<Usage> {
        self.server.usage()
    }

    /// Sharing between jobs, and limits.
    pub fn fair(&self) -> Option<&Arc<Fair>> {
        self.server.fair()
    }

    /// Completes when the target can no longer be served, with the reason.
    pub async fn until_failed(&self) -> Fault {
        // `wait_for` only fails when the sender is gone, which `self` holds.
        let mut failed = self.failed.subscribe();
        let fault = failed.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        fault.unwrap_or_else(|| Fault::new(Code::Shutdown))
    }

    /// Says that the target can no longer be served once `failure` completes.
    pub fn fails_with(&self, name: &'static str, failure: impl Future<Output = Fault> + Send + 'static) {
        let failed = self.failed.clone();
        self.spawn(name, async move {
            failed.send_replace(Some(failure.await));
        });
    }

    /// Completes when the MGS knows the target under its address.
    pub async fn until_registered(&self) {
        self.registered.wait().await;
    }

    /// Set once the MGS knows the target under its address.
    pub fn registered(&self) -> Arc<Latch> {
        self.registered.clone()
    }

    /// Registers with the MGS. Returns when the MGS has answered.
    pub async fn join(&self) -> Result<()> {
        self.joining().await
    }

    /// Registers with the MGS while the target is served already: the MGS may be away. A refusal is a failure.
    pub fn join_later(&self) {
        let (joined, failed) = (self.joining(), self.failed.clone());
        self.spawn("member.join", async move {
            if let Err(fault) = joined.await {
                failed.send_replace(Some(fault));
            }
        });
    }

    /// An id of the file system that is new here goes into the superblock.
    fn joining(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let advertise = &self.place.advertise;
        let nids = if advertise.is_empty() { self.server.nids(&self.place.rails) } else { advertise.clone() };
        let mut superblock = self.superblock.clone();
        let announce = RegisterReq {
            fs: superblock.fs.clone(),
            fs_id: superblock.fs_id,
            target: superblock.target,
            uuid: superblock.uuid,
            nids,
            host: self.place.host.clone(),
            format_level_max: FormatLevel::NEWEST,
        };
        let (seams, targets, gate) = (self.seams.clone(), self.targets.clone(), self.gate.clone());
        let (dir, registered) = (self.place.dir.clone(), self.registered.clone());
        async move {
            let registration = Registration::start(&seams, targets, announce).await?;
            let fs_id = registration.map().current().fs_id;
            if superblock.fs_id != fs_id {
                superblock.fs_id = fs_id;
                superblock.save(&*seams.disk, &dir)?;
            }
            gate.registered(registration);
            registered.set();
            Ok(())
        }
    }

    /// Runs until the member is stopped.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.seams.spawn(name, async move {
            stop.until(task).await;
        });
    }

    /// Closes its connections. From this moment nobody hears how a request ends.
    pub fn stop_serving(&self) {
        self.server.stop();
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        self.stop.set();
        self.server.stop();
        self.targets.stop();
        if let Some(registration) = self.gate.registration() {
            registration.stop();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}
