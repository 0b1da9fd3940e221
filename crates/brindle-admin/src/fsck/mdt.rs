//! Checks an MDT: the files of its store, then the rows against each other; names inodes by their paths.

use brindle_kv::KvReader;
use brindle_mds::check::verify;
use brindle_mds::config::store_dir;
use brindle_mds::store::inode;
use brindle_stdx::disk::Disk;
use brindle_types::{Code, Fault, Ino};

use super::report::Report;
use super::targets::Target;
use crate::paths;

/// Deepest path that is followed upwards.
const DEPTH_MAX: usize = 4096;

/// Checks it; `None` when there is nothing that could be read.
pub fn check(disk: &dyn Disk, target: &Target, report: &mut Report) -> Option<KvReader> {
    let reader = match KvReader::open_read_only(disk, &store_dir(&target.dir)) {
        Ok(reader) => reader,
        Err(fault) => {
            report.finding(&target.name, fault);
            return None;
        }
    };
    for damage in reader.damage() {
        let place = damage.offset.map(|offset| format!("{} at offset {offset}", damage.file));
        let fault = damage.fault.clone().why(place.unwrap_or_else(|| damage.file.clone()));
        report.finding(&target.name, fault);
    }
    match verify(&reader) {
        Ok(findings) => {
            for finding in findings {
                let mut fault = Fault::new(Code::Inconsistent).subject(finding.subject).why(finding.what);
                if finding.invariant > 0 {
                    fault = fault.why(format!("that breaks invariant {}", finding.invariant));
                }
                report.finding(&target.name, fault);
            }
        }
        Err(fault) => report.finding(&target.name, fault),
    }
    Some(reader)
}

/// The path of an inode as far as the rows tell it, else its FID.
pub fn path(reader: &KvReader, ino: Ino) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let found = inode::find(reader, at).ok().flatten();
        let Some(found) = found.filter(|i| !i.name_hint.is_empty() && names.len() < DEPTH_MAX) else {
            return ino.fid().to_string();
        };
        names.push(paths::bytes_text(&found.name_hint));
        at = found.parent;
    }
    names.reverse();
    format!("/{}", names.join("/"))
}
