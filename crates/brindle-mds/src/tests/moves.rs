//! Bytes that go to other OSTs: spill and migrate, step by step, and the state after an interrupted step.

use brindle_layout::Candidate;
use brindle_types::{Code, Ino, LayoutPolicy, ObjectId, SessionId, Stripe, StripePolicy};
use brindle_wire::Op;
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq, SpillReq};
use brindle_wire::mds::inline::InlineWriteReq;
use brindle_wire::mds::migrate::{MigrateReq, MigrateResp};
use brindle_wire::mds::open::{OpenGrant, OpenReq};
use brindle_wire::mds::owner::{OwnerQueryReq, Verdict};
use brindle_wire::mds::stripe::SetStripeReq;

use super::rig::*;
use crate::background::destroy_some;
use crate::recovery;

const UNIT: u64 = 64 << 10;

/// A file of one stripe on OST 0 that is open at A, with this many bytes.
async fn file(rig: &Rig, len_bytes: usize) -> (Ino, OpenGrant) {
    let mut req = create_req(Ino::ROOT, "f", RW);
    req.handle = 1;
    let ino = rig.ask(A, req).await.expect("made").attr.ino;
    let stripe = StripePolicy { count: Some(1), start_ost: Some(0), ..StripePolicy::default() };
    let policy = Some(LayoutPolicy::from(stripe));
    rig.ask(A, SetStripeReq { ino, policy, cred: root() }).await.expect("laid out");
    let grant =
        rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false }).await.expect("converted");
    put(rig, ino, &grant, 0, &vec![7; len_bytes]);
    (ino, grant)
}

/// Writes as a client does, to the only stripe of the first component.
fn put(rig: &Rig, ino: Ino, grant: &OpenGrant, at: usize, bytes: &[u8]) {
    let component = &grant.layout.components[0];
    let object = ObjectId { ino, generation: component.generation, stripe: 0 };
    let mut objects = rig.osts.objects.lock();
    let data = objects.entry((component.osts[0], object)).or_default();
    data.resize(data.len().max(at + bytes.len()), 0);
    data[at..at + bytes.len()].copy_from_slice(bytes);
}

fn object(ino: Ino, stripe: Stripe) -> ObjectId {
    ObjectId::of(ino, stripe)
}

fn spill(ino: Ino, offset: u64) -> SpillReq {
    SpillReq { ino, offset, len_bytes: 4096, ost: 0 }
}

fn migrate(ino: Ino, offset: u64) -> MigrateReq {
    let (policy, avoid) = (None, vec![0]);
    MigrateReq { ino, offset, policy, avoid, copy_max_bytes: UNIT, cred: root() }
}

async fn layout(rig: &Rig, session: SessionId, ino: Ino) -> OpenGrant {
    rig.ask(session, LayoutGetReq { ino }).await.expect("known")
}

#[test]
fn a_full_ost_is_left_behind_the_last_byte_and_nothing_is_copied() {
    run(async {
        let rig = Rig::new().await;
        let (ino, before) = file(&rig, 100_000).await;
        rig.osts.calls.lock().clear();
        let after = rig.ask(A, spill(ino, 200_000)).await.expect("spilled").layout;
        let [old, new] = &after.components[..] else { panic!("{after:?}") };
        assert_eq!(
            (old.start, old.end, old.generation),
            (0, 2 * UNIT, before.layout.components[0].generation)
        );
        assert_eq!((new.start, new.origin, new.osts.len()), (2 * UNIT, 2 * UNIT, 1));
        assert_ne!(new.osts[0], 0, "the full one");
        assert!(after.epoch > before.layout.epoch);
        let calls = rig.osts.calls.lock().clone();
        assert!(calls.iter().all(|(_, op)| *op != Op::CopyRange), "{calls:?}");
        assert!(calls.contains(&(0, Op::FenceLayout)), "late writes must not come to lie behind the cut");
        assert!(rig.clients.take_asked().iter().all(|(_, op, _)| *op != Op::SettleNotice));
        // Others were faster.
        assert_eq!(rig.ask(A, spill(ino, 200_000)).await.expect("done").layout.components, after.components);
        rig.verify();
    });
}

