//! `brindle target add`: an OST for a file system that runs, from an empty directory to new files on it, in one command.

use std::path::Path;

use brindle_admin::place::FsLocation;
use brindle_admin::target::free_index;
use brindle_config::{Expected, Superblock};
use brindle_host::format::{self, Plan};
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};
use brindle_wire::mgs::shared::SharedHost;

use super::ask::{self, servers};
use super::target_assign::{self, Wanted};
use super::target_replica::Hosts;
use super::{target_replica, target_shared};
use crate::cli;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::Output;
use crate::serve;

/// Arguments of `brindle target add`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle target add --node oss3 --dir /data/ost7\n  brindle target add --node oss3 --standby oss4 --device /dev/mapper/lun7 --dir /data/ost7\n  brindle target add --copies 2 --node oss3 --node oss4 --dir /data/ost8\n  brindle target add --mgsnode mgs1 --dir /data/ost7 --listen 10.0.0.12\n\
                        With --node that host formats the directory and serves it from then on. Without it this command formats the directory if it is empty, serves it until SIGTERM, and can be given again. For a server that \
                        systemd starts, add the directory to 'dir' of its serve.toml afterwards."
)]
pub struct Args {
    /// Address of the MGS of the file system, such as 10.0.0.1:9880@tcp; may be given several times
    #[arg(long, required_unless_present = "host", value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',')]
    mgsnode: Vec<Nid>,
    /// Host of the cluster that is to format and serve it, as in brindle node list; several times for several copies
    #[arg(long = "node", id = "host", value_name = "HOST", add = crate::completion::live::nodes())]
    host: Vec<String>,
    /// Copies of the target, each on a host of its own; give --node once for each
    #[arg(long, requires = "host", conflicts_with_all = ["mgt", "standby"], value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    copies: Option<u8>,
    /// Have the copies in one rack, although a host of another rack could have one
    #[arg(long, requires = "host")]
    same_rack: bool,
    /// Second host, which reaches the same device and takes the target over when the first one dies
    #[arg(long, requires = "host", requires = "device", value_name = "HOST", add = crate::completion::live::nodes())]
    standby: Option<String>,
    /// Block device, or image file, that both hosts reach; it is formatted if it is blank, and mounted at DIR
    #[arg(long, requires = "standby", value_name = "DEVICE")]
    device: Option<String>,
    /// Name of the device on the second host, if that is another
    #[arg(long, requires = "standby", value_name = "DEVICE")]
    standby_device: Option<String>,
    /// Add an MDT instead of an OST
    #[arg(long, requires = "host")]
    mdt: bool,
    /// Have the host run the MGS too, and become active when the active one is away; the configuration must lie in etcd
    #[arg(long, requires = "host", conflicts_with_all = ["mdt", "standby", "index"])]
    mgt: bool,
    /// Say what would be done, and change nothing
    #[arg(long, requires = "host")]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
    /// Index of the OST; the lowest free one without it
    #[arg(long)]
    index: Option<u16>,
    #[command(flatten)]
    options: serve::Options,
    /// Print one line of JSON on standard output when ready
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Done> {
    let [dir] = &args.options.dir[..] else {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot add a target")
            .why(format!("{} directories are given, and one is needed", args.options.dir.len()))
            .next("add --dir DIR, once"));
    };
    let copies = args.copies.map(usize::from);
    if args.host.len() > 1 || copies.is_some_and(|copies| copies > 1) {
        if args.mgt || args.standby.is_some() {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot add a target")
                .why("several hosts are named, and only an OST or an MDT without a standby host can have copies")
                .data("nothing was changed"));
        }
        let role = if args.mdt { Role::Mdt } else { Role::Ost };
        let wanted = Wanted { role, index: args.index, dir: dir.display().to_string() };
        let hosts = Hosts { names: &args.host, copies, is_same_rack: args.same_rack };
        return target_replica::add(&args.mgsnode, hosts, wanted, args.dry_run, args.output);
    }
    if let Some(host) = args.host.first() {
        let role = if args.mdt { Role::Mdt } else { Role::Ost };
        let role = if args.mgt { Role::Mgt } else { role };
        let wanted = Wanted { role, index: args.index, dir: dir.display().to_string() };
        if let (Some(standby), Some(device)) = (&args.standby, &args.device) {
            let standby_device = args.standby_device.as_ref().unwrap_or(device);
            let hosts = [(host, device), (standby, standby_device)]
                .map(|(host, device)| SharedHost { host: host.clone(), device: device.clone() });
            return target_shared::add(&args.mgsnode, hosts.to_vec(), wanted, args.dry_run, args.output);
        }
        return target_assign::add(&args.mgsnode, host, wanted, args.dry_run, args.output);
    }
    prepare(&args, dir)?;
    serve::run(serve::Args { config: None, options: args.options, ready_json: args.ready_json })
}

/// Formats the directory, unless it is an OST of this file system already.
fn prepare(args: &Args, dir: &Path) -> Result<()> {
    let dir = std::path::PathBuf::from(cli::text(dir)?);
    let runtime = runtime()?;
    let map = runtime.block_on(async {
        let place = FsLocation { mgs: args.mgsnode.clone(), fs: None, dev: None };
        ask::map(&servers(), &place).await
    })?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let text = cli::text(&dir)?;
    if dir.exists() && Superblock::exists(&*seams.disk, &text)? {
        let expected = Expected { fs: Some(map.fs.clone()), target: args.index.map(TargetId::ost) };
        let found = Superblock::load(&*seams.disk, &text, &expected)?.superblock;
        eprintln!("{text} is {} already", found.name());
        return Ok(());
    }
    format::refuse_occupied(&*seams.disk, &dir).map_err(|fault| {
        fault.next("give an empty directory; to destroy what it holds: brindle format --ost --reformat --yes")
    })?;
    let target = TargetId::ost(free_index(&map, args.index)?);
    let plan = Plan { fs: map.fs.clone(), target, mgs: args.mgsnode.clone(), dir, uuid: None };
    runtime.block_on(format::carry_out(&seams, &plan, &[]))?;
    eprintln!("formatted {text} as {}", map.fs.target(target));
    if let Some(note) = format::shared_with(&*seams.disk, target, &plan.dir) {
        eprintln!("{note}");
    }
    Ok(())
}
