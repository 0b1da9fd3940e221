//! The ranks of one plan: processes (or threads) that wait for an order, begin a phase at the same moment, and answer.
//!
//! A rank process is this program again under a hidden command ([`serve`]); it takes orders as lines of JSON on standard
//! input and answers on standard output. The rank process is in a process group of its own, so that Ctrl-C reaches only
//! the process that cleans up, and ends when that one does.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use crate::rank::{Phase, Rank, Spec, Tally, now_ns};
use crate::stop::{self, Halt};

/// Longest time of a phase; a file system that hangs ends the benchmark.
const PHASE_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// Interval at which the team checks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Lead time of the announcement of a phase, so that every rank is ready when the phase begins.
const AHEAD_NS: u64 = 5_000_000;
const AHEAD_NS_PER_RANK: u64 = 100_000;
/// Longest time for a rank to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kind of ranks.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// Threads of this process.
    Threads,
    /// Processes: this program with these arguments, which calls [`serve`].
    Processes {
        /// The program.
        program: PathBuf,
        /// Arguments of the program.
        arguments: Vec<OsString>,
    },
}

/// Order to a team: begin this phase at this time of the monotonic clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Order {
    phase: Phase,
    start_at_ns: u64,
}

/// Answer of a rank.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done(Tally),
    Failed(Fault),
}

/// Result of a phase, all ranks together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Time from the first start to the last end, in seconds.
    pub seconds: f64,
    /// Operations of all ranks.
    pub operations: u64,
    /// Bytes of all ranks.
    pub bytes: u64,
    /// Processor time of all ranks, in seconds.
    pub cpu_seconds: f64,
}

/// Ranks that run.
pub struct Team {
    members: Vec<Member>,
    answers: Receiver<Answer>,
    halt: Halt,
}

enum Member {
    Thread { orders: Option<Sender<Order>>, thread: Option<JoinHandle<()>> },
    Process { child: Child, orders: Option<ChildStdin> },
}

impl Team {
    /// Starts a rank for each of `specs`.
    pub fn start(launcher: &Launcher, specs: Vec<Spec>) -> Result<Team> {
        let (answer, answers) = mpsc::channel();
        let mut team = Team { members: Vec::new(), answers, halt: Halt::default() };
        for spec in specs {
            let member = match launcher {
                Launcher::Threads => start_thread(spec, answer.clone(), team.halt.clone())?,
                Launcher::Processes { program, arguments } => {
                    start_process(program, arguments, &spec, answer.clone())?
                }
            };
            team.members.push(member);
        }
        Ok(team)
    }

    /// Has every rank run a phase, and waits for the last.
    pub fn run(&mut self, phase: Phase) -> Result<Outcome> {
        let ahead = AHEAD_NS + AHEAD_NS_PER_RANK * self.members.len() as u64;
        let order = Order { phase, start_at_ns: now_ns() + ahead };
        for member in &mut self.members {
            member.send(order)?;
        }
        let limit = Instant::now() + PHASE_LIMIT;
        let mut tallies = Vec::with_capacity(self.members.len());
        while tallies.len() < self.members.len() {
            stop::check()?;
            match self.answers.recv_timeout(LOOK) {
                Ok(Answer::Done(tally)) => tallies.push(tally),
                Ok(Answer::Failed(fault)) => return Err(fault),
                Err(RecvTimeoutError::Timeout) if Instant::now() < limit => {}
                Err(_) => {
                    let why = format!("phase {phase:?} did not end within {} s", PHASE_LIMIT.as_secs());
                    return Err(Fault::new(Code::BenchmarkFailed).why(why));
                }
            }
        }
        Ok(together(&tallies))
    }
}

fn together(tallies: &[Tally]) -> Outcome {
    let start = tallies.iter().map(|t| t.start_ns).min().unwrap_or(0);
    let end = tallies.iter().map(|t| t.end_ns).max().unwrap_or(0);
    Outcome {
        // A phase of nothing has taken a nanosecond, so that rates stay numbers.
        seconds: end.saturating_sub(start).max(1) as f64 / 1e9,
        operations: tallies.iter().map(|t| t.operations).sum(),
        bytes: tallies.iter().map(|t| t.bytes).sum(),
        cpu_seconds: tallies.iter().map(|t| t.cpu_seconds).sum(),
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.halt.raise();
        let limit = Instant::now() + PATIENCE;
        for member in &mut self.members {
            member.dismiss();
        }
        for member in &mut self.members {
            member.wait(limit);
        }
    }
}

fn start_thread(spec: Spec, answers: Sender<Answer>, halt: Halt) -> Result<Member> {
    let (orders, inbox) = mpsc::channel::<Order>();
    let spec = Spec { thread: true, ..spec };
    let name = format!("rank {}", spec.rank);
    let work = move || {
        let mut rank = Rank::new(spec);
        while let Ok(order) = inbox.recv() {
            let answer = answer(&mut rank, order, &halt);
            if answers.send(answer).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(work);
    let thread = thread.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot start", "a thread", &e))?;
    Ok(Member::Thread { orders: Some(orders), thread: Some(thread) })
}

fn answer(rank: &mut Rank, order: Order, halt: &Halt) -> Answer {
    let run = || rank.run(order.phase, order.start_at_ns, halt);
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(tally)) => Answer::Done(tally),
        Ok(Err(fault)) => Answer::Failed(fault),
        Err(_) => Answer::Failed(Fault::new(Code::Bug).why("a rank panicked")),
    }
}

