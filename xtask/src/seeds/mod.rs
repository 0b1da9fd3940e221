//! `make seeds`: the measurements of the seed documents, repeated on hosts of this machine, as a share of the limit of the links.
//!
//! Each *place* but two is a cluster of hosts (network namespaces) whose links have a thousandth, a hundredth or a tenth of the throughput of the
//! document's links. First plain TCP in the same place measures the limit of the links (`iperf3`, both ways); then `brindle bench` runs the
//! document's load on mounts of the client hosts. A row is the best of its sweep, as in the documents, and is shown beside the document's
//! own share. Of the other two, one has devices and no network, and one has both: there plain files on the throttled devices are the limit.
//!
//! | module | does |
//! |---|---|
//! | [`rows`] | places and rows, with what the documents say |
//! | [`place`] | a cluster of hosts, its limit, loads on it |
//! | [`commands`] | commands of the program that is measured |
//! | [`survey`] | a file system on throttled devices of this host |
//! | [`checkpoint`], [`tiers`], [`writers`] | a checkpoint in a fast tier, archived and released by a policy |
//! | [`throttle`] | loop devices that let pass so many bytes a second |
//! | [`buffers`] | burst buffers on the hosts of a place, and the time to make and end some |
//! | [`report`] | `bench/seeds/DATE-COMMIT.md`, `.json` and `.svg` |

mod buffers;
mod checkpoint;
mod commands;
mod place;
mod report;
mod rows;
mod survey;
mod throttle;
mod tiers;
mod writers;

use std::path::{Path, PathBuf};

use crate::run::interrupted;
use crate::{Session, setup};
use place::Running;
use report::Figure;
use rows::{HostCluster, Kind, PLACES, Row};

const USAGE: &str =
    "usage: cargo xtask seeds [--quick] [--release] [--binary=FILE] [--rows=L,M,N] [PLACE...]";

/// `cargo xtask seeds [--quick] [--release] [--binary=FILE] [--rows=L,M,N] [PLACE...]`; `--release` measures the binary of `make build`, which
/// is slower and sooner there, `--binary` another one; `--rows` names rows by the letters of the documents' table.
pub fn run(session: &Session) -> Result<(), String> {
    let (mut flags, names): (Vec<&String>, Vec<&String>) =
        session.args.iter().partition(|word| word.starts_with('-'));
    let letters: Vec<&str> = flags
        .iter()
        .filter_map(|flag| flag.strip_prefix("--rows="))
        .flat_map(|list| list.split(','))
        .collect();
    let binary = flags.iter().find_map(|flag| flag.strip_prefix("--binary=")).map(PathBuf::from);
    flags.retain(|flag| !flag.starts_with("--rows=") && !flag.starts_with("--binary="));
    let all = || PLACES.iter().flat_map(|place| place.rows);
    if let Some(unknown) = letters.iter().find(|letter| !all().any(|row| row.is_asked(&[letter]))) {
        return Err(format!("no row has the letter '{unknown}'\n  next: {USAGE}"));
    }
    if let Some(unknown) = flags.iter().find(|flag| !["--quick", "--release"].contains(&flag.as_str())) {
        return Err(format!("{unknown} is no option of it\n  next: {USAGE}"));
    }
    let known: Vec<&str> = PLACES.iter().map(|place| place.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no place is called '{unknown}'\n  next: name some of {}", known.join(", ")));
    }
    let has = |flag: &str| flags.iter().any(|given| *given == flag);
    let seconds = if has("--quick") { rows::SECONDS_QUICK } else { rows::SECONDS };
    setup::need("seeds")?;
    let program = if let Some(binary) = binary {
        std::path::absolute(&binary).map_err(|e| format!("{}: {e}", binary.display()))?
    } else if has("--release") {
        crate::build(session)?;
        session.brindle()
    } else {
        crate::dist(session)?;
        session.dist()
    };
    let busy = report::busy_share();
    let mut figures = Vec::new();
    let is_named = |place: &HostCluster| names.is_empty() || names.iter().any(|name| *name == place.name);
    for place in PLACES.iter().filter(|place| is_named(place)) {
        let rows: Vec<&'static Row> = place.rows.iter().filter(|row| row.is_asked(&letters)).collect();
        if rows.is_empty() {
            continue;
        }
        println!("\n{}: {}", place.name, place.about);
        let measured = measure(session, &program, place, &rows, seconds)?;
        measured.iter().for_each(|figure| println!("  {}", figure.line()));
        figures.extend(measured);
    }
    report::write(session, &figures, seconds, &program, busy)
}

/// Measures rows of a place. The place is gone on return.
fn measure(
    session: &Session,
    program: &Path,
    place: &'static HostCluster,
    rows: &[&'static Row],
    seconds: u32,
) -> Result<Vec<Figure>, String> {
    match place.kind {
        Kind::FileSystem | Kind::BurstBuffers => {}
        Kind::Devices => return survey::measure(session, program, place, rows, seconds),
        Kind::Tiers => return checkpoint::measure(session, program, place, rows, seconds),
    }
    let running = Running::up(session, place, program)?;
    let limit = running.limit(seconds)?;
    println!("  the links allow {} MB/s to the servers, {} MB/s from them (plain TCP)", limit.to, limit.from);
    let mut figures = Vec::new();
    for row in rows {
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        let mut best: Vec<Figure> = Vec::new();
        for load in row.loads {
            println!("  {}: {}", row.name, load.about());
            for figure in running.run(row, load, limit, seconds)? {
                keep_best(&mut best, figure);
            }
        }
        figures.extend(best);
    }
    Ok(figures)
}

/// Keeps the best figure of each phase.
fn keep_best(best: &mut Vec<Figure>, figure: Figure) {
    match best.iter_mut().find(|known| known.phase == figure.phase) {
        Some(known) if known.value < figure.value => *known = figure,
        Some(_) => {}
        None => best.push(figure),
    }
}
