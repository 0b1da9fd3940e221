//! Metadata rates of one process in one directory: create empty files, stat, unlink (mdtest easy).

use std::fs::File;
use std::io;
use std::path::Path;

use super::{Options, Samples};

pub(super) fn run(work: &Path, options: &Options, samples: &mut Samples<'_>) -> io::Result<()> {
    let dir = work.join("meta");
    std::fs::create_dir(&dir)?;
    let paths: Vec<_> = (0..options.files).map(|n| dir.join(format!("file.{n}"))).collect();
    let count = f64::from(options.files);
    samples.time("create", "ops/s", count, || {
        for path in &paths {
            File::create_new(path)?;
        }
        File::open(&dir)?.sync_all()
    })?;
    samples.time("stat", "ops/s", count, || paths.iter().try_for_each(|p| std::fs::metadata(p).map(drop)))?;
    samples.time("unlink", "ops/s", count, || paths.iter().try_for_each(std::fs::remove_file))?;
    std::fs::remove_dir(&dir)
}
