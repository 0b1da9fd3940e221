//! Copies of a job: the process that leads them, and the hosts that share the work.
//!
//! The process on this host ([`super::copy`]) divides the work into units. Each host that helps has a few threads here, which take units,
//! send them as orders, and hand the answers back. A host that does not answer is not asked again during this copy: its units go to others.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use brindle_bb::{Buffer, Staging, StagingHost, Transfer};
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{
    NodeStageReq, NodeStageResp, StageBuffer, StageOrder, StageTop, StageUnit, StagedFile,
};
use parking_lot::{Condvar, Mutex};

use super::GLOBAL;
use super::actions::Actions;
use super::copy::{CopyOutcome, CopyWork, Heard, Said, Work};
use super::job_lock::JobLock;
use super::orchestrator::{short, stopped};
use crate::process::Identity;

/// Most hosts that share a copy.
const HOSTS_MAX: usize = 32;
/// Units that a host copies at a time.
const STREAMS: usize = 2;
/// Units for each host that may be under way, those that wait included.
const UNDER_WAY: usize = STREAMS + 1;
/// Longest line of the process that copies.
const LINE_MAX_BYTES: u64 = 8 << 20;
/// Number of repetitions of an order that a change of the buffer's row has overtaken.
const STALE_TRIES_MAX: usize = 4;

/// The hosts that share a copy.
struct Crew<'a> {
    actions: &'a Actions<'a>,
    buffer: &'a Buffer,
    work: &'a CopyWork,
    job: &'a JobLock,
    queue: Mutex<Queue>,
    changed: Condvar,
    answers: Mutex<Option<ChildStdin>>,
}

#[derive(Default)]
struct Queue {
    units: VecDeque<(u64, StageUnit)>,
    /// Hosts that answer.
    hosts: Vec<String>,
    ended: bool,
}

impl Actions<'_> {
    /// Changes what is shown of the copy of a buffer.
    fn show_staging(&self, serial: u64, change: impl FnOnce(&mut Staging)) {
        change(self.staging.lock().entry(serial).or_default());
    }

    /// Copies the files of a job into buffers or out of them. With each copy stands the serial number of its buffer.
    pub(super) fn copy_files(
        &self,
        buffer: &Buffer,
        transfers: Vec<(Transfer, u64)>,
        stages_in: bool,
        job: &JobLock,
    ) -> Result<()> {
        let buffers = transfers.iter().map(|(_, serial)| *serial).collect();
        let place = |(transfer, serial): (Transfer, u64)| (transfer, self.stage_mount(serial).join(GLOBAL));
        let transfers = transfers.into_iter().map(place).collect();
        let (uid, gid, serial) = (buffer.uid, buffer.gid, buffer.serial);
        let work = CopyWork { uid, gid, stages_in, transfers, serial, buffers };
        let own = StagingHost { name: crate::name(), ..StagingHost::default() };
        let hosts = vec![own];
        self.show_staging(serial, |shown| *shown = Staging { stages_in, hosts, ..Staging::default() });
        let outcome = self.lead(buffer, &work, job);
        self.show_staging(serial, |shown| shown.ended = true);
        let done = outcome?;
        tracing::info!(
            job = buffer.token,
            stages_in,
            files = done.files,
            bytes = done.bytes,
            unchanged = done.unchanged,
            skipped = done.skipped,
            links = done.links,
            attributes_lost = done.attributes_lost,
            "staged"
        );
        Ok(())
    }

    fn lead(&self, buffer: &Buffer, work: &CopyWork, job: &JobLock) -> Result<CopyOutcome> {
        let failed = |e: std::io::Error| {
            Fault::io(Code::StageFailed, "cannot stage files of job", buffer.token.clone(), &e)
        };
        let mut input = serde_json::to_vec(&Work::All(work.clone())).map_err(|e| failed(e.into()))?;
        input.push(b'\n');
        let mut command = Command::new(&self.host.program);
        command.args(["bb", "copy"]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        job.copies(Identity::of(child.id()));
        let mut pipe = child.stdin.take();
        // A child that was stopped already does not read its input.
        let _ = pipe.as_mut().map(|pipe| pipe.write_all(&input));
        let crew = Crew {
            actions: self,
            buffer,
            work,
            job,
            queue: Mutex::default(),
            changed: Condvar::new(),
            answers: Mutex::new(pipe),
        };
        let outcome = crew.follow(&mut child);
        // A child that waits for an answer hears that there will be none.
        drop(crew);
        let status = child.wait();
        job.copies(None);
        if job.stops() {
            return Err(stopped(&buffer.token));
        }
        let status = status.map_err(failed)?;
        outcome.unwrap_or_else(|| {
            Err(Fault::new(Code::StageFailed)
                .what("the copy ended before it was done for job")
                .subject(buffer.token.clone())
                .why(status.to_string()))
        })
    }
}

