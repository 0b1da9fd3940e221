//! Tiering: states, rights, attempts, the compare of contents, and the state after a restart.

use brindle_types::hsm::{
    HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_LOST, HSM_NOARCHIVE, HSM_NORELEASE, HSM_RELEASED,
};
use brindle_types::{ArchivedCopy, Code, Fault, HsmControl, HsmKind, Ino, ObjectId, Pair, Result};
use brindle_wire::Cred;
use brindle_wire::mds::close::CloseReq;
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};
use brindle_wire::mds::hsm::*;
use brindle_wire::mds::inline::InlineReadReq;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::open::{Access, OpenReq, OpenResp};
use brindle_wire::mds::report::WriteReport;
use brindle_wire::mds::tmpfile::TmpfileReq;

use super::rig::*;
use super::sharing::write;
use crate::background::destroy_some;
use crate::hsm;

pub(super) const AGENT: [u8; 16] = [1; 16];
pub(super) const OTHER: [u8; 16] = [2; 16];
const CONTENT: &str = "some bytes";
pub(super) const OWNER: u32 = 1000;

/// A closed file of user 1000 with a few bytes.
async fn file(rig: &Rig, name: &str) -> Ino {
    let req = CreateAs { uid: OWNER, name };
    let (ino, handle, grant) = req.make(rig).await;
    rig.ask(A, write(ino, handle, &grant, 0, CONTENT)).await.expect("written");
    rig.close(A, ino, handle).await.expect("closed");
    ino
}

pub(super) struct CreateAs<'a> {
    pub uid: u32,
    pub name: &'a str,
}

impl CreateAs<'_> {
    pub(super) async fn make(&self, rig: &Rig) -> (Ino, u64, brindle_wire::mds::open::OpenGrant) {
        let mut req = create_req(Ino::ROOT, self.name, RW);
        req.cred = user(self.uid);
        let handle = req.handle;
        let made = rig.ask(A, req).await.expect("made");
        (made.attr.ino, handle, made.grant)
    }
}

/// Writes bytes to objects of an open file, as a client does, and closes it with a report.
pub(super) async fn fill(rig: &Rig, ino: Ino, handle: u64, byte: u8, len: usize, closes: bool) {
    let convert = ConvertReq { ino, offset: 0, len_bytes: len as u64, promised: false };
    let grant = rig.ask(A, convert).await.expect("converted");
    let component = &grant.layout.components[0];
    assert_eq!(component.osts.len(), 1, "the default of this rig");
    let object = ObjectId { ino, generation: component.generation, stripe: 0 };
    rig.osts.objects.lock().insert((component.osts[0], object), vec![byte; len]);
    let report = WriteReport {
        number: 1,
        end_bytes: len as u64,
        written: true,
        attr_epoch: grant.attr_epoch,
        truncate_epoch: grant.truncate_epoch,
        body: grant.layout.body,
        ..WriteReport::default()
    };
    if closes {
        rig.ask(A, CloseReq::one(ino, handle, Some(report))).await.expect("closed");
    } else {
        let items = vec![(ino, report)];
        rig.ask(A, brindle_wire::mds::report::ReportReq { items, synced: Vec::new() }).await.expect("told");
    }
}

async fn act_as(rig: &Rig, ino: Ino, ask: HsmAsk, cred: Cred) -> Result<()> {
    rig.ask(A, HsmActReq { ino, ask, cred }).await.map(drop)
}

pub(super) async fn act(rig: &Rig, ino: Ino, ask: HsmAsk) -> Result<()> {
    act_as(rig, ino, ask, user(OWNER)).await
}

pub(super) async fn flags(rig: &Rig, ino: Ino) -> u32 {
    rig.ask(A, HsmStateReq { ino }).await.expect("known").flags
}

pub(super) async fn take(rig: &Rig, agent: [u8; 16]) -> Vec<HsmWork> {
    let request = HsmTakeReq { agent, host: "oss1".into(), archives: vec![1], max: 8, cred: root() };
    rig.ask(B, request).await.expect("given").work
}

