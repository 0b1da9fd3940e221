//! A host that stages files: it mounts buffers beside those of jobs, and copies what the orchestrator's host divides off.
//!
//! Each copy runs in a process that becomes the user. The process ends with the agent. Mounts that an earlier agent has left are ended
//! when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_net::Peer;
use brindle_types::{Code, Fault, Result};
use brindle_wire::Op;
use brindle_wire::bb::{
    NodeMount, NodeOfferReq, NodeOfferResp, NodeStageReq, NodeStageResp, StageBuffer, StageOrder,
};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::de::DeserializeOwned;

use super::agent::{ANSWER_LIMIT_MS, Agent, ORDER_WAIT, busy, off_thread};
use super::{Places, SAFE, is_source};
use crate::bb::GLOBAL;
use crate::bb::copy::{CheckWork, UnitWork, Work};
use crate::process::Identity;

/// Directory of the mounts, and that of their logs.
const STAGE: &str = "stage";
const STAGE_LOGS: &str = "stage-logs";
/// A mount of which nobody has asked anything for this long ends.
const IDLE_AFTER: Duration = Duration::from_secs(600);
/// Most copies at a time.
const COPIES_MAX: usize = 16;
/// How long a copy that was killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// The buffers that are mounted for staging, and the copies that run.
#[derive(Default)]
pub(super) struct Staging {
    state: Mutex<State>,
    /// Whether somebody looks for mounts that nobody needs.
    looking: AtomicBool,
}

#[derive(Default)]
struct State {
    mounted: BTreeMap<u64, Mounted>,
    copies: BTreeMap<u64, Running>,
    copies_begun: u64,
}

/// A buffer that is mounted.
struct Mounted {
    last_used: Instant,
    /// Jobs that stage files through it, by the serial numbers of their own buffers.
    jobs: BTreeSet<u64>,
}

/// A copy that runs.
struct Running {
    job: u64,
    buffer: u64,
    /// Its process, once there is one.
    process: Option<Identity>,
}

impl Staging {
    /// A job uses a buffer from now on.
    fn use_buffer(&self, buffer: u64, job: u64) {
        let mut state = self.state.lock();
        let new = || Mounted { last_used: Instant::now(), jobs: BTreeSet::new() };
        let mounted = state.mounted.entry(buffer).or_insert_with(new);
        mounted.last_used = Instant::now();
        mounted.jobs.insert(job);
    }

    /// A copy begins; its number.
    fn begin_copy(&self, buffer: u64, job: u64) -> Result<u64> {
        let mut state = self.state.lock();
        if !state.mounted.get(&buffer).is_some_and(|mounted| mounted.jobs.contains(&job)) {
            return Err(Fault::new(Code::StageFailed)
                .what("cannot stage files of buffer")
                .subject(buffer.to_string())
                .why("its agent has not mounted the buffer for this job; it may have been started anew"));
        }
        if state.copies.len() >= COPIES_MAX {
            return Err(Fault::new(Code::BufferBusy)
                .what("cannot stage more files on this host at a time")
                .why(format!("{COPIES_MAX} copies run")));
        }
        state.copies_begun += 1;
        let number = state.copies_begun;
        state.copies.insert(number, Running { job, buffer, process: None });
        Ok(number)
    }

    /// Notes the process of a copy. It is ended if its job has left meanwhile.
    fn note_process(&self, number: u64, process: Option<Identity>) {
        let mut state = self.state.lock();
        let Some(copy) = state.copies.get_mut(&number) else { return };
        copy.process = process;
        let (buffer, job) = (copy.buffer, copy.job);
        let stays = state.mounted.get(&buffer).is_some_and(|mounted| mounted.jobs.contains(&job));
        if !stays && let Some(process) = process {
            process.signal(Signal::KILL);
        }
    }

    fn end_copy(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(copy) = state.copies.remove(&number)
            && let Some(mounted) = state.mounted.get_mut(&copy.buffer)
        {
            mounted.last_used = Instant::now();
        }
    }

