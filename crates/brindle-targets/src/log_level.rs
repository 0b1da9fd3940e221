//! The level of the log of a server's process: the same answer at every kind of server.

use brindle_net::ServerConn;
use brindle_telemetry::log;
use brindle_types::{Code, Fault, Result};
use brindle_wire::log_level::{LEVEL_BYTES_MAX, LogLevelReq, LogLevelResp};

/// Tells the level, and changes it. All targets of the process have one log.
pub fn handle(conn: &ServerConn, request: &LogLevelReq) -> Result<LogLevelResp> {
    let before = log::level();
    let Some(level) = &request.level else { return Ok(LogLevelResp { level: before.clone(), before }) };
    let refused = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot change the level of the log to")
            .subject(level.chars().take(LEVEL_BYTES_MAX).collect::<String>())
            .why(why)
            .data("nothing was changed")
            .next("give a level (error, warn, info, debug, trace), or a filter: info,brindle_mds=debug")
    };
    if level.len() > LEVEL_BYTES_MAX {
        return Err(refused(format!("it has more than {LEVEL_BYTES_MAX} bytes")));
    }
    log::set_level(level).map_err(refused)?;
    let by = conn.principal();
    tracing::warn!(%by, peer = %conn.peer(), from = before, to = level, "the level of this log was changed");
    Ok(LogLevelResp { level: log::level(), before })
}
