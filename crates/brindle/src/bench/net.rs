//! `brindle bench net`.

use std::time::Duration;

use brindle_bench::net::{self, Options, Server};
use brindle_bench::stop;
use brindle_stdx::cast::{bounded_u32, to_usize};
use brindle_types::{Nid, Result};
use serde_json::{Value, json};

use super::common::{progress, size};
use super::report::Reports;
use crate::exit::Done;

/// Largest bulk of a frame, in bytes.
const BULK_MAX: u64 = 16 << 20;

/// Arguments of `brindle bench net`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        brindle bench net\n  \
                        brindle bench net --serve 0.0.0.0:9990      (on one machine)\n  \
                        brindle bench net --to 10.0.0.12:9990       (on another)\n\
                        Without an address, client and server are threads of one process on loopback.")]
pub struct Args {
    /// Only answer, at this address, until Ctrl-C
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    serve: Option<Nid>,
    /// Measure against the server at this address
    #[arg(long, value_name = "ADDRESS")]
    to: Option<Nid>,
    /// Requests in flight at once, one number after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16, 64],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    in_flight: Vec<u32>,
    /// Bytes of a bulk
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = bulk_size)]
    bulk_size: u64,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    links: u32,
    /// Length of each phase
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Repetitions of each phase; the median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    #[command(flatten)]
    reports: Reports,
}

fn bulk_size(text: &str) -> std::result::Result<u64, String> {
    match size(text)? {
        bytes if bytes <= BULK_MAX => Ok(bytes),
        _ => Err(format!("must be at most {}", brindle_types::units::format_bytes(BULK_MAX))),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    stop::listen();
    if let Some(nid) = &args.serve {
        let server = Server::start(nid, to_usize(BULK_MAX))?;
        eprintln!("listening at {}; end it with Ctrl-C", server.nid());
        server.wait();
        return Ok(Done::Ok);
    }
    args.reports.check()?;
    let options = Options {
        in_flight: args.in_flight.clone(),
        bulk_bytes: bounded_u32(args.bulk_size),
        time: Duration::from_secs(args.seconds),
        links: args.links as usize,
        repeat: args.repeat,
    };
    let parameters = [
        ("to", args.to.as_ref().map_or(Value::Null, |nid| json!(nid.to_string()))),
        ("bulk_bytes", json!(args.bulk_size)),
        ("links", json!(args.links)),
        ("seconds", json!(args.seconds)),
        ("repeat", json!(args.repeat)),
    ];
    let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    args.reports.show(net::run(&options, args.to.clone(), parameters, &mut progress(false))?)
}
