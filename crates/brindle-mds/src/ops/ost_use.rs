//! ost_use: how many files have, or may have, an object on an OST. Unlike a scan, the operation also counts files
//! without a name, and objects of unfinished moves.

use brindle_types::{Ino, Result};
use brindle_wire::mds::ost_use::{OstUseReq, OstUseResp};

use crate::mdt::{Call, Mdt};
use crate::store::{Inode, Rows, keys, row};

/// Inodes that one request looks at.
const PAGE_INODES: usize = 8192;

/// Counts a page of inodes.
pub async fn handle(mdt: &Mdt, _call: &Call, req: OstUseReq) -> Result<OstUseResp> {
    let page = {
        let _turn = mdt.scans().acquire().await;
        count(mdt.engine(), &req)?
    };
    mdt.engine().wait_reply(mdt.engine().last_pos()).await?;
    Ok(page)
}

fn count(rows: &(impl Rows + ?Sized), req: &OstUseReq) -> Result<OstUseResp> {
    let after = req.after.map(|ino| keys::of_ino(keys::INODE, ino));
    let page = rows.rows(&[keys::INODE], after.as_deref(), PAGE_INODES)?;
    let mut answer = OstUseResp { files: 0, nameless: 0, next: None };
    let mut last: Option<Ino> = None;
    for (key, value) in &page {
        let inode: Inode = row::decode("inode", key, value)?;
        last = Some(inode.ino);
        if uses(&inode, req.ost) {
            answer.files += 1;
            answer.nameless += u64::from(inode.nlink == 0);
        }
    }
    answer.next = last.filter(|_| page.len() == PAGE_INODES);
    Ok(answer)
}

/// Whether an object of the file is, or may be, on an OST.
pub fn uses(inode: &Inode, ost: u16) -> bool {
    let Some(file) = inode.file.as_ref().filter(|_| inode.may_have_objects()) else { return false };
    let aside = file.aside.iter().flat_map(|component| component.stripes());
    file.layout.stripes().chain(aside).any(|(_, at)| at == ost)
}
