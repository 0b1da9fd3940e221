//! path_of: from an inode number to its paths, one a hard link.

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::path::{PathOfReq, PathOfResp};

use crate::mdt::{Call, Mdt, Txn};
use crate::store::{Inode, inode, link};

/// Most paths in one answer.
pub const PATHS_MAX: usize = 1024;
/// Deepest path; a longer chain of parents is a circle.
const DEPTH_MAX: usize = 4096;

/// The paths of an inode; `NotFound` for one without a name.
pub async fn handle(mdt: &Mdt, _call: &Call, req: PathOfReq) -> Result<PathOfResp> {
    mdt.read(|t| {
        let inode = inode::get(t, req.ino)?;
        if req.ino == Ino::ROOT {
            return Ok(PathOfResp { paths: vec![Vec::new()] });
        }
        if inode.nlink == 0 {
            return Err(Fault::new(Code::NotFound).why("it has no name any more"));
        }
        let mut names = vec![(inode.parent, inode.name_hint.clone())];
        if !inode.is_dir() && inode.nlink > 1 {
            names = link::list(t, req.ino)?.into_iter().map(|(dir, name)| (dir, name.into())).collect();
        }
        let paths = names.iter().take(PATHS_MAX).map(|(parent, name)| path(t, *parent, name));
        Ok(PathOfResp { paths: paths.collect::<Result<_>>()? })
    })
    .await
}

/// The first path of an inode that has a name.
pub fn first(t: &Txn<'_>, inode: &Inode) -> Result<Vec<u8>> {
    path(t, inode.parent, &inode.name_hint)
}

fn path(t: &Txn<'_>, parent: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let mut names = vec![name.to_vec()];
    let mut at = parent;
    for _ in 0..DEPTH_MAX {
        if at == Ino::ROOT {
            names.reverse();
            return Ok(names.join(&b'/'));
        }
        let dir = inode::get(t, at)?;
        names.push(dir.name_hint.to_vec());
        at = dir.parent;
    }
    Err(Fault::new(Code::KvDamaged).what("the tree has a circle above").subject(parent.fid().to_string()))
}
