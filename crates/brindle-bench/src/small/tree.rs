//! A tree of small files as a source archive has it: write with fsync of each file, list with stat, remove.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::{Options, Samples};

const FILES_PER_DIRECTORY: u32 = 25;

/// Sizes of source files: most are a few KiB, some larger.
fn size_of(n: u32) -> usize {
    const SIZES: [usize; 8] = [300, 900, 1800, 3000, 5200, 7900, 14_000, 41_000];
    SIZES[(n.wrapping_mul(2_654_435_761) >> 29) as usize]
}

pub(super) fn run(work: &Path, options: &Options, samples: &mut Samples<'_>) -> io::Result<()> {
    let root = work.join("tree");
    let data = vec![b'x'; 41_000];
    let count = f64::from(options.tree_files);
    samples.time("tree write + fsync", "ops/s", count, || {
        for n in 0..options.tree_files {
            let dir = root.join(format!("d{}", n / FILES_PER_DIRECTORY));
            if n % FILES_PER_DIRECTORY == 0 {
                std::fs::create_dir_all(&dir)?;
            }
            let mut file = File::create_new(dir.join(format!("source{n}.c")))?;
            file.write_all(&data[..size_of(n)])?;
            file.sync_all()?;
        }
        Ok(())
    })?;
    samples.time("tree list + stat", "ops/s", count, || {
        for dir in std::fs::read_dir(&root)? {
            for file in std::fs::read_dir(dir?.path())? {
                file?.metadata()?;
            }
        }
        Ok(())
    })?;
    samples.time("tree remove", "ops/s", count, || std::fs::remove_dir_all(&root))
}
