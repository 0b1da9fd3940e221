//! `brindle manager user` and `token`: who may log in at the manager of this host, and with which tokens programs ask it.

use std::io::Read as _;

use brindle_manager::access::Role;
use brindle_manager::access::tokens::TokenView;
use brindle_manager::api::views::{AddTokenReq, AddUserReq, NewTokenView, TokensView, UsersView};
use brindle_types::{Code, Fault, Result};
use clap::ValueEnum;
use serde_json::json;

use super::asking::{ManagerArgs, time};
use crate::exit::Done;
use crate::output::{Output, print_json, table};

/// Most bytes that are read as a password.
const PASSWORD_MAX_BYTES: u64 = 4096;

/// The verbs of `brindle manager`.
#[derive(clap::Subcommand)]
pub enum Verb {
    /// Who may log in at the manager of this host
    #[command(subcommand)]
    User(User),
    /// Tokens, with which programs ask the manager of this host
    #[command(subcommand)]
    Token(Token),
}

/// The verbs of `brindle manager user`.
#[derive(clap::Subcommand)]
pub enum User {
    /// List users and their roles
    List(ListArgs),
    /// Add a user; the password is the first line of standard input
    Add(AddUserArgs),
    /// Remove a user, with sessions and tokens
    Remove(NameArgs),
}

/// The verbs of `brindle manager token`.
#[derive(clap::Subcommand)]
pub enum Token {
    /// List tokens that have not ended
    List(ListArgs),
    /// Make a token and print its secret, which is shown this once
    Add(AddTokenArgs),
    /// Revoke a token
    Revoke(RevokeArgs),
}

/// Arguments of lists.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: Output,
}

/// A role, as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleArg {
    /// Looks at everything but users and the audit log
    Viewer,
    /// Also starts, stops and moves targets
    Operator,
    /// Also manages users, and reads the audit log
    Administrator,
}

impl RoleArg {
    fn role(self) -> Role {
        match self {
            RoleArg::Viewer => Role::Viewer,
            RoleArg::Operator => Role::Operator,
            RoleArg::Administrator => Role::Administrator,
        }
    }
}

/// Arguments of `brindle manager user add`.
#[derive(clap::Args)]
pub struct AddUserArgs {
    /// Name at log-in
    #[arg(value_name = "NAME")]
    name: String,
    /// Role
    #[arg(long, value_enum, default_value = "viewer")]
    role: RoleArg,
    /// The host knows the password: ask it by PAM
    #[arg(long)]
    pam: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Arguments of verbs that take a user.
#[derive(clap::Args)]
pub struct NameArgs {
    /// The user
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Arguments of `brindle manager token add`.
#[derive(clap::Args)]
pub struct AddTokenArgs {
    /// Purpose of the token
    #[arg(value_name = "NAME")]
    name: String,
    /// Role
    #[arg(long, value_enum, default_value = "viewer")]
    role: RoleArg,
    /// How many days it lives
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    days: u32,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle manager token revoke`.
#[derive(clap::Args)]
pub struct RevokeArgs {
    /// Number
    #[arg(value_name = "NUMBER")]
    number: u64,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Runs a verb.
pub fn run(verb: &Verb) -> Result<Done> {
    match verb {
        Verb::User(user) => of_user(user)?,
        Verb::Token(token) => of_token(token)?,
    }
    Ok(Done::Ok)
}

fn of_user(verb: &User) -> Result<()> {
    match verb {
        User::List(args) => {
            let view: UsersView = args.manager.ask("GET", "/users", &json!({}))?;
            if args.output.json() {
                return print_json(&view);
            }
            let by = |by_pam| if by_pam { "PAM" } else { "the manager" }.to_owned();
            let rows =
                view.users.iter().map(|u| vec![u.name.clone(), u.role.word().to_owned(), by(u.by_pam)]);
            println!("{}", table(&["NAME", "ROLE", "PASSWORD KNOWN BY"], rows.collect()));
            Ok(())
        }
        User::Add(args) => {
            let password = if args.pam { None } else { Some(password()?) };
            let request =
                AddUserReq { name: args.name.clone(), role: args.role.role(), password, by_pam: args.pam };
            let _: UsersView = args.manager.ask("POST", "/users", &request)?;
            println!("{} may log in, as {}", args.name, args.role.role().word());
            Ok(())
        }
        User::Remove(args) => {
            is_name(&args.name)?;
            let _: UsersView = args.manager.ask("DELETE", &format!("/users/{}", args.name), &json!({}))?;
            println!("{} is removed; sessions and tokens of this user have ended", args.name);
            Ok(())
        }
    }
}

/// A name is a part of a path: with other characters it could be another path.
fn is_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Ok(());
    }
    Err(Fault::new(Code::UnknownUser).subject(name.to_owned()))
}

/// The first line of standard input.
fn password() -> Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().take(PASSWORD_MAX_BYTES).read_to_string(&mut text);
    read.map_err(|e| {
        Fault::io(Code::BadArgument, "cannot read a password from", "standard input".to_owned(), &e)
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn of_token(verb: &Token) -> Result<()> {
    match verb {
        Token::List(args) => {
            let view: TokensView = args.manager.ask("GET", "/tokens", &json!({}))?;
            if args.output.json() {
                return print_json(&view);
            }
            if view.tokens.is_empty() {
                println!("no tokens");
                return Ok(());
            }
            let rows = view.tokens.iter().map(row).collect();
            println!("{}", table(&["NUMBER", "NAME", "USER", "ROLE", "MADE", "ENDS"], rows));
            Ok(())
        }
        Token::Add(args) => {
            let request = AddTokenReq { name: args.name.clone(), role: args.role.role(), days: args.days };
            let made: NewTokenView = args.manager.ask("POST", "/tokens", &request)?;
            if args.output.json() {
                return print_json(&made);
            }
            // The secret stands alone, so that a script can read it.
            println!("{}", made.secret);
            eprintln!(
                "token {} ({}) until {}; requests carry the header 'Authorization: Bearer SECRET'",
                made.token.id,
                made.token.role.word(),
                time(made.token.ends_s)
            );
            Ok(())
        }
        Token::Revoke(args) => {
            let path = format!("/tokens/{}", args.number);
            let _: TokensView = args.manager.ask("DELETE", &path, &json!({}))?;
            println!("token {} is revoked", args.number);
            Ok(())
        }
    }
}

fn row(token: &TokenView) -> Vec<String> {
    vec![
        token.id.to_string(),
        token.name.clone(),
        token.user.clone(),
        token.role.word().to_owned(),
        time(token.made_s),
        time(token.ends_s),
    ]
}
