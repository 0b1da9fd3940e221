//! Races for names in one directory: a name is made by one, a token is moved atomically, links are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::namespace::rename::RenameIn;
use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;
use crate::history::Cuts;

/// Name of the directory.
pub const DIR: &str = "shared";
/// Names that the token can have.
pub const TOKENS: [&str; 4] = ["token.a", "token.b", "token.c", "token.d"];
/// A new name to race for comes up so often.
const ROUND_NS: u64 = 700_000_000;
/// Longest pause between two operations.
const PAUSE_MS: u64 = 300;
/// A name that was made is certain to stay over a power cut after this.
const NAMES_LOST_MAX_NS: u64 = 1_000_000_000;

/// Knowledge of one client about a name.
struct Try {
    client: usize,
    return_ns: Option<u64>,
    /// `Some(true)`: made it; `Some(false)`: somebody else had; `None`: not known.
    made: Option<bool>,
}

/// All races; outlives the clients.
#[derive(Clone, Default)]
pub struct Shared {
    tries: Arc<Mutex<BTreeMap<u64, Vec<Try>>>>,
}

impl Shared {
    /// Races until it is told to stop.
    pub async fn run(self, life: Life) {
        let dir = life.find(DIR).await;
        let mut last_round = 0;
        while !life.stopping() {
            life.pause(PAUSE_MS).await;
            let round = life.history.now_ns() / ROUND_NS;
            // Failures are noted; there are no handles that could be dead.
            let _ = match life.below(6) {
                0..3 if round != last_round => {
                    last_round = round;
                    self.race(&life, dir, round).await
                }
                3 => self.list(&life, dir).await,
                4 => link_and_unlink(&life, dir).await,
                _ => move_token(&life, dir).await,
            };
        }
    }

    /// Tries to be the one who makes a name.
    async fn race(&self, life: &Life, dir: Ino, round: u64) -> Result<(), Fault> {
        let at = {
            let mut tries = self.tries.lock();
            let tries = tries.entry(round).or_default();
            tries.push(Try { client: life.index, return_ns: None, made: None });
            tries.len() - 1
        };
        let name = format!("race{round}");
        let create = CreateIn {
            parent: dir,
            name: name.as_bytes(),
            mode: 0o600,
            umask: 0,
            exclusive: true,
            access: Access { read: false, write: true, truncate: false, execute: false },
        };
        let done = life.note(format!("create {name}"), life.client.create(&life.ctx, create)).await;
        let made = match &done {
            Ok(_) => Some(true),
            Err(fault) if fault.code == Code::Exists => Some(false),
            Err(_) => None,
        };
        if let Some(this) = self.tries.lock().get_mut(&round).and_then(|tries| tries.get_mut(at)) {
            this.return_ns = Some(life.history.now_ns());
            this.made = made;
        }
        let opened = done?.opened;
        life.history.issued(opened.attr.ino, &name);
        let handle = opened.handle;
        life.note(format!("close {name}"), life.client.close(handle)).await
    }

    /// The token has exactly one name at every moment.
    async fn list(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        let listing = life.note("list shared".into(), life.client.readdir(dir, 0, 1024, false)).await?;
        let tokens: Vec<String> = listing
            .entries
            .iter()
            .map(|e| String::from_utf8_lossy(&e.name).into_owned())
            .filter(|name| name.starts_with("token."))
            .collect();
        if listing.end && tokens.len() != 1 {
            let saw = format!("I3: c{} saw the token under {} names: {tokens:?}", life.index, tokens.len());
            life.history.violation(saw);
        }
        Ok(())
    }

    /// After everything: every name was made by one, and is there.
    pub async fn check(&self, life: &Life, cuts: &Cuts) -> Result<Vec<String>, Fault> {
        let dir = life.find(DIR).await;
        self.list(life, dir).await?;
        let mut wrong = Vec::new();
        let rounds: Vec<u64> = self.tries.lock().keys().copied().collect();
        for round in rounds {
            let there = match life.client.lookup(dir, format!("race{round}").as_bytes()).await {
                Ok(_) => true,
                Err(fault) if fault.code == Code::NotFound => false,
                Err(fault) => return Err(fault),
            };
            let tries = self.tries.lock();
            wrong.extend(check_round(round, &tries[&round], there, cuts));
        }
        Ok(wrong)
    }
}

fn check_round(round: u64, tries: &[Try], there: bool, cuts: &Cuts) -> Option<String> {
    let lossy = |t: &Try| {
        let end_ns = t.return_ns.unwrap_or(u64::MAX);
        cuts.between("mdt0", 0, end_ns.saturating_add(NAMES_LOST_MAX_NS)) && cuts.of("mdt0") > 0
    };
    let winners: Vec<&Try> = tries.iter().filter(|t| t.made == Some(true)).collect();
    let held = winners.iter().filter(|t| !lossy(t)).count();
    if winners.len() > 1 && held > 0 {
        let who: Vec<usize> = winners.iter().map(|t| t.client).collect();
        return Some(format!("I3: race{round} was made by several clients: {who:?}"));
    }
    if held > 0 && !there {
        return Some(format!("I3: race{round} was made by c{} and is gone", winners[0].client));
    }
    let unknown = tries.iter().any(|t| t.made.is_none());
    if there && winners.is_empty() && !unknown {
        return Some(format!("I3: race{round} is there, and everybody who tried found it made"));
    }
    None
}

/// Moves the token from any of its names to any other, if nothing is there.
async fn move_token(life: &Life, dir: Ino) -> Result<(), Fault> {
    let from = TOKENS[life.below(TOKENS.len() as u64) as usize];
    let to = TOKENS[life.below(TOKENS.len() as u64) as usize];
    let rename = RenameIn {
        parent: dir,
        name: from.as_bytes(),
        new_parent: dir,
        new_name: to.as_bytes(),
        no_replace: false,
        exchange: false,
        whiteout: false,
    };
    life.note(format!("rename {from} to {to}"), life.client.rename(&life.ctx, rename)).await
}

/// Gives the anchor another name of this client's own, and takes it away.
async fn link_and_unlink(life: &Life, dir: Ino) -> Result<(), Fault> {
    let anchor = life.client.lookup(dir, b"anchor").await?.ino;
    let name = format!("link.c{}", life.index);
    let linking = life.client.link(&life.ctx, anchor, dir, name.as_bytes());
    life.note(format!("link {name}"), linking).await?;
    let unlinking = life.client.unlink(&life.ctx, dir, name.as_bytes());
    let done = life.note(format!("unlink {name}"), unlinking).await;
    match done {
        Err(fault) if fault.code == Code::NotFound && life.history.cuts().of("mdt0") == 0 => {
            life.history.violation(format!("I3: {name} was made by c{} and is gone", life.index));
            Err(fault)
        }
        done => done,
    }
}
