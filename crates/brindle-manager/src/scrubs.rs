//! The scrub of OSTs and MDTs: its progress, and orders to it.

use std::str::FromStr;

use brindle_admin::scrub::{self, ScrubsView};
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::oss::scrub::ScrubOrder;

use crate::cluster::Managed;
use crate::plan::PlanView;

/// An action on a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Begin a pass, or go on with one.
    Start,
    /// Pause until it is started again.
    Stop,
}

impl FromStr for Verb {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Verb> {
        match word {
            "start" => Ok(Verb::Start),
            "stop" => Ok(Verb::Stop),
            _ => Err(Fault::new(Code::UnknownResource)
                .what("a scrub has no action called")
                .subject(word.to_owned())
                .next("start, stop")),
        }
    }
}

impl Verb {
    /// The verb of the command.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Start => "start",
            Verb::Stop => "stop",
        }
    }
}

/// Scrubs of all targets.
pub async fn list(managed: &Managed) -> Result<ScrubsView> {
    let (map, _) = managed.servers.map(&managed.place()?).await?;
    let ids = scrub::targets(&map, &[])?;
    scrub::order(&managed.servers, &map, &ids, ScrubOrder::Show).await
}

/// Says what an order to the scrub of a target would come to.
pub async fn plan(managed: &Managed, name: &str, verb: Verb) -> Result<PlanView> {
    let place = managed.place()?;
    let target = find(managed, name).await?;
    let (map, _) = managed.servers.map(&place).await?;
    let shown = scrub::order(&managed.servers, &map, &[target], ScrubOrder::Show).await?;
    let state = shown.targets.first().map_or("unreachable", |view| view.state);
    let changes = match verb {
        Verb::Start => state != "running",
        Verb::Stop => state != "stopped",
    };
    let (would, effects) = match verb {
        Verb::Start => (
            format!("{name} would read all of its objects and verify them"),
            "It reads beside users, and slows down where they wait. Damage is mended from another copy, or named.",
        ),
        Verb::Stop => (
            format!("The scrub of {name} would pause until it is started again"),
            "Damage that nobody reads is not found meanwhile.",
        ),
    };
    Ok(PlanView {
        target: name.to_owned(),
        action: format!("scrub.{}", verb.word()),
        would: if changes { would } else { format!("The scrub of {name} is {state} already") },
        effects: vec![effects.to_owned()],
        changes,
        command: format!("brindle target scrub {} {name} {}", verb.word(), managed.place_word(&place)),
        request: format!("POST /api/v1/scrubs/{name}/{} {{\"dry_run\": false}}", verb.word()),
        task: None,
    })
}

/// Gives the order.
pub async fn order(managed: &Managed, name: &str, verb: Verb) -> Result<()> {
    let target = find(managed, name).await?;
    let (map, _) = managed.servers.map(&managed.place()?).await?;
    let order = match verb {
        Verb::Start => ScrubOrder::Start { rate_bytes: None, every_days: None },
        Verb::Stop => ScrubOrder::Stop,
    };
    let done = scrub::order(&managed.servers, &map, &[target], order).await?;
    match done.targets.first() {
        Some(view) if view.state == "unreachable" => Err(Fault::new(Code::TargetDown)
            .subject(name.to_owned())
            .why(view.why.clone())
            .data("nothing was changed")
            .next("try again when it is served")),
        _ => Ok(()),
    }
}

async fn find(managed: &Managed, name: &str) -> Result<TargetId> {
    let (map, _) = managed.servers.map(&managed.place()?).await?;
    let unknown = || Fault::new(Code::UnknownTarget).subject(name.to_owned()).data("nothing was changed");
    let target = map.targets.iter().find(|entry| map.fs.target(entry.id) == name).ok_or_else(unknown)?.id;
    scrub::targets(&map, &[target])?;
    Ok(target)
}
