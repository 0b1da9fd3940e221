//! `brindle node spare`: hosts that get a copy of a target when one of its copies is lost.

use brindle_admin::spare::{self, SpareView};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::spare::SpareHost;

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;

/// A copy that was away for so long is given up, unless another time is given: longer than a host takes to boot.
const AFTER_S: u64 = 600;

/// Arguments of `brindle node spare`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle node spare oss9 --spare-dir /data/spare --after 600\n  brindle node spare            list the spare hosts\n  \
                        brindle node spare oss9 --none\n\
                        When a copy of a target has been away for that long, and another one serves it, it is given up and made anew on a spare host."
)]
pub struct Args {
    /// Name of the host; without it all spare hosts are listed
    #[arg(value_name = "HOST", add = live::nodes())]
    host: Option<String>,
    /// Directory on the host; each copy gets one of its own in it
    #[arg(long, value_name = "DIR", requires = "host", conflicts_with = "none")]
    spare_dir: Option<String>,
    /// Seconds after which a copy that is away is given up [default: 600]
    #[arg(long, value_name = "SECONDS", requires = "spare_dir")]
    after: Option<u64>,
    /// The host gets nothing more; what it has stays
    #[arg(long, requires = "host")]
    none: bool,
    /// Say what would be done, and change nothing
    #[arg(long, requires = "host")]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let Some(host) = &args.host else { return list(args) };
    let spare = match (&args.spare_dir, args.none) {
        (Some(dir), _) => {
            let after_s = args.after.unwrap_or(AFTER_S);
            Some(SpareHost { host: host.clone(), dir: dir.clone(), after_s })
        }
        (None, true) => None,
        (None, false) => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot make a spare host of")
                .subject(host.clone())
                .why("no directory is given for the copies")
                .data("nothing was changed")
                .next("add --spare-dir DIR; to have it get nothing more: --none"));
        }
    };
    let place = args.fs.place()?;
    let said = match &spare {
        Some(spare) => format!(
            "{host} gets the copies of targets, in {}, that have been away for {} s",
            spare.dir, spare.after_s
        ),
        None => format!("{host} gets no copies any more; what it has stays"),
    };
    runtime()?.block_on(async { servers().change_spare(&place, host, spare, args.dry_run).await })?;
    match args.dry_run {
        true => println!("would be so: {said}"),
        false => println!("{said}"),
    }
    Ok(Done::Ok)
}

fn list(args: &Args) -> Result<Done> {
    let place = args.fs.place()?;
    let listed = runtime()?.block_on(async { servers().spares(&place).await })?;
    let views: Vec<SpareView> = listed.spares.iter().map(spare::view).collect();
    if args.output.json() {
        return views.iter().try_for_each(print_json).map(|()| Done::Ok);
    }
    if views.is_empty() {
        println!("there is no spare host; make one: brindle node spare HOST --spare-dir DIR");
        return Ok(Done::Ok);
    }
    let rows = views.iter().map(|v| vec![v.host.clone(), v.dir.clone(), format!("after {} s", v.after_s)]);
    println!("{}", table(&["SPARE HOST", "DIRECTORY", ""], rows.collect()));
    Ok(Done::Ok)
}
