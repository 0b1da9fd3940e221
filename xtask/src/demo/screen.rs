//! Look of the tour: numbered steps with times, commands with their output, one line of progress.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Steps of the tour.
const STEPS: u32 = 7;
/// Columns of a progress bar.
const BAR: u64 = 30;

fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

fn bold(text: &str) -> String {
    if is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// A line that stands out.
pub fn title(text: &str) {
    println!("\n{}", bold(text));
}

/// A sentence.
pub fn text(text: &str) {
    println!("  {text}");
}

/// A line of a program's output.
pub fn line(text: &str) {
    println!("    {text}");
}

/// A command and what it printed.
pub fn command(shown: &str, output: &str) {
    println!("  {}", bold(&format!("$ {shown}")));
    output.trim_end().lines().for_each(line);
}

/// A step under way.
pub struct Step {
    begun: Instant,
}

/// Begins a step.
pub fn step(number: u32, what: &str) -> Step {
    step_of(number, STEPS, what)
}

/// Begins a step of so many.
pub fn step_of(number: u32, steps: u32, what: &str) -> Step {
    println!("\n{}", bold(&format!("{number}/{steps}  {what}")));
    Step { begun: Instant::now() }
}

impl Step {
    /// Ends it with one line.
    pub fn end(self, result: &str) {
        println!("  done in {:.1} s: {result}", self.begun.elapsed().as_secs_f64());
    }
}

/// A line that is drawn again and again; not drawn where nobody watches.
pub struct Progress {
    begun: Instant,
    drawn: bool,
}

impl Progress {
    /// Progress of which nothing is drawn yet.
    pub fn start() -> Progress {
        Progress { begun: Instant::now(), drawn: false }
    }

    /// Draws `done` of `all` bytes and a remark.
    pub fn draw(&mut self, done: u64, all: u64, remark: &str) {
        if !is_terminal() {
            return;
        }
        let filled = (done * BAR / all.max(1)) as usize;
        let rate = (done >> 20) as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
        let left = ((all - done) >> 20) as f64 / rate.max(0.001);
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR as usize - filled));
        let eta = if done < all { format!(", {left:.0} s left") } else { String::new() };
        print!("\r\x1b[K    [{bar}] {:>4} MiB, {rate:.0} MiB/s{eta} {remark}", done >> 20);
        // A terminal that is gone ends the tour elsewhere.
        let _ = std::io::stdout().flush();
        self.drawn = true;
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.drawn {
            print!("\r\x1b[K");
            self.drawn = false;
        }
    }
}
