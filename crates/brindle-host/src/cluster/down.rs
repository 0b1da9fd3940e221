//! The end of a cluster: unmounts, ends every process, detaches every image.

use std::path::Path;
use std::time::{Duration, Instant};

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;

use super::network::Link;
use super::state::{Cluster, MANAGER, Run};
use super::{On, bare, image};
use crate::mounts;
use crate::process::Identity;

/// Longest time for processes to end by themselves, and again after they were killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster that was ended.
pub enum Down {
    /// The directory does not exist.
    NothingThere,
    /// The cluster has ended; its data stays.
    Ended,
    /// The directory is gone too; so many mounts there were.
    Purged {
        /// Mounts.
        mounts: usize,
    },
}

impl On<'_> {
    /// Ends a cluster; with `purge` its directory is removed, with all data.
    pub fn down(&self, purge: bool) -> Result<Down> {
        let dir = &self.dir;
        if !dir.exists() {
            return Ok(Down::NothingThere);
        }
        Cluster::load(dir)?;
        let lock = self.lock()?;
        let mut cluster = Cluster::load(dir)?;
        end_all(self, &mut cluster, true)?;
        if !purge {
            return Ok(Down::Ended);
        }
        if let Some(left) = mounts::all().iter().find(|m| m.mount_point.starts_with(dir)) {
            return Err(Fault::new(Code::TargetBusy)
                .what("will not remove")
                .subject(dir.display().to_string())
                .why(format!("{} is still mounted", left.mount_point.display())));
        }
        drop(lock);
        std::fs::remove_dir_all(dir)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot remove", dir.display().to_string(), &e))?;
        Ok(Down::Purged { mounts: cluster.mounts.len() })
    }
}

/// Ends everything that the state names. `force`: mounts in use are taken away from the programs that use them.
pub fn end_all(on: &On, cluster: &mut Cluster, force: bool) -> Result<()> {
    let mut first_fault = None;
    let mut note = |outcome: Result<()>| {
        if let Err(fault) = outcome {
            match &first_fault {
                None => first_fault = Some(fault),
                Some(_) => on.warn(fault),
            }
        }
    };
    make_reachable(cluster);
    note(end_processes(on, cluster.agents.iter().map(|a| (a.name.as_str(), a.run.as_ref()))));
    note(end_processes(on, cluster.manager.iter().map(|manager| (MANAGER, manager.run.as_ref()))));
    for mount in &cluster.mounts {
        let ours = mounts::find(&mount.mount_point).is_some_and(|m| m.fs_type == mounts::FUSE_TYPE);
        if ours {
            note(mounts::unmount(&mount.mount_point, force));
        }
    }
    note(end_processes(on, cluster.mounts.iter().map(|m| (m.name.as_str(), m.run.as_ref()))));
    note(end_processes(on, cluster.servers.iter().map(|s| (s.name.as_str(), s.run.as_ref()))));
    for init in cluster.hosts.iter().filter_map(|host| host.init.as_ref()) {
        bare::wake_senders(init.identity);
    }
    note(end_processes(on, cluster.hosts.iter().map(|h| (h.name.as_str(), h.init.as_ref()))));
    note(end_strays(on, cluster));
    for server in cluster.servers.iter().filter(|s| s.image.is_some()) {
        note(image::detach(&server.dir));
    }
    if let Some(network) = &cluster.network {
        note(network.remove());
    }
    for mount in &mut cluster.mounts {
        if mount.made_dir && std::fs::remove_dir(&mount.mount_point).is_ok() {
            mount.made_dir = false;
        }
        mount.run = mount.run.take().filter(|r| r.identity.alive());
    }
    for agent in &mut cluster.agents {
        agent.run = agent.run.take().filter(|r| r.identity.alive());
    }
    for server in &mut cluster.servers {
        server.run = server.run.take().filter(|r| r.identity.alive());
    }
    for host in &mut cluster.hosts {
        host.init = host.init.take().filter(|r| r.identity.alive());
    }
    if let Some(manager) = &mut cluster.manager {
        manager.run = manager.run.take().filter(|run| run.identity.alive());
    }
    bare::remove_mount_points(cluster);
    note(cluster.save(&on.dir));
    first_fault.map_or(Ok(()), Err)
}

