//! `lfs changelog` and `lfs changelog_clear`.

use brindle_types::Result;
use brindle_types::changelog::reader_id;

use crate::changelog::{self, MdtName, Reach, Wanted, WhatArgs};
use crate::completion::live;
use crate::exit::Done;
use crate::format::parse;
use crate::lctl::MgsArgs;

/// Arguments of `lfs changelog`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: WhatArgs,
    /// The MDT: scratch-MDT0000
    #[arg(value_parser = parse::<MdtName>, add = live::mdts())]
    mdt: MdtName,
    /// First record
    #[arg(default_value_t = 0)]
    start: u64,
    /// Last record; 0 for no end
    #[arg(default_value_t = 0)]
    end: u64,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lfs changelog_clear`.
#[derive(clap::Args)]
pub struct ClearArgs {
    /// The MDT: scratch-MDT0000
    #[arg(value_parser = parse::<MdtName>, add = live::mdts())]
    mdt: MdtName,
    /// The reader: cl1
    #[arg(value_name = "clN", value_parser = reader_id)]
    reader: u32,
    /// The last record that it does not need; 0 for all
    end: u64,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Prints records.
pub fn run(args: &Args) -> Result<Done> {
    let WhatArgs { follow, reader, mask } = args.what;
    let wanted = Wanted { reader, mask, start: args.start, end: args.end, follow, json: false };
    changelog::show(&Reach::new(&args.mdt, &args.mgs)?, &wanted)?;
    Ok(Done::Ok)
}

/// Clears records; says nothing, as Lustre does.
pub fn clear(args: &ClearArgs) -> Result<Done> {
    Reach::new(&args.mdt, &args.mgs)?.clear(args.reader, args.end)?;
    Ok(Done::Ok)
}