pub(super) async fn done(rig: &Rig, work: &HsmWork, outcome: HsmOutcome) -> Result<()> {
    let attempt = HsmAttempt { ino: work.ino, attempt: work.attempt };
    rig.ask(B, HsmDoneReq { attempt, outcome, cred: root() }).await.map(drop)
}

fn copy(work: &HsmWork) -> ArchivedCopy {
    let HsmWork { data_version, attempt, size_bytes, .. } = *work;
    ArchivedCopy { data_version, attempt, size_bytes, checksum: [9; 32] }
}

pub(super) async fn archive(rig: &Rig, ino: Ino) -> ArchivedCopy {
    act(rig, ino, HsmAsk::Archive(0)).await.expect("queued");
    let work = take(rig, AGENT).await.remove(0);
    assert_eq!((work.ino, work.kind, work.archive), (ino, HsmKind::Archive, 1));
    done(rig, &work, HsmOutcome::Archived(copy(&work))).await.expect("taken");
    copy(&work)
}

async fn open(rig: &Rig, ino: Ino, access: Access) -> Result<OpenResp> {
    let handle = 7000 + ino.0;
    rig.ask(A, OpenReq { ino, handle, access, cred: root(), kill_suidgid: false }).await
}

/// A file without a name that is open at B, with the bytes of a restore.
async fn restored(rig: &Rig, handle: u64, text: &str) -> Ino {
    let cred = root();
    let request = TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access: WO, handle, cred };
    let made = rig.ask(B, request).await.expect("made");
    rig.ask(B, write(made.attr.ino, handle, &made.grant, 0, text)).await.expect("written");
    made.attr.ino
}

pub(super) async fn recall(rig: &Rig, ino: Ino, waits_for: Option<Pair>) -> HsmRecallResp {
    rig.ask(A, HsmRecallReq { ino, waits_for, cred: user(OWNER) }).await.expect("answered")
}

pub(super) const ARCHIVED: u32 = HSM_EXISTS | HSM_ARCHIVED;

#[test]
fn a_file_is_archived_released_and_comes_back() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        assert_eq!(flags(&rig, ino).await, 0);
        archive(&rig, ino).await;
        assert_eq!(flags(&rig, ino).await, ARCHIVED);
        let before = rig.stat(A, ino).await.expect("there");
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        act(&rig, ino, HsmAsk::Release).await.expect("again is nothing");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        let after = rig.stat(A, ino).await.expect("there");
        assert_eq!((after.size_bytes, after.allocated_bytes), (before.size_bytes, 512));
        assert_eq!((after.mtime, after.data_version), (before.mtime, before.data_version));
        assert_eq!(code(open(&rig, ino, RO).await), Some(Code::Released));
        assert_eq!(code(open(&rig, ino, WO).await), Some(Code::Released));
        rig.verify();
        act(&rig, ino, HsmAsk::Restore).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let from = restored(&rig, 5, CONTENT).await;
        done(&rig, &work, HsmOutcome::Restored(from)).await.expect("taken");
        rig.close(B, from, 5).await.expect("it goes");
        assert_eq!(recall(&rig, ino, None).await, HsmRecallResp::Here);
        open(&rig, ino, RO).await.expect("opened");
        let read = rig.ask(A, InlineReadReq { ino }).await.expect("read");
        assert_eq!(read.data.as_deref(), Some(CONTENT.as_bytes()));
        assert_eq!(flags(&rig, ino).await, ARCHIVED, "and not dirty");
        rig.verify();
    });
}

