//! `brindle limit`: bounds on the requests of jobs, users and hosts to servers.

use brindle_admin::limits::{LimitChanged, LimitView, LimitsView, parse_tbf};
use brindle_host::users::user_name;
use brindle_types::units::{parse_bytes, parse_seconds};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use brindle_wire::mgs::limit::{LimitAt, LimitChange, LimitOf, LimitRule, refusal};

use crate::admin::ask::servers;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;
use crate::quota::owner::Owner;

/// Longest life of a limit that ends by itself.
const FOR_MAX_S: u64 = 366 * 86_400;

/// Jobs that a list shows; the JSON document has all of them.
const JOBS_SHOWN_MAX: usize = 10;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Limit a job, a user or a host
    Add(AddArgs),
    /// Give a limit other rates
    Set(SetArgs),
    /// List limits, and what each has held back
    List(ListArgs),
    /// Remove a limit
    Remove(RemoveArgs),
    /// Carry out a rule in the text of Lustre's token bucket filter
    Apply(ApplyArgs),
}

/// Targets at which a limit counts.
#[derive(Clone, Copy, clap::ValueEnum)]
enum At {
    /// MDTs
    Mdt,
    /// OSTs
    Ost,
}

impl At {
    fn of(at: Option<At>) -> LimitAt {
        match at {
            None => LimitAt::Everywhere,
            Some(At::Mdt) => LimitAt::Mdts,
            Some(At::Ost) => LimitAt::Osts,
        }
    }
}

/// Rates of a limit.
#[derive(clap::Args)]
struct RateArgs {
    /// Requests a second at each target
    #[arg(long, value_name = "N", value_parser = iops, allow_negative_numbers = true)]
    iops: Option<u64>,
    /// Bytes of files a second at each target: 1048576, 100M, 2G
    #[arg(long, value_name = "SIZE", value_parser = bytes_per_s, allow_negative_numbers = true)]
    bytes_per_s: Option<u64>,
}

