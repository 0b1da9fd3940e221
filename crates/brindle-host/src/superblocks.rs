//! Superblocks of a host's targets as a file, and the rebuilding of a cluster's configuration from the files of all hosts (design
//! note 048).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_admin::target::hex;
use brindle_auth::{Authority, ClusterId, HostKey, HostRole, Identity, KeyId, Roles};
use brindle_config::{Expected, Superblock};
use brindle_mgs::backup::{self, ConfigBackup, Known, Restored};
use brindle_mgs::hosts::AUTHORITY_FILE;
use brindle_mgs::hosts::rows::HostRow;
use brindle_mgs::rebuilt::{self, FoundHost, FoundTarget, Rebuilt, Said};
use brindle_stdx::Seams;
use brindle_targets::replica::ReplicaRecord;
use brindle_types::{Code, Fault, Result, TargetId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_backup::{OwnHost, removed_keys};
use crate::enrolment::{Daemon, IDENTITY_FILE, SERVE_FILE, make_conf};
use crate::format::refuse_occupied;
use crate::identity::write_secret;
use crate::mgt::own_dir;
use crate::service::listens;
use crate::target_dir::DirLock;

/// Deepest directory below a root in which a target is looked for.
const DEPTH_MAX: usize = 4;
/// Most directories that are looked into.
const DIRS_MAX: usize = 100_000;
/// Largest file of a host.
const FILE_MAX_BYTES: u64 = 4 << 20;

/// Targets that lie on a host, as its superblocks say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuperblocksView {
    /// Name of the host.
    pub host: String,
    /// Number of its cluster; empty where the host has no identity.
    pub cluster: String,
    /// Key of the host, hexadecimal; empty where it has no identity.
    pub key: String,
    /// Roles of the host, with commas.
    pub roles: String,
    /// Targets by directory.
    pub targets: Vec<SuperblockView>,
    /// Directories that could not be read, or hold a target that cannot.
    pub troubles: Vec<String>,
}
document!(SuperblocksView, "brindle.cluster.superblocks", 1);

/// A target in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuperblockView {
    /// The directory.
    pub dir: String,
    /// `OST0003`.
    pub target: String,
    /// Name of the file system.
    pub fs: String,
    /// Id of the file system, hexadecimal.
    pub fs_id: String,
    /// Identity of the target, hexadecimal.
    pub uuid: String,
    /// Highest epoch of its replica set that this copy has recorded; 0 where it never was in one.
    pub epoch: u64,
    /// Hosts that had everything in that epoch.
    pub in_sync: Vec<String>,
}

/// Looks for targets below these directories, without following links or leaving their file systems.
pub fn scan(seams: &Seams, conf: &Path, host: &str, roots: &[PathBuf]) -> Result<SuperblocksView> {
    let mut view = SuperblocksView {
        host: host.to_owned(),
        cluster: String::new(),
        key: String::new(),
        roles: Roles::of(&[HostRole::Server]).to_string(),
        targets: Vec::new(),
        troubles: Vec::new(),
    };
    if let Some(identity) = identity(conf)? {
        let name = identity.name();
        view.host.clone_from(&name.host);
        view.cluster = name.cluster.to_string();
        view.roles = name.roles.to_string();
        view.key = hex(&identity.key_id().0);
    }
    let mut left = DIRS_MAX;
    for root in roots {
        let device = match std::fs::symlink_metadata(root) {
            Ok(found) => found.dev(),
            Err(e) => {
                view.troubles.push(format!("{}: {e}", root.display()));
                continue;
            }
        };
        look(seams, (root, device, DEPTH_MAX), &mut left, &mut view);
    }
    if left == 0 {
        view.troubles.push(format!("more than {DIRS_MAX} directories: name the right ones with --under"));
    }
    view.targets.sort_by(|a, b| a.dir.cmp(&b.dir));
    view.targets.dedup_by(|a, b| a.dir == b.dir);
    Ok(view)
}

fn identity(conf: &Path) -> Result<Option<Identity>> {
    let path = conf.join(IDENTITY_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => Identity::from_pem(&text).map(Some).map_err(|f| f.subject(path.display().to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fault::io(Code::BadIdentity, "cannot read", path.display().to_string(), &e)),
    }
}

fn look(
    seams: &Seams,
    (dir, device, depth): (&Path, u64, usize),
    left: &mut usize,
    view: &mut SuperblocksView,
) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    match target_in(seams, dir) {
        Ok(None) => {}
        Ok(Some(found)) => return view.targets.push(found),
        Err(fault) => return view.troubles.push(format!("{}: {fault}", dir.display())),
    }
    if depth == 0 {
        return;
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) => return view.troubles.push(format!("{}: {e}", dir.display())),
    };
    for entry in entries.flatten() {
        let is_here = |found: &std::fs::Metadata| found.is_dir() && found.dev() == device;
        // A link is no directory of its own.
        if entry.path().symlink_metadata().is_ok_and(|found| is_here(&found)) {
            look(seams, (&entry.path(), device, depth - 1), left, view);
        }
    }
}

