//! Truncates: of objects, with writers, refusals and restarts in between.

use brindle_types::{Code, Ino, ObjectId, StripePolicy};
use brindle_wire::Op;
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::inline::InlineReadReq;
use brindle_wire::mds::open::Access;
use brindle_wire::mds::report::ReportReq;
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::stripe::SetStripeReq;

use super::rig::*;
use super::sharing::*;
use crate::expire;

/// A file of ten bytes in objects, whose cut to four a restart interrupts; its OSTs are still away.
async fn cut_short(rig: &mut Rig) -> Ino {
    let (ino, _) = converted(rig).await;
    rig.osts.down.lock().extend(0..OSTS);
    let cut = rig.mdt.seams().timeout_ms(100, truncate(rig, A, ino, 4)).await;
    assert!(cut.is_none(), "it waits for its OSTs");
    rig.restart().await;
    crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
    ino
}

#[test]
fn nobody_sees_a_file_before_a_cut_is_finished_that_a_restart_interrupted() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = cut_short(&mut rig).await;
        let seen = rig.mdt.seams().timeout_ms(100, open(&rig, B, ino, 1, RO)).await;
        assert!(seen.is_none(), "it is still to be cut");
        rig.osts.down.lock().clear();
        crate::recovery::run(rig.mdt.clone()).await;
        assert_eq!(open(&rig, B, ino, 1, RO).await.attr.size_bytes, 4);
        assert!(rig.mdt.live().cut_short.is_empty());
        rig.verify();
    });
}

#[test]
fn a_cut_that_an_ost_refuses_is_not_made_later() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        open(&rig, B, ino, 2, RW).await;
        rig.osts.broken.lock().extend(0..OSTS);
        rig.clients.asked.lock().clear();
        let refused = rig.ask(A, cut_to(ino, 4)).await.expect_err("no OST can cut");
        assert_eq!(refused.code, Code::OstIo);
        assert!(refused.to_string().contains("may be zeros"), "{refused}");
        let asked = rig.clients.asked.lock().clone();
        for session in [A, B] {
            assert!(
                asked.contains(&(session, Op::LayoutNotice, ino)),
                "{session} may have old pages: {asked:?}"
            );
        }
        rig.osts.broken.lock().clear();
        // From here on users write and sync; nothing may cut their writes.
        rig.osts.calls.lock().clear();
        expire::end(&rig.mdt, B, "a test").await;
        let attr = rig.ask(A, GetattrReq { ino, report: None }).await.expect("found").attr;
        assert_eq!(attr.size_bytes, 10);
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        crate::recovery::run(rig.mdt.clone()).await;
        assert_eq!(open(&rig, A, ino, 3, RO).await.attr.size_bytes, 10);
        let calls = rig.osts.calls.lock().clone();
        assert!(calls.iter().all(|(_, op)| *op != Op::TruncateObject), "{calls:?}");
        rig.verify();
    });
}

/// A report of a writer under the old epoch, while the cut is given up, is ignored. Its bytes count.
#[test]
fn bytes_that_are_written_while_a_cut_is_refused_are_part_of_the_file() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        open(&rig, B, ino, 2, RW).await;
        rig.osts.refused.lock().push(Op::TruncateObject);
        let component = &grant.layout.components[0];
        let key = (component.osts[0], ObjectId { ino, generation: component.generation, stripe: 0 });
        let osts = rig.osts.clone();
        let written = move || osts.objects.lock().entry(key).or_default().resize(5000, 7);
        *rig.clients.when_told.lock() = Some(Box::new(written));
        rig.clients.reports.lock().insert((B, ino), report(&grant, 5000));
        rig.ask(A, cut_to(ino, 4)).await.expect_err("no OST can cut");
        rig.close(A, ino, 1).await.expect("closed");
        rig.close(B, ino, 2).await.expect("closed");
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        crate::recovery::run(rig.mdt.clone()).await;
        assert_eq!(open(&rig, A, ino, 3, RO).await.attr.size_bytes, 5000);
        rig.verify();
    });
}

/// The object that says how long the file is comes last.
#[test]
fn a_file_does_not_become_longer_where_one_of_its_osts_refuses() {
    run(async {
        let rig = Rig::new().await;
        let made = make(&rig, 1).await;
        let ino = made.attr.ino;
        let stripe = StripePolicy {
            count: Some(2),
            size_bytes: Some(65536),
            start_ost: Some(0),
            ..StripePolicy::default()
        };
        rig.ask(A, SetStripeReq { ino, policy: Some(stripe.into()), cred: root() }).await.expect("laid out");
        let convert = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
        let grant = rig.ask(A, convert).await.expect("converted");
        let component = &grant.layout.components[0];
        for (stripe, ost) in component.stripes() {
            rig.osts.objects.lock().insert((ost, ObjectId::of(ino, stripe)), vec![1; 10]);
        }
        // The last byte of the longer file would lie in the second stripe.
        rig.osts.broken.lock().push(component.osts[0]);
        rig.osts.calls.lock().clear();
        let refused = rig.ask(A, cut_to(ino, 65536 + 5000)).await.expect_err("one OST cannot");
        assert_eq!(refused.code, Code::OstIo);
        let asked = (component.osts[1], Op::TruncateObject);
        assert!(!rig.osts.calls.lock().contains(&asked), "{:?}", rig.osts.calls.lock());
        rig.osts.broken.lock().clear();
        rig.close(A, ino, 1).await.expect("closed");
        assert_eq!(open(&rig, B, ino, 2, RO).await.attr.size_bytes, 65536 + 10);
        rig.verify();
    });
}

