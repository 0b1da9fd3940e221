//! project_get and project_set: the project that an inode counts for.
//!
//! As on Linux, the owner of the inode and root may set it. A host with a nodemap may not (`admission.rs`). The new project must have
//! quota for the inode, unless root asks.

use brindle_types::{ChangeKind, Code, Fault, Ino, Result};
use brindle_wire::mds::project::{Project, ProjectGetReq, ProjectSetReq};
use brindle_wire::notify::LayoutNotice;

use crate::ask::Notice;
use crate::mdt::{Call, Mdt};
use crate::store::row::FormatLevel;
use crate::store::{Inode, inode};
use crate::{attrs, changelog, quota};

/// The number that no project has: Linux means "no such number" by it.
const NO_PROJECT: u32 = u32::MAX;
const CANNOT_SET: &str = "cannot set the project of";

/// Tells the project of an inode.
pub async fn handle_get(mdt: &Mdt, _call: &Call, req: ProjectGetReq) -> Result<Project> {
    mdt.read(|t| Ok(of(&inode::get(t, req.ino)?))).await
}

/// Sets the project of an inode, and moves its usage.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: ProjectSetReq) -> Result<Project> {
    if req.id == Some(NO_PROJECT) {
        return Err(
            cannot(req.ino, Code::InvalidArgument).why(format!("{NO_PROJECT} is the number of no project"))
        );
    }
    // The usage of buffered writes is reported to the old project.
    attrs::settle_holder(mdt, call.session, req.ino).await?;
    mdt.modify(call, |t| {
        // No row grows.
        t.frees_space();
        let mut inode = inode::get(t, req.ino)?;
        let wanted = Project {
            id: req.id.unwrap_or(inode.project),
            inherits: req.inherits.unwrap_or(inode.inherits_project),
        };
        if wanted == of(&inode) {
            return Ok(wanted);
        }
        if req.cred.uid != 0 && req.cred.uid != inode.uid {
            let why = format!("user {} is neither its owner nor root", req.cred.uid);
            return Err(cannot(req.ino, Code::NotPermitted).why(why).into());
        }
        if req.inherits == Some(true) && !inode.is_dir() {
            let why = "only a directory has something in it that could inherit";
            return Err(cannot(req.ino, Code::InvalidArgument).why(why).into());
        }
        if t.mdt().engine().level() < FormatLevel::PROJECTS {
            return Err(quota::needs_level(t, CANNOT_SET, req.ino.fid().to_string(), "projects need").into());
        }
        t.within_limits(req.cred.uid);
        let is_written = inode.open_for_write && wanted.id != inode.project;
        (inode.project, inode.inherits_project) = (wanted.id, wanted.inherits);
        inode.ctime = t.now;
        inode::put(t, &inode)?;
        changelog::about(t, ChangeKind::Setattr, req.ino, Some(&req.cred));
        if is_written {
            // Other mounts that write it ask for its project again before this is answered; the caller does so by itself.
            let truncate_epoch = inode.truncate_epoch;
            for writer in t.live().opens.other_writers(req.ino, call.session) {
                let notice = LayoutNotice { ino: req.ino, drop_from: u64::MAX, truncate_epoch };
                t.notify(writer, Notice::Layout(notice));
            }
        }
        let (ino, owners) = (inode.ino, inode.owners());
        t.after(move |live| {
            live.owners_changed(ino, owners);
            if is_written {
                // Mounts of an earlier release ask again when they hear of this.
                live.limits.void_rooms();
            }
        });
        Ok(wanted)
    })
    .await
}

fn of(inode: &Inode) -> Project {
    Project { id: inode.project, inherits: inode.inherits_project }
}

fn cannot(ino: Ino, code: Code) -> Fault {
    Fault::new(code).what(CANNOT_SET).subject(ino.fid().to_string()).data("nothing was changed")
}
