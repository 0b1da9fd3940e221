//! Programs and reads that may hang: each is waited for for a bounded time, and begun again only once it has ended.
//!
//! A program that waits for a disk which does not answer cannot be killed. It stays behind, alone: the next look finds it there and says
//! so.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// Most text of a program that is kept.
pub const OUTPUT_MAX_BYTES: u64 = 256 << 10;
/// Most of a program's errors that is shown.
const WORDS_MAX_BYTES: usize = 300;

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Whether it ended with 0.
    pub is_success: bool,
    /// How it ended, for people.
    pub status: String,
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// Output.
    pub stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    /// The end of what it wrote to its standard error.
    pub fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let text = text.trim();
        let from = text.char_indices().map(|(at, _)| at).find(|at| text.len() - at <= WORDS_MAX_BYTES);
        text[from.unwrap_or(0)..].to_owned()
    }
}

/// Programs under way, by name.
#[derive(Clone, Debug, Default)]
pub struct Programs(Arc<Mutex<BTreeSet<String>>>);

/// Something that is under way; its end makes room for the next one of its name.
pub(super) struct Turn {
    programs: Programs,
    name: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.programs.0.lock().remove(&self.name);
    }
}

impl Programs {
    pub(super) fn turn(&self, name: &str) -> Result<Turn, String> {
        match self.0.lock().insert(name.to_owned()) {
            true => Ok(Turn { programs: self.clone(), name: name.to_owned() }),
            false => Err(format!("{name}: the last look has not ended, it waits for the device")),
        }
    }

    /// Runs a program; `name` says for what.
    pub async fn run(
        &self,
        name: &str,
        program: &Path,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<Ended, String> {
        let turn = self.turn(name)?;
        let cannot = |e: std::io::Error| format!("cannot run {}: {e}", program.display());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(cannot)?;
        let (send, ended) = oneshot::channel();
        tokio::spawn(async move {
            let outcome = tokio::time::timeout(limit, end(&mut child)).await;
            let outcome =
                outcome.unwrap_or_else(|_| Err(format!("it has not ended within {} ms", limit.as_millis())));
            let goes_on = outcome.is_err();
            // Whoever asked may have gone.
            let _ = send.send(outcome);
            if goes_on {
                // The program dies now, or when its device answers: until then its turn goes on. A program that has ended needs no signal.
                let _ = child.kill().await;
            }
            drop(turn);
        });
        ended.await.unwrap_or_else(|_| Err("the task that waited for it has ended".to_owned()))
    }

    /// Does work that may block on a thread of its own; `name` says what.
    pub async fn on_a_thread<T: Send + 'static>(
        &self,
        name: &str,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let turn = self.turn(name)?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        match tokio::time::timeout(limit, working).await {
            Ok(done) => done.map_err(|e| format!("{name}: {e}")),
            Err(_) => Err(format!("{name}: not read within {} ms", limit.as_millis())),
        }
    }
}

async fn end(child: &mut Child) -> Result<Ended, String> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let status = async { child.wait().await.map_err(|e| e.to_string()) };
    let (stdout, stderr, status): (_, _, ExitStatus) = tokio::try_join!(all(stdout), all(stderr), status)?;
    Ok(Ended {
        is_success: status.success(),
        status: status.to_string(),
        code: status.code(),
        stdout,
        stderr,
    })
}

/// All that comes, [`OUTPUT_MAX_BYTES`] at most: a program that writes more gets an error for it.
async fn all(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let read = from.take(OUTPUT_MAX_BYTES + 1).read_to_end(&mut bytes).await;
        read.map_err(|e| e.to_string())?;
    }
    match bytes.len() as u64 > OUTPUT_MAX_BYTES {
        true => Err(format!("it writes more than {OUTPUT_MAX_BYTES} bytes")),
        false => Ok(bytes),
    }
}
