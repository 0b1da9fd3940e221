//! `brindle manager`: the process behind the console ([`brindle_manager`]).

pub mod asking;
mod verbs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use brindle_admin::place::{FsLocation, Source};
use brindle_client::{Client, Switches};
use brindle_host::announcement::Managing;
use brindle_host::bb::protocol::{SOCKET_DEFAULT, SOCKET_VARIABLE};
use brindle_host::process::Said;
use brindle_manager::access::pam::Pam;
use brindle_manager::alerts::notify::{Ways, mail_address};
use brindle_manager::alerts::post::{AUTHORITIES_DEFAULT, Webhook};
use brindle_manager::buffers::Orchestrator;
use brindle_manager::clients::Clients;
use brindle_manager::cluster::{At, Managed};
use brindle_manager::quota_report::Every;
use brindle_manager::web;
use brindle_manager::web::local;
use brindle_manager::web::serve::bind;
use brindle_manager::web::tls::{self, Protection};
use brindle_manager::{Manager, Settings};
use brindle_stdx::BoxFuture;
use brindle_telemetry::panic;
use brindle_types::{Code, Fault, FsName, Nid, Result};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::mount::{Connect, connect, keep_certificate};
use crate::serve::{failed, say, start_log, stop_signal};

/// Default directory of the manager's files.
pub const DIR_DEFAULT: &str = "/var/lib/brindle/manager";
/// Default address of the console.
const LISTEN_DEFAULT: &str = "127.0.0.1:8443";

/// Rules of PAM unless told otherwise; the package brings this file.
const PAM_SERVICE_DEFAULT: &str = "brindle";

/// Sender of mail unless told otherwise.
const MAIL_FROM_DEFAULT: &str = "brindle@localhost";
/// Path of the program that sends mail, on Debian.
const SENDMAIL_DEFAULT: &str = "/usr/sbin/sendmail";

/// Arguments of `brindle manager`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  brindle manager --mgs mgs1,mgs2 --listen 10.0.0.9:8443 --scrape-port 9870\n  \
                  brindle manager --dev /tmp/b --dir /tmp/m\n\
                  There is no password to begin with: while there are no users, the start prints an address for a first log-in.\n\
                  The manager asks servers with the identity of this host, as commands do; what a person may do depends on the person's role."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<verbs::Verb>,
    /// Directory of its users, certificate and audit log
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    dir: PathBuf,
    /// Address and port for browsers; port 0 for any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// Address of the MGS; without it, the cluster that this host has joined or whose file system is mounted here
    #[arg(long, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',', conflicts_with = "dev")]
    mgs: Vec<Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR")]
    dev: Option<PathBuf>,
    /// Port at which each server tells its numbers: that of the key 'metrics' in its configuration
    #[arg(long, value_name = "PORT")]
    scrape_port: Option<u16>,
    /// Port at which mounts tell their numbers, on each host that joined as a client: that of the mount option 'metrics'
    #[arg(long, value_name = "PORT")]
    client_scrape_port: Option<u16>,
    /// Address of a daemon's numbers, such as http://10.0.0.7:9870/metrics; may be given many times
    #[arg(long, value_name = "URL", value_parser = scrape_url)]
    scrape: Vec<String>,
    /// Socket of the orchestrator of burst buffers on this host
    #[arg(long, value_name = "SOCKET", env = SOCKET_VARIABLE, hide_env_values = true, default_value = SOCKET_DEFAULT)]
    bb_socket: PathBuf,
    /// Directory of the policy engine on this host; /var/lib/brindle/policy, or that of the development cluster
    #[arg(long, value_name = "DIR")]
    policy_state: Option<PathBuf>,
    /// Tell alerts to this webhook: a POST of JSON for each that is raised or ended
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// PEM file with the authorities that may have signed the webhook's certificate
    #[arg(long, value_name = "FILE", default_value = AUTHORITIES_DEFAULT, requires = "webhook")]
    webhook_ca: String,
    /// Tell alerts by mail to this address; may be given many times
    #[arg(long, value_name = "ADDRESS", value_parser = mail_address)]
    mail_to: Vec<String>,
    /// Sender of the mail
    #[arg(long, value_name = "ADDRESS", value_parser = mail_address, requires = "mail_to", default_value = MAIL_FROM_DEFAULT)]
    mail_from: String,
    /// Program that takes a mail on its standard input, as sendmail does with '-t -i'
    #[arg(long, value_name = "PROGRAM", requires = "mail_to", default_value = SENDMAIL_DEFAULT)]
    sendmail: String,
    /// Tell once a day or week, by mail and to the webhook, who uses four fifths of a limit: daily or weekly
    #[arg(long, value_name = "TIME", value_parser = parse::<Every>)]
    quota_report: Option<Every>,
    /// Certificate for browsers, in PEM; without it the manager makes one and signs it itself
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// File in /etc/pam.d with the rules for users whose password the host knows
    #[arg(long, value_name = "NAME", default_value = PAM_SERVICE_DEFAULT)]
    pam_service: String,
    /// Serve without TLS, on a loopback address only: passwords cross in clear text
    #[arg(long, conflicts_with_all = ["certificate", "key"])]
    insecure_http: bool,
    /// Append the log to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Announce on standard output, as JSON, that it is ready or why not
    #[arg(long, hide = true)]
    ready_json: bool,
}

