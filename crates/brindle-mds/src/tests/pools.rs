//! Pools: what a layout that names one gets; OSTs that are drained: what they do not get.

use std::collections::BTreeSet;

use brindle_types::{Code, Ino, Pair, PoolChoice, SessionId, StripePolicy, TargetId};
use brindle_wire::map::{Map, Pool, RemovedTarget};
use brindle_wire::mds::convert::ConvertReq;
use brindle_wire::mds::create::CreateResp;
use brindle_wire::mds::ost_use::{OstUseReq, OstUseResp};
use brindle_wire::mds::stripe::{GetStripeReq, SetStripeReq};
use brindle_wire::oss::fence::FenceSessionReq;

use super::rig::*;
use crate::background::{Progress, destroy_some};

const TOP: Ino = Ino::ROOT;

/// A map with these pools, as the MGS sends it.
fn map_with_pools(version: u64, pools: &[(&str, &[u16])]) -> Map {
    let pool =
        |(name, osts): &(&str, &[u16])| Pool { name: name.parse().expect("name"), osts: osts.to_vec() };
    let pools = pools.iter().map(pool).collect();
    Map { version, pools, ..Map::new("scratch".parse().expect("name"), 7) }
}

#[test]
fn files_lie_in_the_pool_of_their_directory() {
    run(async {
        let rig = Rig::new().await;
        let flash = |count: Option<i32>| StripePolicy {
            count,
            pool: Some(PoolChoice::Named("flash".parse().expect("name"))),
            ..Default::default()
        };
        let set = |ino, policy: StripePolicy| SetStripeReq { ino, policy: Some(policy.into()), cred: root() };
        let d = rig.mkdir(TOP, "d").await.expect("made").ino;
        assert_eq!(code(rig.ask(A, set(d, flash(None))).await), Some(Code::NoSuchPool));
        rig.mdt.osts().set_map(&map_with_pools(2, &[("flash", &[1, 3]), ("empty", &[])]));
        rig.ask(A, set(d, flash(Some(1)))).await.expect("set");
        let sub = rig.mkdir(d, "sub").await.expect("made").ino;
        let made = async |name: &str| rig.ask(A, create_req(sub, name, RW)).await;
        let place = |made: &CreateResp| made.grant.layout.components[0].osts.clone();
        // Others take turns of their own in between.
        let mut turns = Vec::new();
        for name in ["a", "b", "c", "d"] {
            turns.extend(place(&made(name).await.expect("made")));
            rig.ask(A, create_req(TOP, &format!("top-{name}"), RW)).await.expect("made");
        }
        assert_eq!(turns, [1, 3, 1, 3]);
        let wide = rig.mkdir(TOP, "wide").await.expect("made").ino;
        rig.ask(A, set(wide, flash(Some(3)))).await.expect("of all that the pool has");
        let mut placed = place(&rig.ask(A, create_req(wide, "f", RW)).await.expect("made"));
        placed.sort_unstable();
        assert_eq!(placed, [1, 3]);

        // A choice for a file that says nothing of a pool stays in it; one of certain OSTs, or of all, does not.
        let two = made("two").await.expect("made").attr.ino;
        let osts = async |policy: StripePolicy| {
            rig.ask(A, set(two, policy)).await.expect("set");
            let got = rig.ask(A, GetStripeReq { ino: two }).await.expect("got");
            got.layout.expect("a file").components[0].osts.clone()
        };
        let mut both = osts(StripePolicy { count: Some(2), ..Default::default() }).await;
        both.sort_unstable();
        assert_eq!(both, [1, 3]);
        assert_eq!(osts(StripePolicy { start_ost: Some(2), ..Default::default() }).await, [2]);
        let all = StripePolicy { count: Some(-1), pool: Some(PoolChoice::All), ..Default::default() };
        assert_eq!(osts(all).await.len(), 4);

        // An emptied pool is refused by name; a destroyed one is as if none had been named.
        rig.mdt.osts().set_map(&map_with_pools(3, &[("flash", &[])]));
        let fault = made("none").await.expect_err("no place");
        assert_eq!((fault.code, fault.subject.as_ref()), (Code::PoolEmpty, "flash"));
        assert_eq!(rig.mdt.osts().map_version(), 3);
        rig.mdt.osts().set_map(&map_with_pools(4, &[]));
        let mut seen = BTreeSet::new();
        for name in ["e", "f", "g", "h"] {
            seen.extend(place(&made(name).await.expect("made")));
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
        rig.verify();
    });
}

#[test]
fn an_ost_that_is_drained_gets_nothing_new() {
    run(async {
        let rig = Rig::new().await;
        let pools: &[(&str, &[u16])] = &[("flash", &[1, 3])];
        let map = Map { draining: vec![1, 2], ..map_with_pools(2, pools) };
        rig.mdt.osts().set_map(&map);
        let place = |made: &CreateResp| made.grant.layout.components[0].osts.clone();
        let mut seen = BTreeSet::new();
        for name in ["a", "b", "c", "d"] {
            seen.extend(place(&rig.ask(A, create_req(TOP, name, RW)).await.expect("made")));
        }
        assert_eq!(Vec::from_iter(seen), [0, 3]);

        // A pool offers the OSTs that are left; there are as many stripes as OSTs.
        let d = rig.mkdir(TOP, "pooled").await.expect("made").ino;
        let policy = StripePolicy {
            count: Some(-1),
            pool: Some(PoolChoice::Named("flash".parse().expect("name"))),
            ..Default::default()
        };
        let set = |ino, policy: StripePolicy| SetStripeReq { ino, policy: Some(policy.into()), cred: root() };
        rig.ask(A, set(d, policy)).await.expect("set");
        assert_eq!(place(&rig.ask(A, create_req(d, "one", RW)).await.expect("made")), [3]);
        rig.mdt.osts().set_map(&Map { draining: vec![1, 3], ..map_with_pools(3, pools) });
        let fault = rig.ask(A, create_req(d, "none", RW)).await.expect_err("no place");
        assert_eq!((fault.code, &fault.why[..]), (Code::PoolEmpty, &["all its OSTs are drained".into()][..]));

        // A request that names the drained OST is refused.
        let file = rig.ask(A, create_req(TOP, "mine", RW)).await.expect("made").attr.ino;
        let here = StripePolicy { start_ost: Some(3), ..Default::default() };
        assert_eq!(code(rig.ask(A, set(file, here)).await), Some(Code::BadStripe));

        rig.mdt.osts().set_map(&map_with_pools(4, pools));
        let mut seen = BTreeSet::new();
        for name in ["w", "x", "y", "z"] {
            seen.extend(place(&rig.ask(A, create_req(TOP, name, RW)).await.expect("made")));
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
        rig.verify();
    });
}

#[test]
fn files_on_an_ost_are_counted_and_nobody_waits_for_one_that_is_removed() {
    run(async {
        let rig = Rig::new().await;
        let used = async |ost| rig.ask(A, OstUseReq { ost, after: None }).await.expect("counted");
        let create = create_req(TOP, "f", RW);
        let handle = create.handle;
        let made = rig.ask(A, create).await.expect("made");
        let (ino, ost) = (made.attr.ino, made.grant.layout.components[0].osts[0]);
        assert_eq!(used(ost).await.files, 0, "its bytes are in the MDT");
        rig.ask(A, ConvertReq { ino, offset: 0, len_bytes: 1, promised: false }).await.expect("converted");
        assert_eq!(used(ost).await, OstUseResp { files: 1, nameless: 0, next: None });
        assert_eq!(used((ost + 1) % 4).await.files, 0);
        rig.unlink(TOP, "f").await.expect("removed");
        assert_eq!(used(ost).await, OstUseResp { files: 1, nameless: 1, next: None });
        rig.osts.down.lock().push(ost);
        rig.close(A, ino, handle).await.expect("closed");
        assert_eq!(used(ost).await.files, 0);

        // Objects of the file are queued, and a caller insists on an answer; both end when the OST is
        // removed.
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Unanswered));
        let question = FenceSessionReq { session: SessionId(77), epoch: Pair { term: 1, counter: 1 } };
        let insisting = rig.mdt.osts().insist(ost, &question);
        let removing = async {
            let removed = vec![RemovedTarget { id: TargetId::ost(ost), uuid: [1; 16] }];
            rig.mdt.osts().set_map(&Map { removed, ..map_with_pools(2, &[]) });
        };
        let (answer, ()) = tokio::join!(insisting, removing);
        assert_eq!(answer.map(drop).map_err(|fault| fault.code), Err(Code::TargetRemoved));
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Some));
        assert_eq!(destroy_some(&rig.mdt).await, Ok(Progress::Empty));
        assert!(!rig.mdt.osts().indices().contains(&ost) && rig.mdt.osts().is_avoided(ost, 1));
        rig.verify();
    });
}