fn start_process(
    program: &PathBuf,
    arguments: &[OsString],
    spec: &Spec,
    answers: Sender<Answer>,
) -> Result<Member> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.process_group(0);
    let spawned = command.spawn();
    let mut child = spawned.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot start", "a rank", &e))?;
    let (orders, said) = (child.stdin.take(), child.stdout.take());
    let mut member = Member::Process { child, orders };
    let bug = |e: serde_json::Error| Fault::new(Code::Bug).why(e.to_string());
    member.line(&serde_json::to_string(spec).map_err(bug)?)?;
    let rank = spec.rank;
    std::thread::spawn(move || {
        for line in said.into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let read = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let ended = read.is_none();
            // After the team was dismissed nobody listens any more.
            if answers.send(read.unwrap_or_else(|| gone(rank))).is_err() || ended {
                return;
            }
        }
        let _ = answers.send(gone(rank));
    });
    Ok(member)
}

fn gone(rank: u32) -> Answer {
    Answer::Failed(Fault::new(Code::BenchmarkFailed).why(format!("the process of rank {rank} has ended")))
}

impl Member {
    fn send(&mut self, order: Order) -> Result<()> {
        match self {
            Member::Thread { orders, .. } => {
                let sent = orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
                if sent { Ok(()) } else { Err(Fault::new(Code::Bug).why("a rank has gone")) }
            }
            Member::Process { .. } => {
                let bug = |e: serde_json::Error| Fault::new(Code::Bug).why(e.to_string());
                self.line(&serde_json::to_string(&order).map_err(bug)?)
            }
        }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let Member::Process { orders: Some(orders), .. } = self else { return Ok(()) };
        let written = writeln!(orders, "{line}").and_then(|()| orders.flush());
        written.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot reach", "a rank", &e))
    }

    /// Tells it to go.
    fn dismiss(&mut self) {
        match self {
            Member::Thread { orders, .. } => drop(orders.take()),
            Member::Process { orders, .. } => drop(orders.take()),
        }
    }

    /// Waits until it has gone; a process that has not by then is killed, with the commands that it runs.
    fn wait(&mut self, limit: Instant) {
        let gone = |member: &mut Member| match member {
            Member::Thread { thread, .. } => thread.as_ref().is_none_or(JoinHandle::is_finished),
            Member::Process { child, .. } => !matches!(child.try_wait(), Ok(None)),
        };
        // While one is asked to stop early its current call may take a moment; nobody is in a hurry at a normal end.
        while !gone(self) && Instant::now() < limit && !stop::asked() {
            std::thread::sleep(Duration::from_millis(1));
        }
        match self {
            Member::Process { child, .. } => {
                if matches!(child.try_wait(), Ok(None)) {
                    // SAFETY: kill takes numbers only; the group is that of our child, which has not been waited for, so
                    // its number means nothing else yet.
                    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
                }
                // The child has ended or been killed, so the wait ends.
                let _ = child.wait();
            }
            // A thread in a call that never ends cannot be ended; it is left behind.
            Member::Thread { thread, .. } => {
                if let Some(thread) = thread.take().filter(JoinHandle::is_finished) {
                    // A panic was answered already.
                    let _ = thread.join();
                }
            }
        }
    }
}

/// The life of a rank process: a specification and then orders on standard input, answers on standard output.
///
/// # Errors
/// When what comes in is not what a benchmark sends.
pub fn serve() -> Result<()> {
    // The benchmark may be killed; then nobody is there to end this.
    let asked = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    asked.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot prepare", "a rank", &e.into()))?;
    let bad = |why: String| Fault::new(Code::BadArgument).what("cannot be a rank of a benchmark").why(why);
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || lines.next().transpose().map_err(|e| bad(e.to_string()));
    let first = next()?.ok_or_else(|| bad("nothing on standard input".to_owned()))?;
    let mut rank = Rank::new(serde_json::from_str(&first).map_err(|e| bad(e.to_string()))?);
    let halt = Halt::default();
    while let Some(line) = next()? {
        let order: Order = serde_json::from_str(&line).map_err(|e| bad(e.to_string()))?;
        let answer = answer(&mut rank, order, &halt);
        let text = serde_json::to_string(&answer).map_err(|e| bad(e.to_string()))?;
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_lasts_from_the_first_start_to_the_last_end() {
        let tally = |start_ns, end_ns| Tally { start_ns, end_ns, operations: 2, bytes: 3, cpu_seconds: 0.5 };
        let all = together(&[tally(2_000_000_000, 4_000_000_000), tally(1_000_000_000, 3_000_000_000)]);
        assert_eq!((all.seconds, all.operations, all.bytes, all.cpu_seconds), (3.0, 4, 6, 1.0));
    }
}
