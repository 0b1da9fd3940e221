//! OSTs of the map, and their free space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use brindle_config::Superblock;
use brindle_layout::Candidate;
use brindle_net::{Peer, Transport};
use brindle_stdx::watch;
use brindle_stdx::{BoxFuture, Seams};
use brindle_targets::waits::Wait;
use brindle_targets::{Directory, Endpoint, Host, Identity, Introduction, Options};
use brindle_types::{Code, Fault, Pair, Result, Role, SessionId, TargetId};
use brindle_wire::Op;
use brindle_wire::form::FormatLevel;
use brindle_wire::frame::Frame;
use brindle_wire::mgs::NoteTermReq;
use brindle_wire::oss::statfs::OstStatfsReq;
use bytes::Bytes;
use futures_util::future::join_all;

use crate::mdt::{Call, Mdt};
use crate::osts::OstCalls;
use crate::store::meta;

/// Interval at which the OSTs are asked for their free space.
const POLL_MS: u64 = 2_000;
/// An OST that does not answer for this long counts as down.
const POLL_TIMEOUT_MS: u64 = 1_500;
/// Pause before the MGS is told of the term again.
const NOTE_AGAIN_MS: u64 = 1_000;

/// The OSTs of the map, asked under the session of this MDT.
pub struct OstTargets {
    targets: Arc<Directory>,
    host: Arc<MdtAtOsts>,
    own: TargetId,
}

/// Endpoint of the MDT as a caller: it has a session at the OSTs.
struct AsMdt(Arc<MdtAtOsts>);

impl Endpoint for AsMdt {
    fn host(&self, _: TargetId, _: &Arc<Peer>) -> Arc<dyn Host> {
        self.0.clone()
    }
}

/// The session of this MDT at every OST: its epoch is the term.
struct MdtAtOsts {
    session: SessionId,
    term: AtomicU32,
    /// Reason why an OST has refused this term; `None` unless one has.
    deposed: watch::Sender<Option<Fault>>,
}

impl Host for MdtAtOsts {
    fn identity(&self) -> Identity {
        let epoch = Pair { term: self.term.load(Ordering::Acquire), counter: 1 };
        Identity { session: self.session, epoch }
    }

    fn ready(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }

    fn refused<'a>(&'a self, _: Identity, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        self.deposed.send_replace(Some(fault.clone()));
        Box::pin(std::future::ready(Err(fault.clone())))
    }
}

impl OstTargets {
    /// The OSTs of the file system that an MDT belongs to, over a directory of its own.
    pub fn new(
        seams: &Seams,
        transport: Arc<dyn Transport>,
        host: &str,
        own: &Superblock,
    ) -> Arc<OstTargets> {
        let at_osts = Arc::new(MdtAtOsts {
            session: SessionId::of_mdt(own.target.index),
            term: AtomicU32::new(0),
            deposed: watch::Sender::default(),
        });
        let targets = Directory::new(
            seams,
            transport,
            Introduction::server(host, own.target),
            Arc::new(AsMdt(at_osts.clone())),
            own.mgs.clone(),
            own.fs.clone(),
            own.fs_id,
        );
        Arc::new(OstTargets { targets, host: at_osts, own: own.target })
    }

    /// The directory.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.targets
    }

    /// Completes when an OST has refused this MDT because there is one of a later term; with what it said.
    pub async fn until_deposed(&self) -> Fault {
        let mut deposed = self.host.deposed.subscribe();
        let Ok(refusal) = deposed.wait_for(Option::is_some).await else { return Fault::new(Code::Shutdown) };
        let name = self.targets.map().current().fs.target(self.own);
        let fault = Fault::new(Code::LaterMdt).subject(name).why("an OST refuses it");
        refusal.iter().flat_map(|fault| &fault.why).cloned().fold(fault, Fault::why)
    }

    fn indices(&self) -> Vec<u16> {
        let map = self.targets.map().current();
        map.targets.iter().filter(|t| t.id.role == Role::Ost).map(|t| t.id.index).collect()
    }
}

impl OstCalls for OstTargets {
    fn call(&self, ost: u16, op: Op, body: Bytes, bulk: Vec<Bytes>) -> BoxFuture<'static, Result<Frame>> {
        let targets = self.targets.clone();
        Box::pin(async move {
            let caller = targets.caller(TargetId::ost(ost)).await?;
            caller.call_encoded(op, body, bulk, Options::default()).await
        })
    }

    fn probe(&self, ost: u16, op: Op, body: Bytes) -> BoxFuture<'static, Result<Frame>> {
        let target = TargetId::ost(ost);
        let known = self.targets.known(target);
        Box::pin(async move {
            let unknown = || Fault::new(Code::UnknownTarget).subject(target.to_string());
            known.ok_or_else(unknown)?.probe_encoded(op, body).await
        })
    }

    fn all(&self) -> BoxFuture<'_, Vec<u16>> {
        Box::pin(async {
            // The directory holds the sender, so waiting cannot fail.
            let _ = self.targets.map().subscribe().wait_for(|map| map.version > 0).await;
            self.indices()
        })
    }

    fn set_term(&self, term: u32) {
        self.host.term.store(term, Ordering::Release);
    }

    fn waits(&self) -> Vec<(String, String, u64)> {
        let now = self.targets.seams().now();
        let row = |wait: Wait| (wait.op.name().to_owned(), wait.target.to_string(), wait.ms);
        self.targets.waits().list(now).into_iter().map(row).collect()
    }
}

