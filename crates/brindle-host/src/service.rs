//! Targets that a process serves: from a directory to a running service, and back.

use std::path::Path;
use std::sync::{Arc, Weak};

use brindle_config::{Expected, Superblock};
use brindle_kv::DurabilityMode;
use brindle_mds::mdt::Mdt;
use brindle_mds::replica::following::FollowerService;
use brindle_mgs::shared::Fence;
use brindle_net::Transport;
use brindle_net::fair::FairShare;
use brindle_net::peer::RAILS_MAX;
use brindle_objects::ObjectStore;
use brindle_oss::{Oss, ReadCache};
use brindle_stdx::Seams;
use brindle_targets::OwnerLease;
use brindle_targets::replica::Seat;
use brindle_types::{Code, Fault, Nid, Result, Role};

use crate::listener;
use crate::target_dir::DirLock;

/// A target that is served.
pub enum Service {
    /// An MGT.
    Mgs(Arc<brindle_mgs::Handle>),
    /// An MDT.
    Mds(Arc<brindle_mds::Handle>),
    /// A member of an MDT's replica set that is not the primary.
    MdsFollower(Box<brindle_mds::replica::Follower>),
    /// An OST.
    Oss(Arc<brindle_oss::Handle>),
}

/// Settings for serving the targets of a process.
#[derive(Clone)]
pub struct How {
    /// Time, tasks, disk.
    pub seams: Seams,
    /// Connections.
    pub transport: Arc<dyn Transport>,
    /// Connections of an MGS, which hosts may ask that have not joined yet.
    pub mgs_transport: Arc<dyn Transport>,
    /// Name of this host.
    pub host: String,
    /// Addresses to listen at, separated by commas: one in each network ([`How::listens`]).
    pub listen: String,
    /// Host name or address that others reach this host at, where it is another one.
    pub advertise: Option<String>,
    /// An MDT puts nothing new on OSTs that are fuller than this, in percent, while others can take it.
    pub high_water_percent: u64,
    /// Longest time that an MDT lets writes wait for added space, where all OSTs are full, in milliseconds.
    pub room_wait_ms: u64,
    /// Files that are longer are divided over the agents of their archive, in bytes; of an MDT only.
    pub divide_above_bytes: u64,
    /// Sharing between jobs; of MDTs and OSTs.
    pub fair_share: FairShare,
    /// Which long reads go through the page cache; of OSTs.
    pub read_cache: ReadCache,
    /// Way to fence hosts that share devices; of an MGT only.
    pub fence: Option<Arc<dyn Fence>>,
    /// Time after which targets go back to their preferred hosts, in milliseconds; of an MGT only.
    pub failback_after_ms: Option<u64>,
    /// The right to answer for the target, where it lies on a device that two hosts reach.
    pub lease: Option<Arc<OwnerLease>>,
    /// Place in the replica set; `Some` if the target is a member of one.
    pub seat: Option<Arc<Seat>>,
}

/// A target's directory, locked and known.
pub struct LockedTarget {
    /// The directory.
    pub dir: String,
    /// Superblock of the target.
    pub superblock: Superblock,
    /// Held as long as the target is used.
    pub lock: DirLock,
}

/// Serves a target at a port; 0 for any free one.
pub async fn start(how: &How, found: &LockedTarget, port: u16) -> Result<Service> {
    let listens = how.listens(port)?;
    let (listen, rails) = (listens[0].clone(), listens[1..].to_vec());
    let (dir, host, advertise) = (found.dir.clone(), how.host.clone(), how.advertised(&listens)?);
    let (seams, transport) = (how.seams.clone(), how.transport.clone());
    let started = match found.superblock.target.role {
        Role::Mgt => {
            let mut config = brindle_mgs::Config::new(dir, listen.clone(), host);
            config.advertise = advertise;
            config.rails = rails;
            config.fence.clone_from(&how.fence);
            config.failback_after_ms = how.failback_after_ms;
            let transport = how.mgs_transport.clone();
            brindle_mgs::start(config, seams, transport).await.map(|h| Service::Mgs(Arc::new(h)))
        }
        Role::Mdt => {
            let mut config = brindle_mds::Config::new(dir, listen.clone(), host);
            config.high_water_percent = how.high_water_percent;
            config.room_wait_ms = how.room_wait_ms;
            config.divide_above_bytes = how.divide_above_bytes;
            config.places = how.fair_share.places(Role::Mdt);
            config.advertise = advertise;
            config.rails = rails;
            if let Some(lease) = &how.lease {
                // The next owner finds only data that is on the device.
                config.durability = DurabilityMode::Sync;
                config.lease = Some(lease.clone());
            }
            config.seat.clone_from(&how.seat);
            if let Some(seat) = &how.seat {
                brindle_mds::replica::check_disk(&seams, &config.dir, seat)?;
            }
            match &how.seat {
                Some(seat) if !brindle_mds::replica::leads(seat) => {
                    let followed = brindle_mds::replica::follow(config, seams, transport).await;
                    followed.map(|follower| Service::MdsFollower(Box::new(follower)))
                }
                _ => brindle_mds::start(config, seams, transport).await.map(|h| Service::Mds(Arc::new(h))),
            }
        }
        Role::Ost => {
            let mut config = brindle_oss::Config::new(dir, listen.clone(), host);
            config.places = how.fair_share.places(Role::Ost);
            config.read_cache = how.read_cache;
            config.advertise = advertise;
            config.rails = rails;
            if let Some(lease) = &how.lease {
                config.replies = brindle_oss::Replies::Synced;
                config.lease = Some(lease.clone());
            }
            config.seat.clone_from(&how.seat);
            brindle_oss::start(config, seams, transport).await.map(|h| Service::Oss(Arc::new(h)))
        }
    };
    started.map_err(|fault| listener::name_listener(fault, &listen))
}