#[test]
fn the_objects_of_a_released_file_go_and_those_of_a_restored_one_are_new() {
    run(async {
        let rig = Rig::new().await;
        let (ino, handle, _) = CreateAs { uid: OWNER, name: "f" }.make(&rig).await;
        fill(&rig, ino, handle, 7, 300_000, true).await;
        archive(&rig, ino).await;
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        destroy_some(&rig.mdt).await.expect("destroyed");
        assert!(rig.osts.objects.lock().is_empty(), "nothing takes room");
        rig.verify();
        assert!(matches!(recall(&rig, ino, None).await, HsmRecallResp::Waiting(_)));
        let work = take(&rig, AGENT).await.remove(0);
        assert_eq!((work.kind, work.size_bytes), (HsmKind::Restore, 300_000));
        let (from, source_handle, _) = {
            let request =
                TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access: WO, handle: 9, cred: root() };
            let made = rig.ask(A, request).await.expect("made");
            (made.attr.ino, 9, made.grant)
        };
        fill(&rig, from, source_handle, 7, 300_000, false).await;
        done(&rig, &work, HsmOutcome::Restored(from)).await.expect("taken");
        rig.close(A, from, source_handle).await.expect("closed");
        destroy_some(&rig.mdt).await.expect("destroyed");
        let layout = rig.ask(A, LayoutGetReq { ino }).await.expect("known").layout;
        let objects = rig.osts.objects.lock().clone();
        let [((ost, object), bytes)] = &objects.into_iter().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((object.ino, *ost), (ino, layout.components[0].osts[0]));
        assert!(bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == 7));
        assert!(layout.object_known(object.named()), "it is synced");
        rig.verify();
    });
}

#[test]
fn what_was_written_meanwhile_makes_the_copy_worthless() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        act(&rig, ino, HsmAsk::Archive(0)).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let opened = open(&rig, ino, RW).await.expect("opened");
        rig.ask(A, write(ino, 7000 + ino.0, &opened.grant, 0, "other")).await.expect("written");
        let ended = done(&rig, &work, HsmOutcome::Archived(copy(&work))).await;
        assert_eq!(code(ended), Some(Code::ChangedMeanwhile));
        assert_eq!(flags(&rig, ino).await, 0);
        assert!(take_now(&rig).is_empty(), "the action has ended");
        rig.close(A, ino, 7000 + ino.0).await.expect("closed");
        archive(&rig, ino).await;
        // Write the file after it was archived.
        open(&rig, ino, RW).await.expect("opened");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_DIRTY);
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused));
        rig.close(A, ino, 7000 + ino.0).await.expect("closed");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_DIRTY);
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused));
        archive(&rig, ino).await;
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        rig.verify();
    });
}

/// Actions that an agent would be given; none is given out.
fn take_now(rig: &Rig) -> Vec<Ino> {
    rig.mdt.live().hsm.pick(&[], 8)
}

#[test]
fn an_attempt_that_was_given_to_another_agent_counts_no_more() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        act(&rig, ino, HsmAsk::Archive(0)).await.expect("queued");
        let first = take(&rig, AGENT).await.remove(0);
        hsm::take_back(&rig.mdt, AGENT, "a test").await.expect("taken back");
        let second = take(&rig, OTHER).await.remove(0);
        assert!(second.attempt > first.attempt);
        let late = done(&rig, &first, HsmOutcome::Archived(copy(&first))).await;
        assert_eq!(code(late), Some(Code::StaleAttempt));
        assert_eq!(flags(&rig, ino).await, 0);
        let tell = HsmProgressReq {
            agent: AGENT,
            moved_bytes: vec![(HsmAttempt { ino, attempt: first.attempt }, 5)],
            leaves: false,
            cred: root(),
        };
        assert_eq!(rig.ask(B, tell).await.expect("heard").gone.len(), 1);
        done(&rig, &second, HsmOutcome::Archived(copy(&second))).await.expect("taken");
        done(&rig, &second, HsmOutcome::Archived(copy(&second))).await.expect("told twice");
        assert_eq!(flags(&rig, ino).await, ARCHIVED);
        assert_eq!(code(done(&rig, &second, HsmOutcome::Removed).await), Some(Code::StaleAttempt));
        // An action that takes down every agent ends after some attempts.
        act(&rig, ino, HsmAsk::Remove).await.expect("queued");
        for _ in 0..hsm::LOST_ATTEMPTS_MAX {
            assert_eq!(take(&rig, AGENT).await.len(), 1);
            hsm::take_back(&rig.mdt, AGENT, "a test").await.expect("taken back");
        }
        assert!(take_now(&rig).is_empty());
        rig.verify();
    });
}

