//! The gate in front of every dispatch: who asks, for which target, in which file system, with which epoch and session.
//!
//! MGS, MDS and OSS call [`Gate::hello`] for each connection and [`Gate::admit`] for each request, before they look at its body.
//! The order of the checks is the order in this table; each refusal is counted by its code.
//!
//! | check | refused with |
//! |---|---|
//! | the operation exists, and targets of this role answer it | `UnknownOp` |
//! | the request names this target | `WrongTarget` |
//! | the request names this file system | `WrongFs` |
//! | the caller may ask for the operation ([`Op::askers`]) | `NotForCaller`, `NeedsRoot` |
//! | the request of a mount names a session | `StaleSession` |
//! | the session is of a kind that the caller may have | `NotForCaller` |
//! | the target's epoch in the request is the one that this server has | `StaleEpoch` |
//!
//! The service checks behind the gate what only it knows: whether the session lives (MDS), whether it is fenced (OSS).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_net::{Limits, Nodemaps, RemovedKeys, ServerConn, Transport};
use brindle_stdx::planted;
use brindle_types::{Code, Fault, Role, SessionId, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, Header};
use brindle_wire::map::Map;
use brindle_wire::principal::{Principal, PrincipalKind};
use parking_lot::Mutex;

use crate::owner_lease::OwnerLease;
use crate::register::Registration;

/// Number of newer maps in which a server looks for a claimed successor; each is waited for a second at most.
const NEWER_MAPS_MAX: usize = 3;

/// Name of the counter of [`Gate::accepts_anybody`].
pub const ACCEPTS_ANYBODY: &str = "accepts_mode_none";

/// Guards one target.
pub struct Gate {
    target: TargetId,
    /// `scratch-OST0003`, for messages.
    name: String,
    /// Id of the file system; 0 until the MGS has told it.
    fs_id: AtomicU64,
    registration: OnceLock<Arc<Registration>>,
    /// Right to answer for the target, if it is shared.
    lease: OnceLock<Arc<OwnerLease>>,
    /// Limits of hosts; unset where nothing proves or limits hosts.
    nodemaps: OnceLock<Arc<Nodemaps>>,
    /// Hosts and former names of hosts that are not let in; unset where nothing proves hosts.
    removed: OnceLock<Arc<RemovedKeys>>,
    accepts_anybody: AtomicBool,
    refused: Mutex<BTreeMap<Code, u64>>,
}

impl Gate {
    /// A gate for a target that is not registered yet. `fs_id` is 0 where it is not known yet.
    pub fn new(target: TargetId, name: String, fs_id: u64) -> Gate {
        let fs_id = AtomicU64::new(fs_id);
        let (registration, lease, refused) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let (nodemaps, removed, accepts_anybody) = (OnceLock::new(), OnceLock::new(), AtomicBool::new(false));
        Gate { target, name, fs_id, registration, lease, nodemaps, removed, accepts_anybody, refused }
    }

    /// The MGS knows the target: its epoch counts from now on.
    pub fn registered(&self, registration: Arc<Registration>) {
        self.fs_id.store(registration.map().current().fs_id, Ordering::Release);
        // A service has one registration in its life.
        drop(self.registration.set(registration));
    }

    /// The target is shared: replies go out only while `lease` holds.
    pub fn owned_under(&self, lease: Arc<OwnerLease>) {
        // A service has one owner lease in its life.
        drop(self.lease.set(lease));
    }

    /// Whether another host serves the target when this one cannot.
    pub fn has_owner(&self) -> bool {
        self.lease.get().is_some()
    }

    /// The target is reached through this transport: hosts may do what its nodemaps say.
    pub fn behind(&self, transport: &dyn Transport) {
        if let Some(removed) = transport.removed_keys() {
            // A process has one list in its life.
            drop(self.nodemaps.set(removed.nodemaps.clone()));
            drop(self.removed.set(removed));
        }
        self.accepts_anybody.store(transport.accepts_anybody(), Ordering::Relaxed);
    }

    /// Whether the host behind a connection went by this name before it was renamed.
    pub fn is_former_name(&self, conn: &ServerConn, host: &str) -> bool {
        let (Some(removed), Some(proof)) = (self.removed.get(), conn.proof()) else { return false };
        removed.is_former_name(proof, host)
    }

    /// Counter of a target that tells whether it accepts connections over the network that prove nothing.
    pub fn accepts_anybody(&self) -> (String, u64) {
        (ACCEPTS_ANYBODY.to_owned(), self.accepts_anybody.load(Ordering::Relaxed).into())
    }