/// Number of the network of an address by its position.
fn rail_at(position: usize) -> u8 {
    u8::try_from(position).expect("at most RAILS_MAX addresses are looked at")
}

/// Addresses of a server, one in each network, in words: `10.0.0.1,10.1.0.1` are in the networks `tcp` and `tcp1`; `10.1.0.1@tcp1` names its network.
pub(crate) fn listens(words: &str, port: u16) -> Result<Vec<Nid>> {
    let refuse = |why: String| {
        let fault = Fault::new(Code::BadConfigValue).what("cannot listen at").subject(words.to_owned());
        fault.why(why).next("give one address for each network: --listen 10.0.0.1,10.1.0.1")
    };
    let address = |(position, word): (usize, &str)| match word.split_once("@tcp") {
        None => Ok(Nid { host: word.to_owned(), port, rail: rail_at(position) }),
        Some((host, "")) => Ok(Nid { host: host.to_owned(), port, rail: 0 }),
        Some((host, rail)) => match rail.parse() {
            Ok(rail) => Ok(Nid { host: host.to_owned(), port, rail }),
            Err(_) => Err(refuse(format!("'{rail}' is not the number of a network"))),
        },
    };
    let nids = words.split(',').map(str::trim).take(RAILS_MAX + 1).enumerate().map(address);
    let nids = nids.collect::<Result<Vec<Nid>>>()?;
    if nids.len() > RAILS_MAX {
        return Err(refuse(format!("it has more than {RAILS_MAX} addresses")));
    }
    let is_twice = |n: usize| nids[..n].iter().any(|other| other.rail == nids[n].rail);
    match (0..nids.len()).find(|n| nids[*n].host.is_empty() || is_twice(*n)) {
        Some(n) => Err(refuse(format!("address {} is empty, or in the network of one before it", n + 1))),
        None => Ok(nids),
    }
}

impl How {
    /// Addresses to listen at: the first one, then those of further rails.
    pub(crate) fn listens(&self, port: u16) -> Result<Vec<Nid>> {
        listens(&self.listen, port)
    }

    /// Addresses to register, where they are not those that are listened at.
    pub(crate) fn advertised(&self, listens: &[Nid]) -> Result<Vec<Nid>> {
        let listen = &listens[0];
        if listens.len() > 1 {
            return match &self.advertise {
                None => Ok(Vec::new()),
                Some(advertise) => Err(Fault::new(Code::BadConfigValue)
                    .what("cannot tell others the address")
                    .subject(advertise.clone())
                    .why("this server listens at several addresses, which it tells all of")
                    .next("leave 'advertise' out")),
            };
        }
        let everywhere = matches!(listen.host.as_str(), "0.0.0.0" | "::");
        let host = self.advertise.clone().or_else(|| everywhere.then(crate::name));
        let Some(host) = host else { return Ok(Vec::new()) };
        if listen.port == 0 {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot tell others the address of")
                .subject("port 0")
                .why("any free port is taken, and 'advertise' needs a fixed one")
                .next("give --port N"));
        }
        Ok(vec![Nid { host, ..listen.clone() }])
    }
}

