//! The changelog of an MDT: `brindle changelog`, `lfs changelog` and `lctl changelog_register`.

mod reach;
pub mod show;
mod text;

use brindle_admin::changelog::{
    self, ChangelogView, ClearedView, DeregisteredView, ReaderOf, RegisteredView,
};
use brindle_admin::document::Document;
use brindle_types::changelog::reader_id;
use brindle_types::{ChangeMask, Result};
use brindle_wire::mds::changelog::ChangelogInfoResp;

pub use brindle_admin::changelog::MdtName;
pub use reach::{Reach, own_cred};
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
            let reader = reach.register(&args.name, args.mask)?;
            tell(&args.output, RegisteredView, &reach, &reader, |name| {
                format!(
                    "{} records changes for reader {reader}; clear what was read, or it drops the oldest",
                    name
                )
            })
        }
        Command::Deregister(args) => {
            let reach = args.at.reach()?;
            reach.deregister(args.reader)?;
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
            reach.clear(args.reader, args.end)?;
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

fn list(name: &str, info: &ChangelogInfoResp, output: &Output) -> Result<Done> {
    let view = changelog::view(name, info);
    match output.json() {
        true => print_json(&view)?,
        false => println!("{}", list_text(&view)),
    }
    Ok(Done::Ok)
}

fn list_text(view: &ChangelogView) -> String {
    if view.readers.is_empty() {
        return format!("{} has no reader, so nothing is recorded", view.mdt);
    }
    let rows = view.readers.iter().map(|reader| {
        let types = reader.mask.as_ref().map_or_else(|| "usual".to_owned(), |mask| mask.join(","));
        let state = if reader.missed { "missed records: scan again" } else { "ok" };
        let (cleared, idle) = (reader.cleared.to_string(), format!("{} s", reader.idle_seconds));
        vec![reader.reader.clone(), cleared, idle, state.to_owned(), types]
    });
    let rows = table(&["READER", "CLEARED TO", "IDLE", "STATE", "TYPES"], rows.collect());
    let bytes = brindle_types::units::format_bytes;
    format!(
        "{rows}\n{} records, {} of {}; last index {}",
        view.records,
        bytes(view.bytes),
        bytes(view.bytes_max),
        view.current_index
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
        let text = |info: &ChangelogInfoResp| list_text(&changelog::view("a-MDT0000", info));
        assert_eq!(text(&info), "a-MDT0000 has no reader, so nothing is recorded");
        let mask = Some("CREAT,UNLNK".parse().expect("a mask"));
        info.readers = vec![ChangelogReader { id: 1, name: "rbh".into(), mask, cleared: 5, idle_secs: 60 }];
        assert_eq!(
            text(&info),
            "READER   CLEARED TO  IDLE  STATE                       TYPES\n\
             cl1-rbh  5           60 s  missed records: scan again  CREAT,UNLNK\n\
             3 records, 300 B of 1.0 MiB; last index 1099511627779"
        );
    }
}
