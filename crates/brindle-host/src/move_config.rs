//! Moves the configuration of a cluster from the disk of its MGS host to etcd, while the MGS does not run.

use std::path::Path;

use brindle_config::etcd::settings::{self, Settings};
use brindle_config::{ConfigStore, Expected, Superblock, Swap};
use brindle_mgs::STORE_FILE;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result, TargetId};

use crate::enrolment::EtcdPlace;
use crate::identity::write_secret;
use crate::target_dir::DirLock;

/// New name of the former store.
const MOVED: &str = "config.before-etcd";

/// Moves the configuration of the MGT in `dir`; how many entries it has. May be repeated when it was interrupted: it counts as moved once
/// the file that says where it lies is written, after everything is in etcd.
pub async fn move_config(seams: &Seams, dir: &Path, etcd: &EtcdPlace) -> Result<usize> {
    let text = crate::text(dir)?;
    let expected = Expected { fs: None, target: Some(TargetId::MGT) };
    let loaded = Superblock::load(&*seams.disk, &text, &expected);
    let superblock =
        loaded.map_err(|fault| fault.what("cannot move the configuration of the MGT in"))?.superblock;
    let _lock = DirLock::target(dir)?;
    if let Some(settings) = Settings::read(&*seams.disk, &text)? {
        return Err(Fault::new(Code::StoreInUse)
            .what("the configuration lies in etcd already:")
            .subject(settings.address)
            .data("nothing was changed")
            .next("nothing is to be done"));
    }
    let settings = Settings::new(&etcd.address, &superblock.fs, etcd.tls.clone());
    let (from, to) = (brindle_mgs::local_store(seams.disk.clone(), &text)?, settings.open(seams.clone())?);
    let entries = from.list("").await?;
    for entry in &entries {
        if matches!(to.compare_and_swap(&entry.key, 0, Some(&entry.value)).await?, Swap::Done(_)) {
            continue;
        }
        // An interrupted move has written the same.
        if to.get(&entry.key).await?.is_none_or(|there| there.value != entry.value) {
            return Err(Fault::new(Code::StoreInUse)
                .subject(format!("{}{}", settings.root, entry.key))
                .why("etcd has it, with another value")
                .data("the configuration stays where it is"));
        }
    }
    let found = to.list("").await?;
    if let Some(other) = found.iter().find(|there| !entries.iter().any(|entry| entry.key == there.key)) {
        return Err(Fault::new(Code::StoreInUse)
            .subject(format!("{}{}", settings.root, other.key))
            .why("etcd has it, and this cluster has no such entry")
            .data("the configuration stays where it is"));
    }
    write_secret(&dir.join(settings::FILE), &settings.to_toml()?)?;
    std::fs::rename(dir.join(STORE_FILE), dir.join(MOVED))
        .map_err(|e| Fault::io(Code::NotWritable, "cannot rename", format!("{text}/{STORE_FILE}"), &e))?;
    Ok(entries.len())
}