/// Remains of a service that may go on for a while after it was stopped: requests that had begun, background
/// tasks.
pub enum Remains {
    /// Remains of an MGS: it writes nothing by itself.
    Nothing,
    /// Remains of an MDT.
    Mdt(Weak<Mdt>),
    /// Remains of a member of an MDT's replica set that follows.
    Follower(Weak<FollowerService>),
    /// Remains of an OST.
    Ost(Weak<Oss>, Weak<ObjectStore>),
}

impl Remains {
    /// Whether nothing of it can touch the target's directory any more.
    pub fn are_gone(&self) -> bool {
        match self {
            Remains::Nothing => true,
            Remains::Mdt(mdt) => mdt.strong_count() == 0,
            Remains::Follower(service) => service.strong_count() == 0,
            Remains::Ost(oss, store) => oss.strong_count() == 0 && store.strong_count() == 0,
        }
    }
}

impl Service {
    /// Parts that may go on after [`Service::stop`].
    pub fn remains(&self) -> Remains {
        match self {
            Service::Mgs(_) => Remains::Nothing,
            Service::Mds(handle) => Remains::Mdt(Arc::downgrade(handle.mdt())),
            Service::MdsFollower(follower) => Remains::Follower(Arc::downgrade(follower.service())),
            Service::Oss(handle) => {
                Remains::Ost(Arc::downgrade(handle.oss()), Arc::downgrade(&handle.oss().store))
            }
        }
    }

    /// First address at which the service listens.
    pub fn nid(&self) -> Nid {
        match self {
            Service::Mgs(handle) => handle.local_nid().clone(),
            Service::Mds(handle) => handle.local_nid().clone(),
            Service::MdsFollower(follower) => follower.local_nid().clone(),
            Service::Oss(handle) => handle.local_nid().clone(),
        }
    }

    /// Stops it; its store is synced and closed.
    pub async fn stop(self) -> Result<()> {
        match self {
            Service::Mgs(handle) => {
                handle.hand_over().await;
                Ok(())
            }
            Service::Mds(handle) => handle.close().await,
            Service::MdsFollower(follower) => follower.stop().await,
            Service::Oss(handle) => {
                handle.stop();
                handle.oss().store.close().await
            }
        }
    }

    /// Completes when the MGS knows it.
    pub async fn until_registered(&self) {
        match self {
            Service::Mgs(_) | Service::MdsFollower(_) => {}
            Service::Mds(handle) => handle.until_registered().await,
            Service::Oss(handle) => handle.until_registered().await,
        }
    }

    /// Completes when it can no longer serve, with the reason.
    pub async fn until_failed(&self) -> Fault {
        match self {
            Service::Mgs(handle) => handle.until_failed().await,
            Service::Mds(handle) => handle.until_failed().await,
            Service::MdsFollower(follower) => follower.until_failed().await,
            Service::Oss(handle) => handle.until_failed().await,
        }
    }
}
impl LockedTarget {
    /// Locks the directory of a target and reads what it is.
    pub fn lock(dir: &Path, seams: &Seams) -> Result<LockedTarget> {
        let text = crate::text(dir)?;
        if !dir.is_dir() {
            return Err(Fault::new(Code::NotATarget)
                .what("cannot serve")
                .subject(text)
                .why("there is no such directory"));
        }
        // Where there is no target, no byte is written, not even a lock: the directory may be the mount point of a disk that is not
        // mounted.
        Superblock::load(&*seams.disk, &text, &Expected::default())?;
        let lock = DirLock::target(dir)?;
        let loaded = Superblock::load(&*seams.disk, &text, &Expected::default())?;
        let mut superblock = loaded.superblock;
        if let Some(warning) = loaded.warning {
            tracing::warn!(code = %warning.code, subject = %warning.subject, "{warning}");
            superblock.save(&*seams.disk, &text)?;
        }
        Ok(LockedTarget { dir: text, superblock, lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_address_in_each_network() {
        let shown = |words: &str| -> Vec<String> {
            listens(words, 9881).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown("10.0.0.1"), ["10.0.0.1:9881@tcp"]);
        assert_eq!(shown("10.0.0.1, 10.1.0.1"), ["10.0.0.1:9881@tcp", "10.1.0.1:9881@tcp1"]);
        assert_eq!(shown("10.1.0.1@tcp1"), ["10.1.0.1:9881@tcp1"]);
        assert_eq!(shown("::1")[0], "[::1]:9881@tcp");
        for wrong in ["", "a,", "a@tcp1,b@tcp1", "a,b@tcp", "a@tcpx", "a,b,c,d,e"] {
            let fault = listens(wrong, 1).unwrap_err();
            assert_eq!(fault.code, Code::BadConfigValue, "{wrong}: {fault}");
        }
    }
}
