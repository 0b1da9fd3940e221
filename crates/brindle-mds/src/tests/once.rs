//! Exactly once: one effect and one answer, over resends, restarts and power cuts.

use brindle_types::{Code, Ino};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::sync_all::SyncAllReq;
use brindle_wire::mds::unlink::UnlinkReq;
use futures_util::future::join;

use super::rig::*;

#[test]
fn a_request_that_is_sent_again_gets_its_answer_and_no_second_effect() {
    run(async {
        let mut rig = Rig::new().await;
        let req = create_req(Ino::ROOT, "f", RW);
        let first = rig.send(&rig.call_at::<CreateReq>(A, 3, 7), &req).await.expect("made");
        assert_eq!(rig.send(&rig.call_at::<CreateReq>(A, 3, 7), &req).await.expect("again"), first);
        rig.restart().await;
        assert_eq!(rig.send(&rig.call_at::<CreateReq>(A, 3, 7), &req).await.expect("again"), first);
        assert_eq!(
            code(rig.send(&rig.call_at::<CreateReq>(A, 3, 8), &req).await),
            Some(Code::Exists),
            "a new sequence is a new request"
        );
        assert_eq!(code(rig.send(&rig.call_at::<CreateReq>(A, 3, 7), &req).await), Some(Code::StaleWrite));
        assert_eq!(code(rig.send(&rig.call_at::<CreateReq>(A, 3, 0), &req).await), Some(Code::BadFrame));
        assert_eq!(code(rig.send(&rig.call_at::<CreateReq>(A, 256, 9), &req).await), Some(Code::BadFrame));
    });
}

#[test]
fn a_refusal_is_an_answer_for_good() {
    run(async {
        let mut rig = Rig::new().await;
        let unlink = UnlinkReq { parent: Ino::ROOT, name: b"f".to_vec(), cred: root() };
        let refused = rig.send(&rig.call_at::<UnlinkReq>(A, 0, 100), &unlink).await.expect_err("not there");
        rig.create(B, Ino::ROOT, "f", RW).await.expect("made by another");
        let again = rig.send(&rig.call_at::<UnlinkReq>(A, 0, 100), &unlink).await.expect_err("same answer");
        assert_eq!(again, refused);
        rig.restart().await;
        let again = rig.send(&rig.call_at::<UnlinkReq>(A, 0, 100), &unlink).await.expect_err("same answer");
        assert_eq!(again, refused);
        rig.lookup(Ino::ROOT, "f").await.expect("a late duplicate removed nothing");
    });
}

#[test]
fn the_same_request_on_two_connections_runs_once() {
    run(async {
        let rig = Rig::new().await;
        let req = create_req(Ino::ROOT, "f", RW);
        let (one, two) = (rig.call_at::<CreateReq>(A, 1, 5), rig.call_at::<CreateReq>(A, 1, 5));
        let (first, second) = join(rig.send(&one, &req), rig.send(&two, &req)).await;
        assert_eq!(first.expect("made"), second.expect("the same answer"));
        rig.verify();
    });
}

#[test]
fn another_request_under_the_same_number_is_refused() {
    run(async {
        let rig = Rig::new().await;
        let req = create_req(Ino::ROOT, "f", RW);
        rig.send(&rig.call_at::<CreateReq>(A, 1, 5), &req).await.expect("made");
        let unlink = UnlinkReq { parent: Ino::ROOT, name: b"f".to_vec(), cred: root() };
        assert_eq!(code(rig.send(&rig.call_at::<UnlinkReq>(A, 1, 5), &unlink).await), Some(Code::BadFrame));
    });
}

#[test]
fn numbers_are_never_given_out_twice() {
    run(async {
        let mut rig = Rig::new().await;
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..4 {
            for n in 0..20 {
                let made = rig.create(A, Ino::ROOT, &format!("{round}-{n}"), RW).await.expect("made");
                assert!(seen.insert(made.attr.ino), "inode number");
                assert!(
                    seen.insert(Ino(u64::from(made.grant.layout.components[0].generation.term) << 40
                        | made.grant.layout.components[0].generation.counter << 1
                        | 1 << 62)),
                    "generation"
                );
            }
            if round % 2 == 0 {
                rig.restart().await;
            } else {
                rig.ask(A, SyncAllReq {}).await.expect("synced");
                rig.power_cut().await;
            }
        }
        rig.verify();
    });
}

#[test]
fn a_session_of_an_old_epoch_is_refused() {
    run(async {
        let rig = Rig::new().await;
        let mut call = rig.call::<CreateReq>(A);
        call.epoch.counter = 0;
        let refused = rig.send(&call, &create_req(Ino::ROOT, "f", RW)).await;
        assert_eq!(code(refused), Some(Code::StaleSession));
        assert_eq!(code(rig.lookup(Ino::ROOT, "f").await), Some(Code::NotFound));
    });
}
