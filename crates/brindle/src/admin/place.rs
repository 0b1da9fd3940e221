//! Choice of the file system: `--mgs`, a development cluster, a path in a mount, or the mount on this
//! machine.

use std::path::{Path, PathBuf};

use brindle_admin::place::{FsLocation, Source};
use brindle_types::{Code, Fault, Nid, Result};

use brindle_host::bb::FS;
use brindle_host::cluster::place_of;
use brindle_host::enrolment;
use brindle_host::identity;
use brindle_host::mounts;
use brindle_host::mounts::mount_of;

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

/// The file systems that the options mean; at least one.
pub fn resolve(args: &PlaceArgs) -> Result<Vec<FsLocation>> {
    if !args.mgs.is_empty() {
        return Ok(vec![FsLocation { mgs: args.mgs.clone(), fs: None, dev: None }]);
    }
    if let Some(dir) = &args.dir {
        return Ok(vec![of_dev(dir)?]);
    }
    if let Some(path) = &args.path {
        let line = mount_of(path)?;
        identity::use_mount(&line.mount_point);
        return Ok(vec![of_source(&line.source)?]);
    }
    let mut places: Vec<FsLocation> = Vec::new();
    for line in mounts::all().iter().filter(|m| m.fs_type == mounts::FUSE_TYPE) {
        // A test's mount may have another source; it is not a file system to ask about.
        let Ok(place) = of_source(&line.source) else { continue };
        if !places.contains(&place) {
            identity::use_mount(&line.mount_point);
            places.push(place);
        }
    }
    // The buffer of a job is not administered, if there is any other file system.
    let is_buffer = |place: &FsLocation| place.fs.as_ref().is_some_and(|fs| fs.to_string() == FS);
    if places.iter().all(is_buffer) {
        if let Some(own) = enrolment::place()? {
            places = vec![own];
        }
    } else {
        places.retain(|place| !is_buffer(place));
    }
    if places.is_empty() {
        return Err(Fault::new(Code::NotMounted)
            .what("which file system?")
            .why("no Brindle file system is mounted here, and this host has joined no cluster")
            .next("name one: --mgs HOST[:PORT], --dir DIR of a development cluster, or a path in a mount"));
    }
    Ok(places)
}

/// Single file system that the options mean.
pub fn one(args: &PlaceArgs) -> Result<FsLocation> {
    let mut places = resolve(args)?;
    if places.len() > 1 {
        return Err(Fault::new(Code::BadArgument)
            .what("which file system?")
            .why("several are mounted here")
            .next("add a path in one of the mounts"));
    }
    Ok(places.remove(0))
}

fn of_source(source: &str) -> Result<FsLocation> {
    let parsed: Source = source.parse().map_err(|why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot understand the mount of")
            .subject(source.to_owned())
            .why(why)
    })?;
    Ok(FsLocation { mgs: parsed.mgs, fs: Some(parsed.fs), dev: None })
}

fn of_dev(dir: &Path) -> Result<FsLocation> {
    place_of(&PathBuf::from(crate::cli::text(dir)?))
}
