//! A program that is run for somebody who waits for it: its lines as they come, its end, and a way to end it early in order.

use std::future::Future;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Most of its output that is kept.
pub const STDOUT_MAX_BYTES: u64 = 1 << 20;
/// Longest line of its standard error.
const LINE_MAX_BYTES: u64 = 1000;
/// Last lines that are kept, for whoever asks why it failed.
const LAST_LINES_MAX: usize = 8;
/// Time that it has to clean up once it was asked to end.
const GRACE: Duration = Duration::from_secs(30);

/// Reason for the end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The program ended by itself, with this exit code; none after a signal.
    Itself(Option<i32>),
    /// Whoever waited has given it up.
    GivenUp,
    /// The time of the program was over.
    Late,
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why.
    pub why: Why,
    /// Output.
    pub stdout: String,
    /// The last lines of its standard error.
    pub last_lines: Vec<String>,
}

/// Runs a program to its end. Each line of its standard error is told as it comes. When `given_up` completes, or the time is over, the
/// program gets SIGTERM, and SIGKILL if it has not ended half a minute later.
pub async fn run(
    command: &mut Command,
    limit: Duration,
    given_up: impl Future<Output = ()>,
    mut tell: impl FnMut(&str),
) -> std::io::Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut last_lines = Vec::new();
    let mut talk = Box::pin(async {
        tokio::join!(
            all(stdout),
            lines(stderr, |line| {
                tell(line);
                if last_lines.len() >= LAST_LINES_MAX {
                    last_lines.remove(0);
                }
                last_lines.push(line.to_owned());
            })
        )
    });
    let early = tokio::select! {
        ended = &mut talk => Err(ended),
        () = given_up => Ok(Why::GivenUp),
        () = tokio::time::sleep(limit) => Ok(Why::Late),
    };
    let (why, stdout) = match early {
        Err((stdout, ())) => (Why::Itself(child.wait().await?.code()), stdout),
        Ok(why) => {
            ask_to_end(&child);
            let ended = tokio::time::timeout(GRACE, async { tokio::join!(&mut talk, child.wait()) }).await;
            let stdout = ended.map(|((stdout, ()), _)| stdout).unwrap_or_default();
            // One that has not ended by now is killed with the end of its time.
            child.kill().await?;
            (why, stdout)
        }
    };
    drop(talk);
    Ok(Ended { why, stdout, last_lines })
}

/// Sends SIGTERM.
fn ask_to_end(child: &Child) {
    let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        // Nobody has waited for the child, so the number is still its own. The child may have ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

async fn all(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // An error ends it as the end of the output does. What is more than is kept is read and thrown away.
        let _ = (&mut from).take(STDOUT_MAX_BYTES).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn lines(from: Option<impl AsyncRead + Unpin>, mut tell: impl FnMut(&str)) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut from).take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            tell(text.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn lines_are_told_and_the_last_are_kept() {
        let mut told = Vec::new();
        let script = "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n >&2; done; echo out; exit 3";
        let ended =
            run(&mut shell(script), GRACE, std::future::pending(), |line| told.push(line.to_owned())).await;
        let ended = ended.expect("it runs");
        assert_eq!((ended.why, ended.stdout.as_str(), told.len()), (Why::Itself(Some(3)), "out\n", 10));
        assert_eq!((ended.last_lines.len(), ended.last_lines[7].as_str()), (LAST_LINES_MAX, "line 10"));
        let ended = run(&mut shell("head -c 3000000 /dev/zero"), GRACE, std::future::pending(), |_| {}).await;
        assert_eq!(
            ended.expect("it runs").stdout.len() as u64,
            STDOUT_MAX_BYTES,
            "no more is kept, and it ends"
        );
        run(&mut Command::new("/nonexistent"), GRACE, std::future::pending(), |_| {})
            .await
            .expect_err("none");
    }

    #[tokio::test]
    async fn one_that_is_given_up_cleans_up_and_one_that_is_late_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("cleaned");
        let script =
            format!("trap 'echo x >{}; exit 0' TERM; echo ready >&2; while :; do :; done", file.display());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut ready = Some(ready);
        let given_up = async { is_ready.await.expect("told") };
        let tell = |_: &str| {
            if let Some(ready) = ready.take() {
                ready.send(()).expect("somebody waits");
            }
        };
        let ended = run(&mut shell(&script), GRACE, given_up, tell).await.expect("it runs");
        assert_eq!(ended.why, Why::GivenUp);
        assert!(file.exists(), "it had the time to clean up");
        let limit = Duration::from_millis(100);
        let ended = run(&mut shell("exec sleep 1000"), limit, std::future::pending(), |_| {}).await;
        assert_eq!(ended.expect("it runs").why, Why::Late);
    }
}
