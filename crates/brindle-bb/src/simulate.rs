//! A day of jobs against a pool of bricks: how long jobs would have waited for their buffers, and how full the pool would have been.
//!
//! The trace is what `sacct -a -X -P --format=JobID,Start,End,AllocTRES` prints. A job wants its buffer when it started in the trace: its
//! nodes were free then. Where the pool has no room for a job, the job waits, and jobs behind it that fit go ahead, as under Slurm. A job
//! holds its buffer for as long as it ran. Room is given by [`Pool::allocate`], as to real jobs.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use brindle_types::units::{MIB, parse_bytes};
use brindle_types::{Code, Fault, Result};

use crate::pool::Pool;

/// Most jobs of a trace.
pub const JOBS_MAX: usize = 1_000_000;
/// Begin of the names of burst buffers among the trackable resources of a job.
const TRES: &str = "bb/";
/// Columns that say what a job had, or asked for.
const TRES_COLUMNS: [&str; 2] = ["AllocTRES", "ReqTRES"];

/// A job of a trace that had a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Number of the job in Slurm.
    pub id: String,
    /// Start of the job, in seconds since 1970 of the time zone of the trace.
    pub start_s: i64,
    /// Run time of the job, in seconds.
    pub run_s: i64,
    /// Size of its buffer.
    pub bytes: u64,
}

/// Jobs of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Jobs that had a buffer, in the order of their starts.
    pub jobs: Vec<TraceJob>,
    /// Number of jobs without a buffer.
    pub without_buffer: u64,
    /// Number of jobs that had not started or not ended.
    pub unfinished: u64,
}

/// The day of jobs, as it would have gone with a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Jobs that got a buffer.
    pub served: u64,
    /// Jobs whose buffer is larger than the pool.
    pub too_large: Vec<String>,
    /// Jobs that waited.
    pub waited: u64,
    /// Mean wait of those that got a buffer, in seconds.
    pub wait_mean_s: f64,
    /// 95 of 100 jobs waited no longer, in seconds.
    pub wait_p95_s: i64,
    /// Longest wait, in seconds.
    pub wait_max_s: i64,
    /// The job that waited longest.
    pub wait_max_job: String,
    /// Most jobs that waited at a time.
    pub queue_max: usize,
    /// Most bytes in use.
    pub used_max_bytes: u64,
    /// Bytes in use, over the time from the first start to the last end.
    pub used_mean_bytes: f64,
    /// Buffers whose slices are of different sizes, because the pool was fragmented.
    pub uneven: u64,
    /// Time from the first start to the last end, in seconds.
    pub span_s: i64,
}

/// Reads a trace. Lines of another form are refused with their numbers.
pub fn parse(text: &str) -> Result<Trace> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or_else(|| wrong(1, "it is empty".to_owned()))?;
    let names: Vec<&str> = header.split('|').map(str::trim).collect();
    let column = |wanted: &str| names.iter().position(|name| *name == wanted);
    let needed = |wanted: &str| column(wanted).ok_or_else(|| wrong(1, format!("it has no column {wanted}")));
    let (id, start, end) = (needed("JobID")?, needed("Start")?, needed("End")?);
    let tres =
        TRES_COLUMNS.iter().find_map(|name| column(name)).map_or_else(|| needed(TRES_COLUMNS[0]), Ok)?;
    let mut trace = Trace::default();
    for (index, line) in lines {
        let number = index + 1;
        let fields: Vec<&str> = line.split('|').collect();
        let field = |at: usize| {
            let count = names.len();
            fields.get(at).copied().ok_or_else(|| wrong(number, format!("it has fewer than {count} columns")))
        };
        let bytes = buffer_bytes(field(tres)?).map_err(|why| wrong(number, why))?;
        let (from, to) = (time_of(field(start)?), time_of(field(end)?));
        match (bytes, from.map_err(|why| wrong(number, why))?, to.map_err(|why| wrong(number, why))?) {
            (0, ..) => trace.without_buffer += 1,
            (bytes, Some(start_s), Some(end_s)) => {
                let run_s = end_s.saturating_sub(start_s).max(0);
                trace.jobs.push(TraceJob { id: field(id)?.to_owned(), start_s, run_s, bytes });
            }
            _ => trace.unfinished += 1,
        }
        if trace.jobs.len() > JOBS_MAX {
            return Err(wrong(number, format!("a trace has {JOBS_MAX} jobs at most")));
        }
    }
    trace.jobs.sort_by_key(|job| job.start_s);
    Ok(trace)
}

fn wrong(line: usize, why: String) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot use the trace: line")
        .subject(line.to_string())
        .why(why)
        .next("make it with: sacct -a -X -P --format=JobID,Start,End,AllocTRES")
}

