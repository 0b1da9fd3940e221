//! The scrub of an OST reads all objects slowly and verifies every block. In a replica set it verifies all copies and mends damage from a
//! member that has the block whole (design note 047).
//!
//! | module | holds |
//! |---|---|
//! | [`brindle_targets::scrub`] | when a pass begins, how fast it goes, how far it is, its record on the disk |
//! | here | all objects of a pass, one after the other |
//! | [`piece`] | some blocks of one object on all members: verified, compared, mended |
//!
//! Only the server of the target scrubs. Invariants: a request of a user never waits for a pause of the scrub; a block is called damaged
//! only after a second look; only a member that has every change is a source for mending.

mod piece;

use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_targets::replica::{GRANT_LIMIT_MS, NO_BULK};
use brindle_targets::scrub::{LOOK_EVERY_MS, PAUSE_MS, TROUBLE_PAUSE_MS};
use brindle_types::{ObjectId, Result};
use brindle_wire::oss::replica::{ReplicaScrubReq, VERIFY_BLOCKS_MAX};
use brindle_wire::oss::scrub::{ScrubOrder, ScrubPass, ScrubPlace, ScrubRecord, ScrubResp};

pub use brindle_targets::scrub::Scrub;

use crate::service::Oss;

/// Objects of one page of the list.
const PAGE: usize = 256;
const BLOCK: u64 = 4096;

fn open(oss: &Oss) {
    oss.scrub.open(&oss.seams, &oss.dir, &oss.identity.uuid);
}

/// Carries an order of an administrator out, and tells how far the scrub is.
pub(crate) async fn order(oss: &Oss, order: ScrubOrder) -> Result<ScrubResp> {
    open(oss);
    oss.scrub.order(order, oss.seams.wall().secs)?;
    if order != ScrubOrder::Show {
        save(oss).await?;
        oss.scrub.wake();
    }
    oss.scrub.state(oss.seams.now())
}

/// Makes the record durable here, and gives it to the members in sync.
async fn save(oss: &Oss) -> Result<()> {
    let Some(record) = oss.scrub.write(&*oss.seams.disk, &oss.dir, oss.seams.now())? else { return Ok(()) };
    let Some(replica) = &oss.replica else { return Ok(()) };
    for link in piece::members(replica) {
        let request = ReplicaScrubReq { attachment: link.attachment, record: record.clone() };
        if let Err(fault) = link.call(&request, NO_BULK, 0, GRANT_LIMIT_MS).await {
            tracing::debug!(code = %fault.code, member = %link.host, "the record of the scrub: {fault}");
        }
    }
    Ok(())
}

async fn save_now_and_then(oss: &Oss) -> Result<()> {
    if !oss.scrub.is_save_due(oss.seams.now()) {
        return Ok(());
    }
    save(oss).await?;
    tell_mgs(oss).await;
    Ok(())
}

async fn tell_mgs(oss: &Oss) {
    oss.scrub.tell_mgs(&oss.seams, &oss.targets, oss.identity.target).await;
}

/// Pauses behind a piece.
async fn pause(oss: &Oss, bytes: u64, began: Mono) {
    oss.scrub.pause(&oss.seams, bytes, began, oss.store.transfers()).await;
}

/// The pass has come to a block of an object.
fn came_to(oss: &Oss, object: ObjectId, block: u64, read_bytes: u64) {
    oss.scrub.has_read(read_bytes);
    oss.scrub.change(|record| record.at = Some(ScrubPlace { object, offset: Some(block * BLOCK) }));
}

fn done_with(oss: &Oss, object: ObjectId) {
    oss.scrub.change(|record| {
        record.after = Some(object);
        record.at = None;
        record.pass.iter_mut().for_each(|pass| pass.objects += 1);
    });
}

