//! `brindle join`: this host becomes one of a cluster.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use brindle_admin::document;
use brindle_auth::{HostRole, Token};
use brindle_host::enrolment::{self, Join};
use brindle_host::need_root;
use brindle_types::{Code, Fault, Nid, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::OwnArgs;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};

/// Longest text that is read for a token.
const TOKEN_MAX_BYTES: u64 = 8 << 10;

/// Arguments of `brindle join`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle join mgs1 < token\n\
                        The token comes from brindle cluster token, on standard input or in a file: never as an argument, \
                        which all users of a host can see. When the answer was lost the same command goes on.")]
pub struct Args {
    /// Address of the MGS; without it those of the token are used
    #[arg(value_name = "HOST", value_parser = parse::<Nid>)]
    mgs: Option<Nid>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Address that other hosts reach this one at; for a server the one that it reaches the MGS from without it
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The host has joined before: give it other roles, or a certificate in place of one that has ended. Its key and its serve.toml stay
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    output: Output,
}

/// A host that has joined.
#[derive(Serialize, JsonSchema)]
pub struct JoinView {
    /// Number of the cluster.
    cluster: String,
    /// File system of the cluster.
    fs: String,
    /// Addresses of its MGS.
    mgs: Vec<String>,
    /// Name of this host.
    host: String,
    /// Roles of the host.
    roles: Vec<String>,
    /// Address that it serves targets at; empty where it serves none.
    address: String,
}
document!(JoinView, "brindle.join", 1);

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    need_root("cannot join a cluster")?;
    let token = read_token(args)?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let host = args.own.host();
    let join = Join {
        token,
        mgs: args.mgs.iter().cloned().collect(),
        conf: args.own.conf.clone(),
        host: host.clone(),
        address: args.listen.clone(),
        again: args.again,
    };
    let joined = runtime.block_on(enrolment::join(&seams, &join))?;
    let view = JoinView {
        cluster: joined.cluster.to_string(),
        fs: joined.fs.to_string(),
        mgs: joined.mgs.iter().map(|nid| nid.to_string().trim_end_matches("@tcp").to_owned()).collect(),
        host,
        roles: joined.roles.to_string().split(',').map(str::to_owned).collect(),
        address: joined.address.clone().unwrap_or_default(),
    };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    println!("{} has joined the cluster {} as {}", view.host, view.cluster, view.roles.join(", "));
    if joined.roles.has(HostRole::Server) {
        println!("next, here:\n  {}", args.own.how_to_serve());
        println!(
            "then, on an administrator's host, give it something to serve:\n  brindle target add --node {} --dir /data/ost0",
            view.host
        );
    } else {
        println!("next:\n  mount -t brindle {}:/{} /mnt", view.mgs.join(","), view.fs);
    }
    Ok(Done::Ok)
}

fn read_token(args: &Args) -> Result<Token> {
    let cannot = |subject: &str, e: &std::io::Error| {
        Fault::io(Code::BadToken, "cannot read the token", subject.to_owned(), e)
    };
    let mut text = String::new();
    match &args.token_file {
        Some(path) => {
            let subject = path.display().to_string();
            let file = std::fs::File::open(path).map_err(|e| cannot(&subject, &e))?;
            file.take(TOKEN_MAX_BYTES).read_to_string(&mut text).map_err(|e| cannot(&subject, &e))?;
        }
        None if std::io::stdin().is_terminal() => {
            eprintln!("Paste the token, then press Enter:");
            std::io::stdin().read_line(&mut text).map_err(|e| cannot("standard input", &e))?;
        }
        None => {
            let stdin = std::io::stdin().take(TOKEN_MAX_BYTES);
            let mut stdin = stdin;
            stdin.read_to_string(&mut text).map_err(|e| cannot("standard input", &e))?;
        }
    }
    text.parse()
}
