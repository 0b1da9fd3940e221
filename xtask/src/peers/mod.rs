//! `cargo xtask peers` and `bench/peers`: Brindle beside the file systems that a user could mount instead on this machine,
//! and beside what the machine can do.
//!
//! Each system is set up from Debian packages in a network namespace and below a directory of its own, on ext4 images on
//! loop devices of the same kind; all are measured by `brindle bench`, in turn within each repetition, while the others
//! are idle. Invariant: at the end, however it comes, no process, mount, loop device, namespace or image is left.
//!
//! | module | does |
//! |---|---|
//! | [`rows`], [`scale`] | what is run, how much of it, what has to be reached |
//! | [`system`], [`place`] | what every system can do, and where it lives |
//! | [`brindle`], [`ceph`], [`gluster`], [`moosefs`], [`local`] | the systems |
//! | [`packages`] | Debian packages, without their services |
//! | [`measure`], [`verdict`], [`report`] | figures, ratios, documents |

mod brindle;
mod ceph;
mod copies;
mod gluster;
mod local;
mod measure;
mod moosefs;
mod options;
mod packages;
mod place;
mod report;
mod rows;
mod scale;
mod system;
mod verdict;

use std::fs::File;
use std::path::PathBuf;

use brindle_bench::cold::Cold;
use brindle_bench::memory::Warm;
use brindle_types::units::GIB;

use crate::Session;
use measure::{Figures, Order, Up};
use options::{Action, Options};
use place::SystemPlace;
use scale::Scale;
use system::System;

/// Lock held by the process that starts or ends systems.
const LOCK: &str = "/var/tmp/brindle-peers.lock";

/// Memory that is kept warm for the whole run: what one system at a time uses for itself and in caches, which all free again.
const WARM_BYTES: u64 = 10 * GIB;

/// `cargo xtask peers`.
pub fn run(session: &Session) -> Result<(), String> {
    let options = Options::parse(&session.args)?;
    if options.action == Action::Help {
        println!("{}", options::USAGE);
        return Ok(());
    }
    let program = options.binary.clone().unwrap_or_else(|| session.dist());
    // SAFETY: geteuid only reads the process's credentials.
    if unsafe { libc::geteuid() } != 0 {
        return Err("mounts, loop devices and namespaces need root\n  next: run it as root".to_owned());
    }
    let logs = session.logs().join("peers");
    if let Action::Remount(name) = &options.action {
        let system = one(name, &program)?;
        return system::remount(system.as_ref(), &mut SystemPlace::of(system.name(), &logs.join("remount")));
    }
    let _lock = lock()?;
    match &options.action {
        Action::Down(names) => down(names, &program, &logs),
        Action::Up(name) => up(session, &options, one(name, &program)?, &logs),
        _ => whole_run(session, &options, &program, &logs),
    }
}

/// All systems, in the order of the table.
fn all(program: &std::path::Path) -> Vec<Box<dyn System>> {
    vec![
        Box::new(brindle::Brindle { program: program.display().to_string() }),
        Box::new(copies::Copies { program: program.display().to_string(), copies: 1 }),
        Box::new(copies::Copies { program: program.display().to_string(), copies: 2 }),
        Box::new(copies::Copies { program: program.display().to_string(), copies: 3 }),
        Box::new(gluster::Gluster { copies: 1 }),
        Box::new(gluster::Gluster { copies: 2 }),
        Box::new(gluster::Gluster { copies: 3 }),
        Box::new(moosefs::MooseFs { synced: true }),
        Box::new(moosefs::MooseFs { synced: false }),
        Box::new(ceph::Ceph { copies: 1 }),
        Box::new(ceph::Ceph { copies: 2 }),
        Box::new(local::Passthrough { by_path: false }),
        Box::new(local::Passthrough { by_path: true }),
        Box::new(local::Loop),
        Box::new(local::Root),
    ]
}

fn one(name: &str, program: &std::path::Path) -> Result<Box<dyn System>, String> {
    let names: Vec<&str> = all(program).iter().map(|s| s.name()).collect();
    let found = all(program).into_iter().find(|system| system.name() == name);
    found.ok_or_else(|| format!("no system is called '{name}'; there are {}", names.join(", ")))
}

fn lock() -> Result<File, String> {
    let opened = File::options().create(true).truncate(false).write(true).open(LOCK);
    let file = opened.map_err(|e| format!("cannot open {LOCK}: {e}"))?;
    file.try_lock()
        .map_err(|e| format!("{LOCK}: {e}\n  next: wait until the other run of this command has ended"))?;
    Ok(file)
}

/// Refuses to start where something of before is still there.
fn nothing_there(systems: &[Box<dyn System>], logs: &std::path::Path) -> Result<(), String> {
    let there: Vec<&str> =
        systems.iter().map(|s| s.name()).filter(|name| SystemPlace::of(name, logs).exists()).collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(format!("still there from before: {}\n  next: cargo xtask peers --down", there.join(", ")))
}

fn start(system: &dyn System, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
    place.make()?;
    system.up(place, scale)?;
    system::mount_all(system, place)?;
    system.mounted(place)
}

/// Ends a system; an error names what had to be ended by force.
fn end(system: &dyn System, place: &mut SystemPlace) -> Result<(), String> {
    for number in 0..system.clients() {
        // A mount that cannot be unmounted is removed below.
        let _ = place.unmount(number);
    }
    let ended = system.down(place);
    let forced = place.clear();
    match (ended, forced.is_empty()) {
        (Ok(()), true) => Ok(()),
        (Ok(()), false) => Err(format!("{} did not end by itself: {}", system.name(), forced.join(", "))),
        (Err(why), _) => Err(format!("{}: {why}\nended by force: {}", system.name(), forced.join(", "))),
    }
}