fn tells(agent: [u8; 16], leaves: bool) -> HsmProgressReq {
    HsmProgressReq { agent, moved_bytes: Vec::new(), leaves, cred: root() }
}

#[test]
fn an_agent_that_leaves_while_it_asks_for_work_is_given_none() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        let leaving = async {
            tokio::task::yield_now().await;
            rig.ask(B, tells(AGENT, true)).await.expect("heard");
            assert!(!rig.mdt.live().hsm.agents.contains_key(&AGENT));
            act(&rig, ino, HsmAsk::Archive(0)).await.expect("queued");
        };
        let (work, ()) = tokio::join!(take(&rig, AGENT), leaving);
        assert!(work.is_empty());
        assert_eq!(take_now(&rig), [ino], "it waits for another agent");
        assert_eq!(take(&rig, OTHER).await.len(), 1);
        rig.verify();
    });
}

#[test]
fn an_action_that_ends_while_the_answer_is_prepared_loses_no_other() {
    run(async {
        let rig = Rig::new().await;
        let (open_one, closed) = (file(&rig, "a").await, file(&rig, "b").await);
        act(&rig, open_one, HsmAsk::Archive(0)).await.expect("queued");
        act(&rig, closed, HsmAsk::Archive(0)).await.expect("queued");
        open(&rig, open_one, RW).await.expect("opened");
        let ends = async {
            for _ in 0..100_000 {
                if rig.mdt.live().hsm.running() == 2 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let mut live = rig.mdt.live_mut();
            assert_eq!(live.hsm.running(), 2);
            live.hsm.end(open_one, HsmStatus::Cancelled);
        };
        let (work, ()) = tokio::join!(take(&rig, AGENT), ends);
        assert_eq!(work.iter().map(|item| item.ino).collect::<Vec<_>>(), [closed]);
        done(&rig, &work[0], HsmOutcome::Archived(copy(&work[0]))).await.expect("taken");
        assert_eq!(flags(&rig, closed).await, ARCHIVED);
    });
}

#[test]
fn work_of_which_its_agent_never_heard_is_given_out_again() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        act(&rig, ino, HsmAsk::Archive(0)).await.expect("queued");
        let lost = take(&rig, AGENT).await.remove(0);
        let later = rig.mdt.hearing().now().plus_ms(hsm::AGENT_LEASE_MS + 1000);
        rig.ask(B, tells(AGENT, false)).await.expect("heard");
        assert!(take_now(&rig).is_empty(), "the answer may be under way");
        let works_on = [HsmAttempt { ino, attempt: lost.attempt }].into();
        hsm::take_back_unheard_of(&rig.mdt, AGENT, &works_on, later).await.expect("looked at");
        hsm::take_back_unheard_of(&rig.mdt, OTHER, &[].into(), later).await.expect("looked at");
        assert!(take_now(&rig).is_empty(), "its agent works on it");
        hsm::take_back_unheard_of(&rig.mdt, AGENT, &[].into(), later).await.expect("taken back");
        assert_eq!(take_now(&rig), [ino]);
        assert!(rig.mdt.live().hsm.agents.contains_key(&AGENT), "the agent is as good as any");
        let again = take(&rig, AGENT).await.remove(0);
        assert!(again.attempt > lost.attempt);
        rig.restart().await;
        let later = rig.mdt.hearing().now().plus_ms(hsm::AGENT_LEASE_MS + 1000);
        hsm::take_back_unheard_of(&rig.mdt, AGENT, &[].into(), later).await.expect("taken back");
        assert_eq!(take_now(&rig), [ino], "also after a restart");
        rig.verify();
    });
}

