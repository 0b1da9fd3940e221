//! Structured logs: one line an event, `key=value`, in the order time, level, target, message, fields.
//!
//! The level comes from `BRINDLE_LOG` (`info` by default; `debug`, or a filter such as `warn,brindle_mds=debug`).
//! Values with blanks, quotes or line ends are quoted and escaped, so that a line stays a line.
//!
//! A repeated warning or error is written at most once a minute ([`Limiter`]), with the number of lines that were left out. Callers may
//! therefore log in a loop.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brindle_stdx::real::RealClock;
use brindle_stdx::{Clock, Timestamp};
use brindle_types::Fault;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::limit::Limiter;
use crate::recent;
pub use crate::sink::Open;
use crate::sink::{self, Sink};

/// Environment variable with the level or filter.
pub const LEVEL_VARIABLE: &str = "BRINDLE_LOG";
/// Level where nobody chose one.
pub const LEVEL_DEFAULT: &str = "info";

/// Longest wait of the process's end for its last lines.
pub const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of this process.
static LOG: OnceLock<Arc<Sink>> = OnceLock::new();
/// Filter of the log.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// A filter that can be replaced.
struct Filter {
    handle: reload::Handle<EnvFilter, Registry>,
    text: Mutex<String>,
}

/// Sends the events of this process to what `open` opens, and opens again after an error; or to standard error. Called once, first
/// thing; later calls change nothing. An unusable filter in the environment is an error for the caller to show.
///
/// From here on nothing that becomes of the log is an error to anybody: lines that cannot be written are counted.
pub fn init(open: Option<Open>) -> Result<(), String> {
    let filter = std::env::var(LEVEL_VARIABLE).unwrap_or_else(|_| LEVEL_DEFAULT.to_owned());
    let parsed = EnvFilter::try_new(&filter)
        .map_err(|e| format!("{LEVEL_VARIABLE}={filter} is not a level such as info or debug: {e}"))?;
    if LOG.get().is_some() {
        return Ok(());
    }
    let log = LOG.get_or_init(|| Sink::start(open.unwrap_or_else(sink::stderr))).clone();
    let writer = Queued { sink: log, limiter: Limiter::new(Arc::new(RealClock)) };
    // By default a line that cannot be formatted is told on standard error, with a panic where that fails.
    let lines = tracing_subscriber::fmt::layer().event_format(Lines).log_internal_errors(false);
    let (parsed, handle) = reload::Layer::new(parsed);
    let installed = tracing_subscriber::registry().with(parsed).with(lines.with_writer(writer)).try_init();
    if installed.is_ok() {
        FILTER.get_or_init(|| Filter { handle, text: Mutex::new(filter) });
    }
    // A subscriber that is already in place stays there.
    Ok(())
}

/// The level or filter of this process's log.
pub fn level() -> String {
    FILTER.get().map_or_else(|| LEVEL_DEFAULT.to_owned(), |filter| filter.text.lock().clone())
}

/// Changes the level or filter of this process's log, until the process ends; why that cannot be.
pub fn set_level(text: &str) -> Result<(), String> {
    let parsed = EnvFilter::builder().parse(text).map_err(|e| e.to_string())?;
    let filter = FILTER.get().ok_or("this process keeps no log")?;
    let mut known = filter.text.lock();
    filter.handle.reload(parsed).map_err(|e| e.to_string())?;
    text.clone_into(&mut known);
    Ok(())
}

/// Waits until the lines so far are written, for [`LAST_LINES`] at most: before the process ends.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_LINES);
    }
}

/// Lines that could not be written since the process started.
pub fn lost_lines() -> u64 {
    LOG.get().map_or(0, |log| log.lost())
}

/// Logs a fault with everything it says, on one line.
pub fn fault(level: tracing::Level, fault: &Fault) {
    let why = fault.why.join(": ");
    let (code, what, subject) = (fault.code, &fault.what, &fault.subject);
    let (data, next) = (&fault.data, &fault.next);
    if level == tracing::Level::ERROR {
        tracing::error!(%code, %subject, %why, %data, %next, "{what}");
    } else if level == tracing::Level::WARN {
        tracing::warn!(%code, %subject, %why, %data, %next, "{what}");
    } else {
        tracing::info!(%code, %subject, %why, %data, %next, "{what}");
    }
}

/// The writer of the subscriber; it gets a whole line at a time.
struct Queued {
    sink: Arc<Sink>,
    limiter: Limiter,
}

