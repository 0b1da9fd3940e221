//! Makes a new MDT: superblock, format row, root directory.

use std::sync::Arc;

use brindle_config::Superblock;
use brindle_stdx::Seams;
use brindle_types::attr::Time;
use brindle_types::{FileType, FsName, Ino, Nid, Pair, Result, TargetId};

use crate::config::{self, Identity};
use crate::mdt::INODES_FIRST;
use crate::store::dirent::HashKey;
use crate::store::inode::DIR_SIZE_BYTES;
use crate::store::meta::{self, Format};
use crate::store::{Engine, Inode, inode};

/// Mode of the root directory.
const ROOT_PERM: u16 = 0o755;

/// Makes an MDT in `dir`.
pub async fn format(seams: &Seams, dir: &str, fs: FsName, index: u16, mgs: Vec<Nid>) -> Result<Superblock> {
    let superblock = Superblock::new(fs, TargetId::mdt(index), mgs, seams.wall(), &*seams.rng);
    format_as(seams, dir, superblock).await
}

/// Makes the MDT of a superblock in `dir`. The superblock comes last: a directory without one is not a target.
pub async fn format_as(seams: &Seams, dir: &str, mut superblock: Superblock) -> Result<Superblock> {
    make_store(seams, dir, &Identity::of(&superblock)).await?;
    superblock.save(&*seams.disk, dir)?;
    Ok(superblock)
}

/// Makes the store of an MDT with its first rows.
pub async fn make_store(seams: &Seams, dir: &str, identity: &Identity) -> Result<()> {
    let options = config::kv_identity(identity);
    let wall = seams.wall();
    let now = Time { secs: wall.secs, nanos: wall.nanos };
    let (store_dir, uuid, mdt_index) = (config::store_dir(dir), identity.uuid, identity.index);
    Engine::create(seams, &store_dir, &options, |t| {
        let half = |at: usize| u64::from_be_bytes(uuid[at..at + 8].try_into().expect("eight bytes"));
        meta::put_format(t, &Format { uuid, mdt_index, hash_key: HashKey(half(0), half(8)) });
        meta::put_inodes_reserved(t, INODES_FIRST);
        if mdt_index == 0 {
            inode::put(t, &root(now))?;
        }
        Ok(())
    })
    .await
}

fn root(now: Time) -> Inode {
    Inode {
        ino: Ino::ROOT,
        kind: FileType::Directory,
        perm: ROOT_PERM,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: DIR_SIZE_BYTES,
        allocated_bytes: DIR_SIZE_BYTES,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: Ino::ROOT,
        name_hint: Arc::default(),
        data_version: Pair::ZERO,
        has_acl: false,
        has_xattr: false,
        open_for_write: false,
        attr_epoch: Pair::ZERO,
        truncate_epoch: Pair::ZERO,
        file: None,
        layout_policy: None,
        project: 0,
        inherits_project: false,
    }
}
