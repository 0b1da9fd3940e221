//! 1 MiB streams by one process: write with a final fsync, then read after the pages were forgotten.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::{Options, Samples, forget_pages};

const BLOCK_BYTES: usize = 1 << 20;

pub(super) fn run(work: &Path, options: &Options, samples: &mut Samples<'_>) -> io::Result<()> {
    let path = work.join("stream");
    let blocks = options.stream_bytes / BLOCK_BYTES as u64;
    let mib = blocks as f64;
    let mut block: Vec<u8> = (0..251).cycle().take(BLOCK_BYTES).collect();
    samples.time("stream write + fsync", "MiB/s", mib, || {
        let mut file = File::create(&path)?;
        for n in 0..blocks {
            block[..8].copy_from_slice(&n.to_le_bytes());
            file.write_all(&block)?;
        }
        file.sync_all()
    })?;
    let mut file = File::open(&path)?;
    forget_pages(&file)?;
    samples.time("stream read", "MiB/s", mib, || {
        for n in 0..blocks {
            file.read_exact(&mut block)?;
            if block[..8] != n.to_le_bytes() {
                return Err(io::Error::other(format!("block {n} of {} is wrong", path.display())));
            }
        }
        Ok(())
    })?;
    std::fs::remove_file(&path)
}
