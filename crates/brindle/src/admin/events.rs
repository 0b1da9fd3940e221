//! `brindle events`: what has happened in the cluster.

use brindle_admin::document;
use brindle_admin::events::{EventView, after};
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::{Code, Result};

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::exit::{self, Done};
use crate::format::runtime;
use crate::output::Output;

/// Pause of `--follow` while the MGS does not answer.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
/// Events that are shown unless told otherwise.
const LAST_DEFAULT: usize = 30;

/// Arguments of `brindle events`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle events\n  brindle events --follow\n  brindle events --last 500 -o json\n\n\
                        The MGS keeps the last 500. With -o json each event is a line of its own."
)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Show so many, the newest ones
    #[arg(long, value_name = "N", default_value_t = LAST_DEFAULT)]
    last: usize,
    /// Go on with what happens from now on, until SIGINT
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    runtime()?.block_on(async {
        let servers = servers();
        let mut found = after(&servers, &place, 0, false).await?;
        let number = found.last().map_or(0, |last| last.number);
        let from = found.len().saturating_sub(args.last);
        print(&found.split_off(from), args.output.json())?;
        if args.follow {
            go_on(&servers, &place, number, args.output.json()).await?;
        }
        Ok(Done::Ok)
    })
}

/// Shows what happens until there is an error that does not pass by itself.
async fn go_on(servers: &Servers, place: &FsLocation, mut number: u64, json: bool) -> Result<()> {
    let mut was_told = false;
    loop {
        match after(servers, place, number, true).await {
            Ok(found) => {
                was_told = false;
                number = found.last().map_or(number, |last| last.number);
                print(&found, json)?;
            }
            // The MGS dies, too; another one goes on, or it comes back.
            Err(fault) if matches!(fault.code, Code::NoMgs | Code::TargetDown | Code::NotLeading) => {
                if !was_told {
                    exit::warn(&fault);
                    was_told = true;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(fault) => return Err(fault),
        }
    }
}

fn print(events: &[EventView], json: bool) -> Result<()> {
    for event in events {
        if json {
            println!("{}", document::line(event)?);
            continue;
        }
        let EventView { at, level, name, subject, text, .. } = event;
        let at = rfc3339(Timestamp { secs: *at, nanos: 0 });
        let at = at.split('.').next().unwrap_or(&at);
        println!("{at}Z  {level:<7}  {name:<16}  {subject}: {text}");
    }
    Ok(())
}
