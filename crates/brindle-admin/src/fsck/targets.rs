//! Contents of the directories: one file system, whose targets belong together.

use brindle_config::{Expected, Superblock};
use brindle_stdx::disk::Disk;
use brindle_types::{Code, Fault, Result, Role};

use super::report::Report;

/// A target to check.
pub struct Target {
    /// Full name.
    pub name: String,
    /// Directory of the target.
    pub dir: String,
    /// Superblock of the target.
    pub superblock: Superblock,
}

/// The targets to check.
pub struct CheckedTargets(Vec<Target>);

impl CheckedTargets {
    /// Whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Target> {
        self.0.iter().filter(move |t| t.superblock.target.role == role)
    }

    /// Management targets.
    pub fn mgts(&self) -> impl Iterator<Item = &Target> {
        self.of(Role::Mgt)
    }

    /// The metadata target.
    pub fn mdt(&self) -> Option<&Target> {
        self.of(Role::Mdt).next()
    }

    /// Object storage targets.
    pub fn osts(&self) -> impl Iterator<Item = &Target> {
        self.of(Role::Ost)
    }
}

/// Reads the superblock of each directory; a wrong superblock is a finding.
pub fn find(disk: &dyn Disk, dirs: &[String], report: &mut Report) -> Result<CheckedTargets> {
    let mut targets: Vec<Target> = Vec::new();
    for dir in dirs {
        let dir = dir.clone();
        match Superblock::load(disk, &dir, &Expected::default()) {
            Ok(loaded) => {
                let name = loaded.superblock.name();
                if let Some(warning) = loaded.warning {
                    report.finding(&name, warning);
                }
                targets.push(Target { name, dir, superblock: loaded.superblock });
            }
            // Every other fault of a superblock is what the caller looks for.
            Err(fault) if fault.code == Code::NotATarget => return Err(fault.what("cannot check")),
            Err(fault) => report.finding(&dir, fault.what("cannot check")),
        }
    }
    targets.sort_by_key(|t| t.superblock.target);
    together(&targets)?;
    report.targets = targets.iter().map(|t| t.name.clone()).collect();
    Ok(CheckedTargets(targets))
}

/// Refuses targets of several file systems.
fn together(targets: &[Target]) -> Result<()> {
    let known = |t: &&Target| t.superblock.fs_id != 0;
    let Some(first) = targets.iter().find(known).or(targets.first()) else { return Ok(()) };
    for target in targets {
        let (a, b) = (&first.superblock, &target.superblock);
        if a.fs != b.fs || (b.fs_id != 0 && a.fs_id != b.fs_id) {
            return Err(Fault::new(Code::ForeignTarget)
                .what("cannot check together:")
                .subject(format!("{} and {}", first.dir, target.dir))
                .why(format!("{} is of file system {} ({:016x})", first.name, a.fs, a.fs_id))
                .why(format!("{} is of file system {} ({:016x})", target.name, b.fs, b.fs_id))
                .next("give the directories of one file system"));
        }
    }
    Ok(())
}