/// The buffers among the trackable resources of a job, such as `bb/datawarp=100G,cpu=2`. Slurm counts them in MiB where no unit stands.
fn buffer_bytes(text: &str) -> std::result::Result<u64, String> {
    let mut bytes = 0u64;
    for part in text.split(',').filter(|part| part.starts_with(TRES)) {
        let value = part.split_once('=').map_or("", |(_, value)| value);
        let size = match value.parse::<u64>() {
            Ok(number) => number.checked_mul(MIB).ok_or_else(|| format!("'{part}' is no size"))?,
            Err(_) => parse_bytes(value).map_err(|_| format!("'{part}' is no size"))?,
        };
        bytes = bytes.saturating_add(size);
    }
    Ok(bytes)
}

/// Seconds of `2026-11-29T14:00:00`; none where the job has not come so far.
fn time_of(text: &str) -> std::result::Result<Option<i64>, String> {
    if matches!(text, "Unknown" | "None" | "") {
        return Ok(None);
    }
    let no_time = || format!("'{text}' is no time such as 2026-11-29T14:00:00");
    let numbers: Vec<i64> = text
        .split(['-', 'T', ':'])
        .map(|part| part.parse().ok().filter(|n| (0..=9999).contains(n)))
        .collect::<Option<_>>()
        .ok_or_else(no_time)?;
    let &[year, month, day, hour, minute, second] = numbers.as_slice() else { return Err(no_time()) };
    let fits =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !fits {
        return Err(no_time());
    }
    Ok(Some(days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second))
}

/// Days since 1970 in the Gregorian calendar. A year begins in March here, so that the leap day is its last one.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719468 days lie between the first of March of the year 0 and 1970.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The state of a run.
struct Run<'a> {
    pool: Pool,
    trace: &'a [TraceJob],
    waiting: VecDeque<usize>,
    /// Ends of buffers, with their serial numbers.
    ends: BinaryHeap<Reverse<(i64, u64)>>,
    waits: Vec<(i64, usize)>,
    outcome: Outcome,
    now_s: i64,
    used_bytes: u64,
    /// Bytes in use, times seconds.
    area: f64,
}

/// Replays a trace against an empty pool.
pub fn run(pool: &Pool, trace: &[TraceJob]) -> Outcome {
    let now_s = trace.first().map_or(0, |job| job.start_s);
    let mut run = Run {
        pool: pool.clone(),
        trace,
        waiting: VecDeque::new(),
        ends: BinaryHeap::new(),
        waits: Vec::new(),
        outcome: Outcome::default(),
        now_s,
        used_bytes: 0,
        area: 0.0,
    };
    for (index, job) in trace.iter().enumerate() {
        if pool.refuse_impossible(job.bytes).is_err() {
            run.outcome.too_large.push(job.id.clone());
            continue;
        }
        run.go_to(job.start_s);
        run.waiting.push_back(index);
        run.start_what_fits();
        run.outcome.queue_max = run.outcome.queue_max.max(run.waiting.len());
    }
    while let Some(Reverse((end_s, _))) = run.ends.peek().copied() {
        run.go_to(end_s);
    }
    run.finish(now_s)
}

