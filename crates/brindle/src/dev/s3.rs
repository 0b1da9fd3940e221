//! The process around the S3 server of a development cluster ([`brindle_host::cluster::s3`]). The process starts the server, reports when
//! the server is ready, and ends with it.

use std::path::PathBuf;
use std::time::Duration;

use brindle_host::announcement::Working;
use brindle_host::cluster::s3::S3Server;
use brindle_host::process::Said;
use brindle_types::{Code, Fault, Result};

use crate::exit::Done;
use crate::serve::{failed, say, start_log, stop_signal};

/// Longest single wait for the end of the server.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Arguments of `brindle dev s3-server`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of its data
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Write its log to the end of this file
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Print one line of JSON on standard output when it works
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    start_log(Some(&args.log))?;
    // The server is a child of this thread, which lives as long as this process.
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(serve(args));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, true);
    }
    outcome
}

async fn serve(args: &Args) -> Result<Done> {
    let stop = stop_signal()?;
    let server = S3Server::start(&args.data, &args.log)?;
    let ended = || Fault::new(Code::ProcessFailed).what("the S3 server has ended");
    let identity = server.identity().ok_or_else(ended)?;
    if args.ready_json {
        say(&Said::Ready(Working { archive: server.endpoint() }));
    }
    let watching = async {
        while let Ok(false) = tokio::task::spawn_blocking(move || identity.wait_end(WAIT_MAX)).await {}
    };
    tokio::select! {
        biased;
        () = stop => Ok(Done::Ok),
        () = watching => Err(ended()),
    }
}
