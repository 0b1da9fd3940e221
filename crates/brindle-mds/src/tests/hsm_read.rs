//! Readers of files that are being restored: they get each extent as soon as its attempt has told of it, and of no other attempt.

use brindle_types::hsm::{Extents, HSM_RELEASED};
use brindle_types::{Code, Fault, HsmControl, Ino, Pair, Result};
use brindle_wire::Op;
use brindle_wire::mds::hsm::*;
use brindle_wire::mds::inline::InlineReadReq;
use brindle_wire::mds::open::{Access, OpenMode, OpenReq, OpenResp};
use brindle_wire::mds::rights::SessionRightsReq;
use brindle_wire::mds::tmpfile::TmpfileReq;

use super::hsm::{AGENT, ARCHIVED, CreateAs, OTHER, OWNER, act, archive, done, fill, flags, recall, take};
use super::rig::*;
use crate::hsm;

const MIB: u64 = 1 << 20;
const SIZE_BYTES: usize = 3 << 20;
const CUT: Access = Access { read: false, write: true, truncate: true, execute: false };

/// A released file of three extents.
async fn released(rig: &Rig) -> Ino {
    let (ino, handle, _) = CreateAs { uid: OWNER, name: "f" }.make(rig).await;
    fill(rig, ino, handle, 7, SIZE_BYTES, true).await;
    archive(rig, ino).await;
    act(rig, ino, HsmAsk::Release).await.expect("released");
    ino
}

/// A file without a name that is open at A, with as many bytes.
async fn source(rig: &Rig, handle: u64) -> Ino {
    let cred = root();
    let request = TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access: WO, handle, cred };
    let made = rig.ask(A, request).await.expect("made");
    fill(rig, made.attr.ino, handle, 7, SIZE_BYTES, false).await;
    made.attr.ino
}

async fn hsm_open(rig: &Rig, ino: Ino, handle: u64, access: Access) -> Result<OpenResp> {
    let open = OpenReq { ino, handle, access, cred: user(OWNER), kill_suidgid: false };
    rig.ask(A, HsmOpenReq { open }).await
}

async fn read(rig: &Rig, ino: Ino, offset: u64, waits_for: Option<Pair>) -> HsmReadResp {
    let request = HsmReadReq { ino, offset, len_bytes: 10, waits: true, waits_for, cred: user(OWNER) };
    rig.ask(A, request).await.expect("answered")
}

fn part(answer: HsmReadResp) -> (Pair, Ino) {
    match answer {
        HsmReadResp::Part(part) => {
            assert!(!part.grant.layout.inline, "where its bytes are");
            (part.attempt, part.from)
        }
        other => panic!("the part is not here: {other:?}"),
    }
}

/// The agent tells of extents. Returns those that readers wait for.
async fn tell(rig: &Rig, work: &HsmWork, from: Ino, extents: &[u64]) -> Result<Vec<u64>> {
    let mut here = Extents::none(work.size_bytes);
    extents.iter().for_each(|extent| here.add(*extent));
    let attempt = HsmAttempt { ino: work.ino, attempt: work.attempt };
    let request = HsmExtentsReq { agent: AGENT, attempt, from, here: here.bits().to_vec(), cred: root() };
    rig.ask(B, request).await.map(|answer| answer.wanted)
}

/// Runs `then` after the reader has begun to wait.
async fn meanwhile<T, U>(waits: impl Future<Output = T>, then: impl Future<Output = U>) -> (T, U) {
    tokio::join!(biased; waits, async {
        tokio::task::yield_now().await;
        then.await
    })
}

