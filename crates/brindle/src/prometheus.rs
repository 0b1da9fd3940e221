//! `brindle prometheus`: the daemons of a file system, as a site's Prometheus reads them.

use std::sync::Arc;

use brindle_manager::cluster::{At, Managed};
use brindle_manager::live::state;
use brindle_manager::monitoring::discovery;
use brindle_types::Result;

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::exit::Done;
use crate::format::runtime;
use crate::manager::ShortMounts;

/// The verbs of `brindle prometheus`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the daemons of a file system, as Prometheus's file_sd_configs and http_sd_configs take them
    Targets(TargetsArgs),
}

/// Arguments of `brindle prometheus targets`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle prometheus targets --mgs mgs1 --port 9870 > /etc/prometheus/brindle.json\n  \
                  brindle prometheus targets --dir /tmp/b\n\
                  A manager serves the same at /sd/prometheus, always as the map is."
)]
pub struct TargetsArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Port at which each server tells its numbers: that of the key 'metrics' in its configuration
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port at which mounts tell their numbers, on each host that joined as a client: that of the mount option 'metrics'
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Targets(args) => targets(args),
    }
}

fn targets(args: &TargetsArgs) -> Result<Done> {
    let place = one(&args.place)?;
    let at = match &place.dev {
        Some(dev) => At::Dev(dev.dir.clone()),
        None => At::Fs(place),
    };
    let daemons = runtime()?.block_on(async {
        let managed = Managed {
            scrape_port: args.port,
            client_scrape_port: args.client_port,
            ..Managed::new(servers(), at, Arc::new(ShortMounts))
        };
        let asked = managed.ask().await?;
        // The time is shown nowhere here.
        Ok(managed.daemons(&state::view(0, &asked)))
    })?;
    print!("{}", discovery::text(&discovery::groups(daemons)));
    Ok(Done::Ok)
}
