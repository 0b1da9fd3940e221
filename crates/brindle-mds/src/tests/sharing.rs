//! Several clients on one file: modes, recalls, size, convert.

use std::collections::BTreeSet;

use brindle_stdx::Mono;
use brindle_types::attr::Time;
use brindle_types::layout::{ComponentPolicy, EOF};
use brindle_types::{Code, Ino, LayoutPolicy, ObjectId, Pair, StripePolicy};
use brindle_wire::Op;
use brindle_wire::mds::append::{AppendDoneReq, AppendReserveReq};
use brindle_wire::mds::close::{Close, CloseReq};
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};
use brindle_wire::mds::create::CreateResp;
use brindle_wire::mds::fsync::FsyncReq;
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::inline::{InlineReadReq, InlineWriteReq};
use brindle_wire::mds::invalidate::{Holders, InvalidateReq};
use brindle_wire::mds::open::{Access, OpenGrant, OpenMode, OpenReq, OpenResp};
use brindle_wire::mds::owner::{OwnerQueryReq, Verdict};
use brindle_wire::mds::report::{ReportReq, WriteReport};
use brindle_wire::mds::session::SessionOpenReq;
use brindle_wire::mds::setattr::{SetTime, SetattrReq, SetattrResp};
use brindle_wire::mds::stripe::SetStripeReq;
use brindle_wire::notify::{Recall, RecallNotice};

use super::rig::*;
use crate::background::{Progress, destroy_some};
use crate::mdt::Call;
use crate::mdt::Event;
use crate::ops::session::handle_open;
use crate::store::inode;
use crate::{expire, ops};

const TOP: Ino = Ino::ROOT;

pub(super) async fn open(
    rig: &Rig,
    session: brindle_types::SessionId,
    ino: Ino,
    handle: u64,
    access: Access,
) -> OpenResp {
    let req = OpenReq { ino, handle, access, cred: root(), kill_suidgid: false };
    rig.ask(session, req).await.expect("opened")
}

pub(super) async fn make(rig: &Rig, handle: u64) -> CreateResp {
    let mut req = create_req(TOP, "f", RW);
    req.handle = handle;
    rig.ask(A, req).await.expect("made")
}

pub(super) fn write(ino: Ino, handle: u64, grant: &OpenGrant, offset: u64, data: &str) -> InlineWriteReq {
    InlineWriteReq {
        ino,
        handle,
        layout_epoch: grant.layout.epoch,
        offset,
        append: false,
        data: data.to_owned().into(),
        written_at: None,
        kill_suidgid: false,
        cred: root(),
        sync: false,
        promised: false,
    }
}

pub(super) fn cut_to(ino: Ino, size_bytes: u64) -> SetattrReq {
    SetattrReq {
        ino,
        cred: root(),
        mode: None,
        uid: None,
        gid: None,
        size_bytes: Some(size_bytes),
        atime: None,
        mtime: None,
        kill_suidgid: false,
        handle: 0,
        report: None,
    }
}

pub(super) async fn truncate(
    rig: &Rig,
    session: brindle_types::SessionId,
    ino: Ino,
    size_bytes: u64,
) -> SetattrResp {
    rig.ask(session, cut_to(ino, size_bytes)).await.expect("cut")
}

pub(super) fn report(grant: &OpenGrant, end_bytes: u64) -> WriteReport {
    WriteReport {
        number: 1,
        end_bytes,
        written: true,
        attr_epoch: grant.attr_epoch,
        truncate_epoch: grant.truncate_epoch,
        body: grant.layout.body,
        ..Default::default()
    }
}

/// A file of ten bytes, which lie in the MDT, open at A.
pub(super) async fn small(rig: &Rig) -> (Ino, OpenGrant) {
    let made = make(rig, 1).await;
    let ino = made.attr.ino;
    rig.ask(A, write(ino, 1, &made.grant, 0, "0123456789")).await.expect("written");
    (ino, made.grant)
}

