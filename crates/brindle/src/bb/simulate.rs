//! `brindle bb simulate`: a trace of jobs against pools of bricks ([`brindle_bb::simulate`]).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_bb::Pool;
use brindle_bb::pool::{Brick, GRANULE_DEFAULT_BYTES};
use brindle_bb::simulate::{Trace, parse, run as replay};
use brindle_host::bb::protocol::{Reply, Request, unexpected};
use brindle_host::bb::view::{SimulatedPoolView, SimulationView};
use brindle_types::units::{format_bytes, parse_bytes};
use brindle_types::{Code, Fault, Result};

use super::SocketArg;
use crate::exit::Done;
use crate::output::{Output, print_json, table};

/// Largest trace.
const TRACE_MAX_BYTES: u64 = 512 << 20;
/// Jobs that are named because no pool could hold their buffers.
const NAMED_MAX: usize = 5;

/// Arguments of `brindle bb simulate`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
                        sacct -a -X -P -S 2026-11-01 -E 2026-11-02 --format=JobID,Start,End,AllocTRES > day\n  \
                        brindle bb simulate day --capacity 50TiB --capacity 100TiB --bricks 16\n\
                        Slurm records buffers where slurm.conf has AccountingStorageTRES=bb/datawarp.")]
pub struct Args {
    /// File with the output of sacct; '-' for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Size of a pool to try; may be given several times. The pools that there are unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    capacity: Vec<u64>,
    /// Bricks of each pool to try
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), default_value_t = 8)]
    bricks: u64,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    output: Output,
}

/// Replays the trace against each pool.
pub fn run(args: &Args) -> Result<Done> {
    let trace = parse(&read(&args.trace)?)?;
    let pools = match args.capacity.as_slice() {
        [] => match args.socket.ask(&Request::Bricks, Duration::ZERO)? {
            Reply::Bricks(pools) => pools,
            other => return Err(unexpected(&other)),
        },
        sizes => sizes.iter().map(|bytes| pool_of(*bytes, args.bricks)).collect::<Result<_>>()?,
    };
    let results = pools.iter().map(|pool| SimulatedPoolView::new(pool, &replay(pool, &trace.jobs)));
    let view = SimulationView {
        jobs: trace.jobs.len() as u64,
        without_buffer: trace.without_buffer,
        unfinished: trace.unfinished,
        pools: results.collect(),
    };
    if args.output.json() {
        print_json(&view)?;
    } else {
        print(&trace, &view);
    }
    Ok(Done::Ok)
}

fn read(path: &Path) -> Result<String> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::BadArgument, "cannot read", path.display().to_string(), e);
    let source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(path).map_err(|e| cannot(&e))?),
    };
    let mut text = String::new();
    let read = source.take(TRACE_MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| cannot(&e))?;
    if read as u64 > TRACE_MAX_BYTES {
        let most = format_bytes(TRACE_MAX_BYTES);
        return Err(cannot(&std::io::Error::other(format!("it is larger than {most}"))));
    }
    Ok(text)
}

/// A pool of equal bricks.
fn pool_of(bytes: u64, bricks: u64) -> Result<Pool> {
    let mut pool = Pool::new(&format_bytes(bytes).replace(' ', ""), GRANULE_DEFAULT_BYTES);
    for n in 0..bricks {
        let brick = Brick { dir: format!("/{n}"), bytes: bytes / bricks, node: None };
        pool.add_brick(&n.to_string(), brick)?;
    }
    Ok(pool)
}

fn print(trace: &Trace, view: &SimulationView) {
    println!(
        "{} jobs with buffers; {} without, {} that had not ended",
        trace.jobs.len(),
        trace.without_buffer,
        trace.unfinished
    );
    let head = [
        "POOL",
        "SIZE",
        "SERVED",
        "WAITED",
        "MEAN",
        "95 %",
        "LONGEST",
        "QUEUE",
        "MOST USED",
        "USED",
        "UNEVEN",
    ];
    let row = |pool: &SimulatedPoolView| {
        vec![
            pool.name.clone(),
            format_bytes(pool.bytes),
            pool.served.to_string(),
            pool.waited.to_string(),
            seconds(pool.wait_mean_s),
            seconds(pool.wait_p95_s as f64),
            seconds(pool.wait_max_s as f64),
            pool.queue_max.to_string(),
            format_bytes(pool.used_max_bytes),
            format!("{:.0} %", pool.used_percent),
            pool.uneven.to_string(),
        ]
    };
    println!("{}", table(&head, view.pools.iter().map(row).collect()));
    for pool in view.pools.iter().filter(|pool| !pool.too_large.is_empty()) {
        let named = pool.too_large[..pool.too_large.len().min(NAMED_MAX)].join(", ");
        let more = if pool.too_large.len() > NAMED_MAX { ", ..." } else { "" };
        println!("{}: too small for {} jobs: {named}{more}", pool.name, pool.too_large.len());
    }
}

/// A time for people.
fn seconds(time_s: f64) -> String {
    match time_s {
        t if t >= 7200.0 => format!("{:.1} h", t / 3600.0),
        t if t >= 120.0 => format!("{:.1} min", t / 60.0),
        t => format!("{t:.0} s"),
    }
}