impl Run<'_> {
    /// Lets time go on; buffers end meanwhile, and jobs that wait for their room start.
    fn go_to(&mut self, to_s: i64) {
        while let Some(Reverse((end_s, serial))) =
            self.ends.peek().copied().filter(|Reverse((at, _))| *at <= to_s)
        {
            self.ends.pop();
            self.pass(end_s);
            self.used_bytes -= self.pool.slices_of(serial).iter().map(|slice| slice.bytes).sum::<u64>();
            self.pool.release(serial);
            // All that end at one time make room together.
            if self.ends.peek().is_none_or(|Reverse((next_s, _))| *next_s > end_s) {
                self.start_what_fits();
            }
        }
        self.pass(to_s);
    }

    fn pass(&mut self, to_s: i64) {
        let passed_s = to_s.saturating_sub(self.now_s).max(0);
        self.area += self.used_bytes as f64 * passed_s as f64;
        self.now_s = self.now_s.max(to_s);
    }

    fn start_what_fits(&mut self) {
        let mut left = VecDeque::with_capacity(self.waiting.len());
        while let Some(index) = self.waiting.pop_front() {
            let job = &self.trace[index];
            if self.pool.free_granules() == 0 {
                left.push_back(index);
                left.append(&mut self.waiting);
                break;
            }
            let Ok((serial, slices)) = self.pool.allocate(job.bytes, &BTreeSet::new()) else {
                left.push_back(index);
                continue;
            };
            let sizes = slices.iter().map(|slice| slice.bytes);
            let (least, most) = (sizes.clone().min(), sizes.clone().max());
            let is_uneven = most.unwrap_or(0) - least.unwrap_or(0) > self.pool.granule_bytes;
            self.outcome.uneven += u64::from(is_uneven);
            self.used_bytes += sizes.sum::<u64>();
            self.outcome.used_max_bytes = self.outcome.used_max_bytes.max(self.used_bytes);
            self.ends.push(Reverse((self.now_s.saturating_add(job.run_s), serial)));
            self.waits.push((self.now_s - job.start_s, index));
        }
        self.waiting = left;
    }

    fn finish(mut self, begun_s: i64) -> Outcome {
        self.waits.sort_unstable();
        let count = self.waits.len();
        let span_s = self.now_s - begun_s;
        let mut outcome = self.outcome;
        outcome.served = count as u64;
        outcome.span_s = span_s;
        outcome.waited = self.waits.iter().filter(|(wait, _)| *wait > 0).count() as u64;
        if let Some((longest, index)) = self.waits.last().filter(|(wait, _)| *wait > 0) {
            outcome.wait_max_s = *longest;
            outcome.wait_max_job.clone_from(&self.trace[*index].id);
        }
        if count > 0 {
            outcome.wait_mean_s = self.waits.iter().map(|(wait, _)| *wait as f64).sum::<f64>() / count as f64;
            outcome.wait_p95_s = self.waits[(count * 95).div_ceil(100) - 1].0;
        }
        if span_s > 0 {
            outcome.used_mean_bytes = self.area / span_s as f64;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Brick;

    fn pool(bricks: u64, gib: u64) -> Pool {
        let mut pool = Pool::new("default", 1 << 30);
        for n in 0..bricks {
            pool.add_brick(&format!("b{n}"), Brick { dir: format!("/b{n}"), bytes: gib << 30, node: None })
                .unwrap();
        }
        pool
    }

    const TRACE: &str = "JobID|Start|End|AllocTRES\n\
        1|2026-02-28T23:59:50|2026-03-01T00:00:10|billing=2,bb/datawarp=6G,cpu=2\n\
        2|2026-02-28T23:59:55|2026-03-01T00:00:05|bb/datawarp=4096,cpu=1\n\
        3|2026-02-28T23:59:56|2026-02-28T23:59:58|bb/datawarp=2G\n\
        4|2026-02-28T23:59:57|2026-02-28T23:59:58|cpu=4\n\
        5|2026-02-28T23:59:57|Unknown|bb/datawarp=2G\n\
        6|2026-02-28T23:59:59|2026-03-01T00:00:09|bb/datawarp=9G\n";

    #[test]
    fn a_trace_is_read_and_replayed() {
        let trace = parse(TRACE).unwrap();
        assert_eq!((trace.jobs.len(), trace.without_buffer, trace.unfinished), (4, 1, 1));
        let sizes: Vec<(u64, i64)> = trace.jobs.iter().map(|job| (job.bytes >> 30, job.run_s)).collect();
        assert_eq!(sizes, [(6, 20), (4, 10), (2, 2), (9, 10)]);
        // 8 GiB: job 2 waits for job 1, job 3 goes ahead of it, job 6 never fits.
        let outcome = run(&pool(2, 4), &trace.jobs);
        assert_eq!((outcome.served, outcome.too_large.as_slice()), (3, ["6".to_owned()].as_slice()));
        assert_eq!((outcome.waited, outcome.wait_max_s, outcome.wait_max_job.as_str()), (1, 15, "2"));
        assert_eq!((outcome.wait_mean_s, outcome.wait_p95_s, outcome.queue_max), (5.0, 15, 1));
        assert_eq!((outcome.span_s, outcome.used_max_bytes >> 30), (30, 8));
        // 6 GiB for 20 s, 4 GiB for 10 s, 2 GiB for 2 s.
        let mean = outcome.used_mean_bytes / f64::from(1 << 30);
        assert!((mean - 164.0 / 30.0).abs() < 1e-9, "{mean}");
        let large = run(&pool(4, 8), &trace.jobs);
        assert_eq!((large.served, large.waited, large.wait_max_s), (4, 0, 0));
        assert_eq!(run(&pool(1, 8), &[]), Outcome::default());
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let at = |text| time_of(text).unwrap().unwrap();
        assert_eq!(at("1970-01-01T00:00:00"), 0);
        assert_eq!(at("2000-03-01T00:00:00") - at("2000-02-29T00:00:00"), 86_400);
        assert_eq!(at("2026-11-29T14:00:00"), 1_795_960_800);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        for (text, wanted) in [
            ("", "it is empty"),
            ("JobID|Start|End\n", "AllocTRES"),
            ("JobID|Start|End|ReqTRES\n1|2026-02-28T10:00:00\n", "fewer than 4 columns"),
            ("JobID|Start|End|ReqTRES\n1|yesterday|Unknown|bb/x=1G\n", "'yesterday' is no time"),
            ("JobID|Start|End|ReqTRES\n1|2026-13-28T10:00:00|Unknown|bb/x=1G\n", "is no time"),
            ("JobID|Start|End|ReqTRES\n1|Unknown|Unknown|bb/x=much\n", "'bb/x=much' is no size"),
            ("JobID|Start|End|ReqTRES\n1|Unknown|Unknown|bb/x=99999999999999999\n", "is no size"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.why.iter().any(|why| why.contains(wanted)), "{text}: {fault}");
        }
    }
}
