//! Pools of OSTs: the list, and changes, whose effect is shown before they are made.

use std::str::FromStr;

use brindle_admin::pool::{self, PoolsView};
use brindle_types::{Code, Fault, PoolName, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::PoolChange;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cluster::Managed;
use crate::plan::PlanView;

/// OSTs of a change of a pool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolReq {
    /// OSTs that are put in or taken out, by index; all of them where the pool is destroyed.
    #[serde(default)]
    pub osts: Vec<u16>,
    /// Says what would be, and changes nothing.
    pub dry_run: bool,
}

/// An action on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make it, with OSTs.
    Create,
    /// Put OSTs in.
    Add,
    /// Take OSTs out.
    Remove,
    /// Destroy it.
    Destroy,
}

impl Verb {
    /// The verb of the command.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Add => "add",
            Verb::Remove => "remove",
            Verb::Destroy => "destroy",
        }
    }
}

impl FromStr for Verb {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Verb> {
        let all = [Verb::Create, Verb::Add, Verb::Remove, Verb::Destroy];
        all.into_iter().find(|verb| verb.word() == word).ok_or_else(|| {
            Fault::new(Code::UnknownResource)
                .what("a pool has no action called")
                .subject(word.to_owned())
                .next("create, add, remove, destroy")
        })
    }
}

/// All pools.
pub async fn list(managed: &Managed) -> Result<PoolsView> {
    let (map, _) = managed.servers.map(&managed.place()?).await?;
    Ok(pool::view(&map, &map.pools))
}

/// A change that can be made.
#[derive(Clone, Debug)]
pub struct Change {
    pool: PoolName,
    verb: Verb,
    osts: Vec<u16>,
}

impl Change {
    /// Change that a request asks for.
    pub fn of(pool: &str, verb: Verb, request: &PoolReq) -> Result<Change> {
        let pool = PoolName::from_str(pool).map_err(|why| {
            Fault::new(Code::BadArgument)
                .what("cannot use the name")
                .subject(pool.chars().take(80).collect::<String>())
                .why(why)
                .data("nothing was changed")
        })?;
        let mut osts = request.osts.clone();
        osts.sort_unstable();
        osts.dedup();
        let why = match (verb, osts.is_empty()) {
            (Verb::Add | Verb::Remove, true) => "no OST is named",
            (Verb::Destroy, false) => "OSTs are named, and all of them go with it",
            _ => return Ok(Change { pool, verb, osts }),
        };
        Err(Fault::new(Code::BadArgument)
            .what(format!("cannot {} the pool", verb.word()))
            .subject(pool.to_string())
            .why(why)
            .data("nothing was changed"))
    }

    /// Name of the pool, for the audit log.
    pub fn name(&self) -> String {
        self.pool.to_string()
    }

    /// Says what the change would do.
    pub async fn plan(&self, managed: &Managed) -> Result<PlanView> {
        let place = managed.place()?;
        let (map, _) = managed.servers.map(&place).await?;
        pool::all_exist(&map, &self.osts)?;
        let (would, changes) = self.would(&map)?;
        let effects = match self.verb {
            Verb::Create | Verb::Add => {
                "New files of directories that name the pool go to its OSTs. Files that are there stay where they are."
            }
            Verb::Remove => {
                "New files of the pool do not go there any more. Files that are there stay, and are read and written as before."
            }
            Verb::Destroy => {
                "New files of directories that name the pool go to any OST. Files stay where they are."
            }
        };
        Ok(PlanView {
            target: self.name(),
            action: format!("pool.{}", self.verb.word()),
            would,
            effects: vec![effects.to_owned()],
            changes,
            command: format!("{} {}", self.command(), managed.place_word(&place)),
            request: format!(
                "POST /api/v1/pools/{}/{} {}",
                self.pool,
                self.verb.word(),
                serde_json::json!({ "osts": self.osts, "dry_run": false })
            ),
            task: None,
        })
    }

    fn would(&self, map: &Map) -> Result<(String, bool)> {
        let there = map.pool(&self.pool).map(|pool| pool.osts.clone());
        let names = |osts: &[u16]| {
            let names: Vec<String> = osts.iter().map(|ost| map.fs.target(TargetId::ost(*ost))).collect();
            if names.is_empty() { "no OSTs".to_owned() } else { names.join(", ") }
        };
        if self.verb == Verb::Create {
            return match there {
                None => Ok((format!("A pool {} would be made, with {}", self.pool, names(&self.osts)), true)),
                Some(_) => Err(Fault::new(Code::BadArgument)
                    .what("cannot make the pool")
                    .subject(self.name())
                    .why("there is one of this name")
                    .data("nothing was changed")
                    .next("choose another name")),
            };
        }
        let present = pool::find(map, &self.pool)?.osts.clone();
        let is_new = |ost: &&u16| !present.contains(ost);
        let (new, known): (Vec<u16>, Vec<u16>) = self.osts.iter().partition(is_new);
        Ok(match self.verb {
            Verb::Add => (format!("{} would be put into {}", names(&new), self.pool), !new.is_empty()),
            Verb::Remove => {
                (format!("{} would be taken out of {}", names(&known), self.pool), !known.is_empty())
            }
            _ => (format!("The pool {} of {} would be destroyed", self.pool, names(&present)), true),
        })
    }

    fn command(&self) -> String {
        let osts: Vec<String> = self.osts.iter().map(ToString::to_string).collect();
        let mut command = format!("brindle pool {} {}", self.verb.word(), self.pool);
        if !osts.is_empty() {
            command += &format!(" {}", osts.join(","));
        }
        if self.verb == Verb::Destroy {
            command += " --yes";
        }
        command
    }

    /// Makes it, and waits until the MDTs know.
    pub async fn make(&self, managed: &Managed) -> Result<()> {
        let (place, servers) = (managed.place()?, &managed.servers);
        let changes = match self.verb {
            Verb::Create if self.osts.is_empty() => vec![PoolChange::Create],
            Verb::Create => vec![PoolChange::Create, PoolChange::Add(self.osts.clone())],
            Verb::Add => vec![PoolChange::Add(self.osts.clone())],
            Verb::Remove => vec![PoolChange::Remove(self.osts.clone())],
            Verb::Destroy => vec![PoolChange::Destroy { with_osts: true }],
        };
        for change in changes {
            pool::change(servers, &place, &self.pool, change).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verb: Verb, osts: &[u16]) -> Result<Change> {
        Change::of("flash", verb, &PoolReq { osts: osts.to_vec(), dry_run: true })
    }

    #[test]
    fn changes_name_what_they_need_and_nothing_else() {
        assert_eq!(of(Verb::Create, &[]).unwrap().command(), "brindle pool create flash");
        assert_eq!(of(Verb::Add, &[3, 1, 3]).unwrap().command(), "brindle pool add flash 1,3");
        assert_eq!(of(Verb::Destroy, &[]).unwrap().command(), "brindle pool destroy flash --yes");
        for (verb, osts) in [(Verb::Add, &[][..]), (Verb::Remove, &[]), (Verb::Destroy, &[1])] {
            assert_eq!(of(verb, osts).unwrap_err().code, Code::BadArgument);
        }
        let unnamed = Change::of("a pool", Verb::Create, &PoolReq::default());
        assert_eq!(unnamed.unwrap_err().code, Code::BadArgument);
        assert!("rename".parse::<Verb>().is_err());
    }
}
