//! The socket of the orchestrator: the rights of callers, one thread a request.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brindle_types::{Code, Fault, Result};

use super::orchestrator::Orchestrator;
use super::protocol::{LINE_MAX_BYTES, Reply, Request};

/// Most requests at a time; Slurm has at most a few for each job that starts or ends.
const REQUESTS_MAX: usize = 512;
/// Most of them by ordinary users, so that those of Slurm always have a place.
const USER_REQUESTS_MAX: usize = 32;
/// Time between two looks for buffers that were thrown away and are not kept any longer.
const EXPIRE_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks for buffers that are nearly full and are to grow by themselves.
const GROW_EVERY: Duration = Duration::from_millis(250);
/// How long somebody who has connected may take to ask.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Listens at a socket. A socket that an ended orchestrator left is removed; the caller holds the lock of the orchestrator's
/// directory.
pub fn listen(socket: &Path) -> Result<UnixListener> {
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot listen at", socket.display().to_string(), e)
    };
    if let Some(parent) = socket.parent() {
        std::fs::create_dir_all(parent).map_err(|e| cannot(&e))?;
    }
    match std::fs::remove_file(socket) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(&e)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(|e| cannot(&e))?;
    // Everybody may ask; who asks decides what.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).map_err(|e| cannot(&e))?;
    Ok(listener)
}

/// Answers until the process ends.
pub fn serve(orchestrator: &Orchestrator, listener: &UnixListener) {
    let busy = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                orchestrator.expire();
                orchestrator.settle();
                orchestrator.look_after_swap();
                std::thread::sleep(EXPIRE_EVERY);
            }
        });
        // A node that is slow delays nothing else.
        scope.spawn(|| {
            loop {
                orchestrator.look_after_nodes();
                std::thread::sleep(EXPIRE_EVERY);
            }
        });
        // A disk that hangs on a host with bricks delays nothing else.
        scope.spawn(|| {
            loop {
                orchestrator.look_after_bricks();
                std::thread::sleep(EXPIRE_EVERY);
            }
        });
        scope.spawn(|| orchestrator.register_nodes());
        scope.spawn(|| {
            loop {
                orchestrator.grow_full_ones();
                std::thread::sleep(GROW_EVERY);
            }
        });
        for stream in listener.incoming() {
            let peer = stream.and_then(|stream| Ok((peer_uid(&stream)?, stream)));
            let (uid, stream) = match peer {
                Ok(peer) => peer,
                Err(e) => {
                    tracing::warn!(error = %e, "a connection could not be taken");
                    continue;
                }
            };
            let (busy, most) = match is_trusted(orchestrator, uid) {
                true => (&busy[0], REQUESTS_MAX),
                false => (&busy[1], USER_REQUESTS_MAX),
            };
            if busy.fetch_add(1, Ordering::Relaxed) >= most {
                busy.fetch_sub(1, Ordering::Relaxed);
                say(&stream, &Err(Fault::new(Code::BufferBusy).what("too many requests at a time")));
                continue;
            }
            scope.spawn(move || {
                answer(orchestrator, uid, &stream);
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

fn answer(orchestrator: &Orchestrator, uid: u32, stream: &UnixStream) {
    let outcome = hear(stream).and_then(|request| {
        let allowed = allowed(orchestrator, uid, &request)?;
        match is_about_logs(&request) || matches!(request, Request::Nodes) {
            // Whoever follows the logs would read of the own questions.
            true => tracing::debug!(uid, request = shown(&request), "asked"),
            false => tracing::info!(uid, request = shown(&request), "asked"),
        }
        orchestrator.answer(allowed, &request)
    });
    if let Err(fault) = &outcome {
        tracing::warn!(%fault, "refused or failed");
    }
    say(stream, &outcome);
}

/// Name of a request and the job that it is about, for the log.
fn shown(request: &Request) -> String {
    let text = format!("{request:?}");
    text.chars().take(200).collect()
}

fn hear(stream: &UnixStream) -> Result<Request> {
    let wrong = |why: String| Fault::new(Code::BadArgument).what("cannot understand a request").why(why);
    stream.set_read_timeout(Some(ASK_LIMIT)).map_err(|e| wrong(e.to_string()))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut line).map_err(|e| wrong(e.to_string()))?;
    serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))
}

fn say(mut stream: &UnixStream, outcome: &Result<Reply>) {
    let mut line = serde_json::to_vec(outcome).expect("plain fields always serialise");
    line.push(b'\n');
    // The caller may have been killed meanwhile: the step that it asked for has been taken all the same.
    if let Err(e) = stream.write_all(&line) {
        tracing::info!(error = %e, "nobody waits for the answer any more");
    }
}

/// The user at the other end of a connection. The process there may have no number in our pid namespace (0, where the orchestrator runs in a
/// container and the caller does not), which `rustix` takes for an error.
fn peer_uid(stream: &UnixStream) -> std::io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("a struct of three words");
    // SAFETY: the descriptor is open, and the kernel writes at most `size` bytes to `peer`.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if done == 0 { Ok(peer.uid) } else { Err(std::io::Error::last_os_error()) }
}

/// Root, and the user of slurmctld.
fn is_trusted(orchestrator: &Orchestrator, uid: u32) -> bool {
    uid == 0 || uid == orchestrator.config().slurm_uid
}

fn is_about_logs(request: &Request) -> bool {
    matches!(request, Request::LogLines { .. } | Request::LogLevel { .. })
}

/// The user whose buffers a request may concern; `None` for all. Ordinary users see and retry their own buffers.
fn allowed(orchestrator: &Orchestrator, uid: u32, request: &Request) -> Result<Option<u32>> {
    if is_about_logs(request) && uid != 0 {
        return Err(Fault::new(Code::PermissionDenied)
            .what("only root may read the logs of burst buffers and change their levels")
            .why(format!("user {uid} asks"))
            .data("nothing was changed"));
    }
    if is_trusted(orchestrator, uid) {
        return Ok(None);
    }
    match request {
        Request::List | Request::Retry(_) | Request::Drop(_) | Request::Resize { .. } | Request::Pools => {
            Ok(Some(uid))
        }
        _ => Err(Fault::new(Code::PermissionDenied)
            .what("only root and the user of slurmctld may ask for this")
            .why(format!("user {uid} asks"))
            .data("nothing was changed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_at_the_other_end_is_known() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(peer_uid(&near).unwrap(), rustix::process::geteuid().as_raw());
    }
}
