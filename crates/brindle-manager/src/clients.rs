//! Mounts of the manager itself, for requests that only a mount may make, such as the inode of a path. Each mount lives as long as
//! one action.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brindle_admin::place::FsLocation;
use brindle_client::Client;
use brindle_host::mounts::{self, MountLine};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, FsName, Ino, Result};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use crate::cluster::Managed;

/// Mounts at a time: those of tasks, and some for plans.
pub const MOUNTS_MAX: usize = 12;
/// How long a caller that waits for a plan waits for the servers.
const LOOK_LIMIT: Duration = Duration::from_secs(15);
/// Longest path that is taken.
const PATH_MAX_BYTES: usize = 4096;

/// Maker of mounts without a mount point.
pub trait Clients: Send + Sync {
    /// A mount of a file system.
    fn connect<'a>(&'a self, place: &'a FsLocation, fs: &'a FsName) -> BoxFuture<'a, Result<Arc<Client>>>;
}

/// A path as a person writes it, and the file at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// From the root of the file system, with a leading slash and none at the end.
    pub below_root: String,
    /// As commands on a host name it.
    pub shown: String,
}

impl Managed {
    /// Where all of the file system is mounted on this host, if it is.
    pub fn mount_points(&self, place: &FsLocation) -> Vec<PathBuf> {
        let mine = mounts::ours().filter(|line| is_whole(place, line));
        let mut points: Vec<PathBuf> = mine.map(|line| line.mount_point).collect();
        points.sort();
        points.dedup();
        points
    }

    /// A mount point for commands; `MNT` where the file system is not mounted here.
    pub fn mount_word(&self, place: &FsLocation) -> String {
        self.mount_points(place).first().map_or_else(|| "MNT".to_owned(), |point| point.display().to_string())
    }

    /// A path as a person gives it: from the root of the file system, or below a mount on this host.
    pub fn name(&self, place: &FsLocation, text: &str) -> Result<Named> {
        let refused = |why: &str| {
            Fault::new(Code::BadArgument)
                .what("cannot use the path")
                .subject(text.chars().take(200).collect::<String>())
                .why(why.to_owned())
                .data("nothing was changed")
        };
        if !text.starts_with('/') || text.contains('\0') {
            let next = "give it from the root of the file system: /project/run1";
            return Err(refused("it does not begin with '/'").next(next));
        }
        if text.len() > PATH_MAX_BYTES {
            return Err(refused("it is too long"));
        }
        if Path::new(text).components().any(|part| part.as_os_str() == "..") {
            return Err(refused("it has '..'"));
        }
        let lines: Vec<MountLine> = mounts::ours().collect();
        let below = match holding(&lines, Path::new(text)) {
            None => text.to_owned(),
            Some((line, below)) if is_whole(place, line) => below.to_string_lossy().into_owned(),
            Some((line, _)) => {
                let at = line.mount_point.display();
                return Err(refused(&format!(
                    "{at} is a mount of {}, and not of the root of this file system",
                    line.source
                ))
                .next("give the path from the root of the file system: /project/run1"));
            }
        };
        let below = below.trim_matches('/');
        let mount = self.mount_word(place);
        Ok(Named {
            shown: format!("{mount}/{below}").trim_end_matches('/').to_owned(),
            below_root: format!("/{below}"),
        })
    }

    /// Does something with a mount of the file system, which ends with it.
    pub async fn with_client<T, F>(
        &self,
        place: &FsLocation,
        work: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let permit = self.free_mounts.clone().try_acquire_owned().map_err(|_| {
            Fault::new(Code::ManagerBusy)
                .what("cannot look at")
                .subject("the file system")
                .why(format!("{MOUNTS_MAX} actions and plans do"))
                .data("nothing was changed")
        })?;
        let (map, _) = self.servers.map(place).await?;
        let (clients, place) = (self.clients.clone(), place.clone());
        // A task of its own: the caller may go away meanwhile, and an opened session must be closed.
        let connecting = tokio::spawn(async move {
            let client = clients.connect(&place, &map.fs).await?;
            Ok(Mounted(Some((client, permit))))
        });
        let mounted: Mounted = connecting.await.unwrap_or_else(|e| Err(bug(&e)))?;
        let outcome = work(mounted.client()?).await;
        mounted.end().await;
        outcome
    }
}