/// A file of which the bytes lie in objects, open at A.
pub(super) async fn converted(rig: &Rig) -> (Ino, OpenGrant) {
    let (ino, _) = small(rig).await;
    let req = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
    (ino, rig.ask(A, req).await.expect("converted"))
}

#[test]
fn a_convert_that_a_power_cut_took_leaves_garbage_and_nothing_else() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = small(&rig).await;
        // An object written under a layout that the MDT does not know belongs to no file ...
        let lost = ObjectId { ino, generation: grant.layout.components[0].generation, stripe: 0 };
        let question = OwnerQueryReq { objects: vec![lost], ost: 0 };
        let answer = rig.ask(A, question).await.expect("answered");
        assert_eq!(answer.verdicts, [Verdict::Disowned]);
        // ... reports about this object change nothing ...
        let mut told = report(&grant, 5000);
        told.synced_stripes = vec![lost.named()];
        rig.ask(A, FsyncReq { ino, report: Some(told) }).await.expect("synced");
        let attr = rig.ask(A, GetattrReq { ino, report: None }).await.expect("found").attr;
        assert_eq!(attr.size_bytes, 10);
        // ... and the next convert uses other objects.
        let req = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
        let grant = rig.ask(A, req).await.expect("converted");
        assert_ne!(grant.layout.components[0].generation, lost.generation);
        rig.verify();
    });
}

#[test]
fn objects_of_a_convert_that_was_cut_short_say_nothing_of_the_size() {
    run(async {
        let mut rig = Rig::new().await;
        let made = make(&rig, 1).await;
        let ino = made.attr.ino;
        rig.ask(A, write(ino, 1, &made.grant, 0, "0123456789")).await.expect("written");
        rig.osts.down.lock().extend(0..4);
        let convert = rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false });
        let converted = rig.mdt.seams().timeout_ms(100, convert).await;
        assert!(converted.is_none_or(|answer| answer.is_err()), "it comes to its first batch only");
        // A power cut took the second batch, with all that was written upon it.
        let begun = inode::get(rig.mdt.engine(), ino).expect("there");
        assert!(begun.is_inline() && begun.may_have_objects());
        let (ost, object) = crate::attrs::objects(&begun)[0];
        rig.osts.objects.lock().insert((ost, object), vec![1; 5000]);
        rig.restart().await;
        rig.osts.down.lock().clear();
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        crate::recovery::run(rig.mdt.clone()).await;
        // Opening for writing waits for the recovery of the file.
        assert_eq!(open(&rig, B, ino, 1, WO).await.attr.size_bytes, 10);
        let read = rig.ask(B, InlineReadReq { ino }).await.expect("read");
        assert_eq!((read.size_bytes, read.data.as_deref()), (10, Some(&b"0123456789"[..])));
        rig.verify();
    });
}

#[test]
fn nobody_is_let_on_by_the_end_of_a_session_that_osts_do_not_know_of() {
    run(async {
        let rig = Rig::new().await;
        rig.mdt.live_mut().sessions.get_mut(&A).expect("lives").renewed = Mono::default();
        rig.osts.down.lock().extend(0..4);
        let asks = || crate::ask::ask(&rig.mdt, A, &RecallNotice { ino: TOP, recall: Recall::Exclusive });
        let others = async {
            while rig.mdt.live().is_alive(A) {
                rig.mdt.seams().sleep_ms(1).await;
            }
            let early = rig.mdt.seams().timeout_ms(50, asks()).await;
            assert!(early.is_none(), "what it wrote may still arrive");
            rig.osts.down.lock().clear();
            assert_eq!(asks().await, None);
        };
        tokio::join!(expire::end(&rig.mdt, A, "a test"), others);
        rig.verify();
    });
}

