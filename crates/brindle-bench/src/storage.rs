//! The device level, as obdfilter-survey and BeeGFS' StorageBench: the object store of an OST in this process, without
//! network and without client, by a number of threads on a number of objects; beside plain files in the same directory.
//!
//! Every write carries its checksum and is compared with it, and every block is stored with a checksum, as on an OST. The
//! writes of a phase end with a sync of every object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use brindle_objects::{ObjectStore, ReadCache, Replies, StoreConfig, WriteOp};
use brindle_stdx::cast::to_usize;
use brindle_stdx::{crc, real};
use brindle_types::{Code, Fault, Ino, ObjectId, Pair, Result};
use brindle_wire::oss::Ticket;
use bytes::Bytes;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::driver::{Progress, RunClock};
use crate::memory::Warm;
use crate::pattern::Pattern;
use crate::plan::Setting;
use crate::rank::{Job, Phase, Spec};
use crate::run::{Figure, Run, Sample, Unit, X};
use crate::site::{self, Site};
use crate::stop;
use crate::team::{Launcher, Team};
use crate::workload::ior;
use crate::{cpu, files};

/// Id of the file system that the store is made for; any will do.
const FS_ID: u64 = 0xbe9c;

/// Options of `brindle bench storage`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of objects.
    pub objects: Vec<u32>,
    /// Numbers of threads; with each number of objects, as far as it is not smaller.
    pub threads: Vec<u32>,
    /// Bytes of all objects together.
    pub bytes: u64,
    /// Bytes of a call.
    pub record_bytes: u64,
}

/// A line of the survey.
#[derive(Clone, Copy, Debug)]
struct Case {
    objects: u32,
    threads: u32,
    /// Generation of the objects. A destroyed object is never made again, so each repetition has its own.
    generation: u64,
    /// Calls of each thread.
    records: u64,
    record_bytes: u64,
    seed: u64,
    verify: bool,
}

impl Case {
    fn bytes(&self) -> u64 {
        self.records * self.record_bytes * u64::from(self.threads)
    }

    fn object(&self, number: u32) -> ObjectId {
        ObjectId {
            ino: Ino(1 + u64::from(number)),
            generation: Pair { term: 1, counter: self.generation },
            stripe: 0,
        }
    }

    fn all(&self) -> Vec<ObjectId> {
        (0..self.objects).map(|number| self.object(number)).collect()
    }

    /// The object of a thread, and where its piece of it begins: threads of one object have pieces one after the other.
    fn piece(&self, thread: u32) -> (u32, u64) {
        let (object, piece) = (thread % self.objects, thread / self.objects);
        (object, u64::from(piece) * self.records * self.record_bytes)
    }
}

/// Runs the survey in the first directory of the setting, on `workers` threads of the runtime.
///
/// # Errors
/// The first fault of the store; what was made has been removed.
pub fn run(
    options: &Options,
    setting: &Setting,
    workers: usize,
    parameters: BTreeMap<String, Value>,
    progress: Progress<'_>,
) -> Result<Run> {
    let dir = setting.paths().into_iter().next().ok_or_else(|| Fault::new(Code::Bug).why("no directory"))?;
    // The objects, and the plain files beside them.
    site::need(&dir, options.bytes * 2, 1024)?;
    setting.cold.drop_caches();
    let warm = Warm::for_files(options.bytes, 0);
    let clock = RunClock::start();
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = built.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot start", "threads", &e))?;
    let place = Site::new(&[dir])?;
    let mut figures = Vec::new();
    let sizes = options.objects.iter().flat_map(|o| options.threads.iter().map(move |t| (*o, *t)));
    for (number, (objects, threads)) in sizes.filter(|(o, t)| t >= o).enumerate() {
        let records = (options.bytes / u64::from(threads) / options.record_bytes).max(1);
        let (record_bytes, seed, verify) = (options.record_bytes, setting.seed, setting.verify);
        let case = Case { objects, threads, generation: 0, records, record_bytes, seed, verify };
        progress(&format!("{objects} objects, {threads} threads"));
        figures.extend(survey(&runtime, &place, number, case, setting)?);
    }
    place.remove()?;
    runtime.shutdown_background();
    let mut notes = notes(setting);
    notes.extend(warm.note());
    let mut run = clock.run("storage", notes, figures);
    run.directories = setting.dirs.iter().take(1).cloned().collect();
    run.parameters = parameters;
    Ok(run)
}