impl Crew<'_> {
    /// Hears the process that leads, until it ends. Its outcome; none where it was killed.
    fn follow(&self, child: &mut Child) -> Option<Result<CopyOutcome>> {
        let mut lines = BufReader::new(child.stdout.take()?);
        let mut outcome = None;
        let asked = std::thread::scope(|scope| {
            let mut asked = Vec::new();
            loop {
                let mut line = String::new();
                let read = (&mut lines).take(LINE_MAX_BYTES).read_line(&mut line);
                let Some(said) = read.ok().and_then(|_| serde_json::from_str(&line).ok()) else { break };
                match said {
                    Said::Plan { files, bytes, tops } => {
                        self.show(|shown| (shown.all_files, shown.all_bytes) = (files, bytes));
                        if tops.is_empty() {
                            continue;
                        }
                        asked = self.gather(&tops);
                        let hosts = self.queue.lock().hosts.clone();
                        for host in &hosts {
                            for _ in 0..STREAMS {
                                let host = host.clone();
                                scope.spawn(move || self.serve(&host));
                            }
                        }
                        self.answer(&Heard::Crew { streams: hosts.len() * UNDER_WAY });
                    }
                    Said::Own { files, bytes } => self.show(|shown| {
                        if let Some(own) = shown.hosts.first_mut() {
                            (own.files, own.bytes) = (files, bytes);
                        }
                    }),
                    Said::Unit { id, unit } => self.push(id, unit),
                    Said::End(end) => outcome = Some(end),
                }
            }
            self.queue.lock().ended = true;
            self.changed.notify_all();
            asked
        });
        self.let_go(&asked);
        outcome
    }

    fn show(&self, change: impl FnOnce(&mut Staging)) {
        self.actions.show_staging(self.buffer.serial, change);
    }

    /// Notes what a host has done, or why it is not used.
    fn note(&self, name: &str, change: impl FnOnce(&mut StagingHost)) {
        self.show(|shown| {
            let at = shown.hosts.iter().skip(1).position(|host| host.name == name).map(|at| at + 1);
            let at = at.unwrap_or_else(|| {
                shown.hosts.push(StagingHost { name: name.to_owned(), ..StagingHost::default() });
                shown.hosts.len() - 1
            });
            change(&mut shown.hosts[at]);
        });
    }

    fn answer(&self, heard: &Heard) {
        let mut text = serde_json::to_vec(heard).expect("plain fields always serialise");
        text.push(b'\n');
        // A process that has ended does not listen: its end is heard on its other pipe.
        let _ = self.answers.lock().as_mut().map(|pipe| pipe.write_all(&text));
    }

    /// Sends an order. A row that changes meanwhile is read again.
    fn order(&self, host: &str, order: &StageOrder) -> Result<NodeStageResp> {
        let (serial, job) = (self.buffer.serial, self.buffer.token.clone());
        let hub = self.actions.hub().ok_or_else(|| Fault::new(Code::Bug).what("no agents are known"))?;
        let is_end = matches!(order, StageOrder::End { .. });
        let ends = || !is_end && (self.job.stops() || self.queue.lock().ended);
        let mut tries = 0;
        loop {
            let revision = self.actions.revision(serial)?;
            let request = NodeStageReq { serial, revision, job: job.clone(), order: order.clone() };
            match hub.order_stage(self.actions.host, host, &request, &ends) {
                Err(fault)
                    if fault.code == Code::StaleOrder
                        && tries < STALE_TRIES_MAX
                        && self.actions.revision(serial)? != revision =>
                {
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Serial numbers of the buffers that files are copied into or out of.
    fn buffers(&self) -> Vec<u64> {
        let mut buffers = self.work.buffers.clone();
        buffers.sort_unstable();
        buffers.dedup();
        buffers
    }

    /// Asks all hosts that offer to help. Returns those that have mounted the buffers.
    fn gather(&self, tops: &[StageTop]) -> Vec<String> {
        let Some(hub) = self.actions.hub() else { return Vec::new() };
        let mut offering = hub.offering();
        offering.truncate(HOSTS_MAX);
        let source = |serial| Ok(StageBuffer { serial, source: self.actions.source_of(serial)? });
        let buffers = match self.buffers().into_iter().map(source).collect::<Result<Vec<_>>>() {
            Ok(buffers) if !offering.is_empty() => buffers,
            Ok(_) => return Vec::new(),
            Err(fault) => {
                tracing::warn!(%fault, "other hosts cannot help to stage files");
                return Vec::new();
            }
        };
        let (uid, gid) = (self.buffer.uid, self.buffer.gid);
        let order = StageOrder::Prepare { buffers, uid, gid, tops: tops.to_vec() };
        let answers: Vec<(String, Result<NodeStageResp>)> = std::thread::scope(|scope| {
            let ask = |host: String| {
                let order = &order;
                scope.spawn(move || {
                    let answer = self.order(&host, order);
                    (host, answer)
                })
            };
            let asked: Vec<_> = offering.into_iter().map(ask).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
        });
        let mut mounted = Vec::new();
        for (host, answer) in answers {
            let why = match answer {
                Ok(answer) => {
                    mounted.push(host.clone());
                    answer.refusal
                }
                Err(fault) => short(&fault),
            };
            if why.is_empty() {
                self.queue.lock().hosts.push(host.clone());
            } else {
                tracing::warn!(host, why, job = self.buffer.token, "a host does not help to stage files");
            }
            self.note(&host, |shown| shown.reason = why);
        }
        mounted
    }

    /// Takes a unit of the process that leads. That process is the user's: what it says about users and buffers counts for nothing.
    fn push(&self, id: u64, mut unit: StageUnit) {
        (unit.uid, unit.gid, unit.stages_in) = (self.work.uid, self.work.gid, self.work.stages_in);
        let mut queue = self.queue.lock();
        if queue.hosts.is_empty() || !self.work.buffers.contains(&unit.buffer) {
            drop(queue);
            return self.answer(&Heard::Unit { id, streams: 0, files: None });
        }
        queue.units.push_back((id, unit));
        self.changed.notify_one();
    }

    /// Has a host copy units, as long as there are any and it answers.
    fn serve(&self, host: &str) {
        loop {
            let (id, unit) = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.ended || !queue.hosts.iter().any(|known| known == host) {
                        return;
                    }
                    match queue.units.pop_front() {
                        Some(unit) => break unit,
                        None => self.changed.wait(&mut queue),
                    }
                }
            };
            let is_whole = unit.range.is_none();
            match self.order(host, &StageOrder::Copy(unit)) {
                Ok(answer) => {
                    self.note(host, |shown| {
                        for file in &answer.files {
                            if let StagedFile::Copied { bytes, .. } = file {
                                shown.bytes += bytes;
                                shown.files += u64::from(is_whole);
                            }
                        }
                    });
                    let failed = answer.files.iter().find_map(|file| match file {
                        StagedFile::Failed { why } => Some(why),
                        _ => None,
                    });
                    if let Some(why) = failed {
                        tracing::warn!(host, why, "a host could not copy a file, and it is copied elsewhere");
                    }
                    let streams = self.queue.lock().hosts.len() * UNDER_WAY;
                    self.answer(&Heard::Unit { id, streams, files: Some(answer.files) });
                }
                Err(fault) => self.lose(host, id, &fault),
            }
        }
    }

    /// A host has not answered: it gets no more units.
    fn lose(&self, host: &str, id: u64, fault: &Fault) {
        let (left, unasked) = {
            let mut queue = self.queue.lock();
            if !queue.ended && queue.hosts.iter().any(|known| known == host) {
                tracing::warn!(%fault, host, job = self.buffer.token, "a host stages no more files of the job");
                let why = short(fault);
                self.note(host, |shown| shown.reason = why);
            }
            queue.hosts.retain(|known| known != host);
            let unasked = if queue.hosts.is_empty() { std::mem::take(&mut queue.units) } else { VecDeque::new() };
            (queue.hosts.len() * UNDER_WAY, unasked)
        };
        self.changed.notify_all();
        for id in std::iter::once(id).chain(unasked.into_iter().map(|(id, _)| id)) {
            self.answer(&Heard::Unit { id, streams: left, files: None });
        }
    }

    /// Has hosts unmount the buffers.
    fn let_go(&self, hosts: &[String]) {
        let order = StageOrder::End { buffers: self.buffers() };
        std::thread::scope(|scope| {
            for host in hosts {
                let order = &order;
                scope.spawn(move || {
                    if let Err(fault) = self.order(host, order) {
                        tracing::warn!(%fault, host, "the buffer may stay mounted for staging until its agent looks");
                    }
                });
            }
        });
    }
}