fn bug(e: &tokio::task::JoinError) -> Fault {
    Fault::new(Code::Bug).what("the mount for an action ended:").why(e.to_string())
}

/// A mount that ends with this value, also when its maker goes away; until it has ended it counts among the present mounts.
struct Mounted(Option<(Arc<Client>, OwnedSemaphorePermit)>);

impl Mounted {
    fn client(&self) -> Result<Arc<Client>> {
        let mount = self.0.as_ref().map(|(client, _)| client.clone());
        mount.ok_or_else(|| Fault::new(Code::Bug).why("a mount that has ended"))
    }

    /// Ends it, and waits for the end.
    async fn end(mut self) {
        if let Some(ending) = self.begin_to_end()
            && let Err(e) = ending.await
        {
            tracing::error!("{}", bug(&e));
        }
    }

    fn begin_to_end(&mut self) -> Option<JoinHandle<()>> {
        let (client, permit) = self.0.take()?;
        // Without a runtime the process ends, and the server ends the session with its lease.
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            client.unmount().await;
            drop(permit);
        }))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The unmount goes on by itself: nobody is there to wait for it.
        drop(self.begin_to_end());
    }
}

/// A look that somebody waits for: refused when the servers take too long.
pub async fn in_time<T>(looking: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LOOK_LIMIT, looking).await.unwrap_or_else(|_| {
        Err(Fault::new(Code::TargetDown)
            .what("cannot look at")
            .subject("the file system")
            .why(format!("its servers did not answer in {} s", LOOK_LIMIT.as_secs()))
            .data("nothing was changed")
            .next("see which targets are down, and start them"))
    })
}

/// Whether a mount shows all of the file system: neither a directory of it, nor a bind mount of one.
fn is_whole(place: &FsLocation, line: &MountLine) -> bool {
    line.root == Path::new("/") && place.is_whole_in(&line.source)
}

/// The mount that a path lies in, and the rest of the path; of several on one mount point the last.
fn holding<'a>(lines: &'a [MountLine], path: &'a Path) -> Option<(&'a MountLine, &'a Path)> {
    let holds = lines.iter().filter_map(|line| Some((line, path.strip_prefix(&line.mount_point).ok()?)));
    holds.max_by_key(|(line, _)| line.mount_point.components().count())
}

/// File at a path from the root of the file system.
pub async fn found(client: &Client, named: &Named) -> Result<Ino> {
    let attr = client.lookup_path(&named.below_root).await.map_err(|fault| match fault.code {
        Code::NotFound => Fault::new(Code::NotFound)
            .what("there is no")
            .subject(named.below_root.clone())
            .why("the path is meant from the root of the file system")
            .data("nothing was changed"),
        _ => fault.subject(named.below_root.clone()),
    })?;
    Ok(attr.ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_below_the_deepest_mount_and_directories_are_no_roots() {
        let place = FsLocation { mgs: vec!["mgs1".parse().unwrap()], fs: None, dev: None };
        let line = |root: &str, at: &str, source: &str| MountLine {
            major: 0,
            minor: 1,
            root: root.into(),
            is_noatime: false,
            mount_point: at.into(),
            fs_type: mounts::FUSE_TYPE.to_owned(),
            source: source.to_owned(),
        };
        let lines = [
            line("/", "/mnt/b", "mgs1:/scratch"),
            line("/projects", "/mnt/p", "mgs1:/scratch/projects"),
            line("/x", "/mnt/b/bound", "mgs1:/scratch"),
            line("/", "/mnt/other", "mgs2:/scratch"),
            line("/", "/mnt/b/inner", "mgs1:/scratch"),
        ];
        let read = |path: &str| {
            let (line, below) = holding(&lines, Path::new(path))?;
            is_whole(&place, line).then(|| below.to_string_lossy().into_owned())
        };
        assert_eq!(read("/mnt/b/run1").unwrap(), "run1");
        assert_eq!(read("/mnt/b/inner/run1").unwrap(), "run1");
        for other in ["/mnt/p/run1", "/mnt/b/bound/run1", "/mnt/other/run1"] {
            assert!(holding(&lines, Path::new(other)).is_some() && read(other).is_none(), "{other}");
        }
        assert!(holding(&lines, Path::new("/mnt/bb/run1")).is_none(), "a name is whole");
    }
}