fn notes(setting: &Setting) -> Vec<String> {
    vec![
        "The object store of an OST in this process: no network, no client, no ticket of a metadata server.".to_owned(),
        "Limit 'plain files': as many threads with a plain file each, in the same directory, in turn with the objects."
            .to_owned(),
        "Write phases end with a sync of every object; every block has a checksum that is verified when it is read."
            .to_owned(),
        "Processor time: that of the store, with making and comparing the bytes.".to_owned(),
        setting.cold.note(),
    ]
}

const PHASES: [(Phase, &str); 3] =
    [(Phase::Write, "write"), (Phase::Rewrite, "rewrite"), (Phase::Read, "read")];

fn survey(
    runtime: &Runtime,
    place: &Site,
    number: usize,
    case: Case,
    setting: &Setting,
) -> Result<Vec<Figure>> {
    let dirs = place.case(number, 1)?;
    let root = dirs[0].join("store");
    let plain = dirs[0].join("plain");
    for dir in [&root, &plain] {
        std::fs::create_dir(dir).map_err(|e| files::failed("cannot make the directory", dir, &e))?;
    }
    let store = open(runtime, &root)?;
    let mut team = plain_files(case, &plain)?;
    let mut own: Vec<Vec<Sample>> = vec![Vec::new(); PHASES.len()];
    let mut limits: Vec<Vec<f64>> = vec![Vec::new(); PHASES.len()];
    for repetition in 1..=setting.repeat {
        let case = Case { generation: repetition.into(), ..case };
        for (index, (phase, _)) in PHASES.iter().enumerate() {
            own[index].push(measure(runtime, &store, case, *phase, setting)?);
        }
        runtime.block_on(store.destroy(&case.all()))?;
        for (index, (phase, _)) in PHASES.iter().enumerate() {
            make_cold(*phase, setting)?;
            let outcome = team.run(*phase)?;
            limits[index].push(outcome.bytes as f64 / f64::from(1 << 20) / outcome.seconds);
        }
        team.run(Phase::Clean)?;
    }
    drop(team);
    runtime.block_on(store.close())?;
    site::remove_all(&dirs[0])?;
    let name = if case.objects == 1 { "1 object".to_owned() } else { format!("{} objects", case.objects) };
    let x = X { name: "threads".to_owned(), value: f64::from(case.threads) };
    let figures = PHASES.iter().zip(own).zip(limits).filter_map(|(((_, phase), samples), limit)| {
        let mut figure = Figure::new(&name, phase, Unit::MibPerSecond, Some(x.clone()), samples)?;
        figure.limit("plain files", &limit);
        Some(figure)
    });
    Ok(figures.collect())
}

fn open(runtime: &Runtime, root: &Path) -> Result<Arc<ObjectStore>> {
    let root = root.to_str().ok_or_else(|| {
        Fault::new(Code::BadArgument).subject(root.display().to_string()).why("the path is not UTF-8")
    })?;
    let config = StoreConfig {
        root: root.to_owned(),
        fs_id: FS_ID,
        replies: Replies::default(),
        is_member: false,
        read_cache: ReadCache::default(),
    };
    let store = runtime.block_on(ObjectStore::open(real::seams(runtime.handle().clone()), config))?;
    let _guard = runtime.enter();
    store.start_background();
    Ok(store)
}

fn plain_files(case: Case, dir: &Path) -> Result<Team> {
    let job = ior::Job {
        file_per_process: true,
        transfer_bytes: case.record_bytes,
        block_bytes: case.records * case.record_bytes,
        segments: 1,
        read_own: false,
        direct: false,
    };
    let dirs: Vec<PathBuf> = vec![dir.to_owned()];
    let spec = |rank| Spec {
        rank,
        ranks: case.threads,
        dirs: dirs.clone(),
        seed: case.seed,
        verify: case.verify,
        fsync: true,
        thread: true,
        job: Job::Ior(job.clone()),
    };
    Team::start(&Launcher::Threads, (0..case.threads).map(spec).collect())
}