/// Ends processes of the cluster that the state does not name: the command that had started them was killed before it could note them.
/// The logs of such processes identify them.
pub fn end_strays(on: &On, cluster: &Cluster) -> Result<()> {
    // A stray that was about to become a bare host may have started its init meanwhile.
    while end_found_strays(on, cluster)? {}
    Ok(())
}

/// Ends the strays that there are now; whether there were any.
fn end_found_strays(on: &On, cluster: &Cluster) -> Result<bool> {
    let servers = cluster.servers.iter().map(|s| (s.name.as_str(), &s.log, s.run.as_ref()));
    let mounts = cluster.mounts.iter().map(|m| (m.name.as_str(), &m.log, m.run.as_ref()));
    let inits = cluster.hosts.iter().filter(|h| h.bare).map(|h| (h.name.as_str(), &h.log, h.init.as_ref()));
    let agents = cluster.agents.iter().map(|a| (a.name.as_str(), &a.log, a.run.as_ref()));
    let manager = cluster.manager.iter().map(|m| (MANAGER, &m.log, m.run.as_ref()));
    let all: Vec<_> = servers.chain(mounts).chain(agents).chain(inits).chain(manager).collect();
    let known = |identity| all.iter().any(|(_, _, run)| run.is_some_and(|run| run.identity == identity));
    let mut strays = Vec::new();
    for process in procfs::process::all_processes().into_iter().flatten().flatten() {
        // A process that ends meanwhile, or belongs to another user, is passed over.
        let Ok(words) = process.cmdline() else { continue };
        let is_of = |log: &Path| words.contains(&format!("--log={}", log.display()));
        let Some((name, _, _)) = all.iter().find(|(_, log, _)| is_of(log)) else { continue };
        let identity = u32::try_from(process.pid).ok().and_then(Identity::of);
        strays.extend(identity.filter(|identity| !known(*identity)).map(|id| (*name, Run::of(id))));
    }
    end_processes(on, strays.iter().map(|(name, run)| (*name, Some(run))))?;
    Ok(!strays.is_empty())
}

/// Hosts that are frozen or cut off could not end: they go on, and their links are whole.
fn make_reachable(cluster: &mut Cluster) {
    let runs: Vec<_> = cluster.hosts.iter().map(|host| cluster.run_of(&host.name).cloned()).collect();
    for (host, run) in cluster.hosts.iter_mut().zip(runs) {
        if host.frozen
            && let Some(run) = run
        {
            run.identity.signal(Signal::CONT);
        }
        host.frozen = false;
        let Some(network) = &cluster.network else { continue };
        for (rail, before) in host.links().into_iter().enumerate() {
            let link = Link { takes_in: true, lets_out: true, ..before };
            if link != before
                && let Some(now) = host.link_mut(rail)
            {
                *now = link;
                // Without a network, after a crash, there is nothing to mend; processes are killed then.
                let _ = network.set_link(&host.name, rail, link);
            }
        }
    }
}

/// SIGTERM to all at once, so that they end side by side; SIGKILL to those that do not.
pub fn end_processes<'a>(on: &On, processes: impl Iterator<Item = (&'a str, Option<&'a Run>)>) -> Result<()> {
    let running: Vec<(&str, &Run)> =
        processes.filter_map(|(name, run)| Some((name, run.filter(|r| r.identity.alive())?))).collect();
    for (_, run) in &running {
        run.identity.signal(Signal::TERM);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut stuck = Vec::new();
    for (name, run) in running {
        if !run.identity.wait_end(deadline.saturating_duration_since(Instant::now())) {
            on.warn(
                Fault::new(Code::ProcessFailed)
                    .what("did not end in time, and is killed:")
                    .subject(name.to_owned())
                    .why(format!("it was sent SIGTERM {} s ago", PATIENCE.as_secs())),
            );
            run.identity.signal(Signal::KILL);
            if !run.identity.wait_end(PATIENCE) {
                stuck.push(format!("{name} (process {})", run.identity.pid));
            }
        }
    }
    if stuck.is_empty() {
        return Ok(());
    }
    Err(Fault::new(Code::ProcessFailed).what("cannot end").subject(stuck.join(", ")))
}
