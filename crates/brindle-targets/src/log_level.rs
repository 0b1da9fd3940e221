//! The level of the log of a process: the same answer of every kind of server, of mounts and of agents.

use brindle_net::ServerConn;
use brindle_telemetry::log;
use brindle_types::{Code, Fault, Result};
use brindle_wire::log_level::{LEVEL_BYTES_MAX, LogLevelReq, LogLevelResp};

/// Tells a caller the level, and changes it. All targets of the process have one log.
pub fn handle(conn: &ServerConn, request: &LogLevelReq) -> Result<LogLevelResp> {
    change(&conn.principal().to_string(), &conn.peer().to_string(), request)
}

/// Tells the level, and changes it. The log says who did: `by`, from the address `peer`, which may be empty.
pub fn change(by: &str, peer: &str, request: &LogLevelReq) -> Result<LogLevelResp> {
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
    tracing::warn!(by, peer, from = before, to = level, "the level of this log was changed");
    Ok(LogLevelResp { level: log::level(), before })
}