    /// A job uses a buffer no longer: its copies end. Whether no other job uses it.
    fn leave_buffer(&self, buffer: u64, job: u64) -> bool {
        let ended: Vec<Identity> = {
            let mut state = self.state.lock();
            let of_job = |copy: &&Running| copy.buffer == buffer && copy.job == job;
            let ended = state.copies.values().filter(of_job).filter_map(|copy| copy.process).collect();
            if let Some(mounted) = state.mounted.get_mut(&buffer) {
                mounted.jobs.remove(&job);
            }
            ended
        };
        ended.iter().for_each(|process| process.signal(Signal::KILL));
        for process in ended.iter().filter(|process| !process.wait_end(KILL_LIMIT)) {
            tracing::warn!(?process, "a copy that was killed does not end; its mount is taken away from it");
        }
        let mut state = self.state.lock();
        let is_free = state.mounted.get(&buffer).is_none_or(|mounted| mounted.jobs.is_empty());
        if is_free {
            state.mounted.remove(&buffer);
        }
        is_free
    }

    /// Forgets a buffer of which nobody has asked anything for long; whether nobody uses it.
    fn forget_idle(&self, buffer: u64) -> bool {
        let mut state = self.state.lock();
        let is_used = state.copies.values().any(|copy| copy.buffer == buffer)
            || state.mounted.get(&buffer).is_some_and(|mounted| mounted.last_used.elapsed() < IDLE_AFTER);
        if !is_used {
            state.mounted.remove(&buffer);
        }
        !is_used
    }
}

impl Agent {
    /// Offers to stage files, where it was told to.
    pub(super) async fn offer(&self, peer: &Peer) {
        if self.config.stages.is_empty() {
            return;
        }
        let request = NodeOfferReq { stages: self.offers() };
        let header = Header { op: Op::NodeOffer as u16, ..Header::default() };
        let asked = peer.call(Frame::new(header, encode_body(&request)));
        let answer: Result<NodeOfferResp> = match self.seams.timeout_ms(ANSWER_LIMIT_MS, asked).await {
            Some(reply) => reply.and_then(|reply| decode_reply(&reply)),
            None => Err(Fault::new(Code::NoOrchestrator)),
        };
        if let Err(fault) = answer {
            // An orchestrator of an earlier release does not know offers, and is made another one with each registration.
            if fault.code == Code::UnknownOp {
                return;
            }
            tracing::warn!(code = %fault.code, "the offer to stage files was not taken: {fault}");
        }
    }

    fn offers(&self) -> Vec<String> {
        self.config.stages.iter().map(|dir| dir.display().to_string()).collect()
    }

    fn stage_dir(&self) -> PathBuf {
        self.config.state.join(STAGE)
    }

