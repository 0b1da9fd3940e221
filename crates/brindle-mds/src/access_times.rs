//! Since when reads of files are in their access times.
//!
//! Releases before 0.2.0 stored the time of creation and left it there. So a policy that goes by the last access may believe the stored times only
//! from the moment on from which reads are told. A row has that moment, and the last term in which they were told: after a term that is
//! missing (an earlier release has served the MDT, or a backup was restored) the moment is a new one.

use brindle_types::Result;
use brindle_types::attr::Time;
use brindle_wire::Op;

use crate::mdt::{Call, Mdt};
use crate::store::Engine;
use crate::store::meta::{self, AccessTimes};

/// The moment for the present term; `now`, if there was a gap.
pub fn since(engine: &Engine, now: Time) -> Result<Time> {
    let term = engine.term();
    let kept = meta::access_times(engine)?.filter(|kept| term == kept.term || term == kept.term + 1);
    Ok(kept.map_or(now, |kept| kept.since))
}

/// Stores that access times are kept in the present term.
pub async fn keep(mdt: &Mdt) -> Result<()> {
    let kept = AccessTimes { since: mdt.access_times_since(), term: mdt.engine().term() };
    let call = Call::internal(Op::NoteAccess);
    mdt.step(&call, |t| {
        t.frees_space();
        meta::put_access_times(t, kept);
        Ok(())
    })
    .await
}
