//! The life of a buffer as lines with times, for `brindle bb show`.

use std::fmt::Write as _;

use brindle_bb::Buffer;
use brindle_host::bb::view::{StepView, steps};
use brindle_stdx::cast::to_i64;

use crate::rbh::date;

/// The time line of a buffer.
pub fn text(buffer: &Buffer) -> String {
    let steps = steps(buffer);
    let kind = if buffer.persistent { "persistent buffer" } else { "job" };
    let name = format!("{kind} {}, buffer {}", buffer.token, buffer.serial);
    let Some(first) = steps.first() else {
        return format!("{name}: its steps were not noted; a release before this one has made it");
    };
    let mut text = format!("{name}, allocated at {}:", date(to_i64(first.at_ms / 1000)));
    steps.iter().for_each(|step| text += &line(step, first.at_ms));
    text
}

fn line(step: &StepView, first_ms: u64) -> String {
    let since_s = step.at_ms.saturating_sub(first_ms) as f64 / 1000.0;
    let mut line = format!("\n  +{since_s:>10.3} s  {:<15}", step.state);
    // Writing to a String cannot fail.
    let _ = match step.took_ms {
        Some(took_ms) => write!(line, "  {:>10.3} s", took_ms as f64 / 1000.0),
        None => write!(line, "  {:>12}", "until now"),
    };
    if !step.failure.is_empty() {
        let _ = write!(line, "  failed: {}", step.failure);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shown_with_when_and_how_long() {
        let step = |at_ms, took_ms, failure: &str| StepView {
            state: "staging in".to_owned(),
            at_ms,
            took_ms,
            failure: failure.to_owned(),
        };
        assert_eq!(
            line(&step(1_500, Some(250), ""), 1_000),
            "\n  +     0.500 s  staging in            0.250 s"
        );
        let failed = "\n  +     0.000 s  staging in          until now  failed: no such file";
        assert_eq!(line(&step(500, None, "no such file"), 1_000), failed, "a clock that was set back");
    }
}
