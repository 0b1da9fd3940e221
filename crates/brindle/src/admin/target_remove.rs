//! `brindle target remove`: an OST that was drained and is empty is taken out of the file system.
//!
//! The MGS notes that the OST is drained, the MDTs know it (from then on nothing new comes there) and count the files on it;
//! only when there are none is it taken out of the map.

use std::path::PathBuf;

use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::TargetChange;

use super::ask::{Asker, Use};
use super::place::{Place, PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::pool::{OstList, indices};

/// Arguments of `brindle target remove`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target drain 3 /mnt/b && brindle target remove 3 /mnt/b\n\
                        An OST with files on it is not removed. One that does not answer is, if no file lies on it.")]
pub struct Args {
    /// The OST: its index, or its name
    #[arg(value_parser = parse::<OstList>, add = live::osts())]
    ost: OstList,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&PlaceArgs { path: Some(args.mount.clone()), mgs: Vec::new(), dir: None })?;
    let (name, host) = runtime()?.block_on(async {
        let asker = Asker::new();
        let map = asker.map(&place).await?;
        let ost = one_ost(&args.ost, &map)?;
        remove(&asker, &place, &map, ost, &args.mount.display().to_string()).await
    })?;
    println!(
        "{name} is removed; end its server on {host}. Its directory is used again only when it was formatted."
    );
    Ok(Done::Ok)
}

/// The one OST of a list.
pub fn one_ost(list: &OstList, map: &Map) -> Result<u16> {
    match indices(std::slice::from_ref(list), &map.fs)?[..] {
        [ost] => Ok(ost),
        ref several => Err(Fault::new(Code::BadArgument)
            .what("cannot take")
            .subject(format!("{} OSTs", several.len()))
            .why("it is done with one OST at a time")
            .data("nothing was changed")
            .next("give them one after the other")),
    }
}

/// Takes an OST out, if it is empty; its name, and the host of its server. `mount`: the mount point, for the advice.
pub async fn remove(
    asker: &Asker,
    place: &Place,
    map: &Map,
    ost: u16,
    mount: &str,
) -> Result<(String, String)> {
    let id = TargetId::ost(ost);
    let name = map.fs.target(id);
    let empty_it = format!("empty it first: brindle target drain {ost} {mount}");
    let refuse = || {
        Fault::new(Code::TargetInUse).what("cannot remove").subject(name.clone()).data("nothing was changed")
    };
    if let Some(behind) = asker.until_known(map).await.first() {
        return Err(refuse()
            .why(format!("{behind} does not answer, or does not know of all changes yet"))
            .next("look at brindle status, and try again"));
    }
    let used = asker.ost_use(map, ost).await?;
    if used.files > 0 {
        return Err(refuse().why(describe(used)).next(empty_it));
    }
    let host = map.target(id).map_or_else(String::new, |t| t.host().to_owned());
    let changed = asker.change_target(place, ost, TargetChange::Remove).await.map_err(|fault| {
        // The MGS does not know where the file system is mounted.
        if fault.code == Code::TargetInUse { fault.next(empty_it) } else { fault }
    })?;
    for behind in asker.until_known(&changed.map).await {
        eprintln!("warning: {behind} does not know of the change yet; it takes it in when it finds the MGS");
    }
    Ok((name, host))
}

/// Use of an OST, in words.
pub fn describe(used: Use) -> String {
    let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{n} files") };
    match used {
        Use { files: all, nameless: 0 } => format!("parts of {} lie on it", files(all)),
        Use { files: all, nameless } if all == nameless => {
            format!(
                "parts of {} lie on it that have no name any more and that programs have open",
                files(all)
            )
        }
        Use { files: all, nameless } => {
            format!(
                "parts of {} lie on it, {nameless} of them without a name and open in programs",
                files(all)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_said_in_words() {
        assert_eq!(describe(Use { files: 1, nameless: 0 }), "parts of 1 file lie on it");
        assert_eq!(
            describe(Use { files: 3, nameless: 3 }),
            "parts of 3 files lie on it that have no name any more and that programs have open"
        );
        assert_eq!(
            describe(Use { files: 3, nameless: 2 }),
            "parts of 3 files lie on it, 2 of them without a name and open in programs"
        );
    }
}
