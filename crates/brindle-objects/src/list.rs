//! Lists objects in the order of their directories, and tells the state of single ones.

use std::io::{self, ErrorKind};

use brindle_stdx::Disk;
use brindle_stdx::disk::OpenHow;
use brindle_types::{Code, Fault, ObjectId};
use brindle_wire::oss::stat::ObjectStat;

use crate::format::{HEADER, HEADER_SECTOR, Header, HeaderState, data_allocated, object_len};
use crate::names;
use crate::store::ObjectStore;

/// An object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object.
    pub object: ObjectId,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Bytes of data that the object takes on the device; holes count for nothing.
    pub allocated_bytes: u64,
    /// Whether the object exists: there are files with nothing but fences.
    pub exists: bool,
}

impl ObjectStore {
    /// Object files behind `after`, at most `limit`, and whether nothing follows.
    pub async fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<(Vec<Listed>, bool), Fault> {
        let (disk, root) = (self.seams.disk.clone(), self.root.clone());
        let listed = self.seams.run_blocking(move || list_files(&*disk, &root, after, limit)).await;
        let listed =
            listed.ok_or_else(|| Fault::new(Code::Bug).what("the job that lists objects ended early"))?;
        listed.map_err(|e| Fault::io(Code::OstIo, "cannot list", "objects", &e))
    }

    /// Length and times of an object.
    pub async fn stat(&self, id: ObjectId) -> Result<ObjectStat, Fault> {
        let object = self.readable(id).await?;
        let s = object.state.lock();
        Ok(ObjectStat {
            exists: s.exists(),
            len_bytes: if s.exists() { s.len } else { 0 },
            allocated_bytes: s.allocated_bytes(),
            last_write: s.header.last_write.filter(|_| s.exists()),
            is_cut_short: s.cut_by_others(),
            truncate_epoch: s.header.truncate_epoch,
        })
    }
}

/// Lists without a store.
pub(crate) fn list_files(
    disk: &dyn Disk,
    root: &str,
    after: Option<ObjectId>,
    limit: usize,
) -> io::Result<(Vec<Listed>, bool)> {
    let start = after.map(|o| (format!("{:02x}", names::dir_of(&o)), o.to_string()));
    let objects = format!("{root}/objects");
    let mut out = Vec::new();
    for dir in names_in(disk, &objects)? {
        if start.as_ref().is_some_and(|s| dir < s.0) {
            continue;
        }
        for name in names_in(disk, &format!("{objects}/{dir}"))? {
            if start.as_ref().is_some_and(|s| (&dir, &name) <= (&s.0, &s.1)) {
                continue;
            }
            let Ok(object) = name.parse::<ObjectId>() else { continue };
            if out.len() == limit {
                return Ok((out, false));
            }
            out.extend(look(disk, &format!("{objects}/{dir}/{name}"), object));
        }
    }
    Ok((out, true))
}

fn names_in(disk: &dyn Disk, dir: &str) -> io::Result<Vec<String>> {
    match disk.list(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The entry of a file; `None` if the file was removed meanwhile. A file that the disk does not return counts as an object: the list goes
/// on behind it, and whoever uses the object gets the error.
fn look(disk: &dyn Disk, path: &str, object: ObjectId) -> Option<Listed> {
    let mut listed = Listed { object, len_bytes: 0, allocated_bytes: 0, exists: true };
    let stat = match disk.stat(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        Err(e) => {
            tracing::error!(%object, error = %e, "the disk does not say how long the file of an object is");
            return Some(listed);
        }
        Ok(stat) => stat,
    };
    listed.len_bytes = object_len(stat.len_bytes);
    listed.allocated_bytes = data_allocated(stat.allocated_bytes);
    if stat.len_bytes > HEADER {
        return Some(listed);
    }
    let mut sector = [0; HEADER_SECTOR];
    let read = disk.open(path, OpenHow::ReadOnly).and_then(|file| file.read_at(&mut sector, 0));
    match read {
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        Err(e) => tracing::error!(%object, error = %e, "the disk does not return the header of an object"),
        Ok(n) => {
            listed.exists = match Header::decode(&sector[..n]) {
                HeaderState::Good(header) => !header.fence_only,
                HeaderState::Never => false,
                HeaderState::Damaged(_) => true,
            };
        }
    }
    Some(listed)
}