#[test]
fn what_lies_behind_a_place_without_room_moves_with_it() {
    run(async {
        let rig = Rig::new().await;
        let (ino, before) = file(&rig, 300_000).await;
        let after = rig.ask(A, spill(ino, UNIT + 5)).await.expect("spilled").layout;
        let [old, new] = &after.components[..] else { panic!("{after:?}") };
        assert_eq!((old.end, new.start), (UNIT, UNIT));
        assert!(
            rig.clients.take_asked().contains(&(A, Op::SettleNotice, ino)),
            "its writes are made durable first"
        );
        let copy = object(ino, Stripe { generation: new.generation, index: 0 });
        assert_eq!(rig.osts.objects.lock()[&(new.osts[0], copy)], vec![7; 300_000 - UNIT as usize]);
        assert!(after.object_known(copy.named()));
        let old = object(ino, Stripe { generation: before.layout.components[0].generation, index: 0 });
        assert!(rig.osts.fences.lock()[&(0, old)] > before.layout.epoch);
        rig.verify();
    });
}

#[test]
fn a_place_goes_where_there_is_room_for_what_moves_with_it_and_alone_where_there_is_none() {
    run(async {
        // All but OST 0 have room for this much; the last one for more, in the first case.
        let cases = [(100_000, Some(3), 300_000), (100_000, None, 2 * UNIT), (50_000, None, 0)];
        for (room_bytes, roomy, moved_until) in cases {
            let rig = Rig::new().await;
            let (ino, _) = file(&rig, 300_000).await;
            let has_little = (1..4).filter(|ost| Some(*ost) != roomy);
            rig.osts.room.lock().extend(has_little.map(|ost| (ost, room_bytes)).chain([(0, 100)]));
            let spilled = rig.ask(A, spill(ino, UNIT + 5)).await;
            if moved_until == 0 {
                let fault = spilled.expect_err("no room");
                assert_eq!(fault.code, Code::OstFull, "and not a write that is tried for ever");
            } else {
                let layout = spilled.expect("spilled").layout;
                let moved = layout.at(UNIT).expect("a part");
                assert_eq!((moved.start, moved.end.min(300_000)), (UNIT, moved_until));
                assert!(roomy.is_none_or(|ost| moved.osts == [ost]) && moved.osts != [0], "{layout:?}");
                assert_eq!(
                    layout.at(moved_until).expect("a part").osts,
                    if roomy.is_some() { vec![3] } else { vec![0] }
                );
            }
            assert!(
                crate::store::inode::get(rig.mdt.engine(), ino)
                    .expect("there")
                    .file
                    .expect("a file")
                    .aside
                    .is_empty()
            );
            rig.verify();
        }
    });
}

#[test]
fn what_spills_piece_by_piece_goes_on_in_the_objects_of_the_piece_before() {
    run(async {
        const PIECES: u64 = 40;
        let rig = Rig::new().await;
        let (ino, _) = file(&rig, ((PIECES + 2) * UNIT) as usize).await;
        rig.osts.room.lock().extend([(0, 100), (1, 100_000), (2, 100_000), (3, 100_000)]);
        for piece in 1..=PIECES {
            let layout = rig.ask(A, spill(ino, piece * UNIT + 5)).await.expect("spilled").layout;
            let moved = layout.at(UNIT).expect("a part");
            assert_eq!((moved.start, moved.end), (UNIT, (piece + 1) * UNIT), "{layout:?}");
            assert_eq!(layout.components.len(), 3, "in front, the pieces, behind: {layout:?}");
        }
        rig.verify();
    });
}

#[test]
fn bytes_that_are_free_are_no_room_where_no_inodes_are() {
    run(async {
        let rig = Rig::new().await;
        let osts = rig.mdt.osts();
        osts.note_full(1, 4096);
        let report = |free_inodes| Candidate {
            index: 1,
            free_bytes: 1 << 40,
            total_bytes: 1 << 41,
            free_inodes,
            total_inodes: 1 << 20,
            up: true,
            degraded: false,
            rank: 0,
        };
        osts.set_candidate(report(0));
        assert!(osts.is_full(1, 4096), "or two OSTs without inodes are chosen in turn for ever");
        osts.set_candidate(report(1));
        assert!(!osts.is_full(1, 4096));

        // The MDT has restarted and not heard of this one: a small file of it that grows asks no other in vain.
        osts.note_full(9, 4096);
        assert!(osts.is_avoided(9, 4096), "a refusal counts before the first report");
        osts.set_candidate(Candidate { index: 9, ..report(1) });
        assert!(!osts.is_avoided(9, 4096));
    });
}