fn target_in(seams: &Seams, dir: &Path) -> Result<Option<SuperblockView>> {
    // A name that is not text is none of a target.
    let Ok(text) = crate::text(dir) else { return Ok(None) };
    if !Superblock::exists(&*seams.disk, &text)? {
        return Ok(None);
    }
    let superblock = Superblock::load(&*seams.disk, &text, &Expected::default())?.superblock;
    let record = ReplicaRecord::load(&*seams.disk, &text)?;
    if record.epoch != 0 && record.uuid != superblock.uuid {
        return Err(Fault::new(Code::ForeignTarget)
            .subject(superblock.name())
            .why("the record of its replica set is of another target"));
    }
    Ok(Some(SuperblockView {
        dir: text,
        target: superblock.target.to_string(),
        fs: superblock.fs.to_string(),
        fs_id: format!("{:016x}", superblock.fs_id),
        uuid: hex(&superblock.uuid),
        epoch: record.epoch,
        in_sync: record.in_sync,
    }))
}

fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl SuperblockView {
    fn found(&self) -> std::result::Result<FoundTarget, String> {
        let target: TargetId = self.target.parse()?;
        let fs_id = u64::from_str_radix(&self.fs_id, 16).map_err(|e| e.to_string())?;
        let uuid = bytes_of(&self.uuid).ok_or_else(|| format!("'{}' is no identity", self.uuid))?;
        let fs = self.fs.parse()?;
        let superblock =
            Superblock { generation: 1, fs, fs_id, target, uuid, created: (0, 0), mgs: Vec::new() };
        let in_sync = self.in_sync.clone();
        Ok(FoundTarget { dir: self.dir.clone(), superblock, epoch: self.epoch, in_sync })
    }
}

impl SuperblocksView {
    fn found(&self) -> std::result::Result<FoundHost, String> {
        brindle_auth::check_host_name(&self.host).map_err(|fault| fault.to_string())?;
        self.roles.parse::<Roles>()?;
        let key = match self.key.as_str() {
            "" => [0; 32],
            key => bytes_of(key).ok_or_else(|| format!("'{key}' is no key"))?,
        };
        let targets =
            self.targets.iter().map(SuperblockView::found).collect::<std::result::Result<_, _>>()?;
        Ok(FoundHost { name: self.host.clone(), key, roles: self.roles.clone(), targets })
    }
}

