//! Steps of a process that serves a target and goes on afterwards: preparing the target's directory, and making sure that no part of the
//! target is left.

use std::path::PathBuf;

use brindle_config::{Expected, Superblock};
use brindle_stdx::{Disk, Seams, watch};
use brindle_targets::Directory;
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use brindle_wire::Message;
use brindle_wire::mgs::hosts::Assignment;

use crate::format::{Plan, carry_out, leftovers, refuse_occupied};
use crate::mgt;
use crate::service::{How, LockedTarget, Remains, Service};

/// Longest time that the MGS holds a request while this host has no target of the kind.
pub(crate) const IDLE_MS: u32 = 5_000;
/// Additional time for the answer.
const GRACE_MS: u64 = 2_000;
/// Pause after a question that was not answered.
const PAUSE_MS: u64 = 250;
/// Reason why a target is not started again in this process.
const PARTS: &str = "parts of it may still run in this process, so it is not started again here";
/// Advice for a target whose parts may still run.
const RESTART: &str = "on that host: systemctl restart brindle-serve";
/// Longest wait for the remains of a stopped target, and the interval of the checks.
const GONE_MS: u64 = 20_000;
pub(crate) const GONE_LOOK_MS: u64 = 50;

/// The directory of a target that was opened. Unless it is known that nothing of the target is left, its lock is kept until the process ends.
pub(crate) struct Spoiled(pub(crate) Option<LockedTarget>);

impl Spoiled {
    pub(crate) fn found(&self) -> Option<&LockedTarget> {
        self.0.as_ref()
    }

    pub(crate) fn nothing_is_left(&mut self) {
        self.0 = None;
    }
}

impl Drop for Spoiled {
    fn drop(&mut self) {
        if let Some(found) = self.0.take() {
            tracing::warn!(dir = %found.dir, "{PARTS}");
            std::mem::forget(found.lock);
        }
    }
}

/// Reason why a target is not served.
pub(crate) enum Trouble {
    /// A fault after which the target may be tried again.
    Again(Fault),
    /// Not in this process: parts of it may still run.
    Never(Fault),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Again(fault)
    }
}

impl Trouble {
    pub(crate) fn never(fault: Fault) -> Trouble {
        // The advice against the cause comes first.
        let next = match fault.next.as_ref() {
            "" => RESTART.to_owned(),
            cure => format!("{cure}; then, {RESTART}"),
        };
        Trouble::Never(fault.why(PARTS).next(next))
    }

    pub(crate) fn half_started(target: TargetId) -> Trouble {
        let fault = Fault::new(Code::TargetBusy).what("was stopped while it started:");
        Trouble::never(fault.subject(target.to_string()))
    }
}

/// Whether the remains of a target are gone within a bounded time.
pub(crate) async fn until_gone(seams: &Seams, remains: &Remains) -> bool {
    for _ in 0..GONE_MS / GONE_LOOK_MS {
        if remains.are_gone() {
            return true;
        }
        seams.sleep_ms(GONE_LOOK_MS).await;
    }
    remains.are_gone()
}

/// Stops a service, by order or because it has `failed`, and waits until nothing of it is left; its fault, if it had one.
pub(crate) async fn end(
    seams: &Seams,
    service: Service,
    failed: Option<Fault>,
    spoiled: &mut Spoiled,
) -> std::result::Result<(), Trouble> {
    let name = spoiled.found().map(|found| found.superblock.name()).unwrap_or_default();
    let remains = service.remains();
    let stopped = service.stop().await;
    if !until_gone(seams, &remains).await {
        let fault = failed.or(stopped.err()).unwrap_or_else(|| Fault::new(Code::TargetBusy).subject(name));
        return Err(Trouble::never(fault));
    }
    tracing::info!(target_name = %name, "stopped");
    spoiled.nothing_is_left();
    match failed {
        Some(fault) => Err(fault.into()),
        None => Ok(stopped?),
    }
}

