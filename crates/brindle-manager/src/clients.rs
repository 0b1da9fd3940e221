//! Mounts of the manager's own: for what only a mount may ask, such as what a path leads to. Each lives as long as one action.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::place::Place;
use brindle_client::Client;
use brindle_host::mounts;
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, FsName, Ino, Result};

use crate::cluster::Managed;

/// Longest path that is taken.
const PATH_MAX_BYTES: usize = 4096;

/// Whoever makes mounts without a mount point.
pub trait Clients: Send + Sync {
    /// A mount of a file system.
    fn connect<'a>(&'a self, place: &'a Place, fs: &'a FsName) -> BoxFuture<'a, Result<Arc<Client>>>;
}

/// What a person calls a path, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// From the root of the file system, with a leading slash and none at the end.
    pub below_root: String,
    /// As commands on a host name it.
    pub shown: String,
}

impl Managed {
    /// Where the file system is mounted on this host, if it is.
    pub fn mount_points(&self, place: &Place) -> Vec<PathBuf> {
        let mine = mounts::ours().filter(|line| place.is_mounted_from(&line.source));
        let mut points: Vec<PathBuf> = mine.map(|line| line.mount_point).collect();
        points.sort();
        points.dedup();
        points
    }

    /// A mount point for commands; `MNT` where the file system is not mounted here.
    pub fn mount_word(&self, place: &Place) -> String {
        self.mount_points(place).first().map_or_else(|| "MNT".to_owned(), |point| point.display().to_string())
    }

    /// A path as a person gives it: from the root of the file system, or below a mount on this host.
    pub fn name(&self, place: &Place, text: &str) -> Result<Named> {
        let points = self.mount_points(place);
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
        let below = points.iter().find_map(|point| Path::new(text).strip_prefix(point).ok());
        let below = below.map_or_else(
            || text.trim_matches('/').to_owned(),
            |below| below.to_string_lossy().trim_matches('/').to_owned(),
        );
        let mount = self.mount_word(place);
        Ok(Named {
            shown: format!("{mount}/{below}").trim_end_matches('/').to_owned(),
            below_root: format!("/{below}"),
        })
    }

    /// Does something with a mount of the file system, which ends with it.
    pub async fn with_client<T, F>(&self, place: &Place, work: impl FnOnce(Arc<Client>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (map, _) = self.servers.map(place).await?;
        let client = self.clients.connect(place, &map.fs).await?;
        let outcome = work(client.clone()).await;
        client.unmount().await;
        outcome
    }
}

/// What a path from the root of the file system leads to.
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
