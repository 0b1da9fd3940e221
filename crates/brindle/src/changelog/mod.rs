//! The changelog of an MDT: `brindle changelog`, `lfs changelog` and `lctl changelog_register`.

mod reach;
pub mod show;
mod text;

use brindle_admin::document;
use brindle_admin::document::Document;
use brindle_types::changelog::{reader_id, reader_name};
use brindle_types::{ChangeMask, Result};
use brindle_wire::mds::changelog::{
    ChangelogClearReq, ChangelogDeregisterReq, ChangelogInfoResp, ChangelogMaskReq, ChangelogRegisterReq,
};
use schemars::JsonSchema;
use serde::Serialize;

pub use reach::{MdtName, Reach, own_cred};
pub use show::{Wanted, run as show};
pub use text::users;

use crate::completion::live;
use crate::exit::Done;
use crate::format::parse;
use crate::lctl::MgsArgs;
use crate::output::{Output, print_json, table};

/// The verbs of `brindle changelog`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Register a reader: from now on changes are recorded for it
    Register(RegisterArgs),
    /// Remove a reader; with the last one the records go
    Deregister(DeregisterArgs),
    /// Print records
    Show(ShowArgs),
    /// Say that a reader needs records no more
    Clear(ClearArgs),
    /// List the readers, and how far each is
    List(ListArgs),
}

/// The MDT that is meant.
#[derive(clap::Args)]
pub struct MdtArgs {
    /// The MDT: scratch-MDT0000
    #[arg(value_parser = parse::<MdtName>, add = live::mdts())]
    mdt: MdtName,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `brindle changelog register`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: brindle changelog register scratch-MDT0000 --name policy --mask CREAT,UNLNK,RENME,CLOSE"
)]
pub struct RegisterArgs {
    #[command(flatten)]
    at: MdtArgs,
    /// A name for people, behind the number
    #[arg(short = 'u', long, value_name = "NAME", default_value = "")]
    name: String,
    /// The types that it wants: CREAT,UNLNK; or a change of the usual ones: -CLOSE
    #[arg(short = 'm', long, value_name = "TYPES", value_parser = parse::<ChangeMask>, allow_hyphen_values = true)]
    mask: Option<ChangeMask>,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle changelog deregister`.
#[derive(clap::Args)]
pub struct DeregisterArgs {
    #[command(flatten)]
    at: MdtArgs,
    /// The reader: cl1
    #[arg(value_parser = reader_id)]
    reader: u32,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle changelog show`.
#[derive(clap::Args)]
#[command(after_help = "With -o json: one JSON document a line.")]
pub struct ShowArgs {
    #[command(flatten)]
    at: MdtArgs,
    /// First record
    #[arg(default_value_t = 0)]
    start: u64,
    /// Last record; 0 for no end
    #[arg(default_value_t = 0)]
    end: u64,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    output: Output,
}

/// Which records.
#[derive(clap::Args)]
pub struct WhatArgs {
    /// Wait for more records at the end
    #[arg(long)]
    pub follow: bool,
    /// Records that this reader has not cleared, of its types
    #[arg(long = "user", value_name = "clN", value_parser = reader_id)]
    pub reader: Option<u32>,
    /// Only these types: CREAT,UNLNK
    #[arg(long, value_name = "TYPES", value_parser = parse::<ChangeMask>, allow_hyphen_values = true)]
    pub mask: Option<ChangeMask>,
}

/// Arguments of `brindle changelog clear`.
#[derive(clap::Args)]
pub struct ClearArgs {
    #[command(flatten)]
    at: MdtArgs,
    /// The reader: cl1
    #[arg(value_parser = reader_id)]
    reader: u32,
    /// The last record that it does not need; 0 for all
    end: u64,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle changelog list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    at: MdtArgs,
    #[command(flatten)]
    output: Output,
}

impl MdtArgs {
    fn reach(&self) -> Result<Reach> {
        Reach::new(&self.mdt, &self.mgs)
    }
}

/// Runs `brindle changelog`.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Register(args) => {
            let reach = args.at.reach()?;
            let reader = register(&reach, &args.name, args.mask)?;
            tell(&args.output, RegisteredView, &reach, &reader, |name| {
                format!(
                    "{} records changes for reader {reader}; clear what was read, or it drops the oldest",
                    name
                )
            })
        }
        Command::Deregister(args) => {
            let reach = args.at.reach()?;
            deregister(&reach, args.reader)?;
            let reader = format!("cl{}", args.reader);
            tell(&args.output, DeregisteredView, &reach, &reader, |name| {
                format!("{name} has no reader {reader} any more")
            })
        }
        Command::Show(args) => {
            let WhatArgs { follow, reader, mask } = args.what;
            let (start, end, json) = (args.start, args.end, args.output.json());
            show(&args.at.reach()?, &Wanted { reader, mask, start, end, follow, json }).map(|()| Done::Ok)
        }
        Command::Clear(args) => {
            let reach = args.at.reach()?;
            clear(&reach, args.reader, args.end)?;
            let reader = format!("cl{}", args.reader);
            tell(&args.output, ClearedView, &reach, &reader, |name| match args.end {
                0 => format!("reader {reader} of {name} has cleared all records"),
                end => format!("reader {reader} of {name} has cleared the records up to {end}"),
            })
        }
        Command::List(args) => {
            let reach = args.at.reach()?;
            list(&reach.name, &reach.info()?, &args.output)
        }
    }
}