    /// Limits of the host behind a connection; `None` if it is trusted fully.
    pub fn limits(&self, conn: &ServerConn) -> Option<Arc<Limits>> {
        self.nodemaps.get()?.limits(conn)
    }

    /// The reply to a request, as it may leave: right before it is sent.
    pub fn reply(&self, request: &Header, reply: Frame) -> Frame {
        match self.lease.get().map(|lease| lease.check()) {
            None | Some(Ok(())) => reply,
            Some(Err(fault)) => {
                let fault = fault.subject(self.name.clone());
                self.count(&fault);
                Frame::fault_reply_to(request, &fault)
            }
        }
    }

    /// The registration, once there is one.
    pub fn registration(&self) -> Option<&Arc<Registration>> {
        self.registration.get()
    }

    /// Requests and connections refused here so far, by code.
    pub fn refused(&self) -> BTreeMap<Code, u64> {
        self.refused.lock().clone()
    }

    /// Requests refused so far because their caller may not ask for them.
    pub fn refused_callers(&self) -> u64 {
        let refused = self.refused.lock();
        [Code::NotForCaller, Code::NeedsRoot].iter().filter_map(|code| refused.get(code)).sum()
    }

    /// Checks a new connection; the id of the file system served here.
    pub fn hello(&self, conn: &ServerConn) -> Result<u64, Fault> {
        let own = self.fs_id.load(Ordering::Acquire);
        if own == 0 && self.target.role != Role::Mgt {
            return Err(Fault::new(Code::TargetDown).why("the MGS has not told it its file system yet"));
        }
        let nodemaps = self.nodemaps.get().filter(|_| self.target.role != Role::Mgt);
        if nodemaps.is_some_and(|nodemaps| nodemaps.may_limit_unheard(conn)) {
            return Err(Fault::new(Code::TargetDown).why("the MGS has not told it the nodemaps yet"));
        }
        let checked = self.check_claim(conn).and_then(|()| self.check_fs(conn.hello().fs_id));
        checked.map(|()| own).inspect_err(|fault| self.count(fault))
    }

    /// Refuses servers and administrators at addresses that a nodemap limits.
    fn check_claim(&self, conn: &ServerConn) -> Result<(), Fault> {
        self.nodemaps.get().map_or(Ok(()), |nodemaps| nodemaps.check_claim(conn))
    }

    /// Checks a request by its header; its operation.
    pub async fn admit(&self, conn: &ServerConn, header: &Header) -> Result<Op, Fault> {
        if let Some(Err(fault)) = self.lease.get().map(|lease| lease.check()) {
            self.count(&fault);
            return Err(fault.subject(self.name.clone()));
        }
        // Nodemaps may have changed since the hello.
        self.check_claim(conn).inspect_err(|fault| self.count(fault))?;
        let admitted = match self.check(conn.principal(), header) {
            Ok(op) => match self.check_server(op, conn).await {
                Ok(()) => self.check_epoch(header).await.map(|()| op),
                Err(fault) => Err(fault),
            },
            Err(fault) if fault.code == Code::NeedsRoot => {
                let why = conn.is_no_administrator().unwrap_or_else(|| "the caller is no command".to_owned());
                let fault = fault.why(why);
                Err(if conn.proof().is_some() {
                    fault.next("run it on a host that has joined as admin")
                } else {
                    fault
                })
            }
            refused => refused,
        };
        admitted.inspect_err(|fault| self.count(fault))
    }

    fn check(&self, principal: &Principal, header: &Header) -> Result<Op, Fault> {
        let number = || {
            Fault::new(Code::UnknownOp)
                .subject(self.name.clone())
                .why(format!("it has no operation {}", header.op))
        };
        let op = Op::from_number(header.op).filter(|op| op.is_served_by(self.target.role));
        let op = op.ok_or_else(number)?;
        self.check_target(header.target)?;
        self.check_fs(header.fs_id)?;
        if planted("gate_admits_any_principal") {
            return Ok(op);
        }
        if !op.askers().has(principal.kind) {
            return Err(not_for(op, principal));
        }
        self.check_session(op, principal, header.session)?;
        Ok(op)
    }

    fn check_target(&self, asked: Option<TargetId>) -> Result<(), Fault> {
        if asked == Some(self.target) {
            return Ok(());
        }
        let asked = asked.map_or_else(|| "no target".to_owned(), |target| target.to_string());
        Err(Fault::new(Code::WrongTarget).subject(asked).why(format!("{} is served here", self.target)))
    }

