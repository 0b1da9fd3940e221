//! Load by jobs, users, clients and targets.
//!
//! Servers are asked when somebody looks, and once a second at most, however many browsers look.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_admin::top::{By, Look, TopView};
use brindle_types::{Code, Fault, Result};
use tokio::sync::Mutex;

use super::{Call, Nothing};

/// How long a look is good enough for the next browser.
const FRESH_MS: u64 = 1_000;
/// Rates over a longer time than this say nothing of now: two looks are taken.
const OLD_MS: u64 = 15_000;

/// The last looks.
#[derive(Default)]
pub struct Looks(Mutex<BTreeMap<By, (Look, Arc<TopView>)>>);

/// A table of `brindle top`.
pub async fn top(call: Arc<Call>, _: Nothing) -> Result<Arc<TopView>> {
    let by: By = call.param("by").parse().map_err(|why: String| {
        Fault::new(Code::UnknownResource)
            .what("there is no table of")
            .subject(call.param("by").to_owned())
            .why(why)
    })?;
    let manager = &call.manager;
    let (servers, place) = (&manager.managed.servers, manager.managed.place()?);
    // Held meanwhile: a caller that comes now gets the present answer.
    let mut looks = manager.looks.0.lock().await;
    let age_ms = looks.get(&by).map(|(look, _)| manager.seams.now().ms_since(look.at()));
    if let (Some((_, view)), Some(0..FRESH_MS)) = (looks.get(&by), age_ms) {
        return Ok(view.clone());
    }
    let earlier = match (looks.remove(&by), age_ms) {
        (Some((look, _)), Some(0..OLD_MS)) => look,
        _ => {
            let look = Look::take(servers, &place, by).await?;
            manager.seams.sleep_ms(FRESH_MS).await;
            look
        }
    };
    let look = Look::take(servers, &place, by).await?;
    let view = Arc::new(look.since(Some(&earlier)));
    looks.insert(by, (look, view.clone()));
    Ok(view)
}
