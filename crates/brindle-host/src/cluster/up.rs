//! The start of a cluster: from nothing, or from what an earlier start left, to mounted.

use std::path::{Path, PathBuf};

use brindle_auth::Mode;
use brindle_config::Superblock;
use brindle_stdx::cast::len_u16;
use brindle_types::ids::DEFAULT_PORT;
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};

use super::down::end_strays;
use super::manager::new_manager;
use super::network::{self, Link, Linked, Network};
use super::s3::{self, S3};
use super::state::{AgentState, Cluster, HostState, Image, MANAGER, Mount, Server, alive};
use super::{Event, FS_DEFAULT, OSTS_DEFAULT, On, bare, end_all, image, node};
use crate::format::{self, Plan};
use crate::target_dir::LOCK_FILE;
use crate::{need_root, requirements, text};

/// Number of server hosts from which on the MGS and the MDT have a pair of hosts.
const MDS_PAIR_FROM: usize = 4;
/// OSTs of each host that has any, unless told otherwise.
const OSTS_PER_HOST: usize = 2;

/// Request to start a cluster. Missing values are those of the previous start.
#[derive(Clone, Debug)]
pub struct Up {
    /// Number of OSTs.
    pub osts: Option<u16>,
    /// Mount points.
    pub mount_points: Vec<PathBuf>,
    /// Whether anything is mounted.
    pub mounts: bool,
    /// The archive that an agent serves; for clusters without hosts.
    pub archive: Option<ArchiveAt>,
    /// Name of the file system.
    pub fs: Option<FsName>,
    /// Size of the loop image that each new OST lies on.
    pub ost_size_bytes: Option<u64>,
    /// Size of the loop image that a new MDT lies on.
    pub mdt_size_bytes: Option<u64>,
    /// File system of new images.
    pub image_kind: image::Kind,
    /// Whether a manager is started too; one that there was before is started again anyway.
    pub manager: bool,
    /// Makes a cluster of so many server hosts and client hosts.
    pub hosts: Option<Hosts>,
    /// Names of bare hosts; h1, h2, ... beyond the end of the list.
    pub bare_names: Vec<String>,
}

/// Where an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveAt {
    /// In a directory.
    Dir(PathBuf),
    /// In a bucket of an S3 server that belongs to the cluster.
    S3,
}

/// Hosts of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Hosts that serve.
    pub servers: usize,
    /// Hosts that mount.
    pub clients: usize,
    /// Bits a second of each link, each way.
    pub rate_bits: Option<u64>,
    /// Links of each host, each to a switch of its own; as before where nothing is said, one in a new cluster.
    pub rails: Option<usize>,
    /// Whether they are empty machines, and serve nothing.
    pub bare: bool,
    /// Protection of frames; `None`: as before, or `auth` in a new cluster.
    pub security: Option<Mode>,
}