    /// Refuses another file system's id; 0 stands for any.
    pub fn check_fs(&self, theirs: u64) -> Result<(), Fault> {
        let own = self.fs_id.load(Ordering::Acquire);
        if theirs == 0 || own == 0 || theirs == own {
            return Ok(());
        }
        Err(Fault::new(Code::WrongFs)
            .subject(self.name.clone())
            .why(format!("this is file system {own:016x}"))
            .why(format!("the peer wants file system {theirs:016x}")))
    }

    /// A mount has sessions of clients, an MDT has its own one at the OSTs, and nobody else has any.
    fn check_session(&self, op: Op, principal: &Principal, session: SessionId) -> Result<(), Fault> {
        if principal.kind == PrincipalKind::Client
            && session.0 == 0
            && self.target.role != Role::Mgt
            && !matches!(op, Op::SessionOpen | Op::TargetInfo)
        {
            return Err(Fault::new(Code::StaleSession).why("the request names no session"));
        }
        let may_have = match (principal.kind, principal.target) {
            (PrincipalKind::Client, _) => !session.is_of_mdt(),
            // The term of an MDT is the epoch of its session, so it must show it.
            (PrincipalKind::Mdt, Some(mdt)) if self.target.role == Role::Ost => {
                session == SessionId::of_mdt(mdt.index)
            }
            _ => session.0 == 0,
        };
        if may_have {
            return Ok(());
        }
        Err(not_for(op, principal).why(format!("session {session} is not one that it may have")))
    }

    /// A host that has proven who it is speaks for the targets that the map says it serves. The MGS, which makes the map, decides by itself.
    async fn check_server(&self, op: Op, conn: &ServerConn) -> Result<(), Fault> {
        let (Some(registration), Some(target)) = (self.registration.get(), conn.principal().target) else {
            return Ok(());
        };
        if conn.proof().is_none() || planted("gate_admits_any_principal") {
            return Ok(());
        }
        let host = &conn.principal().host;
        let map = registration.map().current();
        let serves = |map: &Map| map.target(target).is_some_and(|entry| entry.host() == host);
        if serves(&map) {
            return Ok(());
        }
        // The server may have taken over a moment ago. A map that is newer for another reason is not waited behind.
        let mut version = map.version;
        for _ in 0..NEWER_MAPS_MAX {
            registration.map().refresh(version).await;
            let map = registration.map().current();
            if serves(&map) {
                return Ok(());
            }
            version = map.version;
        }
        Err(not_for(op, conn.principal()).why(format!("the map says that another host serves {target}")))
    }

    /// Refuses a caller that knows another server of this target: an earlier or a later one.
    async fn check_epoch(&self, header: &Header) -> Result<(), Fault> {
        // A caller that does not follow the map sends the epoch 0. A server that has not registered yet has none.
        let (Some(registration), true) = (self.registration.get(), header.target_epoch != 0) else {
            return Ok(());
        };
        let mut own = registration.epoch();
        if header.target_epoch > own {
            own = registration.until_epoch(header.target_epoch).await;
        }
        if header.target_epoch == own {
            return Ok(());
        }
        let why = format!("the target is at epoch {own}, the request has {}", header.target_epoch);
        Err(Fault::new(Code::StaleEpoch).why(why))
    }

    /// Counts a refusal of the service behind the gate, too.
    pub fn count(&self, fault: &Fault) {
        *self.refused.lock().entry(fault.code).or_default() += 1;
        if fault.code == Code::NotForCaller {
            tracing::warn!(target = %self.name, code = %fault.code, "refused: {fault}");
        }
    }
}

/// Refuses a server that speaks for another target than its own.
pub fn check_speaks_for(op: Op, principal: &Principal, target: TargetId) -> Result<(), Fault> {
    if principal.target == Some(target) || planted("gate_admits_any_principal") {
        return Ok(());
    }
    Err(not_for(op, principal).why(format!("it speaks for {target}")))
}

/// The refusal of a caller that may not ask for an operation.
fn not_for(op: Op, principal: &Principal) -> Fault {
    if op.askers().is_administrators_only() && principal.kind != PrincipalKind::Administrator {
        return Fault::new(Code::NeedsRoot).what("this is for administrators").data("nothing was changed");
    }
    Fault::new(Code::NotForCaller)
        .what(format!("{} is not for", op.name()))
        .subject(principal.to_string())
        .data("nothing was changed")
}

