//! The way from a command to the MDT whose changelog is meant.

use brindle_admin::changelog::{Changelog, MdtName};
use brindle_stdx::Rng;
use brindle_stdx::real::RealRng;
use brindle_types::{ChangeMask, Result};
use brindle_wire::mds::changelog::ChangelogInfoResp;
use brindle_wire::{Cred, Message};

use crate::admin::ask::{self, servers};
use crate::format::runtime;
use crate::lctl::MgsArgs;

/// A changelog that can be asked.
pub struct Reach {
    runtime: tokio::runtime::Runtime,
    changelog: Changelog,
    /// Full name of the MDT.
    pub name: String,
}

impl Reach {
    /// Finds where the MDT is served, as its MGS (or a mount) has it.
    pub fn new(mdt: &MdtName, mgs: &MgsArgs) -> Result<Reach> {
        let place = mgs.place(&mdt.fs)?;
        let runtime = runtime()?;
        let (asker, map) = runtime.block_on(async {
            let asker = servers();
            let map = ask::map(&asker, &place).await;
            (asker, map)
        });
        let changelog = Changelog::of(asker, map?, mdt.id, own_cred())?;
        Ok(Reach { name: changelog.name.clone(), changelog, runtime })
    }

    /// Asks the MDT.
    pub fn ask<M: Message>(&self, request: &M) -> Result<M::Resp> {
        self.runtime.block_on(self.changelog.ask(request))
    }

    /// Readers and size of the changelog.
    pub fn info(&self) -> Result<ChangelogInfoResp> {
        self.runtime.block_on(self.changelog.info())
    }

    /// Registers a reader; its name.
    pub fn register(&self, name: &str, mask: Option<ChangeMask>) -> Result<String> {
        self.runtime.block_on(self.changelog.register(name, mask, nonce()))
    }

    /// Removes a reader.
    pub fn deregister(&self, id: u32) -> Result<()> {
        self.runtime.block_on(self.changelog.deregister(id))
    }

    /// A reader needs nothing up to `end` any more.
    pub fn clear(&self, id: u32, end: u64) -> Result<()> {
        self.runtime.block_on(self.changelog.clear(id, end))
    }
}

/// Credentials of this command.
pub fn own_cred() -> Cred {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, groups: Vec::new() }
}

/// Nonce of a registration.
fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce.chunks_mut(8).for_each(|part| part.copy_from_slice(&RealRng.next_u64().to_le_bytes()));
    nonce
}
