//! A part of a cluster on this host: some of its targets, with an MGS that may be elsewhere, and perhaps a mount.
//!
//! Processes are found and started again by the same state file as those of a whole cluster ([`super::state`]), so a part is ended by
//! [`On::down`].

use brindle_config::{Expected, Superblock};
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use brindle_wire::bb::MissingSlice;

use super::state::{Cluster, Reach, Server, alive};
use super::{On, down, image, node};
use crate::{mounts, text};

/// Targets that are to be served.
pub struct Wanted {
    /// Name of the file system.
    pub fs: FsName,
    /// Servers of the part on this host; servers that the state knows stay as they are.
    pub servers: Vec<Server>,
    /// Address of the MGS, where another host serves it.
    pub mgs: Option<Nid>,
    /// How other hosts reach the servers.
    pub reach: Option<Reach>,
    /// Answer to targets that are missing.
    pub missing: MissingSlice,
}

impl On<'_> {
    /// Serves targets; those that run go on. The state as it is then.
    pub fn serve(&self, wanted: Wanted) -> Result<Cluster> {
        let _lock = self.lock()?;
        let mut cluster = load_or_new(self, &wanted.fs)?;
        cluster.reach = wanted.reach;
        cluster.mgs_elsewhere = wanted.mgs;
        for server in wanted.servers {
            if !cluster.servers.iter().any(|known| known.name == server.name) {
                cluster.servers.push(server);
            }
        }
        self.bring_up_servers(&mut cluster, wanted.missing, false)?;
        Ok(cluster)
    }

    /// Starts what the state knows and does not run. Servers may wait for others that are elsewhere.
    pub fn serve_again(&self) -> Result<()> {
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        self.bring_up_servers(&mut cluster, MissingSlice::PassOver, true)
    }

    /// Mounts what the state names, where that is not mounted.
    pub fn mount_all(&self, mgs: &Nid) -> Result<()> {
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        let is_elsewhere = cluster.servers.iter().all(|server| server.target != TargetId::MGT);
        if is_elsewhere && cluster.mgs_elsewhere.as_ref() != Some(mgs) {
            cluster.mgs_elsewhere = Some(mgs.clone());
            cluster.save(&self.dir)?;
        }
        for index in 0..cluster.mounts.len() {
            let mount = &cluster.mounts[index];
            if alive(mount.run.as_ref()) && mounts::find(&mount.mount_point).is_some() {
                continue;
            }
            down::end_processes(self, std::iter::once((mount.name.as_str(), mount.run.as_ref())))?;
            down::end_strays(self, &cluster)?;
            let started = node::spawn_mount(&self.host.program, &self.dir, &mut cluster, index)?;
            cluster.save(&self.dir)?;
            node::mount_ready(&mut cluster, started)?;
            cluster.save(&self.dir)?;
        }
        Ok(())
    }

    /// Waits until the MDTs know all servers, so that new files lie on new ones.
    pub fn until_known(&self) -> Result<()> {
        self.until_used(&Cluster::load(&self.dir)?)
    }

    /// The MGS first, because the others must know its port; then all others at once. The state names each before it is started.
    fn bring_up_servers(&self, cluster: &mut Cluster, missing: MissingSlice, or_waiting: bool) -> Result<()> {
        let logs = self.dir.join("log");
        std::fs::create_dir_all(&logs)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot make", logs.display().to_string(), &e))?;
        cluster.save(&self.dir)?;
        let stopped = |at: &usize| !alive(cluster.servers[*at].run.as_ref());
        let stopped: Vec<usize> = (0..cluster.servers.len()).filter(stopped).collect();
        if stopped.is_empty() {
            return Ok(());
        }
        down::end_strays(self, cluster)?;
        let is_mgt = |at: &usize| cluster.servers[*at].target == TargetId::MGT;
        let (first, others): (Vec<usize>, Vec<usize>) = stopped.into_iter().partition(is_mgt);
        let mut failed = None;
        for batch in [first, others] {
            let mut starting = Vec::new();
            for at in batch {
                match self.prepare_target(cluster, at, missing) {
                    Ok(true) => starting.push(node::spawn_server(&self.host.program, cluster, at)?),
                    Ok(false) => {}
                    Err(fault) => failed = failed.or(Some(fault)),
                }
            }
            for started in starting {
                if let Err(fault) = node::server_ready_or_waiting(cluster, started, or_waiting) {
                    failed = failed.or(Some(fault));
                }
                cluster.save(&self.dir)?;
            }
            if let Some(fault) = failed {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Mounts the image of a target and formats it where it is new; whether it is there.
    fn prepare_target(&self, cluster: &Cluster, at: usize, missing: MissingSlice) -> Result<bool> {
        let server = &cluster.servers[at];
        let disk = &*self.host.seams().disk;
        let has_image = server.image.as_ref().is_none_or(|image| image.file.exists());
        if has_image && let Some(image) = &server.image {
            // A host that has booted has its images, and has them not mounted.
            image::attach(image, &server.dir)?;
        }
        let is_there = has_image && server.dir.is_dir() && Superblock::exists(disk, &text(&server.dir)?)?;
        match missing {
            _ if is_there => {}
            MissingSlice::PassOver => return Ok(false),
            // A target that has run is made once.
            MissingSlice::Make if server.port == 0 => {}
            MissingSlice::Make | MissingSlice::Refuse => {
                return Err(Fault::new(Code::NotATarget)
                    .what("cannot serve")
                    .subject(server.dir.display().to_string())
                    .why("a target was in it, and is not there")
                    .data("nothing was changed")
                    .next("mount its disk there"));
            }
        }
        if let Some(image) = &server.image {
            image::attach(image, &server.dir)?;
        }
        let mgs: Vec<Nid> = match server.target {
            TargetId::MGT => Vec::new(),
            _ => cluster.mgs().into_iter().collect(),
        };
        self.format_if_new(cluster, at, &mgs)?;
        if server.target != TargetId::MGT {
            let dir = text(&server.dir)?;
            let mut superblock = Superblock::load(disk, &dir, &Expected::default())?.superblock;
            if superblock.mgs != mgs && !mgs.is_empty() {
                // The MGS has another port than when the target was made.
                superblock.mgs = mgs;
                superblock.save(disk, &dir)?;
            }
        }
        Ok(true)
    }
}

/// The part that is in the directory, or one without anything.
fn load_or_new(on: &On, fs: &FsName) -> Result<Cluster> {
    match Cluster::load(&on.dir) {
        Err(fault) if fault.code == Code::NoSuchCluster && !on.dir.join("state.json").exists() => {
            Ok(Cluster::new(fs.clone()))
        }
        loaded => loaded,
    }
}