#[test]
fn nobody_is_told_that_all_are_full_before_all_are() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = file(&rig, 10).await;
        let osts = rig.mdt.osts();
        rig.osts.room.lock().extend((0..4).map(|ost| (ost, 100)));
        (1..4).for_each(|ost| osts.note_full(ost, 4096));
        let fault = rig.ask(A, spill(ino, UNIT)).await.expect_err("no room");
        assert_eq!(fault.code, Code::OstFull);
        assert!(
            osts.has_room_elsewhere(&StripePolicy::default(), &[], 4095),
            "fewer bytes than were refused may find room"
        );
        // OST 2 has space again, and was not asked since.
        rig.osts.room.lock().remove(&2);
        let spilled = rig.ask(A, spill(ino, UNIT)).await.expect("spilled").layout;
        assert_eq!(spilled.components[1].osts, [2]);
        rig.verify();
    });
}

#[test]
fn a_file_moves_piece_by_piece_into_the_same_objects() {
    run(async {
        let rig = Rig::new().await;
        let (ino, before) = file(&rig, 3 * UNIT as usize - 10).await;
        let mut offset = Some(0);
        let mut pieces = 0;
        while let Some(at) = offset {
            let MigrateResp { next, copied_bytes, .. } = rig.ask(A, migrate(ino, at)).await.expect("moved");
            assert_eq!(copied_bytes, UNIT);
            offset = next;
            pieces += 1;
        }
        assert_eq!(pieces, 3);
        let after = layout(&rig, A, ino).await.layout;
        let [only] = &after.components[..] else { panic!("{after:?}") };
        assert_ne!(only.osts, [0]);
        let copy = object(ino, only.stripes().next().expect("one").0);
        assert_eq!(rig.osts.objects.lock()[&(only.osts[0], copy)], vec![7; 3 * UNIT as usize - 10]);
        let gone = before.layout.stripes().next().expect("one").0;
        destroy_some(&rig.mdt).await.expect("destroyed");
        assert!(rig.osts.destroyed.lock().contains(&object(ino, gone)));
        let again = rig.ask(A, migrate(ino, 0)).await.expect("nothing to do");
        assert_eq!(again.copied_bytes, 0);
        rig.verify();
    });
}

#[test]
fn a_client_that_cannot_settle_calls_the_move_off() {
    run(async {
        let rig = Rig::new().await;
        let (ino, before) = file(&rig, 300_000).await;
        rig.clients.unsettled.lock().push(A);
        let fault = rig.ask(B, migrate(ino, 0)).await.expect_err("called off");
        assert_eq!(fault.code, Code::StaleLayout);
        assert!(rig.mdt.live().is_alive(A), "it answered");
        let after = layout(&rig, A, ino).await.layout;
        assert_eq!(after.components, before.layout.components);
        rig.clients.unsettled.lock().clear();
        rig.ask(B, migrate(ino, 0)).await.expect("moved");
        rig.verify();
    });
}

/// The end of a session waits for no operation: this one waits for that end.
#[test]
fn a_move_of_a_file_without_a_name_comes_to_its_end_although_its_only_holder_is_silent() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = file(&rig, 300_000).await;
        rig.unlink(Ino::ROOT, "f").await.expect("removed");
        rig.clients.silent.lock().push(A);
        let moved = rig.mdt.seams().timeout_ms(5000, rig.ask(B, migrate(ino, 0))).await;
        assert!(moved.is_some(), "it is answered, whatever becomes of the file");
        let there = || crate::store::inode::find(rig.mdt.engine(), ino).expect("rows can be read").is_some();
        for _ in 0..5000 {
            if !there() {
                break;
            }
            rig.mdt.seams().sleep_ms(1).await;
        }
        assert!(!there(), "it goes with its last handle, behind the move");
        assert!(rig.mdt.live().recoveries.is_empty());
        rig.verify();
    });
}

/// Copies that nobody gives up would be in the way when their OST is to be removed.
#[test]
fn a_move_whose_caller_is_ended_meanwhile_leaves_no_copies() {
    run(async {
        let rig = Rig::new().await;
        let (ino, before) = file(&rig, 300_000).await;
        let aside = || {
            let inode = crate::store::inode::find(rig.mdt.engine(), ino).expect("rows can be read");
            inode.expect("there").file.expect("a file").aside.clone()
        };
        rig.osts.down.lock().extend(1..4);
        let ended = async {
            while aside().is_empty() {
                rig.mdt.seams().sleep_ms(1).await;
            }
            crate::expire::end(&rig.mdt, B, "it is silent").await;
        };
        // The OSTs are told of the end of a session; OSTs that are down are waited for in the background.
        let (moved, ()) = tokio::join!(rig.ask(B, migrate(ino, 0)), async {
            let _ = rig.mdt.seams().timeout_ms(10_000, ended).await;
            rig.osts.down.lock().clear();
        });
        assert_eq!(code(moved), Some(Code::StaleSession));
        assert_eq!(aside(), []);
        assert_eq!(layout(&rig, A, ino).await.layout.components, before.layout.components);
        rig.verify();
    });
}