#[test]
fn a_cut_that_a_restart_interrupted_and_an_ost_refuses_keeps_nobody_from_the_file() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = cut_short(&mut rig).await;
        rig.osts.down.lock().clear();
        rig.osts.broken.lock().extend(0..OSTS);
        crate::recovery::run(rig.mdt.clone()).await;
        let seen = rig.mdt.seams().timeout_ms(1000, open(&rig, B, ino, 1, RO)).await;
        assert_eq!(seen.expect("nobody waits").attr.size_bytes, 10);
        rig.verify();
    });
}

#[test]
fn a_cut_is_finished_after_a_restart_although_its_last_writer_closed_while_it_was_under_way() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        rig.osts.down.lock().extend(0..4);
        let cut = rig.mdt.seams().timeout_ms(100, truncate(&rig, A, ino, 4)).await;
        assert!(cut.is_none(), "it waits for its OSTs");
        rig.close(A, ino, 1).await.expect("closed");
        rig.verify();
        rig.restart().await;
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        rig.osts.down.lock().clear();
        crate::recovery::run(rig.mdt.clone()).await;
        assert_eq!(open(&rig, B, ino, 1, RO).await.attr.size_bytes, 4);
        rig.verify();
    });
}

#[test]
fn partial_truncates_cut_the_objects_and_old_reports_do_not_undo_them() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        open(&rig, B, ino, 1, RO).await;
        rig.clients.take_asked();
        let answer = truncate(&rig, A, ino, 4).await;
        assert_eq!(rig.clients.take_asked(), [(B, Op::LayoutNotice, ino)]);
        assert_eq!(answer.attr.size_bytes, 4);
        assert!(answer.grant.expect("epochs").truncate_epoch > grant.truncate_epoch);
        assert_eq!(rig.osts.objects.lock().values().next().expect("there"), b"0123");
        let late = ReportReq { items: vec![(ino, report(&grant, 10))], synced: Vec::new() };
        rig.ask(A, late).await.expect("heard");
        assert_eq!(rig.stat(A, ino).await.expect("there").size_bytes, 4);
        let answer = truncate(&rig, A, ino, 3 << 20).await;
        assert_eq!(answer.attr.size_bytes, 3 << 20);
        let waits = rig.ask(A, LayoutGetReq { ino }).await.expect("layout");
        assert_eq!(waits.truncate_epoch, answer.grant.expect("epochs").truncate_epoch);
        rig.verify();
    });
}

/// Bytes written and synced under the new epoch would be cut at the OSTs that are still to be asked.
#[test]
fn the_epoch_of_a_cut_is_told_with_new_times_only_once_the_cut_is_over() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        open(&rig, B, ino, 2, RW).await;
        rig.osts.down.lock().extend(0..OSTS);
        let touch = || SetattrReq { size_bytes: None, mtime: Some(SetTime::Now), ..cut_to(ino, 0) };
        let touching = async {
            while !rig.mdt.live().busy.contains(&ino) {
                rig.mdt.seams().sleep_ms(1).await;
            }
            let early = rig.mdt.seams().timeout_ms(100, rig.ask(B, touch())).await;
            assert!(early.is_none(), "its OSTs do not know of the cut: {early:?}");
            rig.osts.down.lock().clear();
            rig.ask(B, touch()).await.expect("set").grant.expect("epochs").truncate_epoch
        };
        let (cut, told) = tokio::join!(truncate(&rig, A, ino, 4), touching);
        assert_eq!(told, cut.grant.expect("epochs").truncate_epoch);
        assert!(told > grant.truncate_epoch);
        rig.verify();
    });
}

#[test]
fn inline_truncates_are_just_the_bytes() {
    run(async {
        let rig = Rig::new().await;
        let made = make(&rig, 1).await;
        let ino = made.attr.ino;
        rig.ask(A, write(ino, 1, &made.grant, 0, "0123456789")).await.expect("written");
        assert_eq!(truncate(&rig, A, ino, 4).await.attr.size_bytes, 4);
        assert_eq!(truncate(&rig, A, ino, 1 << 40).await.attr.size_bytes, 1 << 40);
        let read = rig.ask(A, InlineReadReq { ino }).await.expect("read");
        assert_eq!((read.data.as_deref(), read.size_bytes), (Some(&b"0123"[..]), 1 << 40));
        rig.verify();
        let zero = Access { truncate: true, ..RW };
        let opened = open(&rig, A, ino, 2, zero).await;
        assert_eq!((opened.attr.size_bytes, opened.grant.inline.as_deref()), (0, Some(&b""[..])));
        assert!(rig.osts.calls.lock().is_empty());
        rig.verify();
    });
}
