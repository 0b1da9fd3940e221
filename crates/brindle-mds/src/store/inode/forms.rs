//! Forms of the row of an inode. The first one has no project.

use std::sync::Arc;

use brindle_types::attr::Time;
use brindle_types::{FileType, Ino, LayoutPolicy, Pair};
use serde::{Deserialize, Serialize};

use super::{FileBody, Inode};
use crate::store::row::{self, Form, FormatLevel};

/// The form of release 0.1.0.
#[derive(Serialize, Deserialize)]
pub struct FirstForm {
    ino: Ino,
    kind: FileType,
    perm: u16,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    size_bytes: u64,
    allocated_bytes: u64,
    atime: Time,
    mtime: Time,
    ctime: Time,
    btime: Time,
    parent: Ino,
    name_hint: Arc<[u8]>,
    data_version: Pair,
    has_acl: bool,
    has_xattr: bool,
    open_for_write: bool,
    attr_epoch: Pair,
    truncate_epoch: Pair,
    file: Option<Arc<FileBody>>,
    layout_policy: Option<LayoutPolicy>,
}
row::first_form!(FirstForm);

/// A value of one form from one of the other, whose fields have the same names.
macro_rules! same_fields {
    ($from:expr => $to:ident { $($name:ident: $value:expr),* }) => {{
        let from = $from;
        $to {
            ino: from.ino,
            kind: from.kind,
            perm: from.perm,
            nlink: from.nlink,
            uid: from.uid,
            gid: from.gid,
            rdev: from.rdev,
            size_bytes: from.size_bytes,
            allocated_bytes: from.allocated_bytes,
            atime: from.atime,
            mtime: from.mtime,
            ctime: from.ctime,
            btime: from.btime,
            parent: from.parent,
            name_hint: from.name_hint,
            data_version: from.data_version,
            has_acl: from.has_acl,
            has_xattr: from.has_xattr,
            open_for_write: from.open_for_write,
            attr_epoch: from.attr_epoch,
            truncate_epoch: from.truncate_epoch,
            file: from.file,
            layout_policy: from.layout_policy,
            $($name: $value,)*
        }
    }};
}

impl Form for Inode {
    const VERSION: u8 = row::FIRST_VERSION + 1;
    const LEVEL: FormatLevel = FormatLevel::PROJECTS;
    type Previous = FirstForm;

    fn from_previous(previous: FirstForm) -> Inode {
        same_fields!(previous => Inode { project: 0, inherits_project: false })
    }

    fn to_previous(&self) -> Option<FirstForm> {
        let has_project = self.project != 0 || self.inherits_project;
        (!has_project).then(|| same_fields!(self.clone() => FirstForm {}))
    }
}