#[test]
fn readers_get_each_extent_as_it_comes_and_what_they_wait_for_is_told_in_their_order() {
    run(async {
        let rig = Rig::new().await;
        let ino = released(&rig).await;
        let opened = hsm_open(&rig, ino, 1, RO).await.expect("opened at once");
        assert_eq!((opened.attr.size_bytes, opened.grant.mode), (3 * MIB, OpenMode::Cached));
        assert_eq!(opened.grant.inline, None, "its bytes are not those of an empty file");
        hsm_open(&rig, ino, 2, RO).await.expect("once more");
        let at_once =
            HsmReadReq { ino, offset: 0, len_bytes: 1, waits: false, waits_for: None, cred: root() };
        let asked = rig.ask(A, at_once).await.expect("answered");
        assert!(matches!(asked, HsmReadResp::Waiting(_)), "without a wait: {asked:?}");
        let inline = rig.ask(A, InlineReadReq { ino }).await;
        assert_eq!(code(inline), Some(Code::Released));
        assert_eq!(rig.mdt.live().hsm.actions.len(), 1, "one restore");
        let work = take(&rig, AGENT).await.remove(0);
        let from = source(&rig, 9).await;
        let (there, ()) = meanwhile(
            async { tokio::join!(read(&rig, ino, 2 * MIB, None), read(&rig, ino, 5, None)) },
            async {
                assert_eq!(tell(&rig, &work, from, &[1]).await.expect("heard"), [0, 2]);
                assert_eq!(tell(&rig, &work, from, &[1, 2]).await.expect("heard"), [0]);
                assert_eq!(tell(&rig, &work, from, &[1, 2]).await.expect("told twice"), [0]);
                assert!(tell(&rig, &work, from, &[0, 1, 2]).await.expect("heard").is_empty());
            },
        )
        .await;
        assert_eq!((part(there.0), part(there.1)), ((work.attempt, from), (work.attempt, from)));
        assert_eq!(part(read(&rig, ino, 2 * MIB - 5, None).await), (work.attempt, from), "across two");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        done(&rig, &work, HsmOutcome::Restored(from)).await.expect("taken");
        rig.close(A, from, 9).await.expect("closed");
        assert_eq!(read(&rig, ino, 0, None).await, HsmReadResp::Here);
        assert_eq!(rig.ask(A, InlineReadReq { ino }).await.expect("answered").data, None);
        assert_eq!(flags(&rig, ino).await, ARCHIVED, "and not dirty");
        rig.verify();
    });
}

#[test]
fn extents_of_an_attempt_that_is_over_are_nobodys() {
    run(async {
        let rig = Rig::new().await;
        let ino = released(&rig).await;
        hsm_open(&rig, ino, 1, RO).await.expect("opened");
        let first = take(&rig, AGENT).await.remove(0);
        let late = source(&rig, 8).await;
        tell(&rig, &first, late, &[0, 1]).await.expect("heard");
        assert_eq!(part(read(&rig, ino, 0, None).await), (first.attempt, late));
        hsm::take_back(&rig.mdt, AGENT, "a test").await.expect("taken back");
        assert_eq!(code(tell(&rig, &first, late, &[0, 1, 2]).await), Some(Code::StaleAttempt));
        let (there, ()) = meanwhile(read(&rig, ino, 0, None), async {
            let second = take(&rig, OTHER).await.remove(0);
            assert_eq!(code(tell(&rig, &first, late, &[0]).await), Some(Code::StaleAttempt));
            let from = source(&rig, 9).await;
            assert_eq!(tell(&rig, &second, from, &[]).await.expect("heard"), [0], "its reader still waits");
            tell(&rig, &second, from, &[0]).await.expect("heard");
        })
        .await;
        let (attempt, from) = part(there);
        assert!(attempt > first.attempt && from != late);
        // The file without a name is gone, as where its agent was killed: the MDT has not fenced the attempt yet.
        rig.close(A, from, 9).await.expect("closed");
        let (there, ()) = meanwhile(read(&rig, ino, 0, None), async {
            act(&rig, ino, HsmAsk::Cancel).await.expect("given up");
        })
        .await;
        let HsmReadResp::Failed(fault) = there else { panic!("{there:?}") };
        assert_eq!(fault.code, Code::NotRecalled);
        rig.close(A, late, 8).await.expect("closed");
        rig.verify();
    });
}

#[test]
fn readers_hear_why_a_restore_failed_until_the_file_is_opened_again() {
    run(async {
        let rig = Rig::new().await;
        let ino = released(&rig).await;
        hsm_open(&rig, ino, 1, RO).await.expect("opened");
        let HsmRecallResp::Waiting(cookie) = recall_now(&rig, ino).await else { panic!("no restore") };
        let work = take(&rig, AGENT).await.remove(0);
        let damaged = Fault::new(Code::ArchiveDamaged).why("the checksum differs");
        let (heard, ()) = meanwhile(read(&rig, ino, 0, Some(cookie)), async {
            done(&rig, &work, HsmOutcome::Failed(damaged.clone())).await.expect("taken");
        })
        .await;
        assert_eq!(heard, HsmReadResp::Failed(damaged.clone()));
        assert_eq!(read(&rig, ino, 0, Some(cookie)).await, HsmReadResp::Failed(damaged));
        assert!(rig.mdt.live().hsm.actions.is_empty(), "the reads have begun nothing");
        hsm_open(&rig, ino, 2, RO).await.expect("opened again");
        assert_eq!(rig.mdt.live().hsm.actions.len(), 1, "it is tried again");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        rig.verify();
    });
}

