//! `brindle node rename`: another name for a host that has joined; `brindle node take-name`: a host without a daemon takes it.

use std::path::PathBuf;
use std::sync::Arc;

use brindle_admin::rename;
use brindle_host::{access, identity};
use brindle_net::TcpTransport;
use brindle_types::{Code, Fault, Result};

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Arguments of `brindle node rename`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle node rename oss3 rack2-oss3\n\
                        The host keeps its key, roles, targets, copies, nodemaps and labels. Its daemon stops all in order, takes a certificate for the new \
                        name and starts anew; clients wait for seconds. The former name is refused from then on. The name of the machine itself is not \
                        changed.\n\
                        A host that has joined as a client, an agent or an administrator has no daemon: run brindle node take-name on it. Its mounts go on.")]
pub struct Args {
    /// Name of the host
    #[arg(value_name = "OLD", add = live::nodes())]
    old: String,
    /// New name of the host
    #[arg(value_name = "NEW")]
    new: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle node take-name`.
#[derive(clap::Args)]
#[command(after_help = "Example, as root on a client: brindle node take-name\n\
                        The host keeps its key. Its mounts and agents go on under the new name; the former one is refused from then on. After an \
                        interruption give the command again. A server needs no command: its daemon takes the name.")]
pub struct TakeArgs {
    /// File with the identity of this host
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    identity: Option<PathBuf>,
}

/// Runs `brindle node take-name`.
pub fn take(args: &TakeArgs) -> Result<Done> {
    let (former, host) = runtime()?.block_on(async {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let Some(identity) = identity::find(args.identity.as_deref())? else {
            return Err(Fault::new(Code::NotEnrolled)
                .what("cannot take another name")
                .why("this host has joined no cluster"));
        };
        let modes = identity::modes(None, true)?;
        let security = identity::security(Some(identity.clone()), modes, identity::Process::Command);
        let tcp = TcpTransport::new(seams.clone()).over_tcp_only().secured(security);
        access::take_new_name(&seams, &identity, Arc::new(tcp)).await
    })?;
    match former == host {
        true => println!("this host goes by the name {host} already"),
        false => println!("this host is {host} from now on; its former name {former} is refused"),
    }
    Ok(Done::Ok)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = args.fs.place()?;
    let names = (args.old.as_str(), args.new.as_str());
    let view =
        runtime()?.block_on(async { rename::rename(&servers(), &place, names, args.dry_run).await })?;
    if args.output.json() {
        print_json(&view)?;
        return rename::outcome(&view).map(|()| Done::Ok);
    }
    match view.state {
        "unchanged" => println!("{} has this name already; nothing was changed", view.to),
        "planned" => println!("would rename {} to {}; its daemon would start anew", view.from, view.to),
        "renamed" => println!(
            "renamed {} to {}: its daemon goes by it since {:.1} s after the change; the former name is refused",
            view.from,
            view.to,
            view.seconds.unwrap_or_default()
        ),
        "told" => println!(
            "renamed {} to {}: both names are let in until it shows the new one; on that host, as root: brindle node take-name",
            view.from, view.to
        ),
        _ => println!("renamed {} to {}", view.from, view.to),
    }
    if view.state != "unchanged" {
        view.keeps.iter().for_each(|kept| println!("  keeps {kept}"));
    }
    rename::outcome(&view).map(|()| Done::Ok)
}