#[test]
fn a_restore_is_not_given_out_with_files_that_have_to_be_synced_first() {
    run(async {
        let rig = Rig::new().await;
        let (released, other) = (file(&rig, "a").await, file(&rig, "b").await);
        archive(&rig, released).await;
        act(&rig, released, HsmAsk::Release).await.expect("released");
        act(&rig, other, HsmAsk::Archive(0)).await.expect("queued");
        act(&rig, released, HsmAsk::Restore).await.expect("queued");
        let kinds = |work: Vec<HsmWork>| work.iter().map(|item| item.kind).collect::<Vec<_>>();
        assert_eq!(kinds(take(&rig, AGENT).await), [HsmKind::Restore]);
        assert_eq!(kinds(take(&rig, AGENT).await), [HsmKind::Archive]);
        rig.verify();
    });
}

#[test]
fn owners_and_root_act_and_others_do_not() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        for ask in [HsmAsk::Archive(1), HsmAsk::Release, HsmAsk::Remove, HsmAsk::Cancel] {
            assert_eq!(code(act_as(&rig, ino, ask, user(1001)).await), Some(Code::NotPermitted), "{ask:?}");
        }
        let set = |set, clear, uid| HsmSetReq { ino, set, clear, archive: None, cred: user(uid) };
        assert_eq!(code(rig.ask(A, set(HSM_NORELEASE, 0, 1001)).await), Some(Code::NotPermitted));
        assert_eq!(code(rig.ask(A, set(HSM_LOST, 0, OWNER)).await), Some(Code::NotPermitted));
        assert_eq!(code(rig.ask(A, set(HSM_RELEASED, 0, 0)).await), Some(Code::NotPermitted), "nobody may");
        assert_eq!(code(rig.ask(A, set(HSM_ARCHIVED, 0, 0)).await), Some(Code::HsmRefused), "without a copy");
        rig.ask(A, set(HSM_NOARCHIVE, 0, OWNER)).await.expect("set");
        assert_eq!(code(act(&rig, ino, HsmAsk::Archive(1)).await), Some(Code::HsmRefused));
        rig.ask(A, set(HSM_NORELEASE, HSM_NOARCHIVE, OWNER)).await.expect("set");
        archive(&rig, ino).await;
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused));
        rig.ask(A, set(0, HSM_NORELEASE, OWNER)).await.expect("cleared");
        rig.ask(A, set(HSM_DIRTY, 0, OWNER)).await.expect("set");
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused), "dirty");
        rig.ask(A, set(0, HSM_DIRTY, OWNER)).await.expect("cleared");
        assert_eq!(code(act(&rig, ino, HsmAsk::Archive(33)).await), Some(Code::InvalidArgument));
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        assert_eq!(code(rig.ask(A, set(0, HSM_EXISTS, 0)).await), Some(Code::HsmRefused), "the only copy");
        assert_eq!(code(rig.ask(A, set(0, HSM_ARCHIVED, 0)).await), Some(Code::HsmRefused), "the only copy");
        assert_eq!(code(act(&rig, ino, HsmAsk::Remove).await), Some(Code::HsmRefused), "the only copy");
        let take = HsmTakeReq { agent: AGENT, host: "h".into(), archives: vec![], max: 1, cred: user(5) };
        assert_eq!(code(rig.ask(B, take).await), Some(Code::NotPermitted));
        rig.verify();
    });
}

#[test]
fn a_copy_that_is_to_be_removed_is_none_from_then_on() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused), "not archived");
        assert_eq!(code(act(&rig, ino, HsmAsk::Remove).await), Some(Code::HsmRefused), "it has none");
        archive(&rig, ino).await;
        act(&rig, ino, HsmAsk::Remove).await.expect("queued");
        assert_eq!(flags(&rig, ino).await, HSM_EXISTS, "no longer archived, in the same batch");
        assert_eq!(code(act(&rig, ino, HsmAsk::Release).await), Some(Code::HsmRefused));
        assert_eq!(code(act(&rig, ino, HsmAsk::Archive(1)).await), Some(Code::FileBusy), "one at a time");
        let work = take(&rig, AGENT).await.remove(0);
        done(&rig, &work, HsmOutcome::Removed).await.expect("taken");
        assert_eq!(flags(&rig, ino).await, 0);
        rig.verify();
    });
}

