//! A file system and the way to it.

use std::path::PathBuf;

use brindle_types::{FsName, Nid};

/// A file system and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsLocation {
    /// Addresses of its MGS.
    pub mgs: Vec<Nid>,
    /// Name of the file system; `None`: the MGS will tell.
    pub fs: Option<FsName>,
    /// The development cluster that it is, for advice.
    pub dev: Option<DevCluster>,
}

/// A development cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevCluster {
    /// Directory of the cluster.
    pub dir: PathBuf,
    /// Whether it is made of hosts.
    pub of_hosts: bool,
}

/// Source of a mount, as `HOST[:PORT][,HOST[:PORT]]:/FSNAME[/SUBDIR]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// The file system.
    pub fs: FsName,
    /// The directory in it that is mounted, without slashes at its ends; empty for all.
    pub subdir: String,
}

impl FsLocation {
    /// Whether something mounted from `source` is this file system.
    pub fn is_mounted_from(&self, source: &str) -> bool {
        source.parse().is_ok_and(|source: Source| {
            source.mgs == self.mgs && self.fs.as_ref().is_none_or(|fs| *fs == source.fs)
        })
    }

    /// Whether something mounted from `source` is all of this file system, and not a directory of it.
    pub fn is_whole_in(&self, source: &str) -> bool {
        self.is_mounted_from(source) && source.parse().is_ok_and(|source: Source| source.subdir.is_empty())
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Source, String> {
        let wrong = |why: &str| format!("'{text}' is not HOST[:PORT][,HOST[:PORT]]:/FSNAME[/SUBDIR]: {why}");
        let (hosts, path) = text.split_once(":/").ok_or_else(|| wrong("there is no ':/'"))?;
        if hosts.is_empty() {
            return Err(wrong("no MGS is named"));
        }
        // A colon between addresses means the same as a comma, as with Lustre, unless a port follows it.
        let mgs: std::result::Result<Vec<Nid>, String> = hosts.split(',').map(str::parse).collect();
        let (fs, subdir) = path.split_once('/').unwrap_or((path, ""));
        Ok(Source { mgs: mgs?, fs: fs.parse()?, subdir: subdir.trim_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_people_write_them() {
        let s: Source = "mgs1,mgs2:9999:/scratch/home/u".parse().unwrap();
        let shown: Vec<String> = s.mgs.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["mgs1:9880@tcp", "mgs2:9999@tcp"]);
        assert_eq!((s.fs.as_str(), s.subdir.as_str()), ("scratch", "home/u"));
        let s: Source = "[::1]:5:/a/".parse().unwrap();
        assert_eq!((s.mgs[0].host.as_str(), s.mgs[0].port, s.subdir.as_str()), ("::1", 5, ""));
        for bad in ["", "/scratch", "mgs:", ":/a", "mgs:/", "mgs:/toolongname", "mgs:x:/a"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }
}