    fn stage_places(&self) -> Places<'_> {
        Places {
            program: &self.host.program,
            node: &self.node,
            root: self.stage_dir(),
            logs: self.config.state.join(STAGE_LOGS),
            identity: Some(self.identity.path()),
        }
    }

    pub(super) async fn ordered_stage(self: Arc<Self>, frame: Frame) -> Result<NodeStageResp> {
        if let Some(stranger) = self.stranger.lock().clone() {
            return Err(stranger);
        }
        let order: NodeStageReq = decode_body(&frame.body)?;
        off_thread("bb.stage", move || self.carry_out_stage(&order)).await
    }

    fn carry_out_stage(&self, order: &NodeStageReq) -> Result<NodeStageResp> {
        if self.config.stages.is_empty() {
            return Err(Fault::new(Code::NotForCaller)
                .what("stages no files: node")
                .subject(self.node.clone())
                .why("its agent runs without --stage"));
        }
        self.revisions.lock().admit(order.serial, order.revision)?;
        match &order.order {
            StageOrder::Prepare { buffers, uid, gid, tops } => {
                tracing::info!(job = order.job, serial = order.serial, uid, "files are to be staged here");
                let mount = |buffer| self.mount_for_staging(buffer, order.serial, &order.job);
                buffers.iter().try_for_each(mount)?;
                let (offers, tops) = (self.offers(), tops.clone());
                let check = Work::Check(CheckWork { uid: *uid, gid: *gid, offers, tops });
                Ok(NodeStageResp { refusal: self.as_user(&check, |_| ())?, files: Vec::new() })
            }
            StageOrder::Copy(unit) => {
                let number = self.staging.begin_copy(unit.buffer, order.serial)?;
                let root = self.stage_dir().join(unit.buffer.to_string()).join(GLOBAL);
                let work = Work::Unit(UnitWork { root, offers: self.offers(), unit: unit.clone() });
                let files = self.as_user(&work, |process| self.staging.note_process(number, process));
                self.staging.end_copy(number);
                Ok(NodeStageResp { refusal: String::new(), files: files? })
            }
            StageOrder::End { buffers } => {
                let leave = |buffer: &u64| {
                    self.end_staging(*buffer, || self.staging.leave_buffer(*buffer, order.serial))
                };
                buffers.iter().try_for_each(leave)?;
                Ok(NodeStageResp::default())
            }
        }
    }

    fn mount_for_staging(&self, buffer: &StageBuffer, serial: u64, job: &str) -> Result<()> {
        if !is_source(&buffer.source) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot carry out an order with")
                .subject(buffer.source.clone())
                .why("it is no source of a mount"));
        }
        let lock = self.lock_of(buffer.serial);
        let _buffer = lock.try_lock_for(ORDER_WAIT).ok_or_else(|| busy("the buffer of job", job))?;
        self.staging.use_buffer(buffer.serial, serial);
        crate::bb::make_dir(&self.stage_dir())?;
        crate::bb::make_dir(&self.config.state.join(STAGE_LOGS))?;
        let (name, source) = (buffer.serial.to_string(), buffer.source.clone());
        self.stage_places().mount(&NodeMount { name, source }, &[SAFE])
    }

    /// Ends the mount of a buffer that nobody uses.
    fn end_staging(&self, serial: u64, is_free: impl FnOnce() -> bool) -> Result<()> {
        let lock = self.lock_of(serial);
        let held = lock.try_lock_for(ORDER_WAIT);
        let _buffer = held.ok_or_else(|| busy("buffer", &serial.to_string()))?;
        if !is_free() {
            return Ok(());
        }
        let (places, name) = (self.stage_places(), serial.to_string());
        places.end(&name)?;
        // Files of its log, and its mount point, which need not be there.
        let _ = std::fs::remove_dir(places.at(&name));
        let _ = std::fs::remove_file(places.log(&name));
        Ok(())
    }

    /// Ends mounts for staging that an earlier agent has left, or that nobody has used for long.
    pub(super) fn look_after_staging(self: &Arc<Self>) {
        let entries = std::fs::read_dir(self.stage_dir()).into_iter().flatten().flatten();
        let serials: Vec<u64> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if serials.is_empty() || self.staging.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let agent = self.clone();
        let look = move || {
            for serial in serials {
                if let Err(fault) = agent.end_staging(serial, || agent.staging.forget_idle(serial)) {
                    tracing::warn!(code = %fault.code, serial, "a mount for staging stays: {fault}");
                }
            }
            agent.staging.looking.store(false, Ordering::Release);
        };
        if let Err(e) = std::thread::Builder::new().name("bb.staging".to_owned()).spawn(look) {
            self.staging.looking.store(false, Ordering::Release);
            tracing::warn!(error = %e, "cannot look for mounts that nobody needs");
        }
    }

    /// Has a process that becomes the user do something.
    fn as_user<T: DeserializeOwned>(&self, work: &Work, note: impl FnOnce(Option<Identity>)) -> Result<T> {
        let failed = |e: std::io::Error| {
            Fault::io(Code::StageFailed, "cannot stage files on node", self.node.clone(), &e)
        };
        let mut input = serde_json::to_vec(work).map_err(|e| failed(e.into()))?;
        input.push(b'\n');
        let mut command = Command::new(&self.host.program);
        command.args(["bb", "copy"]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        note(Identity::of(child.id()));
        if let Some(mut pipe) = child.stdin.take() {
            // A child that has ended already does not read its input; its status says why.
            let _ = pipe.write_all(&input);
        }
        let out = child.wait_with_output().map_err(failed)?;
        let answer: std::result::Result<Result<T>, _> = serde_json::from_slice(&out.stdout);
        answer.unwrap_or_else(|_| {
            Err(Fault::new(Code::StageFailed)
                .what("the copy ended before it was done on node")
                .subject(self.node.clone())
                .why(out.status.to_string()))
        })
    }
}
