//! [`Names`]: clients that make and remove names, and look up each other's. Every name is new, so that an operation whose outcome is not known
//! spoils nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::{Client, Ctx};
use brindle_types::{Code, Fault, Ino};
use parking_lot::Mutex;

use super::clients::{Acked, Clients, Life, mount};
use super::cluster::CLIENTS;

/// One operation in so many is a sync, one a removal.
const SYNC_ONE_IN: u64 = 12;
const REMOVE_ONE_IN: u64 = 6;
/// Now and then a client only looks, for a while: a change that a primary cannot ship would hold up all its answers, right ones and wrong ones.
const REST_ONE_IN: u64 = 60;
const REST_MAX_MS: u64 = 15_000;
/// Entries of a listing that are asked for at once.
const LIST_BATCH: u32 = 256;
/// A sync covers every name.
const ALL: usize = 0;

/// A name that a client has made, or tried to.
#[derive(Clone, Copy, Default)]
struct Name {
    made: Option<Acked>,
    /// A removal was asked for.
    removes: bool,
    removed: Option<Acked>,
}

/// Names in the directory of one client.
#[derive(Default)]
struct Directory {
    names: BTreeMap<u64, Name>,
    next: u64,
}

/// See the module. Cloning gives another handle to the same work.
#[derive(Clone)]
pub struct Names {
    /// The clients.
    pub clients: Arc<Clients>,
    dirs: Arc<Vec<(Ino, Mutex<Directory>)>>,
}

fn name_of(number: u64) -> String {
    format!("d{number}")
}

impl Names {
    /// Makes a directory for each client, durably.
    pub async fn prepare(clients: Arc<Clients>, client: &Client) -> Result<Names, Fault> {
        let mut dirs = Vec::new();
        for name in CLIENTS {
            let made = client.mkdir(&Ctx::root(), client.root(), name.as_bytes(), 0o755, 0).await?;
            dirs.push((made.ino, Mutex::default()));
        }
        client.fsync_dir(client.root()).await?;
        Ok(Names { clients, dirs: Arc::new(dirs) })
    }

    /// Lets a life work.
    pub fn begin(&self, life: Life) {
        let seams = life.node.seams.clone();
        let (maker, reader, own, other) = (life.clone(), life, self.clone(), self.clone());
        seams.spawn("work.make", async move { own.make(maker).await });
        seams.spawn("work.read", async move { other.read(reader).await });
    }

    /// Compares what is there with what was acknowledged.
    pub async fn verdict(&self) -> Result<(), Fault> {
        let client = mount(&self.clients.cluster().world().node("witness")).await;
        client.fsync_dir(client.root()).await?;
        for (client_name, (dir, names)) in CLIENTS.iter().zip(&*self.dirs) {
            let found = listed(&client, *dir).await?;
            for (number, name) in &names.lock().names {
                let is_there = found.contains(&name_of(*number));
                if let Some(why) = self.wrong(name, is_there) {
                    let text = format!("R1: {client_name}/{} {why}", name_of(*number));
                    self.clients.witness().history().violation(text);
                }
            }
        }
        client.unmount().await;
        Ok(())
    }

    /// The broken promise about a name that is there or is not, if one is.
    fn wrong(&self, name: &Name, is_there: bool) -> Option<String> {
        let (acked, what) = match (name.removed, name.made, is_there) {
            (Some(removed), _, true) => (removed, "is there, and its removal was"),
            (None, Some(made), false) if !name.removes => (made, "is not there, and was"),
            _ => return None,
        };
        self.clients.must_be_kept(ALL, &acked).map(|why| format!("{what} {why}"))
    }

    /// Makes names, removes some, and syncs now and then.
    async fn make(self, life: Life) {
        let (ctx, (dir, names)) = (Ctx::root(), &self.dirs[life.index]);
        while life.goes_on() {
            life.pause().await;
            if life.choose(REST_ONE_IN) == 0 {
                life.rest(REST_MAX_MS).await;
            }
            if life.choose(SYNC_ONE_IN) == 0 {
                let (done, acked) = life.asked("sync".to_owned(), life.client.fsync_dir(*dir)).await;
                if done.is_ok() {
                    self.clients.synced(ALL, acked);
                }
                continue;
            }
            if life.choose(REMOVE_ONE_IN) == 0 {
                self.remove(&life).await;
                continue;
            }
            let number = {
                let mut names = names.lock();
                let number = names.next;
                names.next += 1;
                names.names.insert(number, Name::default());
                number
            };
            let name = name_of(number);
            let made = life.client.mkdir(&ctx, *dir, name.as_bytes(), 0o755, 0);
            let (done, acked) = life.asked(format!("mkdir {name}"), made).await;
            if done.is_ok()
                && let Some(name) = names.lock().names.get_mut(&number)
            {
                name.made = Some(acked);
            }
        }
        life.ended();
    }

    async fn remove(&self, life: &Life) {
        let (dir, names) = &self.dirs[life.index];
        let number = {
            let mut names = names.lock();
            let kept = names.names.iter().filter(|(_, name)| name.made.is_some() && !name.removes);
            let kept: Vec<u64> = kept.map(|(number, _)| *number).collect();
            if kept.is_empty() {
                return;
            }
            let number = kept[life.choose(kept.len() as u64) as usize];
            if let Some(name) = names.names.get_mut(&number) {
                name.removes = true;
            }
            number
        };
        let (ctx, name) = (Ctx::root(), name_of(number));
        let removed = life.client.rmdir(&ctx, *dir, name.as_bytes());
        let (done, acked) = life.asked(format!("rmdir {name}"), removed).await;
        if done.is_ok()
            && let Some(name) = names.lock().names.get_mut(&number)
        {
            name.removed = Some(acked);
        }
    }

    /// Looks up names that the other client has made, the newest most often.
    async fn read(self, life: Life) {
        let (dir, names) = &self.dirs[1 - life.index];
        while life.goes_on() {
            life.pause().await;
            let found = {
                let names = names.lock();
                let made = names.names.iter().rev().filter(|(_, name)| name.made.is_some());
                made.map(|(number, name)| (*number, *name)).nth(life.choose(4) as usize)
            };
            let Some((number, before)) = found else { continue };
            let name = name_of(number);
            let (done, _) =
                life.asked(format!("lookup {name}"), life.client.lookup(*dir, name.as_bytes())).await;
            let is_there = match done {
                Ok(_) => true,
                Err(fault) if fault.code == Code::NotFound => false,
                Err(_) => continue,
            };
            let now = names.lock().names.get(&number).copied().unwrap_or_default();
            // A removal that was asked for meanwhile may have been done or not.
            let expected = Name { removes: now.removes, ..before };
            if let Some(why) = self.wrong(&expected, is_there) {
                let text = format!("R5: {} looks up {name}: it {why}", life.node.name);
                life.history().violation(text);
            }
        }
        life.ended();
    }
}

/// All names in a directory.
async fn listed(client: &Client, dir: Ino) -> Result<Vec<String>, Fault> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = client.readdir(dir, after, LIST_BATCH, false).await?;
        let Some(last) = page.entries.last() else { return Ok(names) };
        after = last.cookie;
        names.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
        if page.end {
            return Ok(names);
        }
    }
}