impl Queued {
    fn write(&self, line: &[u8]) {
        match limited(&self.limiter, line) {
            None => {}
            Some(0) => self.push(line),
            Some(left_out) => {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                self.push(&[line, format!(" left_out={left_out}\n").as_bytes()].concat());
            }
        }
    }

    fn push(&self, line: &[u8]) {
        recent::push(line);
        self.sink.push(line);
    }
}

/// Whether a line is to be written: `Some` of how many like it were left out before. Lines are alike that differ in their time only.
fn limited(limiter: &Limiter, line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
    match text {
        Some((_, text)) if text.starts_with("level=warn ") || text.starts_with("level=error ") => {
            limiter.allow("", text)
        }
        _ => Some(0),
    }
}

impl<'a> MakeWriter<'a> for Queued {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

struct Line<'a>(&'a Queued);

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line format.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let level = meta.level().as_str().to_ascii_lowercase();
        let time = rfc3339(RealClock.wall());
        writeln!(writer, "ts={time} level={level} target={} {}", meta.target(), fields.line())
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Fields {
    fn line(&self) -> String {
        format!("msg={}{}", quoted(&self.message), self.rest)
    }

    fn add(&mut self, name: &str, value: &str) {
        match name {
            "message" => value.clone_into(&mut self.message),
            _ if value.is_empty() => {}
            // Writing to a String cannot fail.
            _ => drop(write!(self.rest, " {name}={}", quoted(value))),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

/// The value, in quotes where it needs them.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(plain) { value.to_owned() } else { format!("{value:?}") }
}

/// `2026-11-20T14:05:06.123456Z`.
pub fn rfc3339(t: Timestamp) -> String {
    let (days, second) = (t.secs.div_euclid(86_400), t.secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:06}Z", t.nanos / 1000)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH: i64 = 719_468;
    /// Days in 400 years.
    const ERA: i64 = 146_097;
    let z = days + EPOCH;
    let (era, doe) = (z.div_euclid(ERA), z.rem_euclid(ERA));
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Memory {
        type Writer = Memory;
        fn make_writer(&'a self) -> Memory {
            self.clone()
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let memory = Memory::default();
        let subscriber = tracing_subscriber::fmt().event_format(Lines).with_writer(memory.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "here", n = 5, path = "/a b", none = "", "two\nlines \"quoted\"");
        });
        let line = String::from_utf8(memory.0.lock().clone()).unwrap();
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("ts=20") && time.ends_with('Z'), "{time}");
        assert_eq!(rest, "level=warn target=here msg=\"two\\nlines \\\"quoted\\\"\" n=5 path=\"/a b\"\n");
    }

    #[test]
    fn the_same_warning_is_written_once_a_minute_and_other_lines_always() {
        let limiter = Limiter::new(Arc::new(RealClock));
        let write = |time: u32, text: &str| limited(&limiter, format!("ts={time} {text}\n").as_bytes());
        assert_eq!(write(1, "level=warn target=x msg=slow n=1"), Some(0));
        assert_eq!(write(2, "level=warn target=x msg=slow n=1"), None);
        assert_eq!(write(3, "level=warn target=x msg=slow n=2"), Some(0));
        assert_eq!(write(4, "level=error target=x msg=slow n=1"), Some(0));
        assert_eq!(write(5, "level=error target=x msg=slow n=1"), None);
        for time in 6..9 {
            assert_eq!(write(time, "level=info target=x msg=slow n=1"), Some(0));
        }
    }

    #[test]
    fn a_process_without_a_log_has_the_usual_level_and_keeps_it() {
        assert_eq!(level(), LEVEL_DEFAULT);
        assert_eq!(set_level("debug"), Err("this process keeps no log".to_owned()));
        assert!(set_level("brindle=loud").is_err(), "what is no filter is refused first");
        assert_eq!(level(), LEVEL_DEFAULT);
    }

    #[test]
    fn dates_are_gregorian() {
        let t = |secs| rfc3339(Timestamp::new(secs, 123_456_789));
        assert_eq!(t(0), "1970-01-01T00:00:00.123456Z");
        assert_eq!(t(951_782_400), "2000-02-29T00:00:00.123456Z");
        assert_eq!(t(1_700_000_000), "2023-11-14T22:13:20.123456Z");
        assert_eq!(t(-1), "1969-12-31T23:59:59.123456Z");
    }
}
