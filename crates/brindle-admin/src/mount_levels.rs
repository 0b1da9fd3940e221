//! The levels of the logs of mounts, agents of tiering and policy engines: their MDT asks them over the connections of their sessions.

use brindle_types::{Code, Result};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, MountLogLevelReq};
use brindle_wire::map::Map;
use futures_util::stream::{self, StreamExt as _};

use crate::logs::{ASKED_AT_ONCE, Mounts};
use crate::servers::Servers;
use crate::trace::plain;

/// Level of the log of a mount.
#[derive(Debug)]
pub struct MountLevel {
    /// Its host.
    pub host: String,
    /// Mount point, or what it is: `agent of /archive`.
    pub mount: String,
    /// The level, or why it is not known.
    pub answer: Result<LogLevelResp>,
}

/// Levels of the logs of these mounts, in order of host and mount; a new one where one is given.
pub async fn set(servers: &Servers, map: &Map, mounts: &Mounts, level: Option<&str>) -> Vec<MountLevel> {
    let asking = mounts.entries.iter().map(|(mdt, mount)| async move {
        let level = LogLevelReq { level: level.map(str::to_owned) };
        let request = MountLogLevelReq { session: mount.session, level };
        let answer = servers.ask(map, *mdt, &request).await.map_err(|fault| match fault.code {
            Code::UnknownOp => {
                fault.why("its release, or that of its MDT, tells nothing of the level of its log")
            }
            _ => fault,
        });
        MountLevel { host: plain(&mount.host), mount: plain(&mount.mount), answer }
    });
    let mut levels: Vec<MountLevel> =
        stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(ASKED_AT_ONCE).collect().await;
    levels.sort_by(|a, b| (&a.host, &a.mount).cmp(&(&b.host, &b.mount)));
    levels
}