#[test]
fn a_session_that_begins_again_while_it_is_being_ended_keeps_what_it_gets() {
    run(async {
        let rig = Rig::new().await;
        let ino = make(&rig, 1).await.attr.ino;
        // The end waits for OSTs that do not answer.
        rig.osts.down.lock().extend(rig.mdt.osts().indices());
        let again = async {
            while rig.mdt.live().is_alive(A) {
                rig.mdt.seams().sleep_ms(1).await;
            }
            let (host, mount) = ("cn1".to_owned(), "/mnt".to_owned());
            let request = SessionOpenReq { client_uuid: [A.0 as u8; 16], host, mount, resume: false };
            let epoch = handle_open(&rig.mdt, request, "cn1", |_| false).await.expect("begun again").epoch;
            let mut call = Call::internal(Op::Open);
            (call.session, call.epoch) = (A, epoch);
            let request = OpenReq { ino, handle: 9, access: RO, cred: root(), kill_suidgid: false };
            ops::open::handle(&rig.mdt, &call, request).await.expect("opened");
        };
        futures_util::future::join(expire::end(&rig.mdt, A, "a test"), again).await;
        assert_eq!(rig.mdt.live().opens.of_session(A), [(ino, 9)]);
        rig.verify();
    });
}

#[test]
fn a_file_is_recovered_when_its_osts_know_that_its_writer_is_fenced() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        rig.osts.down.lock().extend(0..4);
        expire::end(&rig.mdt, A, "a test").await;
        rig.osts.calls.lock().clear();
        rig.osts.down.lock().clear();
        // Opening for writing waits for the recovery.
        open(&rig, B, ino, 1, WO).await;
        let calls = rig.osts.calls.lock().clone();
        let asked: Vec<usize> = (0..calls.len()).filter(|n| calls[*n].1 == Op::StatObjects).collect();
        assert!(!asked.is_empty(), "{calls:?}");
        for n in asked {
            assert!(calls[..n].contains(&(calls[n].0, Op::FenceSession)), "{calls:?}");
        }
        rig.verify();
    });
}

/// A disk that fails for good keeps nobody from a file whose writer has died.
#[test]
fn a_file_of_a_dead_writer_can_be_written_although_the_disk_of_its_ost_fails() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        rig.osts.refused.lock().push(Op::StatObjects);
        expire::end(&rig.mdt, A, "a test").await;
        let early = rig.mdt.seams().timeout_ms(100, open(&rig, B, ino, 1, WO)).await;
        assert!(early.is_none(), "the disk may come back");
        expire::recover(&rig.mdt, ino, None, true, false).await.expect_err("it has not");
        expire::recover(&rig.mdt, ino, None, true, true).await.expect("without the object's word");
        let opened = rig.mdt.seams().timeout_ms(1000, open(&rig, B, ino, 2, WO)).await;
        assert_eq!(opened.expect("nobody waits").attr.size_bytes, 10);
        rig.verify();
    });
}

#[test]
fn appends_of_others_do_not_wait_for_a_session_whose_end_a_restart_cut_short() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        let reserve = |number| AppendReserveReq { ino, len_bytes: 10, number };
        rig.ask(A, reserve(1)).await.expect("reserved");
        // The OSTs are not told of the end of the session, so the MDT does not come to giving up its
        // reservations.
        rig.osts.down.lock().extend(0..4);
        rig.mdt.live_mut().sessions.get_mut(&A).expect("lives").renewed = Mono::default();
        let ended = rig.mdt.seams().timeout_ms(100, expire::end(&rig.mdt, A, "it is silent")).await;
        assert!(ended.is_none(), "it waits for its OSTs");
        rig.restart().await;
        rig.osts.down.lock().clear();
        crate::recovery::begin(&rig.mdt).await.expect("rows can be read");
        crate::recovery::run(rig.mdt.clone()).await;
        rig.ask(B, reserve(1)).await.expect("reserved");
        let done = rig.ask(B, AppendDoneReq { ino, number: 1, report: None });
        assert!(rig.mdt.seams().timeout_ms(1000, done).await.is_some_and(|done| done.is_ok()), "it is shown");
        rig.verify();
    });
}

