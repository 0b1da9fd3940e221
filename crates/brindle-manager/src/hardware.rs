//! Health of the hardware of a host, as a daemon of that host tells it.

use brindle_host::hardware::{HardwareView, PATH};
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::{Daemon, Managed};
use crate::live::scrape;
use crate::live::state::StateView;
use crate::plan::quoted;

/// Most daemons of a host that are asked, until one tells.
const ASKED_MAX: usize = 8;

/// Health of the hardware of a host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostHardwareView {
    /// The host.
    pub host: String,
    /// Hardware; none where no daemon of the host tells it.
    pub hardware: Option<HardwareView>,
    /// Why it is not known; empty where it is.
    pub why: String,
    /// The command that asks the same; empty where nobody can be asked.
    pub command: String,
}

/// Asks the daemons of a host, until one tells.
pub async fn of(managed: &Managed, state: &StateView, host: &str) -> Result<HostHardwareView> {
    if !state.hosts.iter().any(|known| known.name == host) {
        return Err(Fault::new(Code::UnknownResource).what("there is no host").subject(host.to_owned()));
    }
    let is_of = |daemon: &Daemon| {
        let label = |key: &str| daemon.labels.get(key).map(String::as_str);
        label("host") == Some(host) && label("role") == Some("server")
    };
    let daemons: Vec<Daemon> = managed.daemons(state).into_iter().filter(is_of).take(ASKED_MAX).collect();
    let mut view = HostHardwareView {
        host: host.to_owned(),
        hardware: None,
        why: "the manager does not know where the daemon of this host tells its numbers: --scrape-port"
            .to_owned(),
        command: String::new(),
    };
    for daemon in daemons {
        let url = daemon.url.strip_suffix("/metrics").unwrap_or(&daemon.url);
        view.command = format!("curl -s {}", quoted(&format!("{url}{PATH}")));
        match scrape::page(&daemon.url, PATH).await.and_then(|text| understand(&text)) {
            Ok(hardware) => {
                (view.hardware, view.why) = (Some(hardware), String::new());
                return Ok(view);
            }
            Err(why) => view.why = format!("{}: {why}", daemon.url),
        }
    }
    Ok(view)
}

fn understand(text: &str) -> std::result::Result<HardwareView, String> {
    let view: HardwareView = serde_json::from_str(text).map_err(|e| e.to_string())?;
    match view.at_s {
        0 => Err("the first look goes on; ask again in a minute".to_owned()),
        _ => Ok(view),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_looked_at_yet_is_not_shown_as_well() {
        let text = serde_json::to_string(&HardwareView::default()).unwrap();
        assert!(understand(&text).unwrap_err().contains("first look"));
        let looked = HardwareView { at_s: 7, ..HardwareView::default() };
        assert_eq!(understand(&serde_json::to_string(&looked).unwrap()).unwrap(), looked);
        assert!(understand("{}").is_err() && understand("").is_err());
    }
}
