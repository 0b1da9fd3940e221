//! Message of a process that finds a bug in itself.

use std::panic::PanicHookInfo;

use crate::log;

/// Action after the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The process ends at once (servers and mounts): a half-dead server that still answers is worse than a dead one,
    /// and everything acknowledged survives its death.
    Abort,
    /// The thread unwinds (commands).
    Unwind,
}

/// Installs the hook. `process` names the process for people: `brindle serve (scratch-OST0000)`.
pub fn install(process: String, after: After) {
    std::panic::set_hook(Box::new(move |info| {
        // Not a bug of ours: the caller says what it means.
        if brindle_stdx::caught::is_caught() {
            return;
        }
        let text = message(&process, after, info);
        let (what, place) = parts(info);
        tracing::error!(code = "E9001", place, "internal error: {what}");
        if after == After::Unwind {
            // Standard error may be closed; the log is then the only place.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            return;
        }
        log::flush();
        say_in_time(text);
        std::process::abort();
    }));
}

/// Prints on standard error, and goes on after [`log::LAST_LINES`] where nobody reads it.
fn say_in_time(text: String) {
    let (said, heard) = std::sync::mpsc::channel::<()>();
    let spawned = std::thread::Builder::new().spawn(move || {
        // Standard error may be closed; the log has it.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        drop(said);
    });
    if spawned.is_ok() {
        // An error is the thread's end: it has printed.
        let _ = heard.recv_timeout(log::LAST_LINES);
    }
}

fn parts(info: &PanicHookInfo<'_>) -> (String, String) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let what = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
    (what.unwrap_or_else(|| "a panic without a text".to_owned()), place)
}

fn message(process: &str, after: After, info: &PanicHookInfo<'_>) -> String {
    let (what, place) = parts(info);
    let data = match after {
        After::Abort => {
            "the process ends now, so that nothing wrong is answered; what was acknowledged is safe, and clients go on when it is started again"
        }
        After::Unwind => "nothing that was acknowledged is concerned",
    };
    format!(
        "error: {process} found a bug in itself\n  why:  {what}\n  why:  at {place}\n  data: {data}\n  next: please report this with the log\n  code: E9001 (brindle explain E9001)\n"
    )
}