#[test]
fn a_file_that_is_open_is_not_released() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        archive(&rig, ino).await;
        open(&rig, ino, RO).await.expect("opened");
        let fault = act(&rig, ino, HsmAsk::Release).await.expect_err("refused");
        assert_eq!((fault.code, &*fault.why[0]), (Code::FileBusy, "it is open on cn1"));
        assert!(
            rig.clients
                .take_asked()
                .iter()
                .any(|(_, op, of)| { *op == brindle_wire::Op::ClosedNotice && *of == ino })
        );
        rig.close(A, ino, 7000 + ino.0).await.expect("closed");
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        rig.verify();
    });
}

#[test]
fn whoever_waits_for_a_restore_hears_why_it_failed() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig, "f").await;
        archive(&rig, ino).await;
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        act(&rig, ino, HsmAsk::Restore).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let waiting = recall(&rig, ino, None);
        let damaged = Fault::new(Code::ArchiveDamaged).why("the checksum differs");
        let failing = async {
            tokio::task::yield_now().await;
            done(&rig, &work, HsmOutcome::Failed(damaged.clone())).await.expect("taken");
        };
        let (heard, ()) = tokio::join!(waiting, failing);
        assert_eq!(heard, HsmRecallResp::Failed(damaged));
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED, "it stays released");
        // A restore from something of another length changes nothing.
        act(&rig, ino, HsmAsk::Restore).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let from = restored(&rig, 5, "too short").await;
        assert!(done(&rig, &work, HsmOutcome::Restored(from)).await.is_err());
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        // A lost copy is not waited for.
        act(&rig, ino, HsmAsk::Cancel).await.expect("given up");
        let set = HsmSetReq { ino, set: HSM_LOST, clear: 0, archive: None, cred: root() };
        rig.ask(A, set).await.expect("set");
        assert!(matches!(recall(&rig, ino, None).await, HsmRecallResp::Failed(_)));
        rig.verify();
    });
}

#[test]
fn an_ost_without_room_leaves_the_file_released() {
    run(async {
        let rig = Rig::new().await;
        let (ino, handle, _) = CreateAs { uid: OWNER, name: "f" }.make(&rig).await;
        fill(&rig, ino, handle, 7, 300_000, true).await;
        archive(&rig, ino).await;
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        act(&rig, ino, HsmAsk::Restore).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let cred = root();
        let request = TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access: WO, handle: 9, cred };
        let from = rig.ask(A, request).await.expect("made").attr.ino;
        fill(&rig, from, 9, 7, 300_000, false).await;
        rig.osts.room.lock().extend((0..OSTS).map(|ost| (ost, 1000)));
        let failed = done(&rig, &work, HsmOutcome::Restored(from)).await;
        assert_eq!(code(failed), Some(Code::OstFull));
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        rig.close(A, from, 9).await.expect("closed");
        destroy_some(&rig.mdt).await.expect("destroyed");
        assert!(rig.osts.objects.lock().is_empty(), "what was copied is gone");
        rig.verify();
    });
}

#[test]
fn emptying_and_removing_need_no_restore() {
    run(async {
        let rig = Rig::new().await;
        let (emptied, removed, cut) = (file(&rig, "a").await, file(&rig, "b").await, file(&rig, "c").await);
        for ino in [emptied, removed, cut] {
            archive(&rig, ino).await;
            act(&rig, ino, HsmAsk::Release).await.expect("released");
        }
        act(&rig, emptied, HsmAsk::Restore).await.expect("queued");
        act(&rig, removed, HsmAsk::Restore).await.expect("queued");
        let mut size = setattr_req(cut, root());
        size.size_bytes = Some(3);
        assert_eq!(code(rig.ask(A, size.clone()).await), Some(Code::Released));
        size.size_bytes = Some(0);
        rig.ask(A, size).await.expect("cut to nothing");
        assert_eq!(flags(&rig, cut).await, ARCHIVED | HSM_DIRTY);
        open(&rig, emptied, Access { truncate: true, ..WO }).await.expect("opened");
        rig.unlink(Ino::ROOT, "b").await.expect("removed");
        assert!(rig.mdt.live().hsm.actions.is_empty(), "nothing is left to be restored");
        assert_eq!(flags(&rig, emptied).await & HSM_RELEASED, 0);
        rig.verify();
    });
}