/// Tells the MGS how this host's targets of one kind are, and goes by its answers, for ever. `ask` makes the question from the version that is known,
/// and `take` goes by an answer and gives its version.
pub(crate) async fn tell_and_ask<M: Message>(
    seams: &Seams,
    mgs: &Directory,
    changes: &watch::Sender<u64>,
    ask: impl Fn(u64) -> (M, u32),
    take: impl Fn(M::Resp) -> u64,
) {
    let (mut known_version, mut changes) = (0, changes.subscribe());
    loop {
        changes.borrow_and_update();
        let (request, wait_ms) = ask(known_version);
        let asked = seams.timeout_ms(u64::from(wait_ms) + GRACE_MS, mgs.mgs().probe(&request));
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            // A new state is told at once.
            _ = changes.changed() => continue,
        };
        match answer {
            Some(Ok(answer)) => known_version = take(answer),
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, op = M::OP.name(), "the MGS does not answer: {fault}");
                // An MGS of an earlier release knows no such targets.
                let pause_ms = if fault.code == Code::UnknownOp { u64::from(IDLE_MS) } else { PAUSE_MS };
                seams.sleep_ms(pause_ms).await;
            }
            None => mgs.map().mgs_is_silent(),
        }
    }
}

/// Refuses a port that somebody has, before anything is opened.
pub(crate) fn check_port(how: &How, port: u16) -> Result<()> {
    how.listens(port)?.into_iter().try_for_each(check_address)
}

fn check_address(nid: Nid) -> Result<()> {
    match std::net::TcpListener::bind((nid.host.as_str(), nid.port)) {
        Ok(_) => Ok(()),
        Err(e) => {
            let code = if e.kind() == std::io::ErrorKind::AddrInUse {
                Code::AddressInUse
            } else {
                Code::BadConfigValue
            };
            let fault = Fault::io(code, "cannot listen at", nid.to_string(), &e);
            Err(crate::listener::name_listener(fault, &nid))
        }
    }
}

/// Makes the target in its directory, unless it is there.
pub(crate) async fn prepare(how: &How, fs: &FsName, mgs: &Directory, order: &Assignment) -> Result<()> {
    let mgs_nids = mgs.mgs().peer().nids();
    let disk: &dyn Disk = &*how.seams.disk;
    let dir = PathBuf::from(&order.dir);
    let exists = dir.is_dir() && Superblock::exists(disk, &order.dir)?;
    if !exists && !order.is_formatted {
        let leftovers = leftovers(disk, &dir, order.uuid)?;
        if leftovers.is_empty() {
            refuse_occupied(disk, &dir)?;
        }
        if order.target.role == Role::Mgt {
            return mgt::fetch(how, mgs, order).await;
        }
        let plan = Plan { fs: fs.clone(), target: order.target, mgs: mgs_nids, dir, uuid: Some(order.uuid) };
        carry_out(&how.seams, &plan, &leftovers).await?;
        tracing::info!(target_name = %fs.target(order.target), dir = %order.dir, "formatted");
        return Ok(());
    }
    if !dir.is_dir() {
        return Err(Fault::new(Code::NotATarget)
            .what("cannot serve")
            .subject(order.dir.clone())
            .why(format!("there is no such directory, and {} was in it", fs.target(order.target)))
            .data("nothing was changed")
            .next("mount its disk there"));
    }
    let expected = Expected { fs: Some(fs.clone()), target: Some(order.target) };
    let mut superblock = Superblock::load(disk, &order.dir, &expected)?.superblock;
    if superblock.uuid == order.uuid {
        if order.target.role != Role::Mgt && superblock.mgs != mgs_nids {
            // The servers of the target ask the MGS at these addresses.
            superblock.mgs = mgs_nids;
            superblock.save(disk, &order.dir)?;
        }
        return Ok(());
    }
    Err(Fault::new(Code::ForeignTarget)
        .what("cannot serve")
        .subject(order.dir.clone())
        .why(format!("it holds another {} than the one that the cluster has", superblock.name()))
        .data("nothing was changed")
        .next("mount the right disk there, or give the target another directory"))
}