#[cfg(test)]
mod tests {
    use brindle_types::Pair;
    use proptest::prelude::*;

    use super::*;

    const FS_ID: u64 = 7;

    fn gate(target: TargetId) -> Gate {
        Gate::new(target, format!("scratch-{target}"), FS_ID)
    }

    fn principal(kind: PrincipalKind, target: Option<TargetId>) -> Principal {
        Principal { kind, host: "n1".into(), target }
    }

    fn header(op: Op, target: TargetId, session: SessionId) -> Header {
        let session_epoch = Pair { term: 1, counter: 1 };
        Header {
            op: op as u16,
            target: Some(target),
            fs_id: FS_ID,
            session,
            session_epoch,
            ..Header::default()
        }
    }

    fn code(outcome: Result<Op, Fault>) -> Option<Code> {
        outcome.err().map(|fault| fault.code)
    }

    #[test]
    fn each_check_has_its_code_and_the_first_one_counts() {
        let (ost, mdt, session) = (TargetId::ost(3), TargetId::mdt(0), SessionId(5));
        let gate = gate(ost);
        let client = principal(PrincipalKind::Client, None);
        let asked = |header| code(gate.check(&client, &header));
        let good = header(Op::Read, ost, session);
        assert_eq!(asked(good.clone()), None);
        assert_eq!(asked(Header { op: 9_999, ..good.clone() }), Some(Code::UnknownOp));
        assert_eq!(asked(header(Op::Lookup, ost, session)), Some(Code::UnknownOp));
        assert_eq!(asked(Header { target: None, ..good.clone() }), Some(Code::WrongTarget));
        assert_eq!(asked(Header { target: Some(mdt), ..good.clone() }), Some(Code::WrongTarget));
        assert_eq!(asked(Header { fs_id: 8, ..good.clone() }), Some(Code::WrongFs));
        assert_eq!(asked(Header { session: SessionId(0), ..good.clone() }), Some(Code::StaleSession));
        assert_eq!(asked(Header { session: SessionId::of_mdt(0), ..good }), Some(Code::NotForCaller));
        assert_eq!(asked(header(Op::DestroyObjects, ost, session)), Some(Code::NotForCaller));
        assert_eq!(asked(header(Op::ListObjects, ost, session)), Some(Code::NeedsRoot));
    }

    #[test]
    fn an_mdt_asks_osts_as_itself_only() {
        let ost = TargetId::ost(3);
        let gate = gate(ost);
        let mdt = principal(PrincipalKind::Mdt, Some(TargetId::mdt(1)));
        let asked = |session| code(gate.check(&mdt, &header(Op::DestroyObjects, ost, session)));
        assert_eq!(asked(SessionId::of_mdt(1)), None);
        for session in [SessionId::of_mdt(0), SessionId(0), SessionId(5)] {
            assert_eq!(asked(session), Some(Code::NotForCaller), "{session}");
        }
        let message = gate.check(&mdt, &header(Op::DestroyObjects, ost, SessionId(5))).expect_err("refused");
        assert_eq!(
            message.to_string(),
            "destroy_objects is not for MDT0001 on host n1\
             \n  why:  session c5 is not one that it may have\
             \n  data: nothing was changed\
             \n  code: E8009 (brindle explain E8009)"
        );
    }

    proptest! {
        /// Every request that passes comes from a principal that the table names, with a session of the right
        /// kind.
        #[test]
        fn nobody_passes_whom_the_table_does_not_name(
            op in 0u16..700,
            kind in 0usize..7,
            serves in 0u16..3,
            session in prop_oneof![Just(0u64), 1u64..9, Just(u64::MAX), Just(SessionId::of_mdt(1).0)],
            at in 0usize..3,
        ) {
            use PrincipalKind::{Administrator, Agent, Client, Mdt, Mgs, Ost, User};
            let kind = [Client, Mdt, Ost, Mgs, Administrator, User, Agent][kind];
            let target = [TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)][at];
            let serves = match kind {
                Mdt => Some(TargetId::mdt(serves)),
                Ost => Some(TargetId::ost(serves)),
                _ => None,
            };
            let header = Header { op, ..header(Op::Read, target, SessionId(session)) };
            if let Ok(op) = gate(target).check(&principal(kind, serves), &header) {
                prop_assert!(op.askers().has(kind) && op.is_served_by(target.role));
                prop_assert!(kind == Client || kind == Mdt || session == 0);
                prop_assert!(kind != Client || !header.session.is_of_mdt());
            }
        }
    }
}