#[test]
fn a_restart_keeps_what_is_queued_under_way_and_released() {
    run(async {
        let mut rig = Rig::new().await;
        let inos = [file(&rig, "a").await, file(&rig, "b").await, file(&rig, "c").await];
        archive(&rig, inos[2]).await;
        act(&rig, inos[2], HsmAsk::Release).await.expect("released");
        act(&rig, inos[0], HsmAsk::Archive(0)).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        act(&rig, inos[1], HsmAsk::Archive(0)).await.expect("queued");
        rig.restart().await;
        assert_eq!(code(open(&rig, inos[2], RO).await), Some(Code::Released));
        assert_eq!(take_now(&rig), [inos[1]], "the other one is under way");
        let now = rig.mdt.hearing().now();
        assert_eq!(
            rig.mdt.live().hsm.silent_agents(now.plus_ms(hsm::AGENT_LEASE_MS + 1), hsm::AGENT_LEASE_MS),
            [AGENT]
        );
        done(&rig, &work, HsmOutcome::Archived(copy(&work))).await.expect("taken");
        assert_eq!(flags(&rig, inos[0]).await, ARCHIVED);
        rig.verify();
        rig.restart().await;
        assert_eq!(flags(&rig, inos[0]).await, ARCHIVED);
        assert_eq!(flags(&rig, inos[2]).await, ARCHIVED | HSM_RELEASED);
    });
}

#[test]
fn control_stops_pauses_and_purges() {
    run(async {
        let mut rig = Rig::new().await;
        let (a, b) = (file(&rig, "a").await, file(&rig, "b").await);
        let switch = |switch| HsmSwitchReq { switch, cred: root() };
        rig.ask(A, switch(HsmSwitch::Control(HsmControl::Disabled))).await.expect("set");
        act(&rig, a, HsmAsk::Archive(0)).await.expect("it is queued");
        assert!(take_now(&rig).is_empty(), "and waits");
        rig.restart().await;
        assert!(take_now(&rig).is_empty(), "a restart does not forget that");
        rig.ask(A, switch(HsmSwitch::Control(HsmControl::Stopped))).await.expect("set");
        assert_eq!(code(act(&rig, b, HsmAsk::Archive(0)).await), Some(Code::HsmOff));
        rig.ask(A, switch(HsmSwitch::Control(HsmControl::Enabled))).await.expect("set");
        let work = take(&rig, AGENT).await.remove(0);
        act(&rig, b, HsmAsk::Archive(0)).await.expect("queued");
        let info = rig.ask(A, HsmInfoReq { behind: None, cred: root() }).await.expect("told");
        assert_eq!((info.queued, info.agents.len(), info.actions.len()), (2, 1, 2));
        assert_eq!((info.agents[0].current, &info.actions[0].status), (1, &HsmStatus::Started));
        rig.ask(A, switch(HsmSwitch::Purge)).await.expect("purged");
        assert!(take_now(&rig).is_empty() && rig.mdt.live().hsm.actions.is_empty());
        assert_eq!(
            code(done(&rig, &work, HsmOutcome::Archived(copy(&work))).await),
            Some(Code::StaleAttempt)
        );
        let info = rig.ask(A, HsmInfoReq { behind: None, cred: root() }).await.expect("told");
        assert!(info.finished.iter().all(|action| action.status == HsmStatus::Cancelled));
        let not_root = HsmSwitchReq { switch: HsmSwitch::Purge, cred: user(5) };
        assert_eq!(code(rig.ask(A, not_root).await), Some(Code::NotPermitted));
        rig.verify();
    });
}

