//! `brindle target add`: an OST for a file system that runs, from an empty directory to new files on it, in one command.

use std::path::Path;

use brindle_config::{Expected, Superblock};
use brindle_types::{Code, Fault, Nid, Result, TargetId};
use brindle_wire::map::Map;

use super::ask::Asker;
use super::place::Place;
use crate::cli;
use crate::exit::Done;
use crate::format::{self, Plan, parse, runtime};
use crate::serve;

/// Arguments of `brindle target add`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target add --mgsnode mgs1 --dir /data/ost7 --listen 10.0.0.12\n\
                        It formats the directory if it is empty, serves it until SIGTERM, and can be given again. For a server that \
                        systemd starts, add the directory to 'dir' of its serve.toml afterwards.")]
pub struct Args {
    /// Address of the MGS of the file system, such as 10.0.0.1:9880@tcp; may be given several times
    #[arg(long, required = true, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',')]
    mgsnode: Vec<Nid>,
    /// Index of the OST; the lowest free one without it
    #[arg(long)]
    index: Option<u16>,
    #[command(flatten)]
    options: serve::Options,
    /// Print one line of JSON on standard output when ready
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Done> {
    let [dir] = &args.options.dir[..] else {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot add a target")
            .why(format!("{} directories are given, and one is needed", args.options.dir.len()))
            .next("add --dir DIR, once"));
    };
    prepare(&args, dir)?;
    serve::run(serve::Args { config: None, options: args.options, ready_json: args.ready_json })
}

/// Formats the directory, unless it is an OST of this file system already.
fn prepare(args: &Args, dir: &Path) -> Result<()> {
    let dir = std::path::PathBuf::from(cli::text(dir)?);
    let runtime = runtime()?;
    let map = runtime.block_on(async {
        let place = Place { mgs: args.mgsnode.clone(), fs: None, dev_dir: None };
        Asker::new().map(&place).await
    })?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let text = cli::text(&dir)?;
    if dir.exists() && Superblock::exists(&*seams.disk, &text)? {
        let expected = Expected { fs: Some(map.fs.clone()), target: args.index.map(TargetId::ost) };
        let found = Superblock::load(&*seams.disk, &text, &expected)?.superblock;
        eprintln!("{text} is {} already", found.name());
        return Ok(());
    }
    format::refuse_occupied(&dir).map_err(|fault| {
        fault.next("give an empty directory; to destroy what it holds: brindle format --ost --reformat --yes")
    })?;
    let target = TargetId::ost(index(&map, args.index)?);
    let plan = Plan { fs: map.fs.clone(), target, mgs: args.mgsnode.clone(), dir };
    runtime.block_on(format::carry_out(&seams, &plan, &[]))?;
    eprintln!("formatted {text} as {}", map.fs.target(target));
    if let Some(note) = format::shared_with(&*seams.disk, target, &plan.dir) {
        eprintln!("{note}");
    }
    Ok(())
}

/// The index that was asked for if it is free, else the lowest free one.
fn index(map: &Map, asked: Option<u16>) -> Result<u16> {
    let free = |index: &u16| map.target(TargetId::ost(*index)).is_none();
    let lowest = (0..=u16::MAX).find(free);
    match (asked, lowest) {
        (Some(index), _) if free(&index) => Ok(index),
        (None, Some(index)) => Ok(index),
        (asked, lowest) => {
            let fault = Fault::new(Code::IndexInUse)
                .what("cannot add")
                .subject(
                    asked.map_or_else(|| "an OST".to_owned(), |index| map.fs.target(TargetId::ost(index))),
                )
                .data("nothing was changed");
            Err(match lowest {
                Some(index) => fault.why("there is one").next(format!("the lowest free index is {index}")),
                None => fault.why("every index is taken"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::map::{TargetEntry, TargetState};

    #[test]
    fn the_lowest_free_index_is_taken() {
        let entry = |index| TargetEntry {
            id: TargetId::ost(index),
            uuid: [0; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: brindle_wire::map::ReplicaSet::of(String::new()),
            format_level_max: brindle_wire::form::FormatLevel::FIRST,
        };
        let targets = [0, 1, 3].map(entry).to_vec();
        let map = Map { targets, ..Map::new("scratch".parse().expect("good"), 1) };
        assert_eq!(index(&map, None), Ok(2));
        assert_eq!(index(&map, Some(7)), Ok(7));
        let fault = index(&map, Some(3)).expect_err("taken");
        assert_eq!((fault.code, fault.next.as_ref()), (Code::IndexInUse, "the lowest free index is 2"));
    }
}
