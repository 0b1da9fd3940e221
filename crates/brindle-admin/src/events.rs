//! Events of a cluster, as its MGS has written them down.

use brindle_types::Result;
use brindle_wire::mgs::{Event, EventsReq};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Longest time that the MGS holds a request back until an event happens.
const WAIT_MS: u32 = 20_000;
/// Longest wait for the answer to such a request.
const PATIENCE_MS: u64 = 25_000;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventView {
    /// Rises with every event.
    pub number: u64,
    /// When, seconds since 1970.
    pub at: i64,
    /// `info`, `warning` or `error`.
    pub level: String,
    /// Kind of event, such as `target.silent`.
    pub name: String,
    /// The host or target.
    pub subject: String,
    /// A sentence for people.
    pub text: String,
}
document!(EventView, "brindle.event", 1);

impl From<Event> for EventView {
    fn from(event: Event) -> EventView {
        let Event { number, at_s, name, level, subject, text } = event;
        EventView { number, at: at_s, level: level.name().to_owned(), name, subject, text }
    }
}

/// Events behind a number; waits for one if `wait`.
pub async fn after(servers: &Servers, place: &FsLocation, number: u64, wait: bool) -> Result<Vec<EventView>> {
    let request = EventsReq { after: number, wait_ms: if wait { WAIT_MS } else { 0 } };
    let answer = servers.ask_the_mgs_within(place, &request, PATIENCE_MS).await?;
    Ok(answer.events.into_iter().map(EventView::from).collect())
}
