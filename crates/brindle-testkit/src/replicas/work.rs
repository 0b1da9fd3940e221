//! [`Work`]: what clients do with the target that has members, and what of it must be there at the end.

use std::sync::Arc;

use brindle_types::{Fault, Role};

use super::blocks::Blocks;
use super::clients::{Clients, Life, mount};
use super::cluster::{CLIENTS, SetCluster};
use super::names::Names;
use super::rules::Witness;

/// See the module. Cloning gives another handle to the same work.
#[derive(Clone)]
pub enum Work {
    /// Of an MDT.
    Names(Names),
    /// Of an OST.
    Blocks(Blocks),
}

impl Work {
    /// Makes what the clients work on, durably, and lets them work.
    pub async fn begin(cluster: &SetCluster, witness: &Arc<Witness>) -> Result<Work, Fault> {
        let client = mount(&cluster.world().node("setup")).await;
        let clients = Clients::new(cluster, witness);
        let work = match cluster.target().role {
            Role::Ost => Work::Blocks(Blocks::prepare(clients, &client).await?),
            Role::Mdt | Role::Mgt => Work::Names(Names::prepare(clients, &client).await?),
        };
        client.unmount().await;
        (0..CLIENTS.len()).for_each(|index| work.begin_life(index, 1));
        Ok(work)
    }

    /// The clients.
    pub fn clients(&self) -> &Arc<Clients> {
        match self {
            Work::Names(names) => &names.clients,
            Work::Blocks(blocks) => &blocks.clients,
        }
    }

    fn begin_life(&self, index: usize, number: u64) {
        let work = self.clone();
        self.clients().begin_life(index, number, move |life: Life| match &work {
            Work::Names(names) => names.begin(life),
            Work::Blocks(blocks) => blocks.begin(life),
        });
    }

    /// A client that died begins anew.
    pub fn revive(&self, name: &str) {
        if let Some((index, number)) = self.clients().reborn(name) {
            self.begin_life(index, number);
        }
    }

    /// Compares what is there with what was acknowledged.
    pub async fn verdict(&self) -> Result<(), Fault> {
        match self {
            Work::Names(names) => names.verdict().await,
            Work::Blocks(blocks) => blocks.verdict().await,
        }
    }
}