/// The restore under way.
async fn recall_now(rig: &Rig, ino: Ino) -> HsmRecallResp {
    let action = rig.mdt.live().hsm.actions.get(&ino).copied();
    match action {
        Some(action) => HsmRecallResp::Waiting(action.cookie),
        None => recall(rig, ino, None).await,
    }
}

#[test]
fn a_program_that_empties_the_file_waits_for_no_restore() {
    run(async {
        let rig = Rig::new().await;
        let ino = released(&rig).await;
        hsm_open(&rig, ino, 1, RO).await.expect("opened");
        let cut = OpenReq { ino, handle: 5, access: CUT, cred: root(), kill_suidgid: false };
        let (there, opened) = meanwhile(read(&rig, ino, 0, None), rig.ask(B, cut)).await;
        let is_over = matches!(there, HsmReadResp::Failed(_) | HsmReadResp::Here);
        assert!(is_over, "the reader waits no longer: {there:?}");
        assert_eq!(opened.expect("opened").attr.size_bytes, 0);
        let asked = rig.clients.take_asked();
        assert!(asked.iter().any(|(to, op, of)| (*to, *op, *of) == (A, Op::RecallNotice, ino)));
        assert!(rig.mdt.live().hsm.actions.is_empty(), "the restore is cancelled");
        assert_eq!(flags(&rig, ino).await & HSM_RELEASED, 0);
        assert_eq!(read(&rig, ino, 0, None).await, HsmReadResp::Here);
        rig.verify();
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    run(async {
        let rig = Rig::new().await;
        let ino = released(&rig).await;
        for access in [RW, CUT] {
            assert_eq!(code(hsm_open(&rig, ino, 1, access).await), Some(Code::InvalidArgument));
        }
        rig.mdt.live_mut().hsm.control = HsmControl::Stopped;
        assert_eq!(code(hsm_open(&rig, ino, 1, RO).await), Some(Code::HsmOff));
        assert!(!rig.mdt.live().opens.is_open(ino), "and it is not open");
        rig.mdt.live_mut().hsm.control = HsmControl::Enabled;
        hsm_open(&rig, ino, 1, RO).await.expect("opened");
        let work = take(&rig, AGENT).await.remove(0);
        let from = source(&rig, 9).await;
        let attempt = HsmAttempt { ino, attempt: work.attempt };
        let told = |from, here: &[u8], cred| HsmExtentsReq {
            agent: AGENT,
            attempt,
            from,
            here: here.to_vec(),
            cred,
        };
        for (from, here) in [(from, &[8u8][..]), (from, &[1, 0]), (from, &[]), (ino, &[1])] {
            assert_eq!(
                code(rig.ask(B, told(from, here, root())).await),
                Some(Code::InvalidArgument),
                "{here:?}"
            );
        }
        assert_eq!(code(rig.ask(B, told(from, &[1], user(5))).await), Some(Code::NotPermitted));
        // Whoever may read the released file may read what has come back of it, and nobody else.
        let rights = async |session, ino| {
            let (host, epoch) = {
                let live = rig.mdt.live();
                let known = &live.sessions.get(&session).expect("known").row;
                (known.host.clone(), known.epoch)
            };
            let asked = SessionRightsReq { session, epoch, host, ino };
            let answer = rig.ask(B, asked).await.expect("answered");
            (answer.read, answer.write)
        };
        assert_eq!(rights(A, from).await, (false, true), "nothing has been told yet, and A writes it only");
        tell(&rig, &work, from, &[0]).await.expect("heard");
        assert_eq!(rights(A, from).await, (true, true), "A goes on writing it");
        assert_eq!(rights(B, from).await, (false, false));
        rig.verify();
    });
}
