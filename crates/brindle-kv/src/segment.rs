//! Making, keeping in advance and deleting log segments.

use std::sync::Arc;

use brindle_stdx::DiskFile;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_types::Result;

use crate::fault::log_io;
use crate::format::SegmentHeader;
use crate::scan::Segment;

/// Name of the segment that is kept in advance. Its records are all zeros; its header is of no meaning.
const SPARE: &str = "log-spare";

/// Makes sure that the spare segment exists with all its space. `MdtFull` if there is no room for it.
pub(crate) fn prepare_spare(disk: &dyn Disk, dir: &str, segment_bytes: u64) -> Result<()> {
    let path = format!("{dir}/{SPARE}");
    let allocate = || {
        let file = disk.open(&path, OpenHow::OpenOrCreate)?;
        file.allocate(0, segment_bytes, false)
    };
    allocate().map_err(|e| {
        // A part of it would only take space away from what frees some.
        let _ = disk.remove(&path);
        log_io("cannot allocate a segment of the metadata log", &path, &e)
    })
}

/// Makes the segment of `header` out of the spare one. When it returns, header and name are durable: no record may be
/// written before, or a bad header could not be told from damage.
pub(crate) fn make_segment(
    disk: &dyn Disk,
    dir: &str,
    header: SegmentHeader,
    segment_bytes: u64,
) -> Result<(Segment, Arc<dyn DiskFile>)> {
    prepare_spare(disk, dir, segment_bytes)?;
    let spare = format!("{dir}/{SPARE}");
    let path = format!("{dir}/{}", header.file_name());
    let make = || {
        let file = disk.open(&spare, OpenHow::Existing)?;
        file.write_at(&header.encode(), 0)?;
        file.sync_data()?;
        disk.rename(&spare, &path)?;
        if !crate::planted("log_segment_name_unsynced") {
            disk.sync_dir(dir)?;
        }
        Ok(file)
    };
    let file = make().map_err(|e| log_io("cannot begin a segment of the metadata log", &path, &e))?;
    Ok((Segment { path, header }, file))
}

/// Removes segments that the checkpoint has made needless. The next opening removes segments that a crash has
/// left.
pub(crate) fn remove_segments(disk: &dyn Disk, segments: &[Segment]) {
    for segment in segments {
        if let Err(e) = disk.remove(&segment.path) {
            tracing::warn!(path = segment.path, error = %e, "cannot remove a needless segment of the metadata log");
        }
    }
}