/// A client whose bytes an OST has refused asks again for its place, and is told it whatever the OSTs say
/// meanwhile. A place that no client knows to be its own would never be given up.
#[test]
fn a_place_is_told_again_also_where_the_objects_cannot_be_asked() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        open(&rig, B, ino, 2, RW).await;
        let reserve = |number| AppendReserveReq { ino, len_bytes: 10, number };
        let place = rig.ask(A, reserve(1)).await.expect("reserved").offset;
        rig.osts.refused.lock().push(Op::StatObjects);
        assert_eq!(code(rig.ask(B, reserve(1)).await), Some(Code::OstIo), "where the file ends is not known");
        assert_eq!(rig.ask(A, reserve(1)).await.expect("told again").offset, place);
        rig.osts.refused.lock().clear();
        rig.ask(A, AppendDoneReq { ino, number: 1, report: None }).await.expect("given up");
        rig.verify();
    });
}

#[test]
fn a_cut_takes_the_places_of_appends_behind_it_and_no_others() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        let reserve = |number| AppendReserveReq { ino, len_bytes: 10, number };
        let done = |number| AppendDoneReq { ino, number, report: None };
        let (first, second) = (rig.ask(A, reserve(1)).await, rig.ask(B, reserve(1)).await);
        let (first, second) = (first.expect("reserved"), second.expect("reserved"));
        assert_eq!(second.offset, first.offset + 10);
        rig.ask(A, cut_to(ino, second.offset)).await.expect("cut");
        let third = rig.ask(A, reserve(2)).await.expect("reserved");
        assert_eq!(third.offset, second.offset, "nobody has the second place any more");
        let kept = rig.ask(A, reserve(1)).await.expect("told again");
        assert_eq!((kept.offset, kept.truncate_epoch > first.truncate_epoch), (first.offset, true));
        let again = rig.ask(B, reserve(1)).await.expect("given another");
        assert_eq!(again.offset, third.offset + 10);
        // An append that lost its place and was given up ends nobody else's, and waits for nobody.
        let lost = rig.mdt.seams().timeout_ms(1000, rig.ask(B, done(7))).await;
        lost.expect("waits for nobody").expect("is over");
        let waits = rig.mdt.seams().timeout_ms(100, rig.ask(B, done(1))).await;
        assert!(waits.is_none(), "those before it are not shown yet");
        rig.ask(A, done(1)).await.expect("shown");
        rig.ask(A, done(2)).await.expect("shown");
        rig.ask(B, done(1)).await.expect("shown");
        rig.verify();
    });
}

#[test]
fn modes_follow_the_table_and_recalls_are_awaited() {
    run(async {
        let rig = Rig::new().await;
        let made = make(&rig, 1).await;
        let ino = made.attr.ino;
        assert_eq!(made.grant.mode, OpenMode::Exclusive);
        assert_eq!(made.grant.data_version, None, "somebody writes");
        rig.clients.reports.lock().insert((A, ino), report(&made.grant, 0));
        assert_eq!(open(&rig, B, ino, 1, RO).await.grant.mode, OpenMode::Direct);
        assert_eq!(rig.clients.take_asked(), [(A, Op::RecallNotice, ino)]);
        rig.close(B, ino, 1).await.expect("closed");
        rig.close(A, ino, 1).await.expect("closed");
        let first = open(&rig, B, ino, 2, RO).await;
        assert_eq!(first.grant.mode, OpenMode::Cached);
        assert!(first.grant.data_version.is_some());
        let writer = open(&rig, A, ino, 2, WO).await;
        assert_eq!(writer.grant.mode, OpenMode::Direct, "another session may read");
        assert_eq!(rig.clients.take_asked(), [(B, Op::RecallNotice, ino)]);
        rig.close(A, ino, 2).await.expect("closed");
        let later = open(&rig, B, ino, 3, RO).await;
        assert_eq!(later.grant.mode, OpenMode::Cached);
        assert_ne!(later.grant.data_version, first.grant.data_version, "somebody has written");
        rig.verify();
    });
}