fn scrape_url(text: &str) -> std::result::Result<String, String> {
    let rest = text.strip_prefix("http://").ok_or("it does not begin with http://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("it has no host and port: http://HOST:PORT/metrics".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    if let Some(verb) = &args.verb {
        return verbs::run(verb);
    }
    start_log(args.log.as_deref())?;
    panic::install("brindle manager".to_owned(), panic::After::Unwind);
    let runtime = runtime()?;
    let outcome = runtime.block_on(manage(args));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome.map(|()| Done::Ok)
}

async fn manage(args: &Args) -> Result<()> {
    let stop = stop_signal()?;
    let at = match &args.dev {
        Some(dir) => At::Dev(PathBuf::from(crate::cli::text(dir)?)),
        None => At::Fs(place(args)?),
    };
    let managed = Managed {
        scrape_urls: args.scrape.clone(),
        scrape_port: args.scrape_port,
        client_scrape_port: args.client_scrape_port,
        orchestrator: Orchestrator::new(args.bb_socket.clone()),
        policy_state: args.policy_state.clone(),
        ..Managed::new(servers(), at, Arc::new(ShortMounts))
    };
    // Says at once when there is no such cluster.
    managed.place()?;
    if let At::Fs(place) = &managed.at
        && let Err(fault) = keep_certificate(place.mgs.clone())
    {
        tracing::warn!(code = %fault.code, "the certificate of this host is not renewed by the manager: {fault}");
    }
    let protection = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => {
            Protection::Given { certificate: certificate.clone(), key: key.clone() }
        }
        _ if args.insecure_http => Protection::InsecureHttp,
        _ => Protection::SelfSigned,
    };
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    brindle_manager::make_dir(&args.dir)?;
    let names = tls::names(&brindle_host::name(), args.listen.ip());
    let tls = tls::load(&protection, &args.dir, &names, seams.wall().secs)?;
    let registry = brindle_telemetry::Registry::new("process");
    crate::serve::metrics::process(&registry);
    let settings = Settings {
        is_secure: !args.insecure_http,
        certificate_ends_s: tls.as_ref().and_then(|tls| tls.ends_s),
        registry,
        ways: ways(args)?,
        quota_report: args.quota_report,
        pam: pam(args)?,
        program: own_program()?,
    };
    if settings.quota_report.is_some() && settings.ways.is_empty() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot send")
            .subject("--quota-report")
            .why("neither --mail-to nor --webhook is given")
            .data("nothing was started"));
    }
    let manager = Manager::new(seams.clone(), managed, &args.dir, settings)?;
    let local = local::bind(&args.dir)?;
    let listening = bind(args.listen, tls).await?;
    let managing = announcement(&manager, listening.address()?, listening.fingerprint())?;
    let router = web::router(&manager, matches!(protection, Protection::Given { .. }));
    manager.watch();
    tracing::info!(url = managing.url, "the manager serves");
    if args.ready_json {
        say(&Said::Ready(managing));
    } else {
        print(&managing);
    }
    tokio::select! {
        () = listening.run(router.clone()) => {}
        () = local::run(local, router) => {}
        () = stop => tracing::info!("the manager ends"),
    }
    Ok(())
}

