//! Tests of the recovery of files of dead writers, and of declarations after a restart.

use brindle_types::{Ino, SessionId};
use brindle_wire::Op;
use brindle_wire::mds::open::OpenMode;
use brindle_wire::mds::session::{ReclaimOpen, ReclaimReq};

use super::rig::*;
use super::sharing::*;
use crate::expire;
use crate::opens::Writing;
use crate::store::inode;

/// A file of ten bytes in objects, which A and B write through their handles 1.
async fn written_by_both(rig: &Rig) -> Ino {
    let (ino, _) = converted(rig).await;
    open(rig, B, ino, 1, RW).await;
    ino
}

/// Writes up to byte 5000 without a report to the MDT.
fn grow(rig: &Rig) {
    rig.osts.objects.lock().values_mut().for_each(|data| data.resize(5000, 7));
}

/// The size that a writer finds who waits for the recovery of the file.
async fn recovered_bytes(rig: &Rig, ino: Ino) -> u64 {
    let opened = rig.mdt.seams().timeout_ms(5000, open(rig, B, ino, 2, WO)).await;
    opened.expect("the recovery comes to its end").attr.size_bytes
}

/// A client comes back with this after a restart, and with nothing else.
async fn declare(rig: &Rig, session: SessionId, open: ReclaimOpen) {
    rig.mdt.live_mut().sessions.get_mut(&session).expect("lives").must_reclaim = true;
    let mdt_term = rig.mdt.numbers().term();
    let request =
        ReclaimReq { mdt_term, opens: vec![open], locks: Vec::new(), appends: Vec::new(), done: true };
    let answer = rig.ask(session, request).await.expect("answered");
    answer.opens[0].as_ref().expect("taken in");
}

#[test]
fn a_writer_that_closes_before_the_objects_are_asked_leaves_the_end_of_the_write_session_to_that() {
    run(async {
        let rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        grow(&rig);
        expire::release(&rig.mdt, A, None).await.expect("given back");
        rig.close(B, ino, 1).await.expect("closed");
        assert_eq!(recovered_bytes(&rig, ino).await, 5000);
        assert!(rig.mdt.live().recoveries.is_empty());
        rig.close(B, ino, 2).await.expect("closed");
        let file = inode::get(rig.mdt.engine(), ino).expect("there");
        assert!(!file.open_for_write, "nothing is due any more");
        rig.verify();
    });
}

/// With two recoveries due, the first one may not have seen all bytes of the other writer that vanished.
#[test]
fn the_write_session_of_two_dead_writers_ends_with_the_last_recovery() {
    run(async {
        let rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        rig.osts.refused.lock().push(Op::StatObjects);
        rig.osts.calls.lock().clear();
        expire::release(&rig.mdt, A, None).await.expect("given back");
        assert_eq!(open(&rig, B, ino, 3, WO).await.grant.mode, OpenMode::Direct, "somebody still writes");
        rig.close(B, ino, 3).await.expect("closed");
        expire::release(&rig.mdt, B, None).await.expect("given back");
        // Let both recoveries fail and pause.
        let asked = || rig.osts.calls.lock().iter().filter(|(_, op)| *op == Op::StatObjects).count();
        while asked() < 2 {
            rig.mdt.seams().sleep_ms(1).await;
        }
        rig.osts.refused.lock().clear();
        expire::recover(&rig.mdt, ino, None, true, false).await.expect("as one of them");
        let file = inode::get(rig.mdt.engine(), ino).expect("there");
        assert!(file.open_for_write, "the other is still to come");
        grow(&rig);
        assert_eq!(recovered_bytes(&rig, ino).await, 5000);
        rig.verify();
    });
}

#[test]
fn a_writer_that_closes_just_behind_the_reclaim_leaves_the_end_of_the_write_session_to_the_recovery() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        grow(&rig);
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        let open = ReclaimOpen { ino, handle: 1, access: RW, cached: false, exclusive: false };
        declare(&rig, B, open).await;
        // A does not come back.
        rig.mdt.live_mut().sessions.get_mut(&A).expect("lives").must_reclaim = true;
        expire::end(&rig.mdt, A, "a test").await;
        crate::recovery::run(rig.mdt.clone()).await;
        rig.close(B, ino, 1).await.expect("closed");
        assert_eq!(recovered_bytes(&rig, ino).await, 5000);
        assert!(rig.mdt.live().recoveries.is_empty());
        rig.verify();
    });
}

#[test]
fn a_file_that_goes_before_its_recovery_is_waited_for_by_nobody() {
    run(async {
        let rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        rig.unlink(Ino::ROOT, "f").await.expect("removed");
        expire::release(&rig.mdt, A, None).await.expect("given back");
        rig.close(B, ino, 1).await.expect("closed");
        assert_eq!(inode::find(rig.mdt.engine(), ino), Ok(None));
        while !rig.mdt.live().recoveries.is_empty() {
            rig.mdt.seams().sleep_ms(1).await;
        }
        rig.verify();
    });
}