/// Follows the map: its OSTs and pools.
pub async fn follow_map(mdt: Arc<Mdt>, targets: Arc<Directory>) {
    let mut news = targets.map().subscribe();
    loop {
        let map = news.borrow_and_update().clone();
        if map.version > 0 {
            mdt.osts().set_map(&map);
            if let Err(fault) = take_level(&mdt, map.format_level).await {
                tracing::warn!(code = %fault.code, "cannot take the format level over: {fault}");
            }
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Takes a format level of the map: rows may be written in its forms from now on. The level is in the log before the
/// first such row.
async fn take_level(mdt: &Mdt, level: FormatLevel) -> Result<()> {
    // A newer one than this release knows is refused when the server registers.
    if level <= mdt.engine().level() || level > FormatLevel::NEWEST {
        return Ok(());
    }
    mdt.step(&Call::internal(Op::RaiseLevel), |t| {
        meta::put_format_level(t, level);
        Ok(())
    })
    .await?;
    mdt.engine().set_level(level);
    Ok(())
}

/// Asks for free space, for as long as the MDT runs; of new OSTs at once.
pub async fn poll_space(mdt: Arc<Mdt>) {
    loop {
        let (version, osts) = mdt.osts().of_map();
        join_all(osts.iter().map(|ost| ask_space(&mdt, *ost))).await;
        mdt.osts().set_asked(version);
        mdt.backups().drop_idle(mdt.seams().now());
        // After a timeout and after a new map alike, the OSTs are asked again.
        let _ = mdt.seams().timeout_ms(POLL_MS, mdt.osts().until_newer_than(version)).await;
    }
}

/// Tells the MGS the term of this opening. Completes only if another opening has this term or a later one. This MDT then runs from an old
/// copy of its disk or from a restored backup.
pub async fn note_term(mdt: Arc<Mdt>, targets: Arc<Directory>) -> Fault {
    let identity = mdt.identity();
    let (term, opening) = (mdt.numbers().term(), mdt.seams().rng.next_u64());
    let (fs, target, uuid) = (identity.fs.clone(), identity.target(), identity.uuid);
    let request = NoteTermReq { fs, target, uuid, term, opening };
    match until_noted(mdt.seams(), || targets.mgs().ask(&request)).await {
        Some(answer) if !answer.is_newest => {
            if let Some(seat) = &mdt.config().seat {
                // A member that serves after a loss was accepted may not have heard of it.
                seat.raise_term_floor(answer.highest);
            }
            later(&identity.name(), term, answer.highest)
        }
        _ => std::future::pending().await,
    }
}

/// Asks until there is an answer. `None`: the MGS is of an earlier release, which keeps no terms.
async fn until_noted<T, Asked: Future<Output = Result<T>>>(
    seams: &Seams,
    ask: impl Fn() -> Asked,
) -> Option<T> {
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(fault) => {
                // Without an answer a second copy of this MDT's disk would go unnoticed.
                tracing::warn!(code = %fault.code, "the MGS does not keep the term of this MDT: {fault}");
                if fault.code == Code::UnknownOp {
                    return None;
                }
                seams.sleep_ms(NOTE_AGAIN_MS).await;
            }
        }
    }
}

fn later(name: &str, term: u32, highest: u32) -> Fault {
    Fault::new(Code::LaterMdt)
        .subject(name.to_owned())
        .why(match highest > term {
            true => format!("this is its term {term}, and the MGS was told of term {highest}"),
            false => format!("the MGS was told of its term {term} by another copy of its disk"),
        })
        .data("nothing was changed")
}

/// Asks an OST for its free space.
pub async fn ask_space(mdt: &Mdt, index: u16) {
    let asked = mdt.osts().ask(index, &OstStatfsReq {});
    match mdt.seams().timeout_ms(POLL_TIMEOUT_MS, asked).await {
        Some(Ok(space)) => mdt.osts().set_candidate(Candidate {
            index,
            free_bytes: space.available_bytes,
            total_bytes: space.total_bytes,
            free_inodes: space.free_inodes,
            total_inodes: space.total_inodes,
            up: true,
            degraded: space.degraded,
            ..Candidate::default()
        }),
        Some(Err(_)) | None => mdt.osts().set_down(index),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn the_term_is_told_until_the_mgs_has_kept_it() {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let asked = AtomicUsize::new(0);
        let answer = until_noted(&seams, || {
            let is_first = asked.fetch_add(1, Ordering::AcqRel) == 0;
            std::future::ready(if is_first { Err(Fault::new(Code::StoreUnreachable)) } else { Ok(7) })
        });
        assert_eq!(answer.await, Some(7));
        let unknown = || std::future::ready(Err::<u8, Fault>(Fault::new(Code::UnknownOp)));
        assert_eq!(until_noted(&seams, unknown).await, None);
    }
}
