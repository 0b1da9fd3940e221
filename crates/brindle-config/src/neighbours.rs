//! Whether a target has its file system to itself.

use std::io;

use brindle_stdx::Disk;

/// Entries that take no space from a target.
const NOBODYS: [&str; 1] = ["lost+found"];

/// Foreign entry on the file system that holds the target in `dir`: a path beside the target, at any level
/// below the mount point. `None`: the target has the file system to itself, and its free space is its own.
pub fn neighbour(disk: &dyn Disk, dir: &str) -> io::Result<Option<String>> {
    let device = disk.space(dir)?.device_id;
    let mut below = dir.trim_end_matches('/');
    while let Some((parent, name)) = below.rsplit_once('/') {
        let parent = if parent.is_empty() { "/" } else { parent };
        if disk.space(parent)?.device_id != device {
            return Ok(None);
        }
        let is_other = |entry: &&String| *entry != name && !NOBODYS.contains(&entry.as_str());
        if let Some(other) = disk.list(parent)?.iter().find(is_other) {
            return Ok(Some(format!("{}/{other}", parent.trim_end_matches('/'))));
        }
        below = parent.trim_end_matches('/');
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_lies_beside_a_target_on_its_file_system_is_found() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = brindle_stdx::real::seams(runtime.handle().clone()).disk;
        let base = tempfile::tempdir().expect("a directory");
        let target = base.path().join("a/ost0");
        std::fs::create_dir_all(&target).expect("made");
        std::fs::write(base.path().join("a/lost+found"), "").expect("made");
        std::fs::write(target.join("superblock"), "its own").expect("made");
        let found = || neighbour(&*disk, target.to_str().expect("text")).expect("told");
        // (Something lies beside the temporary directory, or above it, on every machine.)
        assert!(found().is_some_and(|other| !other.contains("/a/")));
        std::fs::create_dir(base.path().join("a/ost1")).expect("made");
        assert_eq!(found(), base.path().join("a/ost1").to_str().map(str::to_owned));
    }
}
