//! `brindle cluster` and `brindle join`: a cluster of hosts that prove who they are.

pub mod apply;
pub mod backup;
pub mod join;
pub mod restart;
pub mod superblocks;

use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_admin::hosts::new_token;
use brindle_auth::Roles;
use brindle_config::etcd::Address;
use brindle_config::etcd::settings::TlsTexts;
use brindle_host::enrolment::{self, CONF_DIR, EtcdPlace, Init, own_address};
use brindle_host::{move_config, need_root};
use brindle_types::ids::DEFAULT_PORT;
use brindle_types::units::parse_duration_s;
use brindle_types::{Code, Fault, FsName, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::ask::servers;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Default directory of the MGT.
const MGT_DIR: &str = "/var/lib/brindle/mgt";

/// Largest file that is taken for a certificate or a key.
const PEM_MAX_BYTES: u64 = 64 << 10;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a cluster, with this host as its first one
    Init(InitArgs),
    /// Make a token, with which one host may join
    Token(TokenArgs),
    /// Write hosts, targets and pools as a file
    Export(apply::ExportArgs),
    /// Make what a file names and is not there; nothing is removed
    Apply(apply::ApplyArgs),
    /// Have the daemons of all hosts start anew one after the other, while programs go on
    Restart(restart::Args),
    /// Write the configuration of the cluster into a file, on the host of its MGS
    Backup(backup::BackupArgs),
    /// Make the MGT of a cluster from a backup, in place of one that was lost
    Restore(backup::RestoreArgs),
    /// Show the targets that lie on this host, as their superblocks say; for restore --from-superblocks
    Superblocks(superblocks::Args),
    /// Move the configuration of a cluster whose MGS is stopped from its disk to etcd
    MoveConfig(MoveConfigArgs),
}

/// Arguments of `brindle cluster init`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster init --fs scratch\n\
                        It makes the management target (MGT) and the authority that signs certificates of hosts. This host then serves the MGT \
                        and administers; it may serve other targets too.")]
pub struct InitArgs {
    /// Name of the file system: 1 to 8 letters, digits, '-' or '_'
    #[arg(long, value_name = "NAME", value_parser = parse::<FsName>)]
    fs: FsName,
    /// Directory of the MGT
    #[arg(long, value_name = "DIR", default_value = MGT_DIR)]
    dir: PathBuf,
    /// Address that other hosts reach this one at; needed where it has several
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Port of the MGS
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Keep the configuration in this etcd, so that several hosts can run the MGS: etcd://HOST[:PORT],HOST[:PORT],HOST[:PORT]
    #[arg(long, value_name = "ETCD", value_parser = address)]
    config: Option<Address>,
    #[command(flatten)]
    tls: EtcdTls,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    output: Output,
}

/// Files for TLS with etcd.
#[derive(clap::Args)]
pub struct EtcdTls {
    /// Certificates of the authority of etcd's members; without it they are asked in plain HTTP
    #[arg(long, value_name = "FILE", requires = "etcd_cert", requires = "etcd_key")]
    etcd_ca: Option<PathBuf>,
    /// Certificate that etcd's members are shown
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    etcd_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    etcd_key: Option<PathBuf>,
}

impl EtcdTls {
    fn place(&self, address: &Address) -> Result<EtcdPlace> {
        let tls = match (&self.etcd_ca, &self.etcd_cert, &self.etcd_key) {
            (Some(ca), Some(certificate), Some(key)) => Some(TlsTexts {
                authority: read_pem(ca)?,
                certificate: read_pem(certificate)?,
                key: read_pem(key)?,
            }),
            _ => None,
        };
        Ok(EtcdPlace { address: address.clone(), tls })
    }
}

fn read_pem(path: &Path) -> Result<String> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::BadArgument, "cannot read", path.display().to_string(), e);
    let len = std::fs::metadata(path).map_err(|e| cannot(&e))?.len();
    if len > PEM_MAX_BYTES {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use")
            .subject(path.display().to_string())
            .why(format!("it has {len} bytes, and is no PEM file")));
    }
    std::fs::read_to_string(path).map_err(|e| cannot(&e))
}

fn address(text: &str) -> std::result::Result<Address, String> {
    text.parse().map_err(|fault: Fault| fault.why.join("; "))
}

/// Arguments of `brindle cluster move-config`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster move-config --to etcd://etcd1,etcd2,etcd3\n\
                        Run it on the MGS host while its brindle-serve is stopped. Files are read and written meanwhile. When it was interrupted \
                        the same command goes on.")]
pub struct MoveConfigArgs {
    /// The etcd: etcd://HOST[:PORT],HOST[:PORT],HOST[:PORT]
    #[arg(long, value_name = "ETCD", value_parser = address)]
    to: Address,
    /// Directory of the MGT
    #[arg(long, value_name = "DIR", default_value = MGT_DIR)]
    dir: PathBuf,
    #[command(flatten)]
    tls: EtcdTls,
}

/// Options about this host.
#[derive(clap::Args)]
pub struct OwnArgs {
    /// Name of this host in the cluster; the system's without it
    #[arg(long, value_name = "HOST")]
    name: Option<String>,
    /// Where the files of this host go
    #[arg(long, value_name = "DIR", default_value = CONF_DIR)]
    pub(crate) conf: PathBuf,
}

