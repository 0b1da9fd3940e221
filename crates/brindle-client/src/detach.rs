//! Operations that run to their end although their caller has stopped waiting.

use brindle_net::job;
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault};

use crate::{Cancel, Client};

impl Client {
    /// Runs `op` until it is done, or until `cancel` fires: `Interrupted` then, while `op` goes on in the background (its
    /// slots stay reserved until the outcome is known) and `undo` takes back what nobody will use (a handle, a lock).
    pub async fn detachable<T: Send + 'static>(
        &self,
        cancel: &Cancel,
        op: impl Future<Output = Result<T, Fault>> + Send + 'static,
        undo: impl FnOnce(T) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut op = Box::pin(op);
        if let Some(done) = cancel.until(&mut op).await {
            return done;
        }
        let going_on = async move {
            if let Ok(done) = op.await {
                undo(done).await;
            }
        };
        self.seams.spawn("client.detached", job::carry(going_on));
        Err(Fault::new(Code::Interrupted))
    }
}