#[test]
fn readers_know_the_new_layout_before_the_old_objects_go() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = file(&rig, 100).await;
        let open = OpenReq { ino, handle: 5, access: RO, cred: root(), kill_suidgid: false };
        rig.ask(B, open).await.expect("opened");
        rig.clients.take_asked();
        rig.ask(A, migrate(ino, 0)).await.expect("moved");
        let asked = rig.clients.take_asked();
        assert!(asked.contains(&(B, Op::LayoutNotice, ino)), "{asked:?}");
        rig.verify();
    });
}

#[test]
fn a_restart_in_the_middle_leaves_the_old_layout_and_garbage_that_goes() {
    run(async {
        let mut rig = Rig::new().await;
        let (ino, before) = file(&rig, 300_000).await;
        // The copy does not end.
        rig.osts.down.lock().extend(1..4);
        let cut_short = rig.mdt.seams().timeout_ms(300, rig.ask(A, migrate(ino, 0))).await;
        assert!(cut_short.is_none(), "it waits for its OSTs: {cut_short:?}");
        rig.restart().await;
        recovery::begin(&rig.mdt).await.expect("rows can be read");
        let aside = rig.mdt.read(|t| crate::store::inode::get(t, ino)).await.expect("there");
        let aside = aside.file.expect("a file").aside.clone();
        let [copy] = &aside[..] else { panic!("{aside:?}") };
        let (stripe, ost) = copy.stripes().next().expect("one");
        let question = OwnerQueryReq { objects: vec![object(ino, stripe)], ost };
        assert_eq!(rig.ask(B, question.clone()).await.expect("answered").verdicts, [Verdict::Owned]);
        rig.osts.down.lock().clear();
        recovery::run(rig.mdt.clone()).await;
        let after = layout(&rig, A, ino).await.layout;
        assert_eq!(after.components, before.layout.components);
        assert!(after.epoch > before.layout.epoch, "its objects refuse the old one");
        while !rig
            .mdt
            .read(|t| crate::store::inode::get(t, ino))
            .await
            .expect("there")
            .file
            .expect("a file")
            .aside
            .is_empty()
        {
            rig.mdt.seams().sleep_ms(1).await;
        }
        assert_eq!(rig.ask(B, question.clone()).await.expect("answered").verdicts, [Verdict::Disowned]);
        rig.verify();
    });
}

#[test]
fn bytes_in_the_mdt_leave_it_for_an_ost_with_room() {
    run(async {
        let rig = Rig::new().await;
        let mut req = create_req(Ino::ROOT, "g", RW);
        req.handle = 2;
        let made = rig.ask(A, req).await.expect("made");
        let ino = made.attr.ino;
        let write = InlineWriteReq {
            ino,
            handle: 2,
            layout_epoch: made.grant.layout.epoch,
            offset: 0,
            append: false,
            data: "small".into(),
            written_at: None,
            kill_suidgid: false,
            cred: root(),
            sync: false,
            promised: false,
        };
        rig.ask(A, write).await.expect("written");
        let first = made.grant.layout.components[0].osts[0];
        rig.mdt.osts().note_full(first, 5);
        let grant = rig
            .ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false })
            .await
            .expect("converted");
        assert_ne!(grant.layout.components[0].osts[0], first);
        rig.verify();
    });
}

#[test]
fn pieces_that_cannot_be_are_refused() {
    run(async {
        let rig = Rig::new().await;
        let (ino, _) = file(&rig, 100).await;
        let bad = [
            MigrateReq { offset: 5, ..migrate(ino, 0) },
            MigrateReq { copy_max_bytes: 0, ..migrate(ino, 0) },
            MigrateReq { copy_max_bytes: 1 << 40, ..migrate(ino, 0) },
        ];
        for req in bad {
            assert_eq!(rig.ask(A, req).await.expect_err("refused").code, Code::InvalidArgument);
        }
        let stranger = brindle_wire::Cred { uid: 7, ..root() };
        let fault = rig.ask(A, MigrateReq { cred: stranger, ..migrate(ino, 0) }).await.expect_err("refused");
        assert_eq!(fault.code, Code::NotPermitted);
        rig.verify();
    });
}
