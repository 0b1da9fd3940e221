//! The MGT of a host: made where a cluster begins, and fetched by each further host that is to run the MGS.
//!
//! Where the configuration lies in etcd, every MGT of a cluster holds the same: the superblock, the authority with its key, and the way to
//! etcd. The last two are files that only root reads.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brindle_config::etcd::settings::{self, Settings};
use brindle_config::{ConfigStore, Superblock};
use brindle_mgs::hosts::AUTHORITY_FILE;
use brindle_stdx::{Disk, Seams};
use brindle_targets::Directory;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::mgs::hosts::{Assignment, FetchMgtReq};

use crate::format::{begin, ended};
use crate::identity::write_secret;
use crate::service::How;
use crate::target_dir::DirLock;

/// Longest wait for the answer of the MGS.
const FETCH_MS: u64 = 10_000;

/// Makes the MGT of a new cluster whose configuration lies in etcd, without its authority. The store has the empty map then.
pub(crate) async fn make(
    seams: &Seams,
    (dir, fs): (&Path, &brindle_types::FsName),
    settings: &Settings,
    store: &dyn ConfigStore,
) -> Result<()> {
    let superblock = Superblock::new(fs.clone(), TargetId::MGT, Vec::new(), seams.wall(), &*seams.rng);
    brindle_mgs::found(store, &superblock).await?;
    own_dir(dir)?;
    let _lock = DirLock::target(dir)?;
    write_secret(&dir.join(settings::FILE), &settings.to_toml()?)?;
    save(superblock, &*seams.disk, dir)
}

/// Makes the MGT that the active MGS has, because this host is to run the MGS too.
pub(crate) async fn fetch(how: &How, mgs: &Directory, order: &Assignment) -> Result<()> {
    let listens = how.listens(order.port)?;
    let advertised = how.advertised(&listens)?;
    let nids = if advertised.is_empty() { listens } else { advertised };
    let answer = mgs.mgs().probe_within(&FetchMgtReq { nids }, FETCH_MS).await?;
    let superblock = Superblock::from_bytes(&answer.superblock)?;
    if superblock.target != TargetId::MGT || superblock.uuid != order.uuid {
        return Err(Fault::new(Code::ForeignTarget)
            .what("cannot use the MGT that was sent")
            .subject(superblock.name())
            .why("it is another one than the one that this host is to have")
            .data("nothing was changed"));
    }
    Settings::from_toml(&answer.store)?;
    let dir = PathBuf::from(&order.dir);
    own_dir(&dir)?;
    let _lock = DirLock::target(&dir)?;
    begin(&dir, order.uuid)?;
    write_secret(&dir.join(AUTHORITY_FILE), &answer.authority)?;
    write_secret(&dir.join(settings::FILE), &answer.store)?;
    save(superblock, &*how.seams.disk, &dir)?;
    ended(&dir)?;
    tracing::info!(dir = %order.dir, "has the MGT of the cluster");
    Ok(())
}

/// Only its servers may read the directory of a target.
pub(crate) fn own_dir(dir: &Path) -> Result<()> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), e);
    std::fs::create_dir_all(dir).map_err(|e| cannot(&e))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(|e| cannot(&e))
}

fn save(mut superblock: Superblock, disk: &dyn Disk, dir: &Path) -> Result<()> {
    superblock.save(disk, &crate::text(dir)?)
}
