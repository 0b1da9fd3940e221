//! Data and holes of an object, asked of the file below; sums between the regions count as neither.

use std::io;

use brindle_stdx::DiskFile;
use brindle_types::{Code, Fault, ObjectId};

use crate::format::{REGION, data_pos, object_offset};
use crate::store::ObjectStore;

impl ObjectStore {
    /// First byte of data (or of a hole) at or after `offset`. `None` for data: there is none. The end of the object
    /// counts as a hole; a missing object is one hole.
    pub async fn seek(
        &self,
        id: ObjectId,
        offset: u64,
        data: bool,
        must_exist: bool,
    ) -> Result<Option<u64>, Fault> {
        let object = self.readable(id).await?;
        let (file, len) = {
            let s = object.state.lock();
            self.check_present(id, &s, must_exist)?;
            (s.file.clone().filter(|_| s.exists()), s.len)
        };
        let Some(file) = file.filter(|_| offset < len) else {
            return Ok(if data { None } else { Some(offset) });
        };
        let found = if data { next_data(&*file, offset) } else { next_hole(&*file, offset, len).map(Some) };
        let found = found.map_err(|e| Fault::io(Code::OstIo, "cannot search", format!("object {id}"), &e))?;
        Ok(found.filter(|at| !data || *at < len))
    }
}

fn next_data(file: &dyn DiskFile, offset: u64) -> io::Result<Option<u64>> {
    let mut at = offset;
    loop {
        let Some(pos) = file.next_data(data_pos(at))? else { return Ok(None) };
        let found = object_offset(pos);
        if data_pos(found) == pos {
            return Ok(Some(found));
        }
        // The search found the sums of a region; the data of the region may still be a hole.
        at = found;
    }
}

fn next_hole(file: &dyn DiskFile, offset: u64, len: u64) -> io::Result<u64> {
    let mut at = offset;
    while at < len {
        let region_end = (at / REGION + 1) * REGION;
        let hole = file.next_hole(data_pos(at))?;
        if hole < data_pos(region_end - 1) + 1 {
            return Ok(object_offset(hole).min(len));
        }
        at = region_end;
    }
    Ok(len)
}
