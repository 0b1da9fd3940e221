//! Copies of a job: the process that makes them, and the hosts that share the work.
//!
//! The process on this host ([`super::copy`]) divides the work into units. Each host that helps has a few threads here, which take units,
//! send them as orders, and hand the answers back. A host that does not answer loses its units to the others; when it answers again it gets
//! new ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::{Duration, Instant};

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
const STREAMS: usize = 4;
/// Units for each host that may be under way, those that wait included.
const UNDER_WAY: usize = STREAMS + 1;
/// Longest line of the process that copies.
const LINE_MAX_BYTES: u64 = 8 << 20;
/// Number of repetitions of an order that a change of the buffer's row has overtaken.
const STALE_TRIES_MAX: usize = 4;
/// Time between two looks for hosts that offer to help from now on, or again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A copy, and the hosts that share it.
struct SharedCopy<'a> {
    actions: &'a Actions<'a>,
    buffer: &'a Buffer,
    work: &'a CopyWork,
    job: &'a JobLock,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Answers to the process, written by a thread of their own: the process may be busy, and whoever answers must not wait for it.
    answers: mpsc::Sender<Heard>,
}

#[derive(Default)]
struct Queue {
    units: VecDeque<(u64, StageUnit)>,
    /// Hosts that answer, each with the number of its admission: threads of an earlier one end.
    hosts: BTreeMap<String, u64>,
    admissions: u64,
    /// Hosts that may have mounted the buffers.
    mounted: BTreeSet<String>,
    /// Hosts that see other directories; they are not asked again.
    refused: BTreeSet<String>,
    ended: bool,
}

impl Queue {
    /// Units that may be under way.
    fn streams(&self) -> usize {
        self.hosts.len() * UNDER_WAY
    }
}

impl Actions<'_> {
    /// Changes what is shown of the copy of a buffer.
    fn show_staging(&self, serial: u64, change: impl FnOnce(&mut Staging)) {
        if let Some((since, shown)) = self.staging.lock().get_mut(&serial) {
            change(shown);
            shown.elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        }
    }

    /// The copy of a buffer that runs or ran last.
    pub(super) fn shown_staging(&self, serial: u64) -> Option<Staging> {
        let shown = self.staging.lock();
        let (since, staging) = shown.get(&serial)?;
        let now_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let elapsed_ms = if staging.ended { staging.elapsed_ms } else { now_ms };
        Some(Staging { elapsed_ms, ..staging.clone() })
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
        let begun = Staging { stages_in, hosts: vec![own], ..Staging::default() };
        self.staging.lock().insert(serial, (Instant::now(), begun));
        let outcome = self.copy_with_hosts(buffer, &work, job);
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

    fn copy_with_hosts(&self, buffer: &Buffer, work: &CopyWork, job: &JobLock) -> Result<CopyOutcome> {
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
        let (answers, heard) = mpsc::channel();
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let copy = SharedCopy { actions: self, buffer, work, job, queue, changed, answers };
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || tell(pipe, &heard));
            // The thread that tells ends when the copy, which holds the other end, is dropped.
            copy.run(&mut child)
        });
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

/// Hands answers to the process that copies, until there will be no more.
fn tell(mut pipe: Option<ChildStdin>, answers: &mpsc::Receiver<Heard>) {
    for heard in answers {
        let mut text = serde_json::to_vec(&heard).expect("plain fields always serialise");
        text.push(b'\n');
        // A process that has ended does not listen: its end is heard on its other pipe.
        let _ = pipe.as_mut().map(|pipe| pipe.write_all(&text));
    }
}

