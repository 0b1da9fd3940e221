//! Which file system a command means: `--mgs`, a development cluster, a path in a mount, or whatever is mounted here.

use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, FsName, Nid, Result};

use crate::{dev, mounts};

/// The options that say which file system is meant.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PlaceArgs {
    /// A path in a mount of the file system; without any of these options, what is mounted here
    #[arg(value_name = "PATH", add = crate::completion::live::mount_points())]
    pub path: Option<PathBuf>,
    /// Address of its MGS
    #[arg(long, value_name = "NID", value_parser = crate::format::parse::<Nid>, value_delimiter = ',', conflicts_with_all = ["path", "dir"])]
    pub mgs: Vec<Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    pub dir: Option<PathBuf>,
}

/// A file system and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Addresses of its MGS.
    pub mgs: Vec<Nid>,
    /// Its name; `None`: the MGS will tell.
    pub fs: Option<FsName>,
    /// The development cluster, for hints.
    pub dev_dir: Option<PathBuf>,
}

impl Place {
    /// Whether this is a mount of the same file system.
    pub fn is_mounted_by(&self, line: &mounts::MountLine) -> bool {
        line.source.parse().is_ok_and(|source: Source| {
            source.mgs == self.mgs && self.fs.as_ref().is_none_or(|fs| *fs == source.fs)
        })
    }
}

/// What is mounted, as `HOST[:PORT][,HOST[:PORT]]:/FSNAME[/SUBDIR]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// The file system.
    pub fs: FsName,
    /// The directory in it that is mounted, without slashes at its ends; empty for all.
    pub subdir: String,
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Source, String> {
        let wrong = |why: &str| format!("'{text}' is not HOST[:PORT][,HOST[:PORT]]:/FSNAME[/SUBDIR]: {why}");
        let (hosts, path) = text.split_once(":/").ok_or_else(|| wrong("there is no ':/'"))?;
        if hosts.is_empty() {
            return Err(wrong("no MGS is named"));
        }
        // As Lustre has it, a colon between addresses means the same as a comma, where it is not in front of a port.
        let mgs: std::result::Result<Vec<Nid>, String> = hosts.split(',').map(str::parse).collect();
        let (fs, subdir) = path.split_once('/').unwrap_or((path, ""));
        Ok(Source { mgs: mgs?, fs: fs.parse()?, subdir: subdir.trim_matches('/').to_owned() })
    }
}

/// The file systems that the options mean; at least one.
pub fn resolve(args: &PlaceArgs) -> Result<Vec<Place>> {
    if !args.mgs.is_empty() {
        return Ok(vec![Place { mgs: args.mgs.clone(), fs: None, dev_dir: None }]);
    }
    if let Some(dir) = &args.dir {
        return Ok(vec![of_dev(dir)?]);
    }
    if let Some(path) = &args.path {
        let line = mount_of(path)?;
        return Ok(vec![of_source(&line.source)?]);
    }
    let mut places: Vec<Place> = Vec::new();
    for line in mounts::all().iter().filter(|m| m.fs_type == mounts::FUSE_TYPE) {
        // A test's mount may have another source; it is not a file system to ask about.
        let Ok(place) = of_source(&line.source) else { continue };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if places.is_empty() {
        return Err(Fault::new(Code::NotMounted)
            .what("which file system?")
            .why("no Brindle file system is mounted here")
            .next("name one: --mgs HOST[:PORT], --dir DIR of a development cluster, or a path in a mount"));
    }
    Ok(places)
}

/// The one file system that the options mean.
pub fn one(args: &PlaceArgs) -> Result<Place> {
    let mut places = resolve(args)?;
    if places.len() > 1 {
        return Err(Fault::new(Code::BadArgument)
            .what("which file system?")
            .why("several are mounted here")
            .next("add a path in one of the mounts"));
    }
    Ok(places.remove(0))
}

/// The mount that holds a path.
pub fn mount_of(path: &Path) -> Result<mounts::MountLine> {
    let shown = path.display().to_string();
    // The path itself may hang on a dead server; its text up to the mount point does not.
    let absolute = std::path::absolute(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot use the path", shown.clone(), &e))?;
    let direct = mounts::holding(&absolute);
    let found = direct.or_else(|| mounts::holding(&std::fs::canonicalize(path).ok()?));
    found.ok_or_else(|| {
        let fault = Fault::new(Code::NotABrindlePath).what("not in a Brindle file system:").subject(shown);
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => fault.why("there is no such path"),
            _ => fault,
        }
        .next("give a path in a mount; list them: findmnt -t fuse.brindle")
    })
}

fn of_source(source: &str) -> Result<Place> {
    let parsed: Source = source.parse().map_err(|why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot understand the mount of")
            .subject(source.to_owned())
            .why(why)
    })?;
    Ok(Place { mgs: parsed.mgs, fs: Some(parsed.fs), dev_dir: None })
}

fn of_dev(dir: &Path) -> Result<Place> {
    let dir = PathBuf::from(crate::cli::text(dir)?);
    let (mgs, fs) = dev::address_of(&dir)?;
    Ok(Place { mgs: vec![mgs], fs: Some(fs), dev_dir: Some(dir) })
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
