//! The live view: server-sent events, one a second and more.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Method, Response};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Result};
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::views::LiveView;
use super::{Call, Endpoint, Needs, schema_of};
use crate::{LIVE_VIEWS_MAX, LiveEvent, Manager, event};

/// The endpoint of the live view.
pub fn endpoint(needs: Needs) -> Endpoint {
    let handler = |call: Call, _: Bytes| -> BoxFuture<'static, Result<Response<Body>>> {
        Box::pin(async move { begin(call) })
    };
    Endpoint {
        method: Method::GET,
        path: "/live",
        needs,
        summary: "What happens, as server-sent events",
        request: None,
        answer: schema_of::<LiveView>,
        media: "text/event-stream",
        handler: Arc::new(handler),
    }
}

/// A live view.
struct Watching {
    manager: Arc<Manager>,
    session_id: String,
    events: Receiver<LiveEvent>,
    _room: OwnedSemaphorePermit,
}

fn begin(call: Call) -> Result<Response<Body>> {
    let manager = call.manager.clone();
    let room = manager.live_views.clone().try_acquire_owned().map_err(|_| {
        Fault::new(Code::ManagerBusy)
            .what("no more live views:")
            .subject(format!("{LIVE_VIEWS_MAX} are open"))
    })?;
    let session_id = call.caller()?.session_id.clone();
    let events = manager.events.subscribe();
    let first = [
        event("state", &*manager.state()),
        event("tasks", &manager.tasks.view()),
        event("alerts", &manager.alerts.view()),
    ];
    let watching = Watching { manager, session_id, events, _room: room };
    let events = stream::iter(first).chain(stream::unfold(watching, next)).map(sent);
    Ok(Sse::new(events_only(events)).keep_alive(KeepAlive::default()).into_response())
}

/// Names the type of the events.
fn events_only<S: Stream<Item = std::result::Result<Event, Infallible>>>(stream: S) -> S {
    stream
}

fn sent(live: LiveEvent) -> std::result::Result<Event, Infallible> {
    Ok(Event::default().event(live.name).data(&*live.data))
}

/// The next event; none when the session has ended.
async fn next(mut watching: Watching) -> Option<(LiveEvent, Watching)> {
    loop {
        let live = match watching.events.recv().await {
            Ok(live) => live,
            // A slow browser misses some events; the next ones have the present state.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return None,
        };
        let session = watching.manager.sessions.used(&watching.session_id)?;
        watching.manager.users.role(&session.user)?;
        return Some((live, watching));
    }
}
