//! The time since when access times include reads of files.
//!
//! Releases before 0.2.0 stored the time of creation and left it there. Therefore a policy may believe stored access times only from the
//! moment on when clients began to report reads. A row holds that moment, and the last term in which reads were reported. If a term is
//! missing (an earlier release has served the MDT, or a backup was restored), the moment is set anew.

use brindle_types::attr::Time;
use brindle_types::{Ino, Result};
use brindle_wire::Op;

use crate::mdt::{Call, Mdt};
use crate::store::meta::{self, AccessTimes};
use crate::store::{Engine, inode};

/// The moment for the present term. After a gap it is a new one: `now`, but never before a time that is known to have been (the clock of this
/// host may be behind).
pub fn since(engine: &Engine, now: Time) -> Result<Time> {
    let term = engine.term();
    let kept = meta::access_times(engine)?;
    if let Some(kept) = kept
        && (term == kept.term || term == kept.term + 1)
    {
        return Ok(kept.since);
    }
    // A change time is always one that an MDT gave; a program may set the others to any time to come.
    let root_changed = inode::find(engine, Ino::ROOT)?.map(|root| root.ctime);
    let since = now.max(root_changed.unwrap_or(now)).max(kept.map_or(now, |kept| kept.since));
    if let Some(kept) = kept {
        tracing::warn!(
            before_secs = kept.since.secs,
            since_secs = since.secs,
            kept_term = kept.term,
            term,
            "access times were not kept in all terms: policies take no file for unused since before this start"
        );
    }
    Ok(since)
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