/// A reader of a changelog.
#[derive(Serialize, JsonSchema)]
pub struct ReaderOf {
    /// Full name of the MDT.
    mdt: String,
    /// Name of the reader: `cl1-name`, or `cl1`.
    reader: String,
}

/// A reader that was registered.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RegisteredView(ReaderOf);
document!(RegisteredView, "brindle.changelog.register", 1);

/// A reader that was removed.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct DeregisteredView(ReaderOf);
document!(DeregisteredView, "brindle.changelog.deregister", 1);

/// A reader that needs nothing of what came before any more.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ClearedView(ReaderOf);
document!(ClearedView, "brindle.changelog.clear", 1);

fn tell<D: Document>(
    output: &Output,
    document: fn(ReaderOf) -> D,
    reach: &Reach,
    reader: &str,
    text: impl FnOnce(&str) -> String,
) -> Result<Done> {
    match output.json() {
        true => print_json(&document(ReaderOf { mdt: reach.name.clone(), reader: reader.to_owned() }))?,
        false => println!("{}", text(&reach.name)),
    }
    Ok(Done::Ok)
}

/// Registers a reader; its name.
pub fn register(reach: &Reach, name: &str, mask: Option<ChangeMask>) -> Result<String> {
    let (name, nonce, cred) = (name.to_owned(), reach::nonce(), own_cred());
    let registered = reach.ask(&ChangelogRegisterReq { nonce, name: name.clone(), mask, cred })?;
    Ok(reader_name(registered.id, &name))
}

/// Removes a reader.
pub fn deregister(reach: &Reach, id: u32) -> Result<()> {
    reach.ask(&ChangelogDeregisterReq { id, cred: own_cred() }).map(drop)
}

/// A reader needs nothing up to `end` any more.
pub fn clear(reach: &Reach, id: u32, end: u64) -> Result<()> {
    reach.ask(&ChangelogClearReq { id, end, cred: own_cred() }).map(drop)
}

/// The request that sets what is recorded, from what is said of it (`+XATTR -CLOSE`) and what it is now.
pub fn mask_request(info: &ChangelogInfoResp, text: &str) -> std::result::Result<ChangelogMaskReq, String> {
    Ok(ChangelogMaskReq { mask: info.mask.changed(text)?, cred: own_cred() })
}

/// The changelog of an MDT, and who reads it.
#[derive(Serialize, JsonSchema)]
pub struct ChangelogView {
    /// Full name of the MDT.
    mdt: String,
    /// Index of the last record.
    current_index: u64,
    /// Kinds of changes that are recorded.
    mask: Vec<String>,
    /// Records that are kept.
    records: u64,
    /// Bytes that they take.
    bytes: u64,
    /// Bytes that they may take.
    bytes_max: u64,
    /// Records up to this index were dropped because there were too many.
    dropped_to: u64,
    /// Readers of the changelog.
    readers: Vec<ReaderView>,
}
document!(ChangelogView, "brindle.changelog.list", 1);

