//! Moves of copies: `brindle target replica move`. The MGS carries a move out by itself; this module reports
//! its progress.

use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::mgs::replica::ReplicaSetState;
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::replica::{MemberView, ReplicaSetView, view};
use crate::servers::Servers;

/// Interval between two looks at a move.
const LOOK_EVERY_MS: u64 = 500;

/// A copy that moves, or has moved, to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplicaMoveView {
    /// Full name of the target.
    pub name: String,
    /// Host that the copy leaves.
    pub from: String,
    /// Host that the copy moves to.
    pub to: String,
    /// Directory of the new copy.
    pub dir: String,
    /// Whether this was only a look at what would be done.
    pub dry_run: bool,
    /// Whether the copy has moved.
    pub done: bool,
    /// Steps that are left, in order.
    pub steps: Vec<String>,
}
document!(ReplicaMoveView, "brindle.target.replica.move", 1);

/// A copy, and the hosts that it leaves and moves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaMove {
    /// The target.
    pub target: TargetId,
    /// Host that the copy leaves.
    pub from: String,
    /// Host that the copy moves to.
    pub to: String,
}

impl ReplicaMove {
    /// Progress of the move. `set` is the present set, or the set that the order would make.
    pub fn view(&self, fs: &FsName, set: &ReplicaSetState, is_dry_run: bool) -> ReplicaMoveView {
        let ReplicaMove { target, from, to } = self;
        let mut steps = Vec::new();
        if set.member(from).is_some() {
            if !set.is_in_sync(to) {
                steps.push(format!("make a complete copy on {to}"));
            }
            if set.primary == *from {
                steps.push(format!("have {to} serve in the place of {from}"));
            }
            steps.push(format!("take the copy on {from} away"));
        }
        ReplicaMoveView {
            name: fs.target(*target),
            from: from.clone(),
            to: to.clone(),
            dir: set.member(to).map(|m| m.dir.clone()).unwrap_or_default(),
            dry_run: is_dry_run,
            done: steps.is_empty(),
            steps,
        }
    }

    /// Waits until the copy has moved, however long that takes; tells of each change on the way.
    pub async fn until_done(
        &self,
        servers: &Servers,
        place: &FsLocation,
        fs: &FsName,
        mut tell: impl FnMut(String),
    ) -> Result<ReplicaMoveView> {
        let (seams, mut last) = (servers.seams().clone(), String::new());
        loop {
            let answer = servers.replicas(place).await?;
            let gone = || Fault::new(Code::UnknownTarget).subject(fs.target(self.target));
            let info = answer.sets.iter().find(|info| info.set.target == self.target).ok_or_else(gone)?;
            let (shown, left) = (view(fs, info), self.view(fs, &info.set, false));
            if info.set.member(&self.to).is_none() {
                return Err(self.taken_back(fs));
            }
            if let Some(failed) = shown.members.iter().find(|m| m.host == self.to && m.state == "failed") {
                return Err(self.failed(fs, failed));
            }
            if left.done {
                return Ok(left);
            }
            let said = said(&shown, &left, &self.to);
            if said != last {
                tell(said.clone());
                last = said;
            }
            seams.sleep_ms(LOOK_EVERY_MS).await;
        }
    }

    fn fault(&self, fs: &FsName) -> Fault {
        Fault::new(Code::TargetDown).what("has not moved:").subject(format!(
            "the copy of {} on {}",
            fs.target(self.target),
            self.from
        ))
    }

    fn taken_back(&self, fs: &FsName) -> Fault {
        self.fault(fs)
            .why(format!("the new copy on {} was taken away, by somebody else or for a spare host", self.to))
            .data(format!("the copy on {} is as it was", self.from))
            .next("look at the copies: brindle target replica list")
    }

    fn failed(&self, fs: &FsName, member: &MemberView) -> Fault {
        let ReplicaMove { target, to, .. } = self;
        self.fault(fs)
            .why(format!("{to}: {}", member.why))
            .data(format!("the copy on {} is as it was; the order stands", self.from))
            .next(format!(
                "put {} on {to} right, and repeat the command; or take the order back: brindle target replica remove {target} --node {to}",
                member.dir
            ))
    }
}

/// Progress in a line.
fn said(set: &ReplicaSetView, left: &ReplicaMoveView, to: &str) -> String {
    let member = set.members.iter().find(|m| m.host == to);
    let step = left.steps.first().map_or("wait until the target is served", String::as_str);
    let progress = member.map(progress).unwrap_or_default();
    let state = member.map(|m| format!("{}, {}", m.role, m.state)).unwrap_or_default();
    let why = member.map(|m| m.why.as_str()).filter(|why| !why.is_empty());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let detail = if progress.is_empty() { state } else { progress };
    format!("{}: {step} ({detail}){why}", set.name)
}

/// Bytes, rate and time of the fill of a member; empty if it is not filled now.
fn progress(member: &MemberView) -> String {
    let Some(resync) = &member.resync else { return String::new() };
    let rate = resync.rate_bytes.map(|rate| format!(", {}/s", format_bytes(rate))).unwrap_or_default();
    format!("{}{rate}", crate::replica::progress(member))
}
