//! `brindle log`: the level of servers' logs, while they run.

use brindle_admin::servers::Servers;
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, MdtLogLevelReq, MgsLogLevelReq, OstLogLevelReq};
use brindle_wire::map::{Map, TargetEntry};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::exit::{self, Done};
use crate::format::runtime;

/// The word for every target.
const ALL: &str = "all";

/// The verbs of `brindle log`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show or change the level of the log of a target's process, until that ends
    Level(LevelArgs),
}

/// Arguments of `brindle log level`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle log level scratch-OST0003\n  brindle log level scratch-MDT0000 debug\n  brindle log level all info\n  \
                  brindle log level MDT0000 info,brindle_mds=debug --dir /tmp/b\n\n\
                  Targets that share a process have one log. After a restart the level is that of BRINDLE_LOG again, or info."
)]
pub struct LevelArgs {
    /// The target: scratch-OST0003 or OST0003; or all
    #[arg(value_name = "TARGET")]
    target: String,
    /// error, warn, info, debug or trace; or a filter; without it the present one is shown
    #[arg(value_name = "LEVEL")]
    level: Option<String>,
    /// A path in a mount of the file system; without any of these options, what is mounted here
    #[arg(long = "mount", value_name = "PATH", conflicts_with_all = ["mgs", "dir"])]
    mount: Option<std::path::PathBuf>,
    /// Address of its MGS
    #[arg(long, value_name = "NID", value_parser = crate::format::parse::<brindle_types::Nid>, value_delimiter = ',', conflicts_with = "dir")]
    mgs: Vec<brindle_types::Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    let Command::Level(args) = command;
    let place = PlaceArgs { path: args.mount.clone(), mgs: args.mgs.clone(), dir: args.dir.clone() };
    let place = one(&place)?;
    runtime()?.block_on(async {
        let servers = servers();
        let (map, _) = servers.map(&place).await?;
        let is_meant = |entry: &&TargetEntry| {
            let short = entry.id.to_string();
            args.target == ALL || args.target == map.fs.target(entry.id) || args.target == short
        };
        let meant: Vec<&TargetEntry> = map.targets.iter().filter(is_meant).collect();
        if meant.is_empty() {
            let all: Vec<String> = map.targets.iter().map(|entry| map.fs.target(entry.id)).collect();
            return Err(Fault::new(Code::UnknownTarget)
                .subject(args.target.clone())
                .data("nothing was changed")
                .next(format!("name one of these, or all: {}", all.join(", "))));
        }
        let mut failed = None;
        for entry in &meant {
            let name = map.fs.target(entry.id);
            match ask(&servers, &map, entry, args.level.clone()).await {
                Ok(LogLevelResp { level, before }) if args.level.is_some() => {
                    println!("{name} on {}: {before} -> {level}", entry.host());
                }
                Ok(LogLevelResp { level, .. }) => println!("{name} on {}: {level}", entry.host()),
                Err(fault) if meant.len() > 1 => {
                    exit::warn(&fault);
                    failed = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(if failed.is_some() { Done::Partly } else { Done::Ok })
    })
}

async fn ask(
    servers: &Servers,
    map: &Map,
    entry: &TargetEntry,
    level: Option<String>,
) -> Result<LogLevelResp> {
    let request = LogLevelReq { level };
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtLogLevelReq(request)).await,
        Role::Ost => servers.ask(map, entry.id, &OstLogLevelReq(request)).await,
        Role::Mgt => servers.ask(map, entry.id, &MgsLogLevelReq(request)).await,
    }
}
