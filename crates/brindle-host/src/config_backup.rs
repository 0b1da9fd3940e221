//! Backups of a cluster's configuration, on a host that has the MGT; and the restore, on the host that is to run the MGS from then on.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use brindle_auth::{Authority, HostKey, HostRole, Identity, KeyId, Name, Roles};
use brindle_mgs::backup::{self, BACKUP_MAX_BYTES, ConfigBackup, Known, NewKey, Restored};
use brindle_stdx::Seams;
use brindle_stdx::disk::read_file;
use brindle_types::{Code, Fault, FsName, Nid, Result};

use crate::access;
use crate::enrolment::{ClusterFile, Daemon, IDENTITY_FILE, SERVE_FILE, make_conf, refuse_existing};
use crate::format::refuse_occupied;
use crate::identity::write_secret;
use crate::mgt::own_dir;
use crate::service::listens;
use crate::target_dir::DirLock;

/// Writes a backup of the configuration of the MGT in `dir` to a new file that only its owner reads.
pub async fn save(seams: &Seams, dir: &Path, to: &Path) -> Result<ConfigBackup> {
    let backup = ConfigBackup::read(seams, &crate::text(dir)?).await?;
    write_new(to, &backup.to_bytes())?;
    Ok(backup)
}

/// The file gets its name when it is whole and on the disk.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let shown = path.display().to_string();
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot write the backup", shown.clone(), e).data("no backup was made")
    };
    let refuse = || {
        Fault::new(Code::BadArgument)
            .what("will not write over")
            .subject(shown.clone())
            .data("nothing was changed")
            .next("give the backup another name")
    };
    if path.symlink_metadata().is_ok() {
        return Err(refuse());
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = (|| {
        match std::fs::remove_file(&part) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        // A new file: one that was there could be anybody's.
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::hard_link(&part, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(parent)?.sync_all()
    })();
    let removed = std::fs::remove_file(&part);
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(refuse()),
        Err(e) => Err(cannot(&e)),
        Ok(()) => removed.map_err(|e| cannot(&e)),
    }
}

/// Reads a backup, all of it checked.
pub fn load(seams: &Seams, file: &Path) -> Result<ConfigBackup> {
    let path = crate::text(file)?;
    let bytes = read_file(&*seams.disk, &path, BACKUP_MAX_BYTES)
        .map_err(|e| Fault::io(Code::BadConfigBackup, "cannot read", path.clone(), &e))?;
    ConfigBackup::from_bytes(&path, &bytes)
}

/// A backup to restore, and its place.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The backup.
    pub file: PathBuf,
    /// Directory that becomes the MGT.
    pub dir: PathBuf,
    /// Configuration directory of this host.
    pub conf: PathBuf,
    /// Name of this host.
    pub host: String,
    /// Address that other hosts reach this one at.
    pub address: String,
    /// Port of the MGS.
    pub port: u16,
    /// Lists of removed keys that servers have kept.
    pub removed: Vec<PathBuf>,
    /// Only say what would happen.
    pub is_dry_run: bool,
}

/// A configuration that was restored.
#[derive(Debug)]
pub struct Done {
    /// The backup.
    pub backup: ConfigBackup,
    /// Entries that were made of the backup.
    pub restored: Restored,
    /// Whether this host had no identity, and got one.
    pub is_new_host: bool,
}

/// Makes the MGT from a backup. A host without an identity becomes the one of its name, with a new key.
pub fn restore(seams: &Seams, wanted: &Restore) -> Result<Done> {
    let backup = load(seams, &wanted.file)?;
    let superblock = backup.superblock()?;
    let now_s = seams.wall().secs;
    let mut known = Known { now_s, removed: removed_keys(&wanted.removed)?, new_key: None };
    let is_new_host = !backup.authority.is_empty() && !wanted.conf.join(IDENTITY_FILE).exists();
    let key = HostKey::generate()?;
    let roles = Roles::of(&[HostRole::Server, HostRole::Admin]);
    if is_new_host {
        let key = KeyId::of_public(&key.public()).0;
        known.new_key = Some(NewKey { host: wanted.host.clone(), key, roles: roles.to_string() });
        refuse_existing(&wanted.conf.join(SERVE_FILE))?;
    }
    let restored = backup.restored(&known)?;
    refuse_occupied(&*seams.disk, &wanted.dir).map_err(|fault| {
        fault.what("cannot restore the configuration to").next("give an empty directory: --dir DIR")
    })?;
    let done = |backup| Done { backup, restored: restored.clone(), is_new_host };
    if wanted.is_dry_run {
        return Ok(done(backup));
    }
    own_dir(&wanted.dir)?;
    let _lock = DirLock::target(&wanted.dir)?;
    if !backup.authority.is_empty() {
        write_secret(&wanted.dir.join(brindle_mgs::hosts::AUTHORITY_FILE), &backup.authority)?;
    }
    backup::make(seams, &backup, &restored, &crate::text(&wanted.dir)?)?;
    if is_new_host {
        // After the MGT: a try that was interrupted leaves no identity whose key the MGT does not have.
        let authority = Authority::from_pem(&backup.authority)?;
        make_conf(&wanted.conf)?;
        let daemon = Daemon { listen: &wanted.address, port: Some(wanted.port), dir: Some(&wanted.dir) };
        daemon.write(&wanted.conf)?;
        let own = OwnHost { name: &wanted.host, conf: &wanted.conf, key, roles };
        own.write(&authority, &superblock.fs, &listens(&wanted.address, wanted.port)?, now_s)?;
    }
    Ok(done(backup))
}

/// The host that gets the MGT, with its key.
pub(crate) struct OwnHost<'a> {
    pub(crate) name: &'a str,
    pub(crate) conf: &'a Path,
    pub(crate) key: HostKey,
    pub(crate) roles: Roles,
}

impl OwnHost<'_> {
    /// Writes its identity and the file of its cluster. The identity is written last.
    pub(crate) fn write(self, authority: &Authority, fs: &FsName, mgs: &[Nid], now_s: i64) -> Result<()> {
        let name = Name { cluster: authority.cluster(), host: self.name.to_owned(), roles: self.roles };
        let certificate = authority.issue(&name, &self.key.public(), now_s)?;
        let identity = Identity::new(self.key, certificate, authority.certificate().to_vec())?;
        let file = ClusterFile {
            cluster: authority.cluster().to_string(),
            host: self.name.to_owned(),
            fs: fs.clone(),
            mgs: mgs.iter().map(ToString::to_string).collect(),
        };
        file.write(self.conf)?;
        write_secret(&self.conf.join(IDENTITY_FILE), &identity.to_pem())
    }
}

pub(crate) fn removed_keys(files: &[PathBuf]) -> Result<BTreeSet<[u8; 32]>> {
    let mut keys = BTreeSet::new();
    for file in files {
        keys.extend(access::removed_in(file)?.into_iter().map(|key| key.0));
    }
    Ok(keys)
}