#[test]
fn a_sole_writer_whose_mark_a_power_cut_took_gives_its_right_back_when_others_have_opened_its_file() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = make(&rig, 1).await.attr.ino;
        rig.close(A, ino, 1).await.expect("closed");
        rig.mdt.synced().await.expect("synced");
        assert_eq!(open(&rig, A, ino, 2, RW).await.grant.mode, OpenMode::Exclusive);
        rig.power_cut().await;
        let file = inode::get(rig.mdt.engine(), ino).expect("there");
        assert!(!file.open_for_write, "the mark is lost");
        rig.mdt.live_mut().recovering = true;
        assert_eq!(open(&rig, B, ino, 3, RO).await.grant.mode, OpenMode::Direct);
        rig.clients.take_asked();
        let declared = ReclaimOpen { ino, handle: 2, access: RW, cached: false, exclusive: true };
        declare(&rig, A, declared).await;
        let writing = || rig.mdt.live().opens.writing(ino);
        for _ in 0..1000 {
            if writing() == Writing::Shared {
                break;
            }
            rig.mdt.seams().sleep_ms(1).await;
        }
        assert_eq!(writing(), Writing::Shared);
        assert_eq!(rig.clients.take_asked(), [(A, Op::RecallNotice, ino)]);
        rig.verify();
    });
}

/// All who wrote it have come back: what they have closed nobody has to wait for, although an OST is away.
#[test]
fn a_file_that_was_closed_after_a_restart_is_open_to_all_while_its_ost_is_away() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        rig.osts.refused.lock().push(Op::StatObjects);
        for session in [A, B] {
            let open = ReclaimOpen { ino, handle: 1, access: RW, cached: false, exclusive: false };
            declare(&rig, session, open).await;
        }
        crate::recovery::run(rig.mdt.clone()).await;
        rig.close(A, ino, 1).await.expect("closed");
        rig.close(B, ino, 1).await.expect("closed");
        let file = inode::get(rig.mdt.engine(), ino).expect("there");
        assert!(!file.open_for_write);
        let opened = rig.mdt.seams().timeout_ms(1000, open(&rig, B, ino, 2, WO)).await;
        assert_eq!(opened.expect("at once").grant.mode, OpenMode::Exclusive);
        rig.verify();
    });
}

/// A writer dies, and the MDT before it has asked the objects. The other writer comes back after the restart, and closes.
#[test]
fn a_restart_does_not_forget_that_a_writer_has_died() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        rig.osts.refused.lock().push(Op::StatObjects);
        expire::end(&rig.mdt, A, "a test").await;
        grow(&rig);
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        let open = ReclaimOpen { ino, handle: 1, access: RW, cached: false, exclusive: false };
        declare(&rig, B, open).await;
        crate::recovery::run(rig.mdt.clone()).await;
        rig.close(B, ino, 1).await.expect("closed");
        rig.osts.refused.lock().clear();
        assert_eq!(recovered_bytes(&rig, ino).await, 5000);
        rig.close(B, ino, 2).await.expect("closed");
        assert_eq!(crate::store::watch::list(rig.mdt.engine()), Ok(Vec::new()));
        rig.verify();
    });
}

/// Two restarts do not forget a writer that has not come back and whose files the MDT does not know.
#[test]
fn two_restarts_do_not_forget_that_a_writer_has_died() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        grow(&rig);
        rig.osts.refused.lock().push(Op::StatObjects);
        for is_first in [true, false] {
            rig.restart().await;
            crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
            let open = ReclaimOpen { ino, handle: 1, access: RW, cached: false, exclusive: false };
            declare(&rig, B, open).await;
            if is_first {
                rig.mdt.live_mut().sessions.get_mut(&A).expect("lives").must_reclaim = true;
                expire::end(&rig.mdt, A, "a test").await;
            }
            crate::recovery::run(rig.mdt.clone()).await;
        }
        rig.close(B, ino, 1).await.expect("closed");
        rig.osts.refused.lock().clear();
        assert_eq!(recovered_bytes(&rig, ino).await, 5000);
        rig.verify();
    });
}

#[test]
fn a_recovery_that_ends_leaves_the_note_of_a_writer_whose_end_is_under_way() {
    run(async {
        let rig = Rig::new().await;
        let ino = written_by_both(&rig).await;
        let owed =
            |rig: &Rig| crate::store::watch::list(rig.mdt.engine()).expect("rows").iter().any(|w| w.is_owed);
        rig.mdt.live_mut().ending.insert(B);
        rig.mdt.live_mut().recovery_due(ino);
        let note = |t: &mut crate::mdt::Txn<'_>| {
            crate::store::watch::put_owed(t, ino);
            Ok(())
        };
        rig.mdt.step(&crate::mdt::Call::internal(Op::SessionClose), note).await.expect("noted");
        expire::recover(&rig.mdt, ino, None, true, false).await.expect("its own");
        assert!(owed(&rig), "that of B is to come");
        rig.mdt.live_mut().ending.remove(&B);
        rig.mdt.live_mut().recovery_due(ino);
        expire::recover(&rig.mdt, ino, None, true, false).await.expect("that of B");
        assert!(!owed(&rig));
        rig.verify();
    });
}