/// Mounts of the manager, each for one action.
pub struct ShortMounts;

impl Clients for ShortMounts {
    fn connect<'a>(&'a self, place: &'a FsLocation, fs: &'a FsName) -> BoxFuture<'a, Result<Arc<Client>>> {
        Box::pin(async move {
            let source = Source { mgs: place.mgs.clone(), fs: fs.clone(), subdir: String::new() };
            let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let switches = Switches { open_prefetch: false, readdir_prefetch: false, ..Switches::default() };
            let joining = Connect {
                source: &source,
                identity: None,
                security: None,
                switches,
                sync: false,
                failout_s: None,
                mount: "manager".to_owned(),
                lives_long: false,
            };
            connect(&joining, seams.tasks.clone()).await
        })
    }
}

/// How the host is asked for passwords: by this binary, in a process of its own.
fn pam(args: &Args) -> Result<Pam> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if args.pam_service.is_empty()
        || args.pam_service.starts_with('.')
        || !args.pam_service.chars().all(is_name)
    {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use --pam-service")
            .subject(args.pam_service.clone())
            .why("it is the name of a file in /etc/pam.d, with letters, digits, '.', '_' and '-'")
            .data("nothing was started"));
    }
    Ok(Pam { program: own_program()?, service: args.pam_service.clone() })
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|e| Fault::io(Code::Bug, "cannot find", "the program of this process".to_owned(), &e))
}

/// Where alerts are told.
fn ways(args: &Args) -> Result<Ways> {
    let webhook = args.webhook.as_ref().map(|url| {
        Webhook::new(url, &args.webhook_ca).map_err(|why| {
            Fault::new(Code::BadArgument)
                .what("cannot use --webhook")
                .subject(url.clone())
                .why(why)
                .data("nothing was started")
        })
    });
    Ok(Ways {
        webhook: webhook.transpose()?,
        mail_to: args.mail_to.clone(),
        mail_from: args.mail_from.clone(),
        sendmail: args.sendmail.clone(),
    })
}

fn place(args: &Args) -> Result<FsLocation> {
    one(&PlaceArgs { path: None, mgs: args.mgs.clone(), dir: None }).map_err(|fault: Fault| {
        match args.mgs.is_empty() {
            true => fault.next("name it: --mgs HOST[:PORT], or --dev DIR of a development cluster"),
            false => fault,
        }
    })
}

fn announcement(manager: &Arc<Manager>, address: SocketAddr, fingerprint: String) -> Result<Managing> {
    let scheme = if fingerprint.is_empty() { "http" } else { "https" };
    // Browsers cannot open 0.0.0.0: the name of this host stands for it.
    let host = if address.ip().is_unspecified() { brindle_host::name() } else { String::new() };
    let url = match host.as_str() {
        "" => format!("{scheme}://{address}/"),
        host => format!("{scheme}://{host}:{}/", address.port()),
    };
    let first_log_in_url = manager.open_first_log_in()?.map(|token| format!("{url}#/first/{token}"));
    Ok(Managing { url, first_log_in_url, fingerprint })
}

/// Prints where the console is.
pub fn print(managing: &Managing) {
    println!("console: {}", managing.url);
    if let Some(url) = &managing.first_log_in_url {
        println!("first log-in, once and within an hour: {url}");
    }
    if managing.fingerprint.is_empty() {
        eprintln!(
            "warning: without TLS (--insecure-http): passwords cross in clear text, on this machine only"
        );
    } else {
        eprintln!("certificate, SHA-256: {}", managing.fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_numbers_are_checked() {
        assert!(
            scrape_url("http://10.0.0.7:9870/metrics").is_ok() && scrape_url("http://[::1]:9870").is_ok()
        );
        for bad in ["https://a:1", "a:1", "http://a", "http://:1/", "http://a:x/"] {
            assert!(scrape_url(bad).is_err(), "{bad}");
        }
    }
}
