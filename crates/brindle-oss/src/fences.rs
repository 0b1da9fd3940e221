//! Sessions that the MDT has ended. The OST learns them at its start, over each new connection to the MDT,
//! and whenever a client shows that there is a newer table than the known one.
//!
//! The MDT tells every OST of the end of a session before it gives away the session's rights, but does not wait for an OST that it
//! cannot reach. Clients may still reach such an OST: a client that was given the rights, and late writes of the ended session.
//! Therefore clients show the highest version of the table that they were told, and their requests wait here until the OST knows that
//! version.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::mds::fences::FenceTableReq;

use crate::service::Oss;

/// Pause before the MDT is asked again.
const RETRY_MS: u64 = 100;

/// Index of the MDT of these sessions; a file system has only one so far.
pub(crate) const MDT: u16 = 0;

/// Learns the table over each new connection to the MDT: an MDT that ended a session and died before telling this OST does not tell
/// it later. Changes are served once the table was learnt for the first time.
pub async fn follow(oss: Arc<Oss>) {
    let mut learnt_over = 0;
    loop {
        let learnt = async {
            let mdt = oss.targets.caller(TargetId::mdt(MDT)).await?;
            let connection = mdt.peer().wait_newer(learnt_over).await?;
            learn(&oss).await?;
            Ok(connection.generation)
        };
        match learnt.await {
            Ok(connection) => {
                learnt_over = connection;
                if !oss.fences_known.is_set() {
                    oss.store.serving();
                    oss.fences_known.set();
                }
            }
            Err(fault) => pause(&oss, &fault).await,
        }
    }
}

/// Completes when the table of this version is known, however long the MDT is away.
pub async fn at_least(oss: &Arc<Oss>, version: u64) -> Result<()> {
    if oss.store.fences_version() >= version || brindle_stdx::planted("ost_serves_behind_a_fence") {
        return Ok(());
    }
    // One task learns at a time: the others find what the first has learnt.
    let _turn = oss.learning.lock().await;
    while oss.store.fences_version() < version {
        if oss.stopped.is_set() {
            // The service has stopped: the MDT cannot be asked any more, and no client hears the answer.
            return Err(Fault::new(Code::NotOwner));
        }
        if let Err(fault) = learn(oss).await {
            pause(oss, &fault).await;
        } else if oss.store.fences_version() < version {
            let known = oss.store.fences_version();
            return Err(Fault::new(Code::BadFrame).why(format!(
                "it shows version {version:#x} of the table of fences, the MDT has {known:#x}"
            )));
        }
    }
    Ok(())
}

async fn learn(oss: &Arc<Oss>) -> Result<()> {
    let table = oss.targets.caller(TargetId::mdt(MDT)).await?.ask(&FenceTableReq {}).await?;
    oss.store.learn_fences(table.fences, table.version).await?;
    // The holders of pages that the last changes of an ended session made old may never be told.
    oss.marks.forget_all();
    Ok(())
}

async fn pause(oss: &Oss, fault: &Fault) {
    // A connection that was lost is made again; one that is refused may be taken later.
    if !matches!(fault.code, Code::Disconnected | Code::TargetDown | Code::Shutdown) {
        tracing::error!(code = %fault.code, "cannot learn which sessions are fenced: {fault}");
    }
    oss.seams.sleep_ms(RETRY_MS).await;
}
