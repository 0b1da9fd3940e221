//! Following a job: its warnings and its progress go to standard error; an interruption ends it after its present step.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use brindle_admin::job::{Event, Progress, Running};
use brindle_types::Result;
use brindle_types::units::{format_bytes, round_down};

use crate::exit;

/// Pause between two looks of the line that is written over again and again.
const PAUSE: Duration = Duration::from_millis(200);

/// The progress that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// No progress.
    Nothing,
    /// Progress of each file.
    Files,
    /// Progress of the job as a whole.
    Whole,
    /// Progress by file or target.
    Subjects,
}

impl Show {
    /// Returns this choice on a terminal without JSON, else [`Show::Nothing`].
    pub fn on_terminal(self, json: bool) -> Show {
        if !json && std::io::stderr().is_terminal() { self } else { Show::Nothing }
    }
}

/// Listens to a job until it ends. SIGINT cancels it; the second one ends this program.
pub fn follow<T>(runtime: &tokio::runtime::Runtime, mut running: Running<T>, show: Show) -> Result<T> {
    let mut line = Line { show, shown: None, since: Instant::now() };
    runtime.block_on(async {
        let canceller = running.canceller();
        let mut cancelled = false;
        loop {
            tokio::select! {
                event = running.event() => match event {
                    Some(Event::Progress(progress)) => line.write(&progress),
                    Some(Event::Warning(fault)) => {
                        line.clear();
                        exit::warn(&fault);
                    }
                    None => break,
                },
                // Without a way to hear of it an interruption ends the program, as ever.
                Ok(()) = tokio::signal::ctrl_c(), if !cancelled => {
                    canceller.cancel();
                    cancelled = true;
                    line.clear();
                    eprintln!("interrupted: ends after the present piece; once more to end at once");
                    end_at_the_next_interrupt();
                }
            }
        }
        line.clear();
        running.result().await
    })
}

/// Gives SIGINT its usual action back.
fn end_at_the_next_interrupt() {
    // SAFETY: this sets the default action of a signal; no handler of ours runs any more.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

struct Line {
    show: Show,
    shown: Option<Instant>,
    since: Instant,
}

impl Line {
    fn write(&mut self, progress: &Progress) {
        let is_whole = progress.subject.is_empty();
        let wanted = match self.show {
            Show::Nothing => false,
            Show::Files | Show::Subjects => !is_whole,
            Show::Whole => is_whole,
        };
        if !wanted || self.shown.is_some_and(|shown| shown.elapsed() < PAUSE) {
            return;
        }
        self.shown = Some(Instant::now());
        eprint!("\r\x1b[K{}", describe(progress, self.show, self.since.elapsed()));
        // A line that cannot be shown is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

fn describe(progress: &Progress, show: Show, elapsed: Duration) -> String {
    let Progress { subject, done_bytes, total_bytes, copied_bytes } = progress;
    let rate = *copied_bytes as f64 / elapsed.as_secs_f64().max(0.001);
    let left_s = total_bytes.saturating_sub(*done_bytes) as f64 / rate.max(1.0);
    let (total, rate) = (format_bytes(*total_bytes), format_bytes(round_down(rate)));
    match show {
        Show::Subjects | Show::Nothing => subject.clone(),
        Show::Whole => {
            format!("{} of about {total}, {rate}/s, {left_s:.0} s left", format_bytes(*done_bytes))
        }
        Show::Files => {
            let percent = (done_bytes.min(total_bytes) * 100).checked_div(*total_bytes).unwrap_or(100);
            format!("{subject}: {percent} % of {total}, {rate}/s, {left_s:.0} s left")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_said_with_rate_and_time_left() {
        let progress = Progress {
            subject: "/mnt/f".to_owned(),
            done_bytes: 1 << 30,
            total_bytes: 4 << 30,
            copied_bytes: 1 << 30,
        };
        let of = |show| describe(&progress, show, Duration::from_secs(2));
        assert_eq!(of(Show::Files), "/mnt/f: 25 % of 4.0 GiB, 512.0 MiB/s, 6 s left");
        assert_eq!(of(Show::Whole), "1.0 GiB of about 4.0 GiB, 512.0 MiB/s, 6 s left");
        assert_eq!(of(Show::Subjects), "/mnt/f");
    }
}
