//! The last lines of the log of a server's process: the same answer at every kind of server.

use std::sync::Arc;
use std::sync::OnceLock;

use brindle_stdx::Clock as _;
use brindle_stdx::real::RealClock;
use brindle_telemetry::recent;
use brindle_types::{Code, Fault, Result};
use brindle_wire::log_lines::{
    ANSWER_BYTES_MAX, LINES_MAX, LogLine, LogLinesReq, LogLinesResp, Severity, TEXT_BYTES_MAX,
};

/// Tells lines of the log.
pub fn handle(request: &LogLinesReq) -> Result<LogLinesResp> {
    if request.text.len() > TEXT_BYTES_MAX {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot look for a text in the log")
            .why(format!("it has more than {TEXT_BYTES_MAX} bytes"))
            .next("look for a part of it"));
    }
    Ok(chosen(recent::after(request.after), request))
}

/// The newest of the lines that fit.
fn chosen(part: recent::Part, request: &LogLinesReq) -> LogLinesResp {
    let text = request.text.to_lowercase();
    let fits = |line: &str| {
        severity(line) <= request.severity && (text.is_empty() || line.to_lowercase().contains(&text))
    };
    let lines_max = request.lines_max.min(LINES_MAX) as usize;
    let (mut lines, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    let fitting: Vec<(u64, Arc<str>)> = part.lines.into_iter().filter(|(_, line)| fits(line)).collect();
    for (number, line) in fitting.into_iter().rev() {
        // Once one is left out, all older ones are: there are no gaps.
        if left_out > 0 || lines.len() >= lines_max || bytes + line.len() > ANSWER_BYTES_MAX {
            left_out += 1;
            continue;
        }
        bytes += line.len();
        lines.push(LogLine { number, text: line.to_string() });
    }
    lines.reverse();
    LogLinesResp { process: process(), first: part.first, next: part.next, left_out, lines }
}

/// The importance of a line: `ts=... level=warn ...`. A line without a level counts as ordinary.
fn severity(line: &str) -> Severity {
    let level = line.split(' ').nth(1).and_then(|word| word.strip_prefix("level="));
    match level {
        Some("error") => Severity::Error,
        Some("warn") => Severity::Warn,
        Some("debug") => Severity::Debug,
        Some("trace") => Severity::Trace,
        _ => Severity::Info,
    }
}

/// Number of this process: the moment at which it was asked first.
fn process() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let now = RealClock.wall();
        let nanos = now.secs.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(now.nanos));
        nanos ^ (u64::from(std::process::id()) << 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(severity: Severity, text: &str, lines_max: u32) -> LogLinesReq {
        LogLinesReq { after: 0, lines_max, severity, text: text.to_owned() }
    }

    fn part(lines: &[&str]) -> recent::Part {
        let lines: Vec<(u64, Arc<str>)> = (1..).zip(lines.iter().map(|line| (*line).into())).collect();
        recent::Part { first: 1, next: lines.len() as u64 + 1, lines }
    }

    #[test]
    fn the_newest_lines_that_fit_are_told_in_order() {
        let lines = [
            "ts=1 level=info target=a msg=began",
            "ts=2 level=warn target=a msg=slow code=E4004",
            "ts=3 level=error target=b msg=failed code=E4001",
            "ts=4 level=debug target=b msg=failed",
            "no line of ours",
        ];
        let numbers = |request: &LogLinesReq| {
            let told = chosen(part(&lines), request);
            (told.lines.iter().map(|line| line.number).collect::<Vec<_>>(), told.left_out)
        };
        assert_eq!(numbers(&request(Severity::Info, "", 10)), (vec![1, 2, 3, 5], 0));
        assert_eq!(numbers(&request(Severity::Warn, "", 10)), (vec![2, 3], 0));
        assert_eq!(numbers(&request(Severity::Trace, "FAILED", 10)), (vec![3, 4], 0));
        assert_eq!(numbers(&request(Severity::Info, "e4004", 10)), (vec![2], 0));
        assert_eq!(numbers(&request(Severity::Info, "", 2)), (vec![3, 5], 2));
    }

    #[test]
    fn answers_are_bounded() {
        let long = "x".repeat(4000);
        let lines: Vec<&str> = std::iter::repeat_n(long.as_str(), 500).collect();
        let told = chosen(part(&lines), &request(Severity::Trace, "", u32::MAX));
        let bytes: usize = told.lines.iter().map(|line| line.text.len()).sum();
        assert!(bytes <= ANSWER_BYTES_MAX && told.left_out > 0, "{bytes}");
        assert_eq!(told.lines.last().map(|line| line.number), Some(500));
        let fault = handle(&request(Severity::Info, &long, 1)).unwrap_err();
        assert_eq!(fault.code, Code::BadArgument);
    }
}