fn make_cold(phase: Phase, setting: &Setting) -> Result<()> {
    stop::check()?;
    if phase == Phase::Read {
        setting.cold.make()?;
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    store: &Arc<ObjectStore>,
    case: Case,
    phase: Phase,
    setting: &Setting,
) -> Result<Sample> {
    make_cold(phase, setting)?;
    let machine = setting.watched.read();
    let (cpu_before, since) = (cpu::of_process(), Instant::now());
    runtime.block_on(async {
        let work = (0..case.threads).map(|thread| {
            let store = store.clone();
            tokio::spawn(async move {
                match phase {
                    Phase::Read => read(&store, case, thread).await,
                    _ => write(&store, case, thread).await,
                }
            })
        });
        for done in work.collect::<Vec<_>>() {
            done.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))??;
        }
        if phase != Phase::Read {
            store.sync(&case.all()).await?;
        }
        Ok::<(), Fault>(())
    })?;
    let (seconds, cpu_seconds) = (since.elapsed().as_secs_f64(), cpu::of_process() - cpu_before);
    let sample = Sample {
        value: 0.0,
        seconds,
        operations: case.records * u64::from(case.threads),
        bytes: case.bytes(),
        cpu_seconds: Some(cpu_seconds),
        benchmark_cpu_seconds: cpu_seconds,
        machine_cpu_seconds: setting.watched.read().since(&machine).machine_seconds,
    };
    Ok(sample.valued(Unit::MibPerSecond))
}

async fn write(store: &ObjectStore, case: Case, thread: u32) -> Result<()> {
    let (object, start) = case.piece(thread);
    let pattern = Pattern::of(case.seed, u64::from(object));
    for record in 0..case.records {
        stop::check()?;
        let offset = start + record * case.record_bytes;
        let mut data = vec![0; to_usize(case.record_bytes)];
        pattern.fill(offset, &mut data);
        let op = WriteOp {
            object: case.object(object),
            offset,
            crc: crc(&data),
            data: Bytes::from(data),
            ticket: Ticket::default(),
            sync: false,
            covered: false,
        };
        let mut turn = store.slots().anonymous(None)?;
        store.write(&op, &mut turn).await?;
    }
    Ok(())
}

async fn read(store: &ObjectStore, case: Case, thread: u32) -> Result<()> {
    // The bytes of another thread are read, if there is more than one.
    let (object, start) = case.piece((thread + 1) % case.threads);
    let pattern = Pattern::of(case.seed, u64::from(object));
    for record in 0..case.records {
        stop::check()?;
        let offset = start + record * case.record_bytes;
        let ticket = Ticket::default();
        let got = store.read(case.object(object), offset, case.record_bytes, &ticket).await?;
        let name = PathBuf::from(format!("object {}", case.object(object)));
        if got.data.len() as u64 != case.record_bytes {
            let why =
                format!("at offset {offset}: expected {} bytes, found {}", case.record_bytes, got.data.len());
            return Err(Fault::new(Code::WrongContents).subject(name.display().to_string()).why(why));
        }
        if case.verify {
            files::compare(&name, pattern, offset, &got.data)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::Cold;
    use crate::cpu::Watched;
    use crate::run::Directory;

    #[test]
    fn objects_are_written_over_and_read_by_threads() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().display().to_string();
        let setting = Setting {
            dirs: vec![Directory { path, file_system: "tmpfs".to_owned() }],
            limit: None,
            ranks: 1,
            repeat: 2,
            cold: Cold { keep: true, command: None },
            fsync: true,
            verify: true,
            seed: 5,
            watched: Watched::default(),
            launcher: Launcher::Threads,
        };
        let options =
            Options { objects: vec![1, 2], threads: vec![1, 4], bytes: 1 << 20, record_bytes: 64 << 10 };
        let run = run(&options, &setting, 2, BTreeMap::new(), &mut |_| {}).expect("runs");
        let lines: Vec<String> = run
            .figures
            .iter()
            .map(|f| format!("{} {} {}", f.case, f.x.as_ref().map_or(0.0, |x| x.value), f.phase))
            .collect();
        assert_eq!(lines.len(), 9, "two objects need two threads: {lines:?}");
        assert_eq!(lines[8], "2 objects 4 read");
        assert!(run.figures.iter().all(|f| f.limits[0].fraction > 0.0 && f.samples[0].bytes == 1 << 20));
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
    }

    #[test]
    fn pieces_cover_each_object_once() {
        let case = Case {
            objects: 2,
            threads: 6,
            generation: 1,
            records: 3,
            record_bytes: 10,
            seed: 0,
            verify: true,
        };
        let mut pieces: Vec<(u32, u64)> = (0..6).map(|thread| case.piece(thread)).collect();
        pieces.sort_unstable();
        assert_eq!(pieces, [(0, 0), (0, 30), (0, 60), (1, 0), (1, 30), (1, 60)]);
        assert_eq!(case.bytes(), 180);
    }
}
