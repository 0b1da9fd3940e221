//! The directory of a spare host (design note 042). A marker in the directory shows that the administrator's disk is mounted there. The
//! marker keeps copies of targets off the disk of the operating system.
//!
//! The daemon writes the marker when the host becomes a spare host. At a start of a host that is already a spare, the daemon does not write
//! it.

use std::path::Path;

use brindle_stdx::Disk;
use brindle_targets::Directory;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::spare::{ListSparesReq, ReportSpareReq};

use crate::identity::write_whole;

/// Name of the marker.
pub const MARKER: &str = ".brindle-spare";
/// Longest wait for an answer of the MGS.
const ASK_MS: u64 = 2_000;

/// Directory of this host as a spare one; `None` if it is none.
pub(crate) async fn dir_of(mgs: &Directory, host: &str) -> Result<Option<String>> {
    match mgs.mgs().probe_within(&ListSparesReq {}, ASK_MS).await {
        Ok(answer) => Ok(answer.spares.into_iter().find(|spare| spare.host == host).map(|spare| spare.dir)),
        // An MGS of an earlier release knows of no spare hosts.
        Err(fault) if fault.code == Code::UnknownOp => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Tells the MGS what is free in the spare directory. An MGS of an earlier release does not go by that.
pub(crate) async fn tell_room(mgs: &Directory, disk: &dyn Disk, dir: &str) -> Result<()> {
    let space = disk.space(dir);
    let space =
        space.map_err(|e| Fault::io(Code::NotWritable, "cannot see the space of", dir.to_owned(), &e))?;
    let request = ReportSpareReq { available_bytes: space.available_bytes };
    match mgs.mgs().probe_within(&request, ASK_MS).await {
        Err(fault) if fault.code != Code::UnknownOp => Err(fault),
        _ => Ok(()),
    }
}

/// Spare directories as the daemon has heard of them.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// `None` before the first answer.
    known: Option<Option<String>>,
}

impl Heard {
    /// Takes in an answer; the directory that has become the host's since the last one.
    pub(crate) fn became(&mut self, dir: Option<String>) -> Option<String> {
        let before = self.known.replace(dir.clone());
        dir.filter(|dir| before.is_some_and(|before| before.as_ref() != Some(dir)))
    }
}

/// Writes the marker, and makes the directory where it is missing.
pub(crate) fn mark(dir: &str) -> Result<()> {
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot use the spare directory", dir.to_owned(), e)
    };
    std::fs::create_dir_all(dir).map_err(|e| cannot(&e))?;
    write_whole(&Path::new(dir).join(MARKER), "", 0o600).map_err(|e| cannot(&e))
}

/// Refuses a new copy in the spare directory where that has no marker.
pub(crate) fn check(copy_dir: &str, spare_dir: Option<&str>) -> Result<()> {
    let Some(spare_dir) = spare_dir.filter(|dir| Path::new(copy_dir).starts_with(dir)) else { return Ok(()) };
    if Path::new(spare_dir).join(MARKER).exists() {
        return Ok(());
    }
    Err(Fault::new(Code::NotATarget)
        .what("cannot make a copy in")
        .subject(copy_dir.to_owned())
        .why(format!("{spare_dir} has no marker '{MARKER}': its disk is not mounted there, it seems"))
        .data("nothing was changed")
        .next(format!("mount the disk; if this is the right one: touch {spare_dir}/{MARKER}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_only_where_the_disk_of_the_spare_host_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let spare = dir.path().join("spare").to_str().unwrap().to_owned();
        let copy = format!("{spare}/ost0003-7");
        let fault = check(&copy, Some(&spare)).unwrap_err();
        assert!(fault.to_string().contains("is not mounted"), "{fault}");
        mark(&spare).unwrap();
        mark(&spare).unwrap();
        check(&copy, Some(&spare)).unwrap();
        // The disk is away.
        std::fs::remove_dir_all(&spare).unwrap();
        std::fs::create_dir(&spare).unwrap();
        check(&copy, Some(&spare)).unwrap_err();
        check("/data/ost3", Some(&spare)).unwrap();
        check(&copy, None).unwrap();
    }

    #[test]
    fn only_a_host_that_becomes_a_spare_one_is_marked() {
        let dir = |name: &str| Some(name.to_owned());
        let mut heard = Heard::default();
        assert_eq!(heard.became(dir("/a")), None, "it was one before the daemon began");
        assert_eq!(heard.became(dir("/a")), None);
        assert_eq!(heard.became(dir("/b")), dir("/b"));
        assert_eq!(heard.became(None), None);
        assert_eq!(heard.became(dir("/a")), dir("/a"));
    }
}
