//! `lctl --device MDT changelog_register` and `changelog_deregister`.

use brindle_types::changelog::{reader_id, reader_name};
use brindle_types::{ChangeMask, Code, Fault, Result};

use super::MgsArgs;
use crate::changelog::{MdtName, Reach};
use crate::format::parse;

/// Arguments of `lctl changelog_register`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: lctl --device scratch-MDT0000 changelog_register -u policy -m CREAT,UNLNK,RENME,CLOSE"
)]
pub struct RegisterArgs {
    /// Print only the name of the reader
    #[arg(short = 'n', long = "nameonly")]
    name_only: bool,
    /// A name for people, behind the number
    #[arg(short = 'u', long = "user", value_name = "NAME", default_value = "")]
    user: String,
    /// The types that it wants: CREAT,UNLNK; or a change of the usual ones: -CLOSE
    #[arg(short = 'm', long = "mask", value_name = "TYPES", value_parser = parse::<ChangeMask>, allow_hyphen_values = true)]
    mask: Option<ChangeMask>,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lctl changelog_deregister`.
#[derive(clap::Args)]
pub struct DeregisterArgs {
    /// The reader: cl1
    #[arg(value_name = "clN", value_parser = reader_id)]
    reader: u32,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Registers a reader.
pub fn register(device: Option<&MdtName>, args: &RegisterArgs) -> Result<()> {
    let reach = Reach::new(named(device)?, &args.mgs)?;
    let reader = reach.register(&args.user, args.mask)?;
    println!("{}", registered(&reach.name, &reader, args.name_only));
    Ok(())
}

fn registered(mdt: &str, reader: &str, name_only: bool) -> String {
    if name_only { reader.to_owned() } else { format!("{mdt}: Registered changelog userid '{reader}'") }
}

/// Removes a reader.
pub fn deregister(device: Option<&MdtName>, args: &DeregisterArgs) -> Result<()> {
    let reach = Reach::new(named(device)?, &args.mgs)?;
    reach.deregister(args.reader)?;
    println!("{}: Deregistered changelog user '{}'", reach.name, reader_name(args.reader, ""));
    Ok(())
}

fn named(device: Option<&MdtName>) -> Result<&MdtName> {
    device.ok_or_else(|| {
        Fault::new(Code::BadArgument)
            .what("the changelog of which MDT?")
            .data("nothing was changed")
            .next("name it in front of the command: lctl --device scratch-MDT0000 changelog_register")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_told_as_in_lustre() {
        assert_eq!(
            registered("testfs-MDT0000", "cl1", false),
            "testfs-MDT0000: Registered changelog userid 'cl1'"
        );
        assert_eq!(registered("testfs-MDT0000", "cl1-rbh", true), "cl1-rbh");
        assert_eq!(named(None).expect_err("refused").code, Code::BadArgument);
    }
}