#[test]
fn inline_writes_drop_the_pages_of_readers() {
    run(async {
        let rig = Rig::new().await;
        let made = make(&rig, 1).await;
        let ino = made.attr.ino;
        open(&rig, B, ino, 1, RO).await;
        rig.clients.take_asked();
        rig.ask(A, write(ino, 1, &made.grant, 0, "one")).await.expect("written");
        assert_eq!(rig.clients.take_asked(), [(B, Op::InvalidateNotice, ino)]);
        rig.ask(A, write(ino, 1, &made.grant, 0, "two")).await.expect("written");
        assert_eq!(rig.clients.take_asked(), [], "B has not read since");
        let read = rig.ask(B, InlineReadReq { ino }).await.expect("read");
        assert_eq!(read.data.as_deref(), Some(&b"two"[..]));
        rig.ask(A, write(ino, 1, &made.grant, 1, "x")).await.expect("written");
        assert_eq!(rig.clients.take_asked(), [(B, Op::InvalidateNotice, ino)]);
        let big = write(ino, 1, &made.grant, 8190, "abc");
        assert_eq!(code(rig.ask(A, big).await), Some(Code::StaleLayout), "more than fits: convert");
        let foreign = write(ino, 77, &made.grant, 0, "abc");
        assert_eq!(code(rig.ask(A, foreign).await), Some(Code::SessionLost));
        let reader = write(ino, 1, &made.grant, 0, "abc");
        assert_eq!(code(rig.ask(B, reader).await), Some(Code::BadHandle));
    });
}

#[test]
fn readers_that_declare_themselves_late_after_a_restart_drop_their_pages_too() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        open(&rig, B, ino, 1, RO).await;
        rig.close(B, ino, 1).await.expect("closed, and A no longer the only one");
        rig.mdt.live_mut().recovering = true;
        let all = InvalidateReq { ino, offset: 0, len_bytes: u64::MAX, holders: Holders::AllReaders };
        let declared = async {
            open(&rig, B, ino, 2, RO).await;
            rig.clients.take_asked();
            let mut live = rig.mdt.live_mut();
            live.recovering = false;
            live.events.fire(Event::Recovered);
        };
        let (dropped, ()) = futures_util::future::join(rig.ask(A, all), declared).await;
        dropped.expect("answered");
        let asked = rig.clients.take_asked();
        assert!(asked.contains(&(B, Op::InvalidateNotice, ino)), "{asked:?}");
    });
}

#[test]
fn convert_moves_the_bytes_once() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        assert!(!grant.layout.inline && grant.layout.components[0].object_known(0));
        assert_eq!(rig.osts.objects.lock().values().next().expect("written"), b"0123456789");
        let again = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
        assert_eq!(rig.ask(A, again).await.expect("already").layout, grant.layout);
        assert_eq!(rig.ask(A, InlineReadReq { ino }).await.expect("answered").data, None);
        let old = write(ino, 1, &grant, 0, "x");
        assert_eq!(code(rig.ask(A, old).await), Some(Code::StaleLayout));
        assert_eq!(rig.stat(A, ino).await.expect("there").size_bytes, 10);
        rig.verify();
        rig.restart().await;
        rig.verify();
    });
}

#[test]
fn the_holder_knows_the_size_and_then_the_objects_do() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        rig.clients.take_asked();
        rig.clients.reports.lock().insert((A, ino), report(&grant, 5000));
        assert_eq!(rig.stat(B, ino).await.expect("asked").size_bytes, 5000);
        assert_eq!(rig.clients.take_asked(), [(A, Op::ReportNotice, ino)]);
        assert_eq!(rig.stat(A, ino).await.expect("own").size_bytes, 5000);
        assert_eq!(rig.clients.take_asked(), []);
        open(&rig, B, ino, 1, RW).await;
        rig.clients.take_asked();
        rig.osts.objects.lock().values_mut().for_each(|data| data.resize(70_000, 1));
        let time = Time { secs: i64::MAX, nanos: 0 };
        *rig.osts.last_write.lock() = Some((grant.attr_epoch, time));
        let attr = rig.stat(B, ino).await.expect("asked");
        assert_eq!((attr.size_bytes, attr.mtime), (70_000, time));
        assert_eq!(rig.clients.take_asked(), [], "the objects know");
    });
}