/// Arguments of `brindle limit add`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle limit add slow-4711 --job 4711 --iops 500\n  brindle limit add backup --user backup --bytes-per-s 200M --at ost --for 8h\n  \
                        brindle limit add lab --host 'ws1,ws2,10.0.3.*' --iops 1000\n\n\
                        Each job, user and host that is named has its own rate, at each target. Servers go by it within a second. No request is held for longer \
                        than 4 s, so a job with N requests under way gets at least N/4 a second."
)]
pub struct AddArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    name: String,
    /// Jobs, as brindle top names them; * stands for any characters
    #[arg(long, value_name = "JOB", value_delimiter = ',')]
    job: Vec<String>,
    /// Users, by name or number
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    user: Vec<String>,
    /// Hosts, by name or address; * stands for any characters
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    #[command(flatten)]
    rate: RateArgs,
    /// Count at targets of this kind only
    #[arg(long, value_enum, value_name = "KIND")]
    at: Option<At>,
    /// End the limit after this time: 30min, 8h, 2d
    #[arg(long = "for", value_name = "TIME", value_parser = lifetime)]
    lifetime_s: Option<u64>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle limit set`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle limit set slow-4711 --iops 2000")]
pub struct SetArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    rate: RateArgs,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle limit list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle limit remove`.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    name: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle limit apply`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle limit apply --tbf 'start dd jobid={dd.0 iozone.500} rate=100' --at ost\n  brindle limit apply --tbf 'change dd rate=200'\n  \
                        brindle limit apply --tbf 'stop dd'\n\n\
                        The same text in Lustre's place: lctl set_param ost.OSS.ost_io.nrs_tbf_rule='start dd jobid={dd.0} rate=100'"
)]
pub struct ApplyArgs {
    /// The rule
    #[arg(long, value_name = "RULE")]
    tbf: String,
    /// Count at targets of this kind only
    #[arg(long, value_enum, value_name = "KIND")]
    at: Option<At>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

fn iops(text: &str) -> std::result::Result<u64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0);
    rate.ok_or_else(|| format!("'{text}' is no rate: a whole number of requests a second, from 1"))
}

fn bytes_per_s(text: &str) -> std::result::Result<u64, String> {
    let rate = parse_bytes(text.strip_suffix("/s").unwrap_or(text))?;
    if rate == 0 { Err("a rate of 0 would stop whoever it is for: from 1".to_owned()) } else { Ok(rate) }
}

fn lifetime(text: &str) -> std::result::Result<u64, String> {
    let seconds = parse_seconds(text)?;
    match (1..=FOR_MAX_S).contains(&seconds) {
        true => Ok(seconds),
        false => Err("it must be 1 s to 366 d".to_owned()),
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Add(args) => {
            let mut of: Vec<LimitOf> = args.job.iter().cloned().map(LimitOf::Job).collect();
            for user in &args.user {
                of.push(LimitOf::User(Owner::named(QuotaOwner::User, user)?.id));
            }
            of.extend(args.host.iter().cloned().map(LimitOf::Host));
            let now_s = servers_now_s();
            let ends = |seconds: u64| now_s.saturating_add_unsigned(seconds);
            let rule = LimitRule {
                name: args.name.clone(),
                of,
                at: At::of(args.at),
                requests_per_s: args.rate.iops,
                bytes_per_s: args.rate.bytes_per_s,
                ends_s: args.lifetime_s.map(ends),
            };
            change(&args.fs, LimitChange::Add(rule), args.dry_run, args.output)
        }
        Command::Set(args) => {
            let RateArgs { iops, bytes_per_s } = args.rate;
            if iops.is_none() && bytes_per_s.is_none() {
                return Err(Fault::new(Code::BadArgument)
                    .what("nothing to change at")
                    .subject(args.name.clone())
                    .why("no rate was given")
                    .next("add --iops N or --bytes-per-s SIZE"));
            }
            let rate = LimitChange::Rate { name: args.name.clone(), requests_per_s: iops, bytes_per_s };
            change(&args.fs, rate, args.dry_run, args.output)
        }
        Command::Remove(args) => {
            change(&args.fs, LimitChange::Remove(args.name.clone()), args.dry_run, args.output)
        }
        Command::Apply(args) => {
            let rule =
                parse_tbf(&args.tbf, At::of(args.at)).map_err(|why| refusal(args.tbf.as_str(), why))?;
            change(&args.fs, rule, args.dry_run, args.output)
        }
        Command::List(args) => list(args),
    }
}

/// Now, in seconds since 1970.
fn servers_now_s() -> i64 {
    use brindle_stdx::Clock as _;
    brindle_stdx::real::RealClock.wall().secs
}

fn change(fs: &FsArgs, change: LimitChange, dry_run: bool, output: Output) -> Result<Done> {
    // A rule that is wrong in itself is refused without a server.
    if let LimitChange::Add(rule) = &change {
        rule.check().map_err(|why| refusal(rule.name.as_str(), why))?;
    }
    let place = fs.place()?;
    let changed = runtime()?.block_on(async { servers().change_limit(&place, change, dry_run).await })?;
    if output.json() {
        print_json(&changed)?;
    } else {
        println!("{}", told(&changed));
    }
    Ok(Done::Ok)
}

/// A change in a sentence.
fn told(changed: &LimitChanged) -> String {
    let name = &changed.name;
    match (&changed.limit, changed.changed, changed.dry_run) {
        (Some(limit), false, _) => format!("{name} is like that already: {}", in_words(limit)),
        (Some(limit), true, true) => format!("would make {name}: {}", in_words(limit)),
        (Some(limit), true, false) => {
            format!("{name}: {}; servers go by it within a second", in_words(limit))
        }
        (None, _, true) => format!("would remove {name}"),
        (None, _, false) => format!("removed {name}"),
    }
}

/// A user for people.
fn name(uid: u32) -> String {
    user_name(uid).ok().flatten().unwrap_or_else(|| uid.to_string())
}

/// A limit in words.
fn in_words(limit: &LimitView) -> String {
    limit.in_words(name)
}

fn list(args: &ListArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let view = runtime()?.block_on(async { servers().limits(&place).await })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    if view.limits.is_empty() {
        println!("{} has no limits", view.fs);
    } else {
        println!("{}", limits_table(&view));
    }
    if !view.jobs.is_empty() {
        println!("\n{}", jobs_table(&view));
    }
    for silent in &view.silent {
        println!("{silent}");
    }
    Ok(Done::Ok)
}

/// Limits, and what each has held back.
fn limits_table(view: &LimitsView) -> String {
    let now_s = servers_now_s();
    let rows = view.limits.iter().map(|limit| {
        vec![
            limit.name.clone(),
            limit.subjects(name),
            limit.rates(),
            limit.places().to_owned(),
            limit.ends_s.map_or_else(
                || "-".to_owned(),
                |ends_s| format!("in {} s", ends_s.saturating_sub(now_s).max(0)),
            ),
            limit.requests.to_string(),
            limit.held.to_string(),
            format!("{:.1} s", limit.held_seconds),
        ]
    });
    let headings = ["LIMIT", "FOR", "RATE", "AT", "ENDS", "REQUESTS", "HELD", "HELD FOR"];
    table(&headings, rows.collect())
}

/// Jobs that have waited most, for their turn or by a limit.
fn jobs_table(view: &LimitsView) -> String {
    let rows = view.jobs.iter().take(JOBS_SHOWN_MAX).map(|job| {
        vec![
            job.name.clone(),
            job.target.clone(),
            job.queued.to_string(),
            format!("{:.1} s", job.queued_seconds),
            job.held.to_string(),
            format!("{:.1} s", job.held_seconds),
            job.limit.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let headings = ["JOB", "TARGET", "WAITED", "FOR", "HELD", "HELD FOR", "BY"];
    table(&headings, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_lifetimes_that_make_no_sense_are_refused() {
        assert_eq!(
            (iops("500"), bytes_per_s("100M"), bytes_per_s("2G/s")),
            (Ok(500), Ok(100 << 20), Ok(2 << 30))
        );
        for wrong in ["0", "-5", "1.5", "many", ""] {
            assert!(iops(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "-1M", "10 parsecs", "M", ""] {
            assert!(bytes_per_s(wrong).is_err(), "{wrong}");
        }
        assert_eq!((lifetime("1h"), lifetime("90")), (Ok(3_600), Ok(90)));
        for wrong in ["0", "1 fortnight", "400d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn changes_are_told_in_words() {
        let limit = LimitView {
            name: "slow".into(),
            jobs: vec!["4711".into()],
            users: vec![],
            hosts: vec!["n1".into()],
            at: "ost",
            iops: Some(500),
            bytes_per_s: Some(100 << 20),
            ends_s: None,
            requests: 0,
            held: 0,
            held_seconds: 0.0,
            overdue: 0,
        };
        let mut changed =
            LimitChanged { name: "slow".into(), changed: true, dry_run: false, limit: Some(limit) };
        assert_eq!(
            told(&changed),
            "slow: 500 requests/s and 100.0 MiB/s for job 4711, host n1 at each OST; servers go by it within a second"
        );
        changed.limit = None;
        assert_eq!(told(&changed), "removed slow");
    }
}