impl SharedCopy<'_> {
    /// Follows the process until it ends. Its outcome; none where it was killed.
    fn run(self, child: &mut Child) -> Option<Result<CopyOutcome>> {
        let lines = BufReader::new(child.stdout.take()?);
        let outcome = std::thread::scope(|scope| {
            let outcome = self.follow(lines, scope);
            self.queue.lock().ended = true;
            self.changed.notify_all();
            outcome
        });
        self.unmount();
        outcome
    }

    fn follow<'s>(
        &'s self,
        mut lines: impl BufRead,
        scope: &'s Scope<'s, '_>,
    ) -> Option<Result<CopyOutcome>> {
        loop {
            let mut line = String::new();
            (&mut lines).take(LINE_MAX_BYTES).read_line(&mut line).ok()?;
            match serde_json::from_str(&line).ok()? {
                Said::Plan { files, bytes, tops } => {
                    self.show(|shown| (shown.all_files, shown.all_bytes) = (files, bytes));
                    if tops.is_empty() {
                        continue;
                    }
                    self.gather(&tops, scope);
                    let streams = self.queue.lock().streams();
                    if streams > 0 {
                        scope.spawn(move || self.look_for_hosts(&tops, scope));
                    }
                    self.answer(Heard::Hosts { streams });
                }
                Said::Own { files, bytes } => self.show(|shown| {
                    if let Some(own) = shown.hosts.first_mut() {
                        (own.files, own.bytes) = (files, bytes);
                    }
                }),
                Said::Unit { id, unit } => self.push(id, unit),
                Said::End(end) => return Some(end),
            }
        }
    }

    fn show(&self, change: impl FnOnce(&mut Staging)) {
        self.actions.show_staging(self.buffer.serial, change);
    }

    /// Notes what a host has done, or why it is not used.
    fn note(&self, name: &str, change: impl FnOnce(&mut StagingHost)) {
        self.show(|shown| {
            // The first one is this host itself, which may have an agent as well.
            let at = shown.hosts.iter().skip(1).position(|host| host.name == name).map(|at| at + 1);
            let at = at.unwrap_or_else(|| {
                shown.hosts.push(StagingHost { name: name.to_owned(), ..StagingHost::default() });
                shown.hosts.len() - 1
            });
            change(&mut shown.hosts[at]);
        });
    }

    fn answer(&self, heard: Heard) {
        // A process that has ended waits for no answer.
        let _ = self.answers.send(heard);
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

    /// Asks all hosts that offer to help and are not used to mount the buffers and to look at the directories. Uses those that have, and see
    /// the same.
    fn gather<'s>(&'s self, tops: &[StageTop], scope: &'s Scope<'s, '_>) {
        let Some(hub) = self.actions.hub() else { return };
        let asked: Vec<String> = {
            let queue = self.queue.lock();
            let is_new = |host: &String| !queue.hosts.contains_key(host) && !queue.refused.contains(host);
            hub.offering().into_iter().filter(is_new).take(HOSTS_MAX - queue.hosts.len()).collect()
        };
        if asked.is_empty() {
            return;
        }
        let source = |serial| Ok(StageBuffer { serial, source: self.actions.source_of(serial)? });
        let buffers = match self.buffers().into_iter().map(source).collect::<Result<Vec<_>>>() {
            Ok(buffers) => buffers,
            Err(fault) => {
                tracing::warn!(%fault, job = self.buffer.token, "other hosts cannot help to stage files");
                return;
            }
        };
        let (uid, gid) = (self.buffer.uid, self.buffer.gid);
        let order = StageOrder::Prepare { buffers, uid, gid, tops: tops.to_vec() };
        std::thread::scope(|asking| {
            for host in asked {
                let order = &order;
                asking.spawn(move || self.admit(host, order, scope));
            }
        });
    }

    /// Has a host prepare itself, and copy from then on.
    fn admit<'s>(&'s self, host: String, order: &StageOrder, scope: &'s Scope<'s, '_>) {
        // Whatever becomes of the order: the host may have mounted the buffers.
        self.queue.lock().mounted.insert(host.clone());
        let answer = self.order(&host, order);
        let why = match &answer {
            Ok(answer) => answer.refusal.clone(),
            Err(fault) => short(fault),
        };
        if !why.is_empty() {
            tracing::warn!(host, why, job = self.buffer.token, "a host does not help to stage files");
            if answer.is_ok() {
                self.queue.lock().refused.insert(host.clone());
            }
            return self.note(&host, |shown| shown.reason = why);
        }
        self.note(&host, |shown| shown.reason.clear());
        let admission = {
            let mut queue = self.queue.lock();
            queue.admissions += 1;
            let admission = queue.admissions;
            queue.hosts.insert(host.clone(), admission);
            admission
        };
        for _ in 0..STREAMS {
            let host = host.clone();
            scope.spawn(move || self.serve(&host, admission));
        }
    }

    /// Looks for hosts that come, or come back, as long as the copy runs.
    fn look_for_hosts<'s>(&'s self, tops: &[StageTop], scope: &'s Scope<'s, '_>) {
        loop {
            let until = Instant::now() + LOOK_EVERY;
            {
                let mut queue = self.queue.lock();
                while !queue.ended && !self.changed.wait_until(&mut queue, until).timed_out() {}
                // The process copies alone once no host is left, and does not listen any more.
                if queue.ended || queue.hosts.is_empty() {
                    return;
                }
            }
            self.gather(tops, scope);
        }
    }

    /// Takes a unit of the process that copies. That process is the user's: what it says about users and buffers counts for nothing.
    fn push(&self, id: u64, mut unit: StageUnit) {
        (unit.uid, unit.gid, unit.stages_in) = (self.work.uid, self.work.gid, self.work.stages_in);
        let mut queue = self.queue.lock();
        if queue.hosts.is_empty() || !self.work.buffers.contains(&unit.buffer) {
            return self.answer(Heard::Unit { id, streams: queue.streams(), files: None });
        }
        queue.units.push_back((id, unit));
        self.changed.notify_all();
    }

    /// Has a host copy units, as long as there are any and it answers.
    fn serve(&self, host: &str, admission: u64) {
        while let Some((id, unit)) = self.next_unit(host, admission) {
            let is_whole = unit.range.is_none();
            match self.order(host, &StageOrder::Copy(unit)) {
                Ok(answer) => {
                    self.note(host, |shown| {
                        for file in &answer.files {
                            match file {
                                StagedFile::Copied { bytes, .. } => {
                                    shown.bytes += bytes;
                                    shown.files += u64::from(is_whole);
                                }
                                StagedFile::Unchanged => shown.files += u64::from(is_whole),
                                StagedFile::Failed { .. } => {}
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
                    let queue = self.queue.lock();
                    self.answer(Heard::Unit { id, streams: queue.streams(), files: Some(answer.files) });
                }
                Err(fault) => self.lose(host, admission, id, &fault),
            }
        }
    }

    /// The next unit for a host; none where the copy has ended, or the host is not used any more.
    fn next_unit(&self, host: &str, admission: u64) -> Option<(u64, StageUnit)> {
        let mut queue = self.queue.lock();
        loop {
            if queue.ended || queue.hosts.get(host) != Some(&admission) {
                return None;
            }
            match queue.units.pop_front() {
                Some(unit) => return Some(unit),
                None => self.changed.wait(&mut queue),
            }
        }
    }

    /// A host has not answered: it gets no more units until it offers to help again.
    fn lose(&self, host: &str, admission: u64, id: u64, fault: &Fault) {
        let mut queue = self.queue.lock();
        if queue.hosts.get(host) == Some(&admission) {
            queue.hosts.remove(host);
            if !queue.ended {
                tracing::warn!(%fault, host, job = self.buffer.token, "a host stages no more files of the job");
                self.note(host, |shown| shown.reason = short(fault));
            }
        }
        let no_host = queue.hosts.is_empty();
        let unasked = if no_host { std::mem::take(&mut queue.units) } else { VecDeque::new() };
        for id in std::iter::once(id).chain(unasked.into_iter().map(|(id, _)| id)) {
            self.answer(Heard::Unit { id, streams: queue.streams(), files: None });
        }
        self.changed.notify_all();
    }

    /// Has hosts unmount the buffers.
    fn unmount(&self) {
        let order = StageOrder::End { buffers: self.buffers() };
        let hosts = std::mem::take(&mut self.queue.lock().mounted);
        std::thread::scope(|scope| {
            for host in hosts {
                let order = &order;
                scope.spawn(move || {
                    if let Err(fault) = self.order(&host, order) {
                        tracing::warn!(%fault, host, "the buffer may stay mounted for staging until its agent looks");
                    }
                });
            }
        });
    }
}
