//! A member that is not the primary: it takes messages in the name of one attachment, its highest.

use brindle_net::ServerConn;
use brindle_stdx::planted;
use brindle_types::{Code, Fault, Result};
use brindle_wire::oss::replica::Attachment;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::SetMember;

/// Longest wait of a message with an unknown epoch, until the daemon brings that epoch.
const EPOCH_WAIT_MS: u64 = 1_000;

/// Primary that may change this member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    attachment: Attachment,
    /// The primary's host; empty if there is none.
    host: String,
}

/// The part of a member that follows.
#[derive(Default)]
pub struct Following {
    attached: RwLock<Attached>,
}

impl Following {
    /// Ends the right of any primary to change this member. On return no change is under way.
    pub async fn detach(&self) {
        let mut attached = self.attached.write().await;
        // The number of the attachment stays, so that no late message of it comes in again.
        attached.host.clear();
    }

    /// Ends the right to change this member, unless `host` has it.
    pub async fn detach_all_but(&self, host: &str) {
        let other = {
            let attached = self.attached.read().await;
            !attached.host.is_empty() && attached.host != host
        };
        if other {
            self.detach().await;
        }
    }
}

impl SetMember {
    fn refused(&self, why: String) -> Fault {
        Fault::new(Code::NotPrimary).subject(format!("{} on {}", self.set().target, self.seat.host)).why(why)
    }

    /// Waits, for a bounded time, until the set is known in this epoch.
    pub async fn until_epoch(&self, epoch: u64) -> Result<()> {
        let mut orders = self.seat.subscribe();
        let known = self.seams.timeout_ms(EPOCH_WAIT_MS, orders.wait_for(|set| set.epoch >= epoch)).await;
        match known {
            Some(Ok(_)) => Ok(()),
            _ => Err(self.refused(format!("epoch {epoch} is not known here yet"))),
        }
    }

    /// Lets a message of the primary in. While the guard is held no other attachment begins.
    pub async fn enter(&self, conn: &ServerConn, asked: Attachment) -> Result<RwLockReadGuard<'_, Attached>> {
        let attached = self.following.attached.read().await;
        let is_it = attached.attachment == asked && attached.host == conn.principal().host;
        if !is_it && !planted("set_takes_a_former_primary") {
            return Err(Fault::new(Code::StaleEpoch).why(format!(
                "this member is attached as {:?}, the message has {asked:?}",
                attached.attachment
            )));
        }
        self.seat.hears(self.seams.now());
        Ok(attached)
    }

    /// A primary attaches this member: `ready` runs when nothing of an earlier attachment is under way.
    pub async fn attach<T>(
        &self,
        conn: &ServerConn,
        asked: Attachment,
        ready: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.until_epoch(asked.epoch).await?;
        let host = conn.principal().host.clone();
        let mut attached = self.following.attached.write().await;
        let set = self.set();
        if set.primary != host || host == self.seat.host || set.epoch != asked.epoch {
            return Err(self.refused(format!("{} is the primary in epoch {}", set.primary, set.epoch)));
        }
        if asked <= attached.attachment {
            return Err(self.refused(format!("it is attached as {:?}", attached.attachment)));
        }
        *attached = Attached { attachment: asked, host };
        self.seat.hears(self.seams.now());
        ready.await
    }
}
