//! Names of users and groups, as this host knows them. A directory service may be slow: each name is asked for once in a while, on a thread
//! that may wait.

use std::collections::HashMap;
use std::sync::Arc;

use brindle_host::users;
use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use parking_lot::Mutex;

/// How long a name is good.
const FRESH_MS: u64 = 10 * 60_000;
/// Names that are kept; when there are more all are forgotten.
const KEPT_MAX: usize = 50_000;

/// A kind of owner (0: users, 1: groups) and a number.
type Key = (u8, u32);

/// Names by number.
pub struct Names {
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<Key, (Mono, Option<String>)>>,
}

fn key(kind: QuotaOwner, id: u32) -> Option<Key> {
    match kind {
        QuotaOwner::User => Some((0, id)),
        QuotaOwner::Group => Some((1, id)),
        QuotaOwner::Project => None,
    }
}

impl Names {
    /// An empty cache.
    pub fn new(clock: Arc<dyn Clock>) -> Names {
        Names { clock, known: Mutex::default() }
    }

    /// Names of some numbers; the number as text where there is none.
    pub async fn of(self: &Arc<Self>, kind: QuotaOwner, ids: Vec<u32>) -> Result<HashMap<u32, String>> {
        let names = self.clone();
        let asking = tokio::task::spawn_blocking(move || {
            ids.into_iter().map(|id| (id, names.look_up(kind, id))).collect()
        });
        asking.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))
    }

    fn look_up(&self, kind: QuotaOwner, id: u32) -> String {
        let Some(key) = key(kind, id) else { return id.to_string() };
        let now = self.clock.now();
        let fresh = {
            let known = self.known.lock();
            known.get(&key).filter(|(at, _)| now.ms_since(*at) < FRESH_MS).map(|(_, name)| name.clone())
        };
        let name = fresh.unwrap_or_else(|| {
            // A directory service that does not answer knows nobody.
            let name = match kind {
                QuotaOwner::User => users::user_name(id).ok().flatten(),
                _ => users::group_name(id).ok().flatten(),
            };
            let mut known = self.known.lock();
            if known.len() >= KEPT_MAX {
                known.clear();
            }
            known.insert(key, (now, name.clone()));
            name
        });
        name.unwrap_or_else(|| id.to_string())
    }

    /// The number of a user or group by name or number, of a project by number.
    pub async fn number(kind: QuotaOwner, text: &str) -> Result<u32> {
        let refused = |why: &str| {
            Fault::new(Code::BadArgument)
                .what("there is no")
                .subject(format!(
                    "{} '{}'",
                    brindle_admin::quota::kind_name(kind),
                    text.chars().take(80).collect::<String>()
                ))
                .why(why.to_owned())
                .data("nothing was changed")
                .next("give the number")
        };
        if let Ok(number) = text.parse::<u32>() {
            return if number == u32::MAX { Err(refused("that number means nobody")) } else { Ok(number) };
        }
        let name = text.to_owned();
        let asking = tokio::task::spawn_blocking(move || match kind {
            QuotaOwner::User => users::uid_of(&name),
            QuotaOwner::Group => users::gid_of(&name),
            QuotaOwner::Project => Ok(None),
        });
        match asking.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))? {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(refused("the manager's host does not know the name")),
            Err(e) => Err(refused(&e.to_string())),
        }
    }
}
