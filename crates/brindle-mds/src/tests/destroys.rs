//! Objects that nobody owns any more, until their OSTs have destroyed them.

use std::time::{Duration, Instant};

use brindle_types::{Ino, ObjectId, Pair, Stripe};
use brindle_wire::Op;
use brindle_wire::mds::convert::ConvertReq;

use super::rig::*;
use super::sharing::*;
use crate::background::{DESTROY_MAX, Progress, destroy_objects, destroy_some};
use crate::mdt::Call;
use crate::store::destroy_queue;

const TOP: Ino = Ino::ROOT;

#[test]
fn objects_that_a_disk_does_not_let_go_keep_no_others_in_the_queue() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        let first = ObjectId { ino, generation: grant.layout.components[0].generation, stripe: 0 };
        truncate(&rig, A, ino, 0).await;
        rig.osts.stuck.lock().push(first);
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Stuck));
        rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false }).await.expect("converted");
        truncate(&rig, A, ino, 0).await;
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Stuck));
        rig.osts.stuck.lock().clear();
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Empty));
        rig.verify();
    });
}

#[test]
fn truncating_to_zero_disowns_the_objects_and_purging_destroys_them() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        let old = ObjectId { ino, generation: grant.layout.components[0].generation, stripe: 0 };
        let calls = rig.osts.calls.lock().len();
        let answer = truncate(&rig, A, ino, 0).await;
        let layout = answer.grant.expect("layout").layout;
        assert!(layout.inline && layout.components[0].generation > old.generation);
        assert_eq!(rig.osts.calls.lock().len(), calls, "no OST is asked");
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(*rig.osts.destroyed.lock(), [old]);
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Empty));
        rig.verify();
        rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false }).await.expect("converted");
        rig.unlink(TOP, "f").await.expect("removed");
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Empty), "somebody has it open");
        rig.osts.down.lock().extend(0..4);
        rig.close(A, ino, 1).await.expect("closed");
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Unanswered));
        rig.osts.down.lock().clear();
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(rig.osts.destroyed.lock().len(), 2);
        rig.verify();
    });
}

#[test]
fn objects_that_go_one_after_the_other_are_destroyed_together() {
    run(async {
        const GO: usize = 20;
        let rig = Rig::new().await;
        let (ino, _) = converted(&rig).await;
        let (began, task) = (Instant::now(), tokio::spawn(destroy_objects(rig.mdt.clone())));
        for _ in 0..GO {
            truncate(&rig, A, ino, 0).await;
            rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false })
                .await
                .expect("converted");
            // Long enough for a round of its own, if there were one.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while rig.osts.destroyed.lock().len() < GO {
            assert!(began.elapsed().as_secs() < 60, "they are not destroyed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        task.abort();
        let requests = rig.osts.calls.lock().iter().filter(|call| call.1 == Op::DestroyObjects).count();
        let rounds_max = 1 + began.elapsed().as_millis() as usize / 1000;
        assert!(requests <= usize::from(OSTS) * rounds_max, "{requests} requests");
    });
}

#[test]
fn however_many_objects_a_disk_does_not_let_go_others_are_destroyed() {
    run(async {
        let rig = Rig::new().await;
        let stripe = |index| Stripe { generation: Pair { term: 1, counter: 1 }, index };
        let stuck = (0..DESTROY_MAX as u32).map(|index| ObjectId::of(Ino(1000), stripe(index)));
        rig.osts.stuck.lock().extend(stuck);
        let call = Call::internal(Op::DestroyObjects);
        let queued = rig.mdt.step(&call, |t| {
            destroy_queue::put_all(t, Ino(1000), (0..DESTROY_MAX as u32).map(|index| (stripe(index), 0)));
            destroy_queue::put_all(t, Ino(1001), [(stripe(0), 0)]);
            Ok(())
        });
        queued.await.expect("queued");
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Stuck), "the next round goes on behind them");
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(*rig.osts.destroyed.lock(), [ObjectId::of(Ino(1001), stripe(0))]);
        for _ in 0..4 {
            assert_eq!(
                destroy_some(&rig.mdt).await,
                Ok(Progress::Stuck),
                "they are tried again, with pauses"
            );
        }
        rig.osts.stuck.lock().clear();
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Full));
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Empty));
    });
}