impl On<'_> {
    /// Starts a cluster. If that fails what was started goes again; the data stays.
    pub fn up(&self, up: &Up) -> Result<Cluster> {
        if up.mounts {
            need_root("cannot mount")?;
            if !is_bare(&self.dir, up) {
                requirements::check()?;
            }
        }
        let _lock = self.lock()?;
        let mut cluster = self.load_or_new(up)?;
        refuse_running(&self.dir, &cluster)?;
        end_strays(self, &cluster)?;
        match up.hosts {
            Some(hosts) => wanted_hosts(&mut cluster, &self.dir, up, hosts)?,
            None if !cluster.hosts.is_empty() => refuse_changes(&cluster, &self.dir, up)?,
            None => {
                wanted_servers(&mut cluster, &self.dir, up)?;
                wanted_mounts(&mut cluster, &self.dir, up)?;
                wanted_agent(&mut cluster, &self.dir, up)?;
            }
        }
        if up.manager && cluster.is_bare() {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot start a manager of")
                .subject(self.dir.display().to_string())
                .why("its hosts are bare: it is not known what was installed on them")
                .data("nothing was changed")
                .next("start one on a host: brindle manager"));
        }
        if up.manager && cluster.manager.is_none() {
            cluster.manager = Some(new_manager(&self.dir));
        }
        cluster.save(&self.dir)?;
        match self.bring_up(&mut cluster) {
            Ok(()) => Ok(cluster),
            Err(fault) => {
                // The first fault is the one to show.
                if let Err(second) = end_all(self, &mut cluster, true) {
                    self.warn(second);
                }
                Err(fault)
            }
        }
    }

    fn load_or_new(&self, up: &Up) -> Result<Cluster> {
        let dir = &self.dir;
        match Cluster::load(dir) {
            Ok(cluster) => {
                if let Some(fs) = up.fs.as_ref().filter(|fs| **fs != cluster.fs) {
                    return Err(Fault::new(Code::BadArgument)
                        .what("cannot start")
                        .subject(dir.display().to_string())
                        .why(format!("its file system is called '{}', not '{fs}'", cluster.fs))
                        .next("leave --fsname out, or give another directory"));
                }
                Ok(cluster)
            }
            Err(fault) if fault.code == Code::NoSuchCluster && !dir.join("state.json").exists() => {
                refuse_foreign(dir)?;
                Ok(Cluster::new(up.fs.clone().unwrap_or_else(default_fs)))
            }
            Err(fault) => Err(fault),
        }
    }

    fn bring_up(&self, cluster: &mut Cluster) -> Result<()> {
        let logs = self.dir.join("log");
        std::fs::create_dir_all(&logs)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot make", logs.display().to_string(), &e))?;
        attach_images(cluster)?;
        if !cluster.hosts.is_empty() {
            self.start_hosts(cluster)?;
        } else {
            self.start_servers(cluster)?;
            self.start_mounts(cluster)?;
            self.start_agents(cluster)?;
        }
        if cluster.manager.is_some() { self.start_manager(cluster) } else { Ok(()) }
    }

    fn start_agents(&self, cluster: &mut Cluster) -> Result<()> {
        for index in 0..cluster.agents.len() {
            node::start_agent(&self.host.program, cluster, index)?;
            cluster.save(&self.dir)?;
            let agent = &cluster.agents[index];
            let name = &agent.name;
            match &agent.policy {
                Some(file) => (self.tell)(Event::Policy { name, file }),
                None if name == S3 => {
                    let endpoint = agent.run.as_ref().and_then(|run| run.addresses.first());
                    (self.tell)(Event::Stores { name, endpoint: endpoint.map_or("", String::as_str) });
                }
                None => (self.tell)(Event::Agent { name, archive: &node::backend(agent) }),
            }
        }
        Ok(())
    }

    /// The network, then the host of the MGS, then all other servers at once, then all clients at once.
    fn start_hosts(&self, cluster: &mut Cluster) -> Result<()> {
        let none = || Fault::new(Code::Bug).why("a cluster of hosts has no network");
        for host in &mut cluster.hosts {
            for link in std::iter::once(&mut host.link).chain(&mut host.further) {
                *link = Link { takes_in: true, lets_out: true, ..*link };
            }
            host.frozen = false;
        }
        let hosts = cluster.hosts.iter().map(|host| Linked {
            host: &host.name,
            number: host.address.octets()[3],
            links: host.links(),
        });
        let hosts: Vec<Linked<'_>> = hosts.collect();
        cluster.network.as_ref().ok_or_else(none)?.make(&hosts)?;
        if cluster.is_bare() {
            self.make_mount_points(cluster)?;
        } else {
            self.issue_identities(cluster)?;
        }
        let mgs = cluster.hosts.first().map(|host| Nid {
            host: host.address.to_string(),
            port: DEFAULT_PORT,
            rail: 0,
        });
        let mgs: Vec<Nid> = mgs.into_iter().collect();
        for index in 0..cluster.servers.len() {
            let is_mgt = cluster.servers[index].target == TargetId::MGT;
            self.format_if_new(cluster, index, if is_mgt { &[] } else { &mgs })?;
        }
        let is_client = |cluster: &Cluster, at: usize| {
            cluster.mounts.iter().any(|m| m.host.as_ref() == Some(&cluster.hosts[at].name))
        };
        let all = 0..cluster.hosts.len();
        let (clients, servers): (Vec<usize>, Vec<usize>) = all.partition(|at| is_client(cluster, *at));
        let (first, others) = servers.split_at(1.min(servers.len()));
        for batch in [first, others, &clients] {
            self.start_batch(cluster, batch)?;
        }
        Ok(())
    }

    /// Starts hosts side by side.
    fn start_batch(&self, cluster: &mut Cluster, batch: &[usize]) -> Result<()> {
        let mut starting = Vec::new();
        for index in batch {
            starting.push((*index, node::spawn_host(&self.host.program, &self.dir, cluster, *index)?));
            cluster.save(&self.dir)?;
        }
        let mut failed = None;
        for (index, started) in starting {
            match node::host_ready(cluster, started, false) {
                Ok(_) => self.say_host(cluster, index),
                Err(fault) => failed = failed.or(Some(fault)),
            }
            cluster.save(&self.dir)?;
        }
        failed.map_or(Ok(()), Err)
    }

    fn say_host(&self, cluster: &Cluster, index: usize) {
        let view = cluster.host_view(&cluster.hosts[index]);
        if cluster.hosts[index].bare {
            (self.tell)(Event::Runs { name: &view.name, address: view.address });
        } else if !view.mount.is_empty() {
            (self.tell)(Event::Mounted { name: &view.name, mount_point: Path::new(&view.mount) });
        } else if !view.targets.is_empty() {
            let target = view.targets.join(" ");
            (self.tell)(Event::Serves { name: &view.name, target, address: view.address });
        }
    }

    /// The MGS first, because the others must know its port; then all others at once.
    fn start_servers(&self, cluster: &mut Cluster) -> Result<()> {
        let program = &self.host.program;
        self.format_if_new(cluster, 0, &[])?;
        let started = node::spawn_server(program, cluster, 0)?;
        node::server_ready(cluster, started)?;
        cluster.save(&self.dir)?;
        self.say_server(cluster, 0);
        let mgs: Vec<Nid> = cluster.mgs().into_iter().collect();
        let mut starting = Vec::new();
        for index in 1..cluster.servers.len() {
            self.format_if_new(cluster, index, &mgs)?;
            starting.push((index, node::spawn_server(program, cluster, index)?));
        }
        let mut failed = None;
        for (index, started) in starting {
            match node::server_ready(cluster, started) {
                Ok(()) => self.say_server(cluster, index),
                Err(fault) => failed = failed.or(Some(fault)),
            }
            cluster.save(&self.dir)?;
        }
        failed.map_or(Ok(()), Err)
    }

    fn say_server(&self, cluster: &Cluster, index: usize) {
        let server = &cluster.servers[index];
        let address = server.run.as_ref().and_then(|r| r.addresses.first()).cloned().unwrap_or_default();
        (self.tell)(Event::Serves { name: &server.name, target: cluster.fs.target(server.target), address });
    }

    /// Formats the target of a server, if that was not done.
    pub(super) fn format_if_new(&self, cluster: &Cluster, index: usize, mgs: &[Nid]) -> Result<()> {
        let seams = self.host.seams();
        let server = &cluster.servers[index];
        if Superblock::exists(&*seams.disk, &text(&server.dir)?)? {
            return Ok(());
        }
        let plan = Plan {
            fs: cluster.fs.clone(),
            target: server.target,
            mgs: mgs.to_vec(),
            dir: server.dir.clone(),
            uuid: None,
        };
        self.host.wait(format::carry_out(seams, &plan, &[]))?;
        Ok(())
    }

    fn start_mounts(&self, cluster: &mut Cluster) -> Result<()> {
        let mut starting = Vec::new();
        for index in 0..cluster.mounts.len() {
            starting.push((index, node::spawn_mount(&self.host.program, &self.dir, cluster, index)?));
        }
        cluster.save(&self.dir)?;
        let mut failed = None;
        for (index, started) in starting {
            match node::mount_ready(cluster, started) {
                Ok(()) => {
                    let Mount { name, mount_point, .. } = &cluster.mounts[index];
                    (self.tell)(Event::Mounted { name, mount_point });
                }
                Err(fault) => failed = failed.or(Some(fault)),
            }
            cluster.save(&self.dir)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

fn attach_images(cluster: &Cluster) -> Result<()> {
    let with_image: Vec<&Server> = cluster.servers.iter().filter(|s| s.image.is_some()).collect();
    if !with_image.is_empty() {
        need_root("cannot use loop images")?;
    }
    for server in with_image {
        if let Some(image) = &server.image {
            image::attach(image, &server.dir)?;
        }
    }
    Ok(())
}

/// Whether a cluster of bare hosts is asked for, or there is one.
fn is_bare(dir: &Path, up: &Up) -> bool {
    up.hosts.is_some_and(|hosts| hosts.bare) || Cluster::load(dir).is_ok_and(|cluster| cluster.is_bare())
}

fn default_fs() -> FsName {
    FS_DEFAULT.parse().expect("the default is a good name")
}

/// A new cluster gets an empty directory, because `down --purge` removes it whole.
fn refuse_foreign(dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(dir)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot look into", dir.display().to_string(), &e))?;
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    // A mount point below DIR may have been made already.
    let foreign = names.filter(|n| n != LOCK_FILE).find(|n| !is_empty_dir(&dir.join(n)));
    match foreign {
        None => Ok(()),
        Some(name) => Err(Fault::new(Code::BadArgument)
            .what("cannot start a cluster in")
            .subject(dir.display().to_string())
            .why(format!("it holds '{name}', which is not of a cluster"))
            .data("nothing was changed")
            .next("give an empty or a new directory")),
    }
}

fn is_empty_dir(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn refuse_running(dir: &Path, cluster: &Cluster) -> Result<()> {
    let servers = cluster.servers.iter().map(|s| (s.name.as_str(), s.run.as_ref()));
    let mounts = cluster.mounts.iter().map(|m| (m.name.as_str(), m.run.as_ref()));
    let inits = cluster.hosts.iter().map(|h| (h.name.as_str(), h.init.as_ref()));
    let agents = cluster.agents.iter().map(|a| (a.name.as_str(), a.run.as_ref()));
    let manager = cluster.manager.iter().map(|m| (MANAGER, m.run.as_ref()));
    let running: Vec<&str> = servers
        .chain(mounts)
        .chain(agents)
        .chain(inits)
        .chain(manager)
        .filter(|(_, run)| alive(*run))
        .map(|(name, _)| name)
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    let all = if cluster.is_bare() { cluster.hosts.len() } else { cluster.names().len() };
    let next = if running.len() == all {
        format!("see it: brindle dev status --dir {0}; end it: brindle dev down --dir {0}", dir.display())
    } else if cluster.is_bare() {
        format!("start what is missing: brindle dev host start --dir {} HOST", dir.display())
    } else {
        format!("start what is missing: brindle dev start --dir {} NAME", dir.display())
    };
    Err(Fault::new(Code::ClusterExists)
        .what("cannot start")
        .subject(dir.display().to_string())
        .why(format!("a cluster runs there already: {}", running.join(", ")))
        .next(next))
}

/// A server that has never run.
pub fn new_server(dir: &Path, target: TargetId, size: Option<u64>, kind: image::Kind) -> Server {
    let name = match target.role {
        Role::Mgt => "mgs".to_owned(),
        Role::Mdt => format!("mdt{}", target.index),
        Role::Ost => format!("ost{}", target.index),
    };
    let image = size.map(|size_bytes| {
        let file = dir.join("images").join(format!("{name}.img"));
        Image { file, kind, size_bytes }
    });
    Server {
        dir: dir.join(&name),
        log: dir.join("log").join(format!("{name}.log")),
        name,
        target,
        port: 0,
        metrics_port: 0,
        room_wait_s: 0,
        lock_memory: false,
        image,
        host: None,
        run: None,
    }
}

/// The mount of a client host.
fn mount_of(dir: &Path, name: String) -> Mount {
    Mount {
        mount_point: dir.join("mnt").join(&name),
        log: dir.join("log").join(format!("{name}.log")),
        made_dir: false,
        metrics_port: 0,
        host: Some(name.clone()),
        run: None,
        name,
    }
}

/// The hosts of a cluster that there is: they stay, and may get other rates and another protection.
fn kept_hosts(cluster: &mut Cluster, dir: &Path, up: &Up, hosts: Hosts) -> Result<()> {
    let same = |n: usize, is_client: bool| {
        let is = |host: &&HostState| cluster.mounts.iter().any(|m| m.host.as_ref() == Some(&host.name));
        n == cluster.hosts.iter().filter(|host| is(host) == is_client).count()
    };
    let as_bare = hosts.bare == cluster.is_bare();
    let rails = cluster.network.as_ref().map_or(1, Network::rails);
    if !as_bare
        || hosts.rails.is_some_and(|wanted| wanted != rails)
        || !same(hosts.servers, false)
        || !same(hosts.clients, true)
    {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot start with other hosts than there are:")
            .subject(dir.display().to_string())
            .why("a cluster keeps the hosts that it was made with")
            .data("nothing was changed")
            .next("leave --hosts, --clients, --rails and --bare out, or give another directory"));
    }
    refuse_changes(cluster, dir, up)?;
    if hosts.rate_bits.is_some() {
        let links = cluster.hosts.iter_mut().flat_map(|h| std::iter::once(&mut h.link).chain(&mut h.further));
        links.for_each(|link| link.rate_bits = hosts.rate_bits);
    }
    cluster.security = hosts.security.unwrap_or(cluster.security);
    Ok(())
}

/// The hosts of a new cluster: two for the MGS and the MDT (one where there are few), the others with OSTs, and the clients.
fn wanted_hosts(cluster: &mut Cluster, dir: &Path, up: &Up, hosts: Hosts) -> Result<()> {
    if !cluster.servers.is_empty() || !cluster.hosts.is_empty() {
        return kept_hosts(cluster, dir, up, hosts);
    }
    if hosts.bare {
        return bare::wanted_bare(cluster, dir, hosts, &up.bare_names);
    }
    network::check_tools()?;
    cluster.security = hosts.security.unwrap_or(Mode::Auth);
    let network = Network::new(dir, hosts.rails.unwrap_or(1))?;
    let mds_hosts = if hosts.servers >= MDS_PAIR_FROM { 2 } else { 1 };
    let oss_hosts = hosts.servers - mds_hosts;
    let server = |target, host: &str, size| Server {
        host: Some(host.to_owned()),
        ..new_server(dir, target, size, up.image_kind)
    };
    let mut names: Vec<String> = (1..=mds_hosts).map(|n| format!("mds{n}")).collect();
    names.extend((1..=oss_hosts).map(|n| format!("oss{n}")));
    names.extend((1..=hosts.clients).map(|n| format!("c{n}")));
    for (number, name) in (1..).zip(&names) {
        cluster.hosts.push(HostState {
            name: name.clone(),
            address: network.address(number),
            link: Link { rate_bits: hosts.rate_bits, ..Link::default() },
            further: vec![Link { rate_bits: hosts.rate_bits, ..Link::default() }; network.further.len()],
            frozen: false,
            log: dir.join("log").join(format!("{name}.log")),
            bare: false,
            init: None,
        });
    }
    cluster.servers.push(server(TargetId::MGT, "mds1", None));
    cluster.servers.push(server(TargetId::mdt(0), &format!("mds{mds_hosts}"), up.mdt_size_bytes));
    // The OSTs of a cluster of one host are on that.
    let with_osts: Vec<String> = match oss_hosts {
        0 => vec!["mds1".to_owned()],
        n => (1..=n).map(|n| format!("oss{n}")).collect(),
    };
    let osts = up.osts.map_or(with_osts.len() * OSTS_PER_HOST, usize::from);
    let mut index = 0;
    for (n, host) in with_osts.iter().enumerate() {
        // The first ones have one more where they cannot all have the same number.
        for _ in 0..osts / with_osts.len() + usize::from(n < osts % with_osts.len()) {
            cluster.servers.push(server(TargetId::ost(index), host, up.ost_size_bytes));
            index += 1;
        }
    }
    for n in 1..=hosts.clients {
        cluster.mounts.push(mount_of(dir, format!("c{n}")));
    }
    for server in &mut cluster.servers {
        server.log = dir.join("log").join(format!("{}.log", server.host.as_deref().unwrap_or(&server.name)));
    }
    cluster.network = Some(network);
    Ok(())
}

/// A cluster of hosts keeps its OSTs and its mount points.
fn refuse_changes(cluster: &Cluster, dir: &Path, up: &Up) -> Result<()> {
    let osts = cluster.servers.iter().filter(|s| s.target.role == Role::Ost).count();
    let other_osts = up.osts.is_some_and(|wanted| usize::from(wanted) != osts);
    if !other_osts && up.mount_points.is_empty() && up.mounts {
        return Ok(());
    }
    let why = if cluster.is_bare() {
        "its hosts are bare: they serve and mount nothing".to_owned()
    } else {
        let mnt = dir.join("mnt");
        format!("it is made of hosts, with {osts} OSTs, and each client mounts below {}", mnt.display())
    };
    Err(Fault::new(Code::BadArgument)
        .what("cannot start with other OSTs or mount points than there are:")
        .subject(dir.display().to_string())
        .why(why)
        .data("nothing was changed")
        .next("leave --osts, --mount and --no-mount out, or give another directory"))
}

/// Adds the servers that are missing.
fn wanted_servers(cluster: &mut Cluster, dir: &Path, up: &Up) -> Result<()> {
    let is_ost = |s: &&Server| s.target.role == Role::Ost;
    let have = len_u16(cluster.servers.iter().filter(is_ost).count());
    let osts = up.osts.unwrap_or(if have == 0 { OSTS_DEFAULT } else { have });
    if osts < have {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot start with fewer OSTs than there are:")
            .subject(dir.display().to_string())
            .why(format!("it has {have} OSTs, and files lie on them"))
            .next("leave --osts out, or give another directory"));
    }
    if cluster.servers.is_empty() {
        cluster.servers.push(new_server(dir, TargetId::MGT, None, up.image_kind));
        cluster.servers.push(new_server(dir, TargetId::mdt(0), up.mdt_size_bytes, up.image_kind));
    }
    let taken = cluster.servers.iter().filter(is_ost).map(|s| s.target.index + 1).max();
    for index in (taken.unwrap_or(0)..).take(usize::from(osts - have)) {
        cluster.servers.push(new_server(dir, TargetId::ost(index), up.ost_size_bytes, up.image_kind));
    }
    Ok(())
}

/// Number of the archive of a development cluster.
const ARCHIVE: u32 = 1;

/// Name of the policy engine of a development cluster.
const POLICY: &str = "policy";

/// The agent of the archive that is asked for, and the policy engine; as before where none is.
fn wanted_agent(cluster: &mut Cluster, dir: &Path, up: &Up) -> Result<()> {
    let Some(archive) = &up.archive else { return Ok(()) };
    let new = |name: &str, archive: PathBuf| AgentState {
        name: name.to_owned(),
        number: ARCHIVE,
        archive,
        policy: None,
        in_bucket: false,
        log: dir.join("log").join(format!("{name}.log")),
        run: None,
    };
    let (archive, server) = match archive {
        ArchiveAt::Dir(archive) => (PathBuf::from(text(archive)?), None),
        ArchiveAt::S3 => {
            // Before anything is made.
            s3::program()?;
            let data = dir.join(S3);
            (data.clone(), Some(new(S3, data)))
        }
    };
    let in_bucket = server.is_some();
    let agent = AgentState { in_bucket, ..new(&format!("agent{ARCHIVE}"), archive) };
    let engine = AgentState { policy: Some(dir.join("policy.conf")), ..new(POLICY, dir.join("policy")) };
    cluster.agents = server.into_iter().chain([agent, engine]).collect();
    Ok(())
}

/// Replaces the mounts where others are asked for.
fn wanted_mounts(cluster: &mut Cluster, dir: &Path, up: &Up) -> Result<()> {
    let mut points: Vec<PathBuf> = Vec::new();
    for mount in &up.mount_points {
        points.push(PathBuf::from(text(mount)?));
    }
    if !up.mounts {
        cluster.mounts.clear();
        return Ok(());
    }
    if points.is_empty() {
        points = cluster.mounts.iter().map(|m| m.mount_point.clone()).collect();
    }
    if points.is_empty() {
        points.push(dir.join("mnt"));
    }
    let old = std::mem::take(&mut cluster.mounts);
    for (n, mount_point) in points.into_iter().enumerate() {
        if cluster.mounts.iter().any(|m| m.mount_point == mount_point) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot mount twice at")
                .subject(mount_point.display().to_string()));
        }
        let known = old.iter().find(|m| m.mount_point == mount_point);
        let name = format!("client{n}");
        cluster.mounts.push(Mount {
            log: dir.join("log").join(format!("{name}.log")),
            name,
            made_dir: known.is_some_and(|m| m.made_dir),
            metrics_port: known.map_or(0, |m| m.metrics_port),
            host: None,
            run: None,
            mount_point,
        });
    }
    Ok(())
}
