//! Throttled devices: each OST of a file system on this host lies on a loop device that lets pass so many bytes a second, as
//! obdfilter-survey had it without a network.

use std::path::{Path, PathBuf};

use brindle_bench::run::Unit;

use super::commands::Commands;
use super::report::Figure;
use super::rows::{HostCluster, Row};
use super::throttle::{self, Rate, Throttles};
use crate::Session;
use crate::run::interrupted;

const MIB: u64 = 1 << 20;
/// Devices, with an OST each.
const OSTS: u32 = 16;
/// What each device lets pass: a hundredth of the document's.
const RATE: Rate = Rate { write: 10_800_000, read: 27_000_000 };
/// Size of a device: more than a phase writes on it, twice.
const OST_SIZE: &str = "512MiB";
/// Variable of servers that says what goes through the page cache of their host.
const READ_CACHE: &str = "BRINDLE_READ_CACHE";

/// A file system on devices.
struct Devices<'a> {
    commands: Commands<'a>,
    dir: PathBuf,
    /// Lifted before the devices go.
    throttles: Option<Throttles>,
}

/// The value of the switch that a row is for, as the last word of its name says: `(auto)`, `off`, `on`.
fn read_cache(row: &Row) -> &'static str {
    let word = row.name.rsplit(' ').next().unwrap_or_default();
    word.trim_matches(['(', ')'])
}

/// Measures rows of the place. Nothing of it is left on return.
pub fn measure(
    session: &Session,
    program: &Path,
    place: &'static HostCluster,
    rows: &[&'static Row],
    seconds: u32,
) -> Result<Vec<Figure>, String> {
    let help = Commands::new(session, place.name, program).brindle(&["serve", "--help"], "serve-help")?;
    let has_switch = help.contains("--read-cache");
    let mut figures = Vec::new();
    for row in rows {
        let value = read_cache(row);
        if value != "auto" && !has_switch {
            println!("  left out: {}: the servers of this program have no switch of it", row.name);
            continue;
        }
        let running = Devices::up(session, program, place, value)?;
        figures.extend(running.run(place, row, seconds)?);
    }
    Ok(figures)
}

impl Devices<'_> {
    fn up<'a>(
        session: &'a Session,
        program: &Path,
        place: &HostCluster,
        read_cache: &str,
    ) -> Result<Devices<'a>, String> {
        let throttles = Some(Throttles::new()?);
        let commands = Commands::new(session, place.name, program).with_env(READ_CACHE, read_cache);
        let running = Devices { dir: commands.place_dir(place.name), commands, throttles };
        running.commands.end_former(&running.dir)?;
        running.commands.dev(
            &running.dir,
            &["up"],
            &[format!("--osts={OSTS}"), format!("--ost-size={OST_SIZE}")],
        )?;
        Ok(running)
    }

    fn run(
        mut self,
        place: &'static HostCluster,
        row: &'static Row,
        seconds: u32,
    ) -> Result<Vec<Figure>, String> {
        let devices = throttle::devices_below(&self.dir)?;
        if devices.len() != OSTS as usize {
            return Err(format!("{} devices are there, not {OSTS}", devices.len()));
        }
        if let Some(throttles) = &mut self.throttles {
            devices.iter().try_for_each(|device| throttles.set(device, RATE))?;
        }
        let limit = throttle::limit(&devices, RATE, seconds)?;
        println!(
            "  the devices allow {} MB/s of writes, {} MB/s of reads (plain files)",
            limit.to, limit.from
        );
        let mut best: Vec<Figure> = Vec::new();
        for load in row.loads {
            if interrupted() {
                return Err("interrupted".to_owned());
            }
            println!("  {}: {}", row.name, load.about());
            let bytes = limit.to * 1e6 * f64::from(seconds) / f64::from(load.ranks);
            let size = format!("{}MiB", (bytes / MIB as f64).ceil().max(1.0));
            let dir = self.dir.join("mnt").display().to_string();
            let words = format!(
                "ior --case easy --direct --size {size} --ranks {} --no-limit --repeat 1 -o json --dir",
                load.ranks
            );
            let words: Vec<String> = words.split(' ').map(str::to_owned).chain([dir]).collect();
            let run = self.commands.bench(&words)?;
            for figure in run.figures.iter().filter(|figure| figure.unit == Unit::MibPerSecond) {
                let is_read = figure.phase == "read";
                super::keep_best(
                    &mut best,
                    Figure {
                        place: place.name,
                        row: row.name,
                        load: load.about(),
                        phase: figure.phase.clone(),
                        unit: "MB/s",
                        value: figure.summary.median * MIB as f64 / 1e6,
                        limit: Some(if is_read { limit.from } else { limit.to }),
                        document: row.document[usize::from(is_read)],
                    },
                );
            }
        }
        Ok(best)
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        drop(self.throttles.take());
        if let Err(why) = self.commands.end(&self.dir, &["down"], &["--purge"]) {
            eprintln!("the devices of {} could not be ended: {why}", self.dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_value_of_the_switch() {
        let place = crate::seeds::rows::PLACES.iter().find(|place| place.name == "survey").unwrap();
        let values: Vec<&str> = place.rows.iter().map(read_cache).collect();
        assert_eq!(values, ["auto", "off", "on"]);
    }
}
