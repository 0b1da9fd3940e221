//! Alerts: list, acknowledge, silence.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::{Call, Nothing};
use crate::alerts::store::{AlertView, AlertsView, SilenceReq, SilenceView};

/// All of them.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<AlertsView> {
    Ok(call.manager.alerts.view())
}

/// Somebody knows of one.
pub async fn acknowledge(call: Arc<Call>, _: Nothing) -> Result<AlertView> {
    let (manager, doer) = (&call.manager, call.doer());
    manager.audit.note(&doer, "alert.acknowledge", call.param("id"), "accepted", None)?;
    let alert = manager.alerts.acknowledge(number(&call)?, &doer.user)?;
    manager.tell_alerts();
    Ok(alert)
}

/// Tells nobody of some for a while.
pub async fn silence(call: Arc<Call>, request: SilenceReq) -> Result<SilenceView> {
    let (manager, doer) = (&call.manager, call.doer());
    let subject = format!("{} {} {} s", request.code, request.subject, request.seconds);
    manager.audit.note(&doer, "alert.silence", &subject, "accepted", None)?;
    let silence = manager.alerts.silence(&request, &doer.user)?;
    manager.tell_alerts();
    Ok(silence)
}

/// Ends a silence.
pub async fn unsilence(call: Arc<Call>, _: Nothing) -> Result<AlertsView> {
    let (manager, doer) = (&call.manager, call.doer());
    manager.audit.note(&doer, "alert.unsilence", call.param("id"), "accepted", None)?;
    manager.alerts.unsilence(number(&call)?)?;
    manager.tell_alerts();
    Ok(manager.alerts.view())
}

fn number(call: &Call) -> Result<u64> {
    let text = call.param("id");
    text.parse().map_err(|_| {
        Fault::new(Code::UnknownAlert).what("there is no alert with the number").subject(text.to_owned())
    })
}
