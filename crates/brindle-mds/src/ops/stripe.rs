//! Stripe settings: the layout of an empty file, the default of a directory. New directories copy their parent's
//! default; what a default leaves out comes from the root's, then from the configuration. A file whose layout says nothing
//! of a pool stays in that of its directory.

use brindle_layout::{in_pool_of, inherit_layout};
use brindle_types::{ChangeKind, Code, Fault, LayoutPolicy, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::stripe::{GetStripeReq, GetStripeResp, SetStripeReq};

use crate::birth;
use crate::changelog;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::ops::convert::wait_for_ost;
use crate::store::{Inode, inode};

/// Sets the layout of an empty file, or the default of a directory.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: SetStripeReq) -> Result<Empty> {
    if let Some(policy) = &req.policy {
        // The number of OSTs determines which policies are possible.
        wait_for_ost(mdt).await;
        mdt.osts().check_policy(policy)?;
    }
    mdt.modify(call, |t| {
        t.idle(req.ino)?;
        let mut inode = inode::get(t, req.ino)?;
        if req.cred.uid != 0 && req.cred.uid != inode.uid {
            return Err(Fault::new(Code::NotPermitted).into());
        }
        if inode.is_dir() {
            inode.layout_policy = req.policy.clone();
        } else {
            set_layout(t, &mut inode, req.policy.clone().unwrap_or_default())?;
        }
        inode.ctime = t.now;
        inode::put(t, &inode)?;
        changelog::about(t, ChangeKind::Layout, req.ino, Some(&req.cred));
        Ok(Empty {})
    })
    .await
}

/// Chooses OSTs again, under a new generation and layout epoch.
fn set_layout(t: &mut Txn<'_>, file: &mut Inode, policy: LayoutPolicy) -> Step<()> {
    let body = file.file()?;
    if !body.layout.inline || body.convert_begun || file.size_bytes > 0 {
        return Err(Fault::new(Code::LayoutFixed).subject(file.ino.fid().to_string()).into());
    }
    let (layout_gen, changed) = (body.layout_gen + 1, body.changed);
    let policy = match inode::find(t, file.parent)?.filter(Inode::is_dir) {
        Some(dir) => in_pool_of(&policy, &birth::effective_policy(t, &dir)?),
        None => policy,
    };
    let policy = inherit_layout(&policy, &t.mdt().config().layout_default);
    let mut body = birth::empty_file(t, &policy)?;
    body.layout_gen = layout_gen;
    // A change number that goes back looks like a power cut to a client that was told the higher one.
    body.changed = changed;
    file.file = Some(body.into());
    Ok(())
}

/// Answers with the layout of a file, or the default of a directory.
pub async fn handle_get(mdt: &Mdt, _call: &Call, req: GetStripeReq) -> Result<GetStripeResp> {
    mdt.read(|t| {
        let inode = inode::get(t, req.ino)?;
        let effective =
            if inode.is_dir() { birth::effective_policy(t, &inode)? } else { LayoutPolicy::default() };
        Ok(GetStripeResp {
            layout: inode.file.as_ref().map(|body| body.layout.clone()),
            policy: inode.layout_policy.clone(),
            effective,
            layout_gen: inode.file.as_ref().map_or(0, |body| body.layout_gen),
        })
    })
    .await
}