#[test]
fn explicit_times_outlive_the_reports_of_earlier_writes() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        open(&rig, B, ino, 1, WO).await;
        rig.clients.take_asked();
        let time = Time { secs: 1000, nanos: 5 };
        let req = SetattrReq {
            mtime: Some(SetTime::At(time)),
            size_bytes: None,
            ino,
            cred: root(),
            mode: None,
            uid: None,
            gid: None,
            atime: None,
            kill_suidgid: false,
            handle: 0,
            report: None,
        };
        let answer = rig.ask(B, req).await.expect("set");
        assert_eq!(rig.clients.take_asked(), [(A, Op::ReportNotice, ino)]);
        assert_eq!(answer.attr.mtime, time);
        let late = WriteReport { end_bytes: 99, ..report(&grant, 99) };
        let close = CloseReq::one(ino, 1, Some(late));
        rig.ask(A, close).await.expect("closed");
        let attr = rig.stat(B, ino).await.expect("there");
        assert_eq!((attr.mtime, attr.size_bytes), (time, 99), "it may raise size, never times");
        let fresh = report(&answer.grant.expect("epochs"), 0);
        let close = CloseReq::one(ino, 1, Some(fresh));
        rig.ask(B, close).await.expect("closed");
        assert!(rig.stat(B, ino).await.expect("there").mtime > time);
        rig.verify();
    });
}

#[test]
fn a_report_that_was_overtaken_moves_no_times() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        let tell = async |number, end_bytes| {
            let item = WriteReport { number, ..report(&grant, end_bytes) };
            rig.ask(A, ReportReq { items: vec![(ino, item)], synced: Vec::new() }).await.expect("heard");
            rig.mdt.seams().sleep_ms(10).await;
            let attr = rig.stat(A, ino).await.expect("there");
            (attr.mtime, attr.size_bytes)
        };
        let first = tell(7, 50).await;
        assert_eq!(first.1, 50);
        assert_eq!(tell(6, 20).await, first, "the later one said this too");
        assert_eq!(tell(7, 50).await, first, "told twice");
        let second = tell(8, 50).await;
        assert!(second.0 > first.0);
        rig.close(A, ino, 1).await.expect("closed");
        assert_eq!(tell(9, 90).await, second, "the close has said all of it");
        rig.verify();
    });
}

#[test]
fn a_convert_for_which_there_is_room_at_one_ost_goes_to_no_other() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = small(&rig).await;
        let ost = grant.layout.components[0].osts[0];
        let convert = |promised| ConvertReq { ino, offset: 0, len_bytes: 1, promised };
        rig.mdt.osts().note_full(ost, 1);
        assert_eq!(code(rig.ask(A, convert(true)).await), Some(Code::OstFull));
        let layout = rig.ask(A, LayoutGetReq { ino }).await.expect("layout").layout;
        assert_eq!(layout, grant.layout, "nothing is moved");
        let elsewhere = rig.ask(A, convert(false)).await.expect("converted").layout;
        assert!(!elsewhere.inline && elsewhere.components[0].osts[0] != ost);
        rig.verify();
    });
}

#[test]
fn a_convert_for_which_there_is_room_at_a_silent_ost_goes_to_no_other() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = small(&rig).await;
        let ost = grant.layout.components[0].osts[0];
        let convert = |promised| ConvertReq { ino, offset: 0, len_bytes: 1, promised };
        rig.mdt.osts().set_down(ost);
        assert_eq!(code(rig.ask(A, convert(true)).await), Some(Code::OstFull));
        let layout = rig.ask(A, LayoutGetReq { ino }).await.expect("layout").layout;
        assert_eq!(layout, grant.layout, "nothing is moved");
        let elsewhere = rig.ask(A, convert(false)).await.expect("converted").layout;
        assert!(!elsewhere.inline && elsewhere.components[0].osts[0] != ost);
        rig.verify();
    });
}