impl OwnArgs {
    /// The command that starts the daemon of this host.
    pub(super) fn how_to_serve(&self) -> String {
        if self.conf == Path::new(CONF_DIR) {
            return "systemctl enable --now brindle-serve     (or, to try it: brindle serve)".to_owned();
        }
        let conf = self.conf.display();
        format!("brindle serve --config {conf}/serve.toml --identity {conf}/identity.pem")
    }

    pub(super) fn host(&self) -> String {
        self.name.clone().unwrap_or_else(brindle_host::name)
    }
}

/// Arguments of `brindle cluster token`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster token --role client\n\
                        The token goes to standard output, everything else to standard error: \
                        brindle cluster token | ssh oss3 brindle join")]
pub struct TokenArgs {
    /// Roles of the host: server, client, agent, admin; several with commas
    #[arg(long, value_name = "ROLES", value_parser = parse::<Roles>, default_value = "server")]
    role: Roles,
    /// Only for the host of this name
    #[arg(long, value_name = "HOST", default_value = "")]
    host: String,
    /// How long the token may be used, such as 30m, 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = lifetime_s, default_value = "24h")]
    expires: u64,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Seconds of `90s`, `30m`, `24h`, `7d`.
fn lifetime_s(text: &str) -> std::result::Result<u64, String> {
    match parse_duration_s(text)? {
        0 => Err("it must be at least 1 s".to_owned()),
        seconds => Ok(seconds),
    }
}

/// A cluster that was made.
#[derive(Serialize, JsonSchema)]
pub struct InitView {
    /// Number of the cluster.
    cluster: String,
    /// File system of the cluster.
    fs: String,
    /// Address of its MGS.
    mgs: String,
    /// Name of this host.
    host: String,
    /// Directory of the MGT.
    dir: String,
    /// A token for the next server: a secret.
    token: String,
    /// When the token ends, seconds since 1970.
    token_expires_s: i64,
}
document!(InitView, "brindle.cluster.init", 1);

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Init(args) => init(args),
        Command::Token(args) => token(args),
        Command::Export(args) => apply::export(args),
        Command::Apply(args) => apply::apply(args),
        Command::Restart(args) => restart::run(args),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Superblocks(args) => superblocks::list(args),
        Command::MoveConfig(args) => move_config(args),
    }
}

fn init(args: &InitArgs) -> Result<Done> {
    need_root("cannot make a cluster")?;
    let address = match &args.listen {
        Some(address) => address.clone(),
        None => own_address()?,
    };
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let host = args.own.host();
    let wanted = Init {
        fs: args.fs.clone(),
        dir: PathBuf::from(crate::cli::text(&args.dir)?),
        conf: args.own.conf.clone(),
        host: host.clone(),
        address: address.clone(),
        port: args.port,
        etcd: args.config.as_ref().map(|address| args.tls.place(address)).transpose()?,
    };
    let made = enrolment::init(&seams, runtime.handle(), &wanted)?;
    let view = InitView {
        cluster: made.cluster.to_string(),
        fs: args.fs.to_string(),
        mgs: format!("{}:{}", address.split(',').next().unwrap_or_default(), args.port),
        host,
        dir: wanted.dir.display().to_string(),
        token: made.token.to_string(),
        token_expires_s: made.token.expires_s,
    };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let conf = args.own.conf.display();
    println!("made the cluster {} with the file system {}", view.cluster, view.fs);
    println!("  MGT and authority: {} (back it up; whoever has it is the cluster)", view.dir);
    if let Some(etcd) = &args.config {
        println!("  configuration: {etcd}");
    }
    println!(
        "  this host: {} at {}, identity {conf}/identity.pem, options {conf}/serve.toml",
        view.host, view.mgs
    );
    println!("\nnext, on this host:\n  {}", args.own.how_to_serve());
    println!(
        "on the next server, within 24 hours, and then paste the token:\n  brindle join {address}\n  {}",
        view.token
    );
    println!(
        "on each further host: a token of its own, made here by\n  brindle cluster token --role server|client|admin"
    );
    Ok(Done::Ok)
}

fn move_config(args: &MoveConfigArgs) -> Result<Done> {
    need_root("cannot move the configuration")?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let place = args.tls.place(&args.to)?;
    let count = runtime.block_on(move_config::move_config(&seams, &args.dir, &place))?;
    println!("moved {count} entries to {}", args.to);
    println!("next, on this host:\n  systemctl start brindle-serve");
    println!("to have a second host run the MGS:\n  brindle target add --mgt --node HOST --dir {MGT_DIR}");
    Ok(Done::Ok)
}

fn token(args: &TokenArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let roles = args.role.to_string();
    let answer = runtime()?
        .block_on(async { servers().create_token(&place, &roles, &args.host, args.expires).await })?;
    let view = new_token(&roles, answer);
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let for_whom =
        if args.host.is_empty() { "one host".to_owned() } else { format!("the host {}", args.host) };
    eprintln!("a token for {for_whom}, role {roles}; on that host, give it to: brindle join");
    println!("{}", view.token);
    Ok(Done::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(lifetime_s("30m"), Ok(1800));
        assert_eq!(lifetime_s("7d"), Ok(604_800));
        assert_eq!(lifetime_s("1w"), Ok(604_800));
        for wrong in ["", "d", "0h", "-1h", "1x", "7", "99999999999999999999d", "1\u{e9}"] {
            assert!(lifetime_s(wrong).is_err(), "{wrong}");
        }
    }
}
