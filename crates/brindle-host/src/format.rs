//! Making a target in a directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_config::{Expected, Superblock};
use brindle_stdx::{Disk, Seams};
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};

use brindle_admin::target::hex;

use crate::identity::write_whole;
use crate::target_dir::{DirLock, LOCK_FILE};
use crate::text;

/// Names in a directory that do not count as contents.
const NO_CONTENTS: [&str; 2] = ["lost+found", LOCK_FILE];

/// Target to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// File system.
    pub fs: FsName,
    /// Role and index.
    pub target: TargetId,
    /// Addresses of the MGS; none for the MGT.
    pub mgs: Vec<Nid>,
    /// The directory.
    pub dir: PathBuf,
    /// Identity of the target, if the MGS has chosen one.
    pub uuid: Option<[u8; 16]>,
}

/// Remark for the administrator if an OST shares its disk with another target.
pub fn shared_with(disk: &dyn Disk, target: TargetId, dir: &Path) -> Option<String> {
    let absolute = std::path::absolute(dir).ok().filter(|_| target.role == Role::Ost)?;
    // Without an answer there is no remark: the target is made.
    let other = brindle_config::neighbour(disk, absolute.to_str()?).ok()??;
    Some(format!(
        "note: {} lies on the same file system as {other}; an OST wants one of its own: what others write takes its room\n\
         next: for anything but a trial mount a file system of its own there (docs/operations/osts.md)",
        dir.display()
    ))
}

/// Names in the directory, without those that do not count; none if it does not exist.
pub fn contents(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            return Err(Fault::io(Code::NotWritable, "cannot look into", dir.display().to_string(), &e));
        }
    };
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|n| !NO_CONTENTS.contains(&n.as_str())).collect();
    names.sort();
    Ok(names)
}

/// Contents of the directory, in words.
pub fn holds(disk: &dyn Disk, dir: &Path, contents: &[String]) -> Result<String> {
    let loaded = Superblock::load(disk, &text(dir)?, &Expected::default());
    Ok(match loaded {
        Ok(loaded) => format!("the target {}", loaded.superblock.name()),
        Err(fault) if fault.code == Code::NotATarget => match contents {
            [one] => format!("'{one}'"),
            [first, rest @ ..] => format!("'{first}' and {} more", rest.len()),
            [] => "nothing".to_owned(),
        },
        Err(_) => "a target whose superblock cannot be read".to_owned(),
    })
}

/// Refuses a directory that holds anything.
pub fn refuse_occupied(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let contents = contents(dir)?;
    if contents.is_empty() { Ok(()) } else { Err(occupied(disk, dir, &contents)?) }
}

/// The refusal of a directory that holds something.
pub fn occupied(disk: &dyn Disk, dir: &Path, contents: &[String]) -> Result<Fault> {
    let holds = holds(disk, dir, contents)?;
    let code = if holds.starts_with('\'') { Code::BadArgument } else { Code::AlreadyFormatted };
    Ok(Fault::new(code)
        .what("cannot format")
        .subject(dir.display().to_string())
        .why(format!("it holds {holds}"))
        .data("nothing was changed")
        .next("give an empty directory, or add --reformat --yes to destroy what it holds"))
}

/// Says in a directory which target is being made there: if that is interrupted, what lies there is known to be the beginning of it.
const BEGUN_FILE: &str = "formatting";
/// Longest contents of that file.
const BEGUN_MAX_BYTES: usize = 64;

/// Names in a directory in which the making of this target was interrupted; none where it was not begun.
pub fn leftovers(disk: &dyn Disk, dir: &Path, uuid: [u8; 16]) -> Result<Vec<String>> {
    let path = format!("{}/{BEGUN_FILE}", text(dir)?);
    match brindle_stdx::disk::read_file(disk, &path, BEGUN_MAX_BYTES) {
        Ok(bytes) if bytes == hex(&uuid).as_bytes() => contents(dir),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io(Code::NotWritable, "cannot read", path, &e))
        }
        _ => Ok(Vec::new()),
    }
}

/// Notes that a target is being made.
pub(crate) fn begin(dir: &Path, uuid: [u8; 16]) -> Result<()> {
    let path = dir.join(BEGUN_FILE);
    write_whole(&path, &hex(&uuid), 0o600)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot format", dir.display().to_string(), &e))
}

/// The target is made.
pub(crate) fn ended(dir: &Path) -> Result<()> {
    std::fs::remove_file(dir.join(BEGUN_FILE))
        .map_err(|e| Fault::io(Code::NotWritable, "cannot format", dir.display().to_string(), &e))
}

/// Makes the target. `destroy` are names to remove first.
pub async fn carry_out(seams: &Seams, plan: &Plan, destroy: &[String]) -> Result<Superblock> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot format", plan.dir.display().to_string(), e);
    std::fs::create_dir_all(&plan.dir).map_err(|e| cannot(&e))?;
    // Only its servers may read the directory of a target.
    std::fs::set_permissions(&plan.dir, std::fs::Permissions::from_mode(0o700)).map_err(|e| cannot(&e))?;
    let _lock = DirLock::target(&plan.dir)?;
    if let Some(uuid) = plan.uuid {
        begin(&plan.dir, uuid)?;
    }
    for name in destroy.iter().filter(|name| *name != BEGUN_FILE) {
        let path = plan.dir.join(name);
        let is_dir = std::fs::symlink_metadata(&path).map(|m| m.is_dir()).unwrap_or(false);
        let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|e| cannot(&e))?;
    }
    let dir = text(&plan.dir)?;
    let (disk, rng, now) = (Arc::clone(&seams.disk), &*seams.rng, seams.wall());
    if plan.target.role == Role::Mgt {
        return brindle_mgs::format(disk, rng, now, &dir, plan.fs.clone()).await;
    }
    let mut superblock = Superblock::new(plan.fs.clone(), plan.target, plan.mgs.clone(), now, rng);
    superblock.uuid = plan.uuid.unwrap_or(superblock.uuid);
    let made = match plan.target.role {
        Role::Mdt => brindle_mds::format_as(seams, &dir, superblock).await?,
        _ => {
            superblock.save(&*disk, &dir)?;
            superblock
        }
    };
    if plan.uuid.is_some() {
        ended(&plan.dir)?;
    }
    Ok(made)
}