#[test]
fn components_get_osts_when_they_are_written() {
    run(async {
        const UNIT: u64 = 64 << 10;
        let rig = Rig::new().await;
        let part = |end_bytes, count| {
            let stripe = StripePolicy { count: Some(count), ..Default::default() };
            ComponentPolicy { end_bytes, stripe }
        };
        let components = vec![part(UNIT, 1), part(2 * UNIT, 2), part(EOF, -1)];
        let policy = Some(LayoutPolicy { components, ..Default::default() });
        rig.ask(A, SetStripeReq { ino: TOP, policy, cred: root() }).await.expect("set");
        let made = make(&rig, 1).await;
        let (ino, shape) = (made.attr.ino, |grant: &OpenGrant| {
            grant.layout.components.iter().map(|c| c.osts.len()).collect::<Vec<_>>()
        });
        assert_eq!(shape(&made.grant), [1, 0, 0], "OSTs of the first are chosen at once");
        rig.ask(A, write(ino, 1, &made.grant, 0, "0123456789")).await.expect("written");

        let place = |offset, len_bytes| ConvertReq { ino, offset, len_bytes, promised: false };
        let first = rig.ask(A, place(0, UNIT)).await.expect("placed");
        assert_eq!(shape(&first), [1, 0, 0]);
        let last = rig.ask(A, place(9 * UNIT, 1)).await.expect("placed");
        assert_eq!(shape(&last), [1, 0, 4], "a hole in front of it needs no objects");
        assert!(last.layout.epoch > first.layout.epoch && last.layout.body == first.layout.body);
        assert_eq!(rig.ask(A, place(0, 1)).await.expect("is placed").layout, last.layout);

        // Clients that have the file open learn of new objects before any client writes to them.
        open(&rig, B, ino, 7, RW).await;
        rig.clients.take_asked();
        let all = rig.ask(A, place(0, EOF)).await.expect("placed");
        assert_eq!(shape(&all), [1, 2, 4]);
        let told = rig.clients.take_asked();
        assert!(told.contains(&(B, Op::LayoutNotice, ino)), "{told:?}");
        let generations: BTreeSet<Pair> = all.layout.components.iter().map(|c| c.generation).collect();
        assert_eq!(generations.len(), 3);
        rig.verify();

        // A cut cuts the objects of every component; one to zero gives all but the first back.
        rig.osts.calls.lock().clear();
        let cut = truncate(&rig, A, ino, UNIT + 10).await;
        assert_eq!((cut.attr.size_bytes, rig.osts.calls.lock().len()), (UNIT + 10, 7));
        let empty = truncate(&rig, A, ino, 0).await.grant.expect("layout");
        assert_eq!(shape(&empty), [1, 0, 0]);
        assert!(empty.layout.inline && empty.layout.body != all.layout.body);
        while destroy_some(&rig.mdt).await == Ok(Progress::Some) {}
        assert_eq!(rig.osts.destroyed.lock().len(), 7);
        rig.verify();
    });
}

#[test]
fn handles_of_many_files_are_given_back_in_one_batch_and_of_one_file_one_by_one() {
    run(async {
        let rig = Rig::new().await;
        let mut closes = Vec::new();
        for name in ["f", "g"] {
            let ino = rig.create(A, TOP, name, RW).await.expect("made").attr.ino;
            let (_, handle) = *rig.mdt.live().opens.of_session(A).last().expect("open");
            closes.push(Close { ino, handle, report: None });
        }
        let second = closes[1].ino;
        open(&rig, A, second, 3, RO).await;
        let again = Close { handle: 3, ..closes[1].clone() };
        let twice = CloseReq { closes: vec![closes[1].clone(), again] };
        assert_eq!(code(rig.ask(A, twice).await), Some(Code::InvalidArgument));
        let inodes: Vec<Ino> = closes.iter().map(|close| close.ino).collect();
        let before = rig.mdt.engine().last_pos().index;
        rig.ask(A, CloseReq { closes }).await.expect("closed");
        assert_eq!(rig.mdt.engine().last_pos().index, before + 1);
        assert_eq!(rig.mdt.live().opens.of_session(A), [(second, 3)]);
        for ino in inodes {
            assert!(rig.stat(A, ino).await.expect("there").data_version.is_some(), "its last writer is gone");
        }
        rig.verify();
    });
}