/// Reads a file that [`scan`] made on a host.
fn read(path: &Path) -> Result<SuperblocksView> {
    let subject = path.display().to_string();
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot use the superblocks in")
            .subject(subject.clone())
            .why(why)
            .data("nothing was changed")
            .next("make it anew on that host: brindle cluster superblocks -o json > FILE")
    };
    let len = std::fs::metadata(path).map_err(|e| refuse(e.to_string()))?.len();
    if len > FILE_MAX_BYTES {
        return Err(refuse(format!("it has {len} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    let view: SuperblocksView = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    view.found().map_err(refuse)?;
    Ok(view)
}

/// A configuration to be made anew, and its place.
#[derive(Clone, Debug)]
pub struct Rebuild {
    /// Files of the hosts.
    pub files: Vec<PathBuf>,
    /// The authority of the cluster with its key, if it is left.
    pub authority: Option<PathBuf>,
    /// Hosts that are lost for good.
    pub lost: BTreeSet<String>,
    /// Directories that do not count.
    pub left_out: BTreeSet<(String, String)>,
    /// Lists of removed keys that servers have kept.
    pub removed: Vec<PathBuf>,
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
    /// Only say what would happen.
    pub is_dry_run: bool,
}

/// A configuration that was made anew.
#[derive(Debug)]
pub struct Done {
    /// Targets, and what to look at.
    pub rebuilt: Rebuilt,
    /// Entries of the configuration.
    pub restored: Restored,
    /// Whether the authority is a new one: every other host has to join again.
    pub has_new_authority: bool,
    /// Troubles that hosts had told of.
    pub troubles: Vec<String>,
}

/// Makes the MGT from the superblocks of the hosts.
pub fn restore(seams: &Seams, wanted: &Rebuild) -> Result<Done> {
    let now_s = seams.wall().secs;
    let files = wanted.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let refuse = |why: String| Fault::new(Code::BadArgument).why(why);
    let found = files.iter().map(SuperblocksView::found).collect::<std::result::Result<Vec<_>, _>>();
    let found = found.map_err(refuse)?;
    let known_identity = identity(&wanted.conf)?;
    let key = match &known_identity {
        Some(identity) => HostKey::from_pem(&identity.key().to_pem())?,
        None => HostKey::generate()?,
    };
    let host = known_identity.as_ref().map_or(&wanted.host, |identity| &identity.name().host).clone();
    let roles = Roles::of(&[HostRole::Server, HostRole::Admin]);
    let authority = authority(seams, wanted, &files)?;
    let own = HostRow {
        name: host.clone(),
        key: KeyId::of_public(&key.public()).0,
        roles: roles.to_string(),
        joined_s: now_s,
        certificate_ends_s: brindle_mgs::hosts::certificate_ends_s(now_s),
        assignments: Vec::new(),
    };
    let said = Said { lost: wanted.lost.clone(), left_out: wanted.left_out.clone(), now_s };
    // The name and the id of the file system come from the targets.
    let any = "any".parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
    let mgt = Superblock::new(any, TargetId::MGT, Vec::new(), seams.wall(), &*seams.rng);
    let rebuilt = rebuilt::rebuild(&found, &said, mgt, own, authority.to_pem())?;
    let removed = removed_keys(&wanted.removed)?;
    let restored = rebuilt.backup.restored(&Known { now_s, removed, new_key: None })?;
    refuse_occupied(&*seams.disk, &wanted.dir).map_err(|fault| {
        fault.what("cannot restore the configuration to").next("give an empty directory: --dir DIR")
    })?;
    let has_new_authority = wanted.authority.is_none();
    if !wanted.is_dry_run {
        make(
            seams,
            wanted,
            (&rebuilt.backup, &restored),
            &authority,
            OwnHost { name: &host, conf: &wanted.conf, key, roles },
        )?;
    }
    let troubles = files.iter().flat_map(|file| file.troubles.iter().map(|t| format!("{}: {t}", file.host)));
    Ok(Done { rebuilt, restored, has_new_authority, troubles: troubles.collect() })
}

/// The authority that is left, or a new one of the same cluster.
fn authority(seams: &Seams, wanted: &Rebuild, files: &[SuperblocksView]) -> Result<Authority> {
    if let Some(path) = &wanted.authority {
        let subject = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Fault::io(Code::BadIdentity, "cannot read", subject.clone(), &e))?;
        return Authority::from_pem(&text).map_err(|fault| fault.subject(subject));
    }
    // The cluster that most hosts are of.
    let mut counts = BTreeMap::new();
    for file in files.iter().filter(|file| !file.cluster.is_empty()) {
        *counts.entry(file.cluster.as_str()).or_insert(0_usize) += 1;
    }
    let number = counts.into_iter().max_by_key(|(_, count)| *count).map(|(cluster, _)| cluster);
    let cluster = match number.map(|text| u64::from_str_radix(text, 16)) {
        Some(Ok(number)) => ClusterId(number),
        _ => ClusterId(seams.rng.next_u64()),
    };
    Authority::new(cluster, seams.wall().secs)
}

fn make(
    seams: &Seams,
    wanted: &Rebuild,
    (backup, restored): (&ConfigBackup, &Restored),
    authority: &Authority,
    own: OwnHost<'_>,
) -> Result<()> {
    let fs = backup.superblock()?.fs;
    own_dir(&wanted.dir)?;
    let _lock = DirLock::target(&wanted.dir)?;
    write_secret(&wanted.dir.join(AUTHORITY_FILE), &authority.to_pem())?;
    backup::make(seams, backup, restored, &crate::text(&wanted.dir)?)?;
    make_conf(&wanted.conf)?;
    // Options that are there are those of the host that had the MGT, or its administrator's.
    if !wanted.conf.join(SERVE_FILE).exists() {
        Daemon { listen: &wanted.address, port: Some(wanted.port), dir: Some(&wanted.dir) }
            .write(&wanted.conf)?;
    }
    // The identity comes last: a try that was interrupted leaves none whose key the MGT does not have.
    own.write(authority, &fs, &listens(&wanted.address, wanted.port)?, seams.wall().secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_below_a_directory_and_come_back_from_the_file() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seams = brindle_stdx::real::seams(runtime.handle().clone());
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b/ost0");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir_all(root.path().join("a/empty")).unwrap();
        let fs: brindle_types::FsName = "scratch".parse().unwrap();
        let new = Superblock::new(fs, TargetId::ost(3), Vec::new(), seams.wall(), &*seams.rng);
        let mut superblock = Superblock { fs_id: 0xabc, ..new };
        superblock.save(&*seams.disk, dir.to_str().unwrap()).unwrap();
        let record = ReplicaRecord { uuid: superblock.uuid, epoch: 7, in_sync: vec!["h2".to_owned()] };
        record.save(&*seams.disk, dir.to_str().unwrap()).unwrap();
        std::os::unix::fs::symlink(&dir, root.path().join("link")).unwrap();
        let broken = root.path().join("broken");
        std::fs::create_dir(&broken).unwrap();
        std::fs::write(broken.join("superblock"), "nonsense").unwrap();
        let view =
            scan(&seams, root.path(), "h2", &[root.path().to_owned(), root.path().join("gone")]).unwrap();
        assert_eq!((view.targets.len(), view.troubles.len()), (1, 2), "{view:?}");
        let file = root.path().join("h2.json");
        std::fs::write(&file, document::json(&view).unwrap()).unwrap();
        assert_eq!(read(&file), Ok(view.clone()));
        let found = view.found().unwrap();
        assert_eq!(
            (found.targets[0].superblock.uuid, found.targets[0].superblock.fs_id),
            (superblock.uuid, 0xabc)
        );
        assert_eq!(
            (found.targets[0].epoch, found.targets[0].in_sync.as_slice()),
            (7, &["h2".to_owned()][..])
        );
        std::fs::write(&file, "{}").unwrap();
        assert_eq!(read(&file).unwrap_err().code, Code::BadArgument);
    }
}
