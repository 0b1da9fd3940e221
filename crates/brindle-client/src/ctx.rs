//! Context of a call: credentials, and whether the caller still wants the answer.

use std::sync::Arc;

use brindle_net::latch::{Latch, until_set};
use brindle_wire::Cred;

/// The caller of one operation.
#[derive(Clone, Default)]
pub struct Ctx {
    /// User and groups.
    pub cred: Cred,
    /// Fires when the caller gives up.
    pub cancel: Cancel,
}

impl Ctx {
    /// The superuser, who never gives up.
    pub fn root() -> Ctx {
        Ctx::default()
    }

    /// A caller who never gives up.
    pub fn of(cred: Cred) -> Ctx {
        Ctx { cred, cancel: Cancel::never() }
    }
}

/// A flag that a caller sets when it gives up waiting. Cheap to clone.
#[derive(Clone, Default)]
pub struct Cancel(Option<Arc<Latch>>);

impl Cancel {
    /// A cancellation that never fires.
    pub fn never() -> Cancel {
        Cancel(None)
    }

    /// A cancellation that [`Cancel::cancel`] fires.
    #[allow(clippy::new_without_default, reason = "the default never fires")]
    pub fn new() -> Cancel {
        Cancel(Some(Arc::default()))
    }

    /// Fires it.
    pub fn cancel(&self) {
        if let Some(latch) = &self.0 {
            latch.set();
        }
    }

    /// Whether it has fired.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|latch| latch.is_set())
    }

    /// Completes once it fires.
    pub async fn cancelled(&self) {
        match &self.0 {
            Some(latch) => latch.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Runs `work` unless and until it fires; `None` then.
    pub fn until<W: Future>(&self, work: W) -> impl Future<Output = Option<W::Output>> + use<'_, W> {
        until_set(self.0.as_deref(), work)
    }
}