/// An empty file without a name that B has open for reading, as an import makes it.
async fn nameless(rig: &Rig, handle: u64, access: Access) -> Ino {
    let request = TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access, handle, cred: root() };
    rig.ask(B, request).await.expect("made").attr.ino
}

#[test]
fn an_imported_file_is_released_from_the_beginning() {
    run(async {
        let rig = Rig::new().await;
        let import =
            |ino, size_bytes, cred| HsmImportReq { ino, archive: 2, size_bytes, checksum: [9; 32], cred };
        let ino = nameless(&rig, 5, RO).await;
        assert_eq!(code(rig.ask(B, import(ino, 10, user(OWNER))).await), Some(Code::NotPermitted));
        let copy = rig.ask(B, import(ino, 10, root())).await.expect("imported").copy;
        assert_eq!((copy.size_bytes, copy.checksum), (10, [9; 32]));
        assert_eq!(code(rig.ask(B, import(ino, 10, root())).await), Some(Code::HsmRefused), "it has a copy");
        let link = LinkReq { ino, parent: Ino::ROOT, name: b"imported".to_vec(), cred: root() };
        rig.ask(B, link).await.expect("named");
        rig.close(B, ino, 5).await.expect("closed");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED, "and not dirty");
        let attr = rig.stat(A, ino).await.expect("there");
        assert_eq!((attr.size_bytes, attr.allocated_bytes), (10, 512));
        assert_eq!(code(open(&rig, ino, RO).await), Some(Code::Released));
        rig.verify();
        assert!(matches!(recall(&rig, ino, None).await, HsmRecallResp::Waiting(_)));
        let request =
            HsmTakeReq { agent: AGENT, host: "oss1".into(), archives: vec![2], max: 8, cred: root() };
        let work = rig.ask(B, request).await.expect("given").work.remove(0);
        assert_eq!((work.kind, work.copy), (HsmKind::Restore, Some(copy)));
        let from = restored(&rig, 6, CONTENT).await;
        done(&rig, &work, HsmOutcome::Restored(from)).await.expect("taken");
        rig.close(B, from, 6).await.expect("it goes");
        let read = rig.ask(A, InlineReadReq { ino }).await.expect("read");
        assert_eq!(read.data.as_deref(), Some(CONTENT.as_bytes()));
        rig.verify();
    });
}

#[test]
fn only_what_nobody_can_have_seen_is_made_a_released_file() {
    run(async {
        let rig = Rig::new().await;
        let import = |ino, archive, size_bytes| HsmImportReq {
            ino,
            archive,
            size_bytes,
            checksum: [9; 32],
            cred: root(),
        };
        let named = file(&rig, "f").await;
        assert_eq!(
            code(rig.ask(B, import(named, 1, 10)).await),
            Some(Code::HsmRefused),
            "it has a name and bytes"
        );
        let written = nameless(&rig, 7, WO).await;
        assert_eq!(
            code(rig.ask(B, import(written, 1, 10)).await),
            Some(Code::HsmRefused),
            "it is open for writing"
        );
        let ino = nameless(&rig, 8, RO).await;
        for (archive, size_bytes) in [(0, 10), (33, 10), (1, u64::MAX)] {
            let refused = rig.ask(B, import(ino, archive, size_bytes)).await;
            assert_eq!(code(refused), Some(Code::InvalidArgument), "{archive} {size_bytes}");
        }
        rig.ask(B, import(ino, 1, 0)).await.expect("an empty one");
        assert_eq!(flags(&rig, ino).await, ARCHIVED, "there is nothing to bring back");
        // Without a name it goes with its handle, and all that was known of it.
        rig.close(B, ino, 8).await.expect("closed");
        assert_eq!(code(rig.ask(A, HsmStateReq { ino }).await), Some(Code::NotFound));
        rig.verify();
    });
}
