//! Syncs the objects of a file before the file is archived. Otherwise a power cut could leave a hole, which would be archived, and the
//! good bytes would be released.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_types::{Code, Fault, Ino, Result, Stripe};
use brindle_wire::Op;
use brindle_wire::oss::sync::SyncObjectsReq;
use futures_util::future::join_all;

use crate::mdt::{Call, Mdt};
use crate::relocate::by_ost;
use crate::reports;
use crate::store::inode;

/// Longest wait for an OST to sync the objects of a file.
pub const SYNC_WAIT_MS: u64 = 60_000;

/// Syncs every object of a file, and records which exist. Fails if an OST has lost power since its object was written and not synced.
pub async fn sync_file(mdt: &Mdt, ino: Ino) -> Result<()> {
    let Some(file) = mdt.read(|t| inode::find(t, ino)).await?.filter(|file| !file.is_inline()) else {
        return Ok(());
    };
    let body = file.file()?;
    let components: Vec<_> = body.layout.components.iter().filter(|c| c.is_placed()).collect();
    let asked = by_ost(ino, &components).into_iter().map(|(ost, objects)| async move {
        let question = SyncObjectsReq { objects: objects.clone() };
        let answer = mdt.osts().ask_within(SYNC_WAIT_MS, ost, &question).await?;
        Ok((ost, objects, answer))
    });
    let mut exist: Vec<Stripe> = Vec::new();
    let mut terms: BTreeMap<u16, u32> = BTreeMap::new();
    for answered in join_all(asked).await {
        let (ost, objects, answer) = answered?;
        terms.insert(ost, answer.boot_term);
        let found = objects.iter().zip(answer.exists).filter(|(_, exists)| *exists);
        exist.extend(found.map(|(object, _)| object.named()));
    }
    for (stripe, written_in) in &body.unsynced {
        let Some(ost) = body.layout.ost_of(*stripe) else { continue };
        if terms.get(&ost).is_some_and(|term| term != written_in) {
            return Err(Fault::new(Code::TermChanged)
                .what("will not archive")
                .subject(ino.fid().to_string())
                .why(format!("OST {ost:04x} has lost power since it was written, and nobody had synced it"))
                .data("the file is as it was; part of what was written last may be missing in it")
                .next("look at the file, and write it again if something is missing"));
        }
    }
    let body_id = body.layout.body;
    mdt.step(&Call::internal(Op::SyncObjects), |t| {
        t.frees_space();
        let Some(mut now) = inode::find(t, ino)? else { return Ok(()) };
        let before = now.clone();
        if let Some(body) = now.file.as_mut().map(Arc::make_mut) {
            reports::objects_exist(body, body_id, &exist);
        }
        match now == before {
            true => Ok(()),
            false => Ok(inode::put(t, &now)?),
        }
    })
    .await
}
