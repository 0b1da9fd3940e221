//! Makes a new OST: a superblock. Its store makes itself at the first start.

use brindle_config::Superblock;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};

/// Makes an OST in `dir`.
pub async fn format(seams: &Seams, dir: &str, fs: FsName, index: u16, mgs: Vec<Nid>) -> Result<Superblock> {
    let mut superblock = Superblock::new(fs, TargetId::ost(index), mgs, seams.wall(), &*seams.rng);
    let made = seams.disk.create_dir_all(dir);
    made.map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.to_owned(), &e))?;
    superblock.save(&*seams.disk, dir)?;
    Ok(superblock)
}