fn up(
    session: &Session,
    options: &Options,
    system: Box<dyn System>,
    logs: &std::path::Path,
) -> Result<(), String> {
    let logs = measure::fresh_logs(&logs.join("up"))?;
    let systems = [system];
    nothing_there(&systems, &logs)?;
    let system = systems[0].as_ref();
    system.prepare()?;
    if system.role() == system::Role::Ours && options.binary.is_none() {
        crate::dist(session)?;
    }
    let mut place = SystemPlace::of(system.name(), &logs);
    if let Err(why) = start(system, &mut place, &options.scale) {
        let ended = end(system, &mut place).err().unwrap_or_default();
        return Err(format!("{} did not start: {why}\n{ended}", system.name()));
    }
    println!("{} is up: {}", system.version(), system.settings());
    for dir in system::measured(system, &place) {
        println!("  {}", dir.display());
    }
    println!("next: cargo xtask peers --down {}", system.name());
    Ok(())
}

fn down(names: &[String], program: &std::path::Path, logs: &std::path::Path) -> Result<(), String> {
    let logs = measure::fresh_logs(&logs.join("down"))?;
    let systems = match names {
        [] => all(program),
        names => names.iter().map(|name| one(name, program)).collect::<Result<_, _>>()?,
    };
    let mut said = Vec::new();
    for system in systems {
        let mut place = SystemPlace::of(system.name(), &logs);
        if place.exists() {
            match end(system.as_ref(), &mut place) {
                Ok(()) => println!("{} is down; nothing of it stays", system.name()),
                Err(why) => said.push(why),
            }
        }
    }
    if said.is_empty() { Ok(()) } else { Err(said.join("\n")) }
}

/// Systems that are up; they end with this.
struct Running {
    systems: Vec<Up>,
}

impl Running {
    fn end(&mut self) -> Vec<String> {
        // The last first: hosts of a later one have seen the disks of an earlier one, and hold them.
        let ended = self.systems.drain(..).rev().map(|(system, mut place)| end(system.as_ref(), &mut place));
        ended.filter_map(Result::err).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for why in self.end() {
            eprintln!("{why}");
        }
    }
}

fn whole_run(
    session: &Session,
    options: &Options,
    program: &std::path::Path,
    logs: &std::path::Path,
) -> Result<(), String> {
    let logs = measure::fresh_logs(logs)?;
    nothing_there(&all(program), &logs)?;
    let mut wanted: Vec<Box<dyn System>> =
        options.systems.iter().map(|name| one(name, program)).collect::<Result<_, _>>()?;
    wanted.retain(|system| options.groups.iter().any(|group| system.takes(group.inodes(&options.scale))));
    wanted.sort_by_key(|system| !system.starts_first());
    need_room(&options.scale)?;
    crate::setup::need("peers")?;
    wanted.iter().try_for_each(|system| system.prepare())?;
    if options.binary.is_none() {
        crate::dist(session)?;
    }
    Cold::default().drop_caches();
    let warm = Warm::bytes(WARM_BYTES);
    println!("{}", warm.note().unwrap_or_else(|| "no memory could be used before".to_owned()));
    let mut figures = Figures::default();
    let mut running = Running { systems: Vec::new() };
    for system in wanted {
        println!("starting {}: {}", system.name(), system.version());
        let mut place = SystemPlace::of(system.name(), &logs);
        let started = start(system.as_ref(), &mut place, &options.scale);
        let (name, ours) = (system.name(), system.role() == system::Role::Ours);
        running.systems.push((system, place));
        if let Err(why) = started {
            if ours || crate::run::interrupted() {
                return Err(format!("{name} did not start: {why}"));
            }
            println!("{name} did not start; the run goes on without it");
            figures.failures.push(measure::Failure { system: name, when: "start".to_owned(), why });
            if let Some((system, mut place)) = running.systems.pop() {
                figures.failures.extend(end(system.as_ref(), &mut place).err().map(|why| measure::Failure {
                    system: name,
                    when: "end after a failed start".to_owned(),
                    why,
                }));
            }
        }
    }
    let described: Vec<report::Described> =
        running.systems.iter().map(|(s, _)| report::Described::of(s.as_ref())).collect();
    let source = session.root.join("crates");
    let groups = options.groups.clone();
    let order = Order {
        program,
        source: &source,
        scale: &options.scale,
        repeat: options.repeat,
        groups,
        logs: &logs,
    };
    let about = report::About::of(session, &order);
    measure::run(&order, &mut running.systems, &mut figures);
    let forced = running.end();
    if crate::run::interrupted() {
        return Err(format!("interrupted; nothing was written\n{}", forced.join("\n")));
    }
    let written = report::write(session, &order, &described, &figures, about)?;
    println!("{written}");
    let mut said: Vec<String> =
        figures.failures.iter().map(|f| format!("{}, {}: {}", f.system, f.when, f.why)).collect();
    said.extend(forced);
    if said.is_empty() { Ok(()) } else { Err(said.join("\n")) }
}

/// Refuses to fill the disk. Images are sparse and trimmed after use; CephFS keeps what it once had.
fn need_room(scale: &Scale) -> Result<(), String> {
    let needed = 2 * (2 * scale.data_bytes + scale.metadata_bytes);
    let dir = SystemPlace::base().parent().map(PathBuf::from).unwrap_or_default();
    let (free, _) = brindle_bench::site::free(&dir).map_err(|fault| fault.to_string())?;
    if free >= needed {
        return Ok(());
    }
    let shown = brindle_types::units::format_bytes;
    Err(format!(
        "{} has {} free; {} are needed for images\n  next: make room, or take less: --scale quick",
        dir.display(),
        shown(free),
        shown(needed)
    ))
}
