//! OSTs that join and leave a cluster that runs.

use std::path::Path;

use brindle_admin::target;
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};

use super::state::{Cluster, Server};
use super::{OSTS_MAX, On, down, image, node, up};
use crate::{need_root, text};

/// An OST that left.
pub struct Removed {
    /// Full name of the target.
    pub target: String,
    /// Whether it had been taken out of the file system before.
    pub before: bool,
}

impl On<'_> {
    /// Adds an OST; new files lie on it at once. Unless told otherwise it is made like the last one. The server, as it is now.
    pub fn add_ost(&self, size_bytes: Option<u64>, kind: Option<image::Kind>) -> Result<(Server, String)> {
        Cluster::load(&self.dir)?;
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        refuse_hosts(&cluster, "cannot add an OST to", &self.dir)?;
        let mgs = self.running_mgs(&cluster, "cannot add an OST to")?;
        let osts: Vec<_> = cluster.servers.iter().filter(|s| s.target.role == Role::Ost).collect();
        if osts.len() >= usize::from(OSTS_MAX) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot add an OST to")
                .subject(self.dir.display().to_string())
                .why(format!("it has {OSTS_MAX} OSTs, the most that a development cluster may have")));
        }
        let index = osts.iter().map(|s| s.target.index + 1).max().unwrap_or(0);
        let like = osts.last().and_then(|s| s.image.as_ref());
        let size = size_bytes.or(like.map(|image| image.size_bytes));
        let kind = kind.or(like.map(|image| image.kind)).unwrap_or(image::Kind::Ext4);
        if size.is_some() {
            need_root("cannot use loop images")?;
        }
        cluster.servers.push(up::new_server(&self.dir, TargetId::ost(index), size, kind));
        let at = cluster.servers.len() - 1;
        self.begin_ost(&mut cluster, at, &mgs)?;
        let server = cluster.servers[at].clone();
        let target = cluster.fs.target(server.target);
        Ok((server, target))
    }

    fn begin_ost(&self, cluster: &mut Cluster, at: usize, mgs: &Nid) -> Result<()> {
        // The state names the new server first, so that `down` finds it whatever happens here.
        cluster.save(&self.dir)?;
        let (name, dir) = (cluster.servers[at].name.clone(), text(&self.dir)?);
        let begun = |fault: Fault| fault.next(format!("try again: brindle dev start --dir {dir} {name}"));
        if let Err(fault) = self.make_ost(cluster, at, mgs) {
            if cluster.servers[at].run.is_none() {
                // The OST never was a part of the cluster: the next start of all must not fail by it.
                let server = cluster.servers.remove(at);
                let detached = server.image.as_ref().map_or(Ok(()), |_| image::detach(&server.dir));
                detached.unwrap_or_else(|second| self.warn(second));
                cluster.save(&self.dir)?;
            }
            return Err(fault);
        }
        let started = node::spawn_server(&self.host.program, cluster, at).map_err(&begun)?;
        node::server_ready(cluster, started).map_err(&begun)?;
        cluster.save(&self.dir)?;
        self.until_used(cluster)
    }

    fn make_ost(&self, cluster: &Cluster, at: usize, mgs: &Nid) -> Result<()> {
        if let Some(image) = &cluster.servers[at].image {
            image::attach(image, &cluster.servers[at].dir)?;
        }
        self.format_if_new(cluster, at, std::slice::from_ref(mgs))
    }

    /// Removes an OST that was drained, with its process and its directory.
    pub fn remove_ost(&self, name: &str) -> Result<Removed> {
        Cluster::load(&self.dir)?;
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        refuse_hosts(&cluster, "cannot remove an OST from", &self.dir)?;
        let at = named(&cluster, name)?;
        let target = cluster.servers[at].target;
        let removed = self.take_out(&cluster, target)?;
        down::end_processes(self, std::iter::once((name, cluster.servers[at].run.as_ref())))?;
        let server = cluster.servers.remove(at);
        erase(&server)?;
        cluster.save(&self.dir)?;
        Ok(Removed { target: cluster.fs.target(target), before: !removed })
    }

    /// Takes it out of the map; `false` when it is not in it.
    fn take_out(&self, cluster: &Cluster, id: TargetId) -> Result<bool> {
        self.running_mgs(cluster, "cannot remove an OST from")?;
        let mount = cluster.mounts.first().map_or("MOUNT".into(), |m| m.mount_point.display().to_string());
        let (servers, place) = (&self.host.servers, self.place(cluster));
        let removed = self.host.wait(async {
            let (map, _) = servers.map(&place).await?;
            if map.is_removed(id) {
                return Ok(None);
            }
            target::remove(servers, &place, &map, id.index, &mount).await.map(Some)
        })?;
        let is_new = removed.is_some();
        self.not_told(removed.map(|removed| removed.not_told).unwrap_or_default());
        Ok(is_new)
    }
}

/// The targets of hosts are chosen when the cluster is made.
fn refuse_hosts(cluster: &Cluster, what: &'static str, dir: &Path) -> Result<()> {
    if cluster.hosts.is_empty() {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what(what)
        .subject(dir.display().to_string())
        .why("it is made of hosts, which keep the targets that they were made with")
        .data("nothing was changed")
        .next("make another cluster: brindle dev up --hosts N --osts N --dir DIR"))
}

fn named(cluster: &Cluster, name: &str) -> Result<usize> {
    let is_ost = |s: &Server| s.target.role == Role::Ost;
    cluster.servers.iter().position(|s| s.name == name && is_ost(s)).ok_or_else(|| {
        let names: Vec<&str> =
            cluster.servers.iter().filter(|s| is_ost(s)).map(|s| s.name.as_str()).collect();
        Fault::new(Code::UnknownTarget)
            .what("no such OST")
            .subject(name.to_owned())
            .data("nothing was changed")
            .next(format!("the OSTs are: {}", names.join(", ")))
    })
}

/// Removes the data of a server; no file needs it any more.
fn erase(server: &Server) -> Result<()> {
    let cannot = |path: &Path, e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot remove", path.display().to_string(), e)
    };
    if let Some(image) = &server.image {
        image::detach(&server.dir)?;
        std::fs::remove_file(&image.file).map_err(|e| cannot(&image.file, &e))?;
    }
    std::fs::remove_dir_all(&server.dir).map_err(|e| cannot(&server.dir, &e))
}