/// A reader of the changelog.
#[derive(Serialize, JsonSchema)]
struct ReaderView {
    /// Name of the reader.
    reader: String,
    /// The reader needs no record up to this index any more.
    cleared: u64,
    /// For how long it has cleared nothing.
    idle_seconds: u64,
    /// Kinds of changes that it reads; none: all.
    mask: Option<Vec<String>>,
    /// Whether records were dropped that it had not cleared.
    missed: bool,
}

fn words(mask: ChangeMask) -> Vec<String> {
    mask.to_string().split(' ').map(str::to_owned).collect()
}

fn list(name: &str, info: &ChangelogInfoResp, output: &Output) -> Result<Done> {
    let reader = |reader: &brindle_wire::mds::changelog::ChangelogReader| ReaderView {
        reader: reader_name(reader.id, &reader.name),
        cleared: reader.cleared,
        idle_seconds: reader.idle_secs,
        mask: reader.mask.map(words),
        missed: reader.cleared < info.dropped_to,
    };
    let readers: Vec<ReaderView> = info.readers.iter().map(reader).collect();
    if output.json() {
        let view = ChangelogView {
            mdt: name.to_owned(),
            current_index: info.current,
            mask: words(info.mask),
            records: info.records,
            bytes: info.bytes,
            bytes_max: info.bytes_max,
            dropped_to: info.dropped_to,
            readers,
        };
        print_json(&view)?;
    } else {
        println!("{}", list_text(name, info, &readers));
    }
    Ok(Done::Ok)
}

fn list_text(name: &str, info: &ChangelogInfoResp, readers: &[ReaderView]) -> String {
    if readers.is_empty() {
        return format!("{name} has no reader, so nothing is recorded");
    }
    let rows = readers.iter().map(|reader| {
        let types = reader.mask.as_ref().map_or_else(|| "usual".to_owned(), |mask| mask.join(","));
        let state = if reader.missed { "missed records: scan again" } else { "ok" };
        let (cleared, idle) = (reader.cleared.to_string(), format!("{} s", reader.idle_seconds));
        vec![reader.reader.clone(), cleared, idle, state.to_owned(), types]
    });
    let rows = table(&["READER", "CLEARED TO", "IDLE", "STATE", "TYPES"], rows.collect());
    let bytes = brindle_types::units::format_bytes;
    format!(
        "{rows}\n{} records, {} of {}; last index {}",
        info.records,
        bytes(info.bytes),
        bytes(info.bytes_max),
        info.current
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::mds::changelog::ChangelogReader;

    #[test]
    fn readers_are_listed_with_how_far_they_are() {
        let mut info = ChangelogInfoResp {
            current: 1_099_511_627_779,
            mask: ChangeMask::DEFAULT,
            records: 3,
            bytes: 300,
            bytes_max: 1 << 20,
            dropped_to: 7,
            readers: Vec::new(),
        };
        assert_eq!(list_text("a-MDT0000", &info, &[]), "a-MDT0000 has no reader, so nothing is recorded");
        let mask = Some("CREAT,UNLNK".parse().expect("a mask"));
        info.readers = vec![ChangelogReader { id: 1, name: "rbh".into(), mask, cleared: 5, idle_secs: 60 }];
        let readers = [ReaderView {
            reader: "cl1-rbh".into(),
            cleared: 5,
            idle_seconds: 60,
            mask: mask.map(words),
            missed: true,
        }];
        assert_eq!(
            list_text("a-MDT0000", &info, &readers),
            "READER   CLEARED TO  IDLE  STATE                       TYPES\n\
             cl1-rbh  5           60 s  missed records: scan again  CREAT,UNLNK\n\
             3 records, 300 B of 1.0 MiB; last index 1099511627779"
        );
    }
}