/// Begins a pass, or goes on with the one that the record has.
async fn begin(oss: &Oss) -> Result<()> {
    let total_bytes = if oss.scrub.is_new() { all_bytes(oss).await? } else { 0 };
    oss.scrub.begin(total_bytes, oss.seams.wall().secs, oss.seams.now());
    save(oss).await
}

async fn finish(oss: &Oss) -> Result<()> {
    if let Some(pass) = oss.scrub.finish(oss.seams.wall().secs) {
        let ScrubPass { objects, bytes, found, mended, unmended, .. } = pass;
        tracing::info!(objects, bytes, found, mended, unmended, "the scrub has looked at all objects");
    }
    save(oss).await?;
    tell_mgs(oss).await;
    Ok(())
}

/// Makes a record of the primary durable in the directory of the target.
pub(crate) fn keep(oss: &Oss, record: &ScrubRecord) -> Result<()> {
    oss.scrub.keep(&*oss.seams.disk, &oss.dir, record)
}

async fn all_bytes(oss: &Oss) -> Result<u64> {
    let (mut after, mut bytes) = (None, 0u64);
    loop {
        let (listed, end) = oss.store.list(after, PAGE).await?;
        let existing = listed.iter().filter(|l| l.exists);
        bytes = existing.fold(bytes, |sum, l| sum.saturating_add(l.allocated_bytes));
        after = listed.last().map(|l| l.object).or(after);
        if end {
            return Ok(bytes);
        }
        oss.seams.sleep_ms(PAUSE_MS).await;
    }
}

/// Scrubs again and again, for as long as the OST is served here.
pub(crate) async fn run(oss: Arc<Oss>) {
    oss.fences_known.wait().await;
    let scrub = &oss.scrub;
    open(&oss);
    let mut orders = scrub.orders();
    loop {
        orders.borrow_and_update();
        if scrub.is_due(oss.seams.wall().secs) {
            let passed = pass(&oss).await;
            scrub.paused();
            if let Err(fault) = passed {
                tracing::warn!(code = %fault.code, "the scrub cannot go on: {fault}");
                scrub.set_trouble(fault.to_string());
                oss.seams.timeout_ms(TROUBLE_PAUSE_MS, orders.changed()).await;
                continue;
            }
        }
        tell_mgs(&oss).await;
        oss.seams.timeout_ms(LOOK_EVERY_MS, orders.changed()).await;
    }
}

/// Goes on with a pass until it has seen all objects, or is stopped.
async fn pass(oss: &Arc<Oss>) -> Result<()> {
    let scrub = &oss.scrub;
    begin(oss).await?;
    let mut after = scrub.record().and_then(|record| record.after);
    loop {
        let (listed, end) = oss.store.list(after, PAGE).await?;
        for listed in &listed {
            if listed.exists && !walk(oss, listed.object).await? {
                return save(oss).await;
            }
            done_with(oss, listed.object);
            save_now_and_then(oss).await?;
        }
        after = listed.last().map(|l| l.object).or(after);
        if end {
            return finish(oss).await;
        }
    }
}

/// Looks at all of an object; whether it was not stopped before.
async fn walk(oss: &Arc<Oss>, object: ObjectId) -> Result<bool> {
    let scrub = &oss.scrub;
    let at = scrub.record().and_then(|record| record.at).filter(|at| at.object == object);
    let mut block = at.and_then(|at| at.offset).map_or(0, |offset| offset / BLOCK);
    let verdict = piece::Verdict::default();
    loop {
        if scrub.is_stopped() {
            return Ok(false);
        }
        let began = oss.seams.now();
        let looked = piece::look(oss, object, block, &verdict).await?;
        came_to(oss, object, looked.next.unwrap_or(block), looked.read_bytes);
        pause(oss, looked.read_bytes, began).await;
        match looked.next {
            // (The next place must lie behind this one, whatever a member answers.)
            Some(next) => block = next.max(block + VERIFY_BLOCKS_MAX),
            None => return Ok(true),
        }
        save_now_and_then(oss).await?;
    }
}
