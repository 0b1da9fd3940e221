//! Tests of quota: users see their own usage, root sees all; usage stays below hard, soft and default limits.

use brindle_types::{Code, Ino, Result};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::quota::{
    QuotaChange, QuotaChangeReq, QuotaGrace, QuotaListReq, QuotaOwner, QuotaRoomReq, QuotaSetReq,
    QuotaShowReq, QuotaShowResp, QuotaSubject, QuotaUseReq, QuotaUseResp, RoomUse,
};
use brindle_wire::mds::session::SessionRenewReq;
use brindle_wire::{Cred, mds::setattr::SetattrReq};

use super::rig::*;
use super::sharing::{converted, open};

async fn used(rig: &Rig, owner: QuotaOwner, id: u32, cred: Cred) -> Result<QuotaUseResp> {
    rig.ask(A, QuotaUseReq { owner, id, cred }).await
}

fn chown(ino: Ino, cred: Cred, uid: Option<u32>, gid: Option<u32>) -> SetattrReq {
    SetattrReq { uid, gid, ..setattr_req(ino, cred) }
}

#[test]
fn usage_follows_the_owner_and_is_told_to_whom_it_concerns() {
    run(async {
        let mut rig = Rig::new().await;
        let req = CreateReq { cred: user(1000), ..create_req(Ino::ROOT, "f", RW) };
        let ino = rig.ask(A, req).await.expect("made").attr.ino;
        let one = QuotaUseResp { inodes: 1, bytes: 0, inodes_max: 0, bytes_max: 0 };
        assert_eq!(used(&rig, QuotaOwner::User, 1000, user(1000)).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::Group, 1000, user(1000)).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::User, 1000, root()).await, Ok(one));
        rig.ask(A, chown(ino, root(), Some(1001), Some(50))).await.expect("changed");
        rig.restart().await;
        let nothing = QuotaUseResp { inodes: 0, bytes: 0, inodes_max: 0, bytes_max: 0 };
        assert_eq!(used(&rig, QuotaOwner::User, 1000, user(1000)).await, Ok(nothing));
        let member = Cred { groups: vec![7, 50], ..user(1000) };
        assert_eq!(used(&rig, QuotaOwner::Group, 50, member).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::User, 4_000_000_000, root()).await, Ok(nothing));
    });
}

#[test]
fn strangers_are_refused_with_the_reason() {
    run(async {
        let rig = Rig::new().await;
        let refused = |outcome: Result<QuotaUseResp>| outcome.expect_err("refused");
        assert_eq!(
            refused(used(&rig, QuotaOwner::Group, 50, user(1000)).await).to_string(),
            "cannot tell the usage of group 50\
             \n  why:  user 1000 may ask for himself, his groups, and projects\
             \n  next: ask as root\
             \n  code: E3009 (brindle explain E3009)"
        );
        let nothing = QuotaUseResp { inodes: 0, bytes: 0, inodes_max: 0, bytes_max: 0 };
        assert_eq!(used(&rig, QuotaOwner::Project, 5, user(1000)).await, Ok(nothing), "it is nobody's");
        assert_eq!(code(used(&rig, QuotaOwner::User, 0, user(1000)).await), Some(Code::NotPermitted));
    });
}

fn set_req(owner: QuotaOwner, id: u32, inodes_max: Option<u64>, bytes_max: Option<u64>) -> QuotaSetReq {
    QuotaSetReq { owner, id, inodes_max, bytes_max, cred: root() }
}

fn named(name: &str, cred: Cred) -> CreateReq {
    CreateReq { cred, ..create_req(Ino::ROOT, name, RW) }
}

fn room_req(ino: Ino, wanted_bytes: u64, user: RoomUse) -> QuotaRoomReq {
    QuotaRoomReq { uid: 1000, gid: 1000, wanted_bytes, user, group: RoomUse::default(), ino }
}

#[test]
fn nobody_but_root_gets_more_inodes_than_his_limit() {
    run(async {
        let mut rig = Rig::new().await;
        rig.ask(A, named("first", user(1000))).await.expect("made");
        let set = rig.ask(A, set_req(QuotaOwner::User, 1000, Some(2), None)).await.expect("set");
        assert_eq!(set, QuotaUseResp { inodes: 1, bytes: 0, inodes_max: 2, bytes_max: 0 });
        rig.restart().await;
        rig.ask(A, named("second", user(1000))).await.expect("made");
        let refused = rig.ask(A, named("third", user(1000))).await.expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "this is more than is allowed to user 1000\
             \n  why:  the limit is 2 files and directories\
             \n  next: remove files, or ask the administrator for more: lfs quota\
             \n  code: E3036 (brindle explain E3036)"
        );
        assert_eq!(code(rig.lookup(Ino::ROOT, "third").await), Some(Code::NotFound));
        let opened = rig.ask(A, CreateReq { exclusive: false, ..named("second", user(1000)) }).await;
        assert!(!opened.expect("opened").created, "what is there can be opened");
        rig.ask(A, named("of root", root())).await.expect("made");
        rig.ask(A, named("of another", user(1001))).await.expect("made");
        rig.unlink(Ino::ROOT, "first").await.expect("removed");
        rig.ask(A, named("third", user(1000))).await.expect("there is room again");
        rig.ask(A, set_req(QuotaOwner::User, 1000, Some(0), None)).await.expect("set");
        rig.ask(A, named("fourth", user(1000))).await.expect("there is no limit any more");
        rig.verify();
    });
}

#[test]
fn a_file_is_not_given_to_a_group_that_is_at_its_limit() {
    run(async {
        let rig = Rig::new().await;
        let ino = rig.ask(A, named("f", user(1000))).await.expect("made").attr.ino;
        rig.ask(A, named("g", Cred { gid: 50, ..user(1001) })).await.expect("made");
        rig.ask(A, set_req(QuotaOwner::Group, 50, Some(1), None)).await.expect("set");
        let chgrp = |cred| chown(ino, cred, None, Some(50));
        let member = Cred { groups: vec![50], ..user(1000) };
        assert_eq!(code(rig.ask(A, chgrp(member)).await), Some(Code::OverQuota));
        assert_eq!(rig.stat(A, ino).await.expect("there").gid, 1000, "nothing was changed");
        rig.ask(A, chgrp(root())).await.expect("root may");
    });
}

#[test]
fn limits_are_set_by_root_for_others_than_root() {
    run(async {
        let rig = Rig::new().await;
        let by_user = QuotaSetReq { cred: user(1000), ..set_req(QuotaOwner::User, 1000, None, Some(0)) };
        assert_eq!(
            rig.ask(A, by_user).await.expect_err("refused").to_string(),
            "cannot limit the usage of user 1000\
             \n  why:  user 1000 is not root\
             \n  data: nothing was changed\
             \n  code: E3009 (brindle explain E3009)"
        );
        let of_root = rig.ask(A, set_req(QuotaOwner::User, 0, Some(5), None)).await;
        assert_eq!(code(of_root), Some(Code::InvalidArgument));
        let of_none = rig.ask(A, set_req(QuotaOwner::Project, 0, Some(5), None)).await;
        assert_eq!(code(of_none), Some(Code::InvalidArgument), "0 is no project");
    });
}

#[test]
fn mounts_get_room_under_both_limits_and_hear_that_there_are_some() {
    run(async {
        let rig = Rig::new().await;
        let ino = rig.ask(A, named("f", user(1000))).await.expect("made").attr.ino;
        let serial = async || rig.ask(A, SessionRenewReq {}).await.expect("renewed").limits_serial;
        assert_eq!(serial().await, 0);
        let room = async |wanted_bytes, user| {
            let given = rig.ask(A, room_req(ino, wanted_bytes, user)).await.expect("answered");
            (given.user_bytes, given.group_bytes)
        };
        assert_eq!(room(4096, RoomUse::default()).await, (None, None));
        rig.ask(A, set_req(QuotaOwner::User, 1000, None, Some(1 << 20))).await.expect("set");
        let first = serial().await;
        assert_ne!(first, 0);
        assert_eq!(room(4096, RoomUse::default()).await, (Some(1 << 17), None));
        rig.ask(A, set_req(QuotaOwner::Group, 1000, None, Some(1 << 16))).await.expect("set");
        assert_ne!(serial().await, first);
        assert_eq!(room(1 << 16, RoomUse::default()).await, (Some(1 << 17), Some(1 << 16)));
        let held = RoomUse { held_bytes: 1 << 20, uncounted_bytes: 0 };
        assert_eq!(room(1, held).await, (Some(0), Some(1 << 13)));
        // The fate of these bytes is unknown; the file is asked, and has none.
        let uncounted = RoomUse { held_bytes: 0, uncounted_bytes: 1 << 20 };
        assert_eq!(room(1 << 16, uncounted).await, (Some(1 << 17), Some(1 << 16)));
    });
}

#[test]
fn near_a_limit_a_writer_is_told_how_far_its_file_has_blocks() {
    run(async {
        let rig = Rig::new().await;
        let (ino, grant) = converted(&rig).await;
        let ost = grant.layout.components[0].osts[0];
        rig.ask(A, set_req(QuotaOwner::User, 1000, None, Some(16 << 20))).await.expect("set");
        let told = async |wanted_bytes| {
            rig.ask(A, room_req(ino, wanted_bytes, RoomUse::default())).await.expect("answered").allocated_end
        };
        let (plenty, little, short) = (2 << 20, 1, 17 << 20);
        assert_eq!(told(plenty).await, Some(0), "that is not needed yet");
        assert_eq!(told(short).await, Some(10));
        rig.ask(A, set_req(QuotaOwner::User, 1000, None, Some(4 << 20))).await.expect("set");
        assert_eq!(told(little).await, Some(10), "the only writer has told");

        open(&rig, B, ino, 1, RW).await;
        rig.osts.objects.lock().values_mut().for_each(|data| data.resize(70_000, 1));
        rig.osts.calls.lock().clear();
        assert_eq!(told(little).await, Some(0), "nobody is asked who may keep the writer waiting");
        assert_eq!(*rig.osts.calls.lock(), []);
        assert_eq!(told(short).await, Some(70_000));
        rig.osts.broken.lock().push(ost);
        assert_eq!(told(short).await, Some(0), "it does not say what it has, and will not");
        rig.osts.down.lock().push(ost);
        assert_eq!(told(short).await, None, "it may say so when it is back");
    });
}

const BOB: QuotaSubject = QuotaSubject::Owner { owner: QuotaOwner::User, id: 1000 };
const EVERY_USER: QuotaSubject = QuotaSubject::Default(QuotaOwner::User);

async fn change(rig: &Rig, subject: QuotaSubject, change: QuotaChange) -> Result<QuotaShowResp> {
    rig.ask(A, QuotaChangeReq { subject, change, dry_run: false, cred: root() }).await
}

async fn show(rig: &Rig, subject: QuotaSubject) -> QuotaShowResp {
    rig.ask(A, QuotaShowReq { subject, cred: root() }).await.expect("shown")
}

fn soft(inodes: u64) -> QuotaChange {
    QuotaChange { inodes_soft: Some(inodes), ..QuotaChange::default() }
}

fn grace(inodes_grace_secs: u32) -> QuotaChange {
    QuotaChange { inodes_grace_secs: Some(inodes_grace_secs), ..QuotaChange::default() }
}

/// Makes a file that nobody has open.
async fn make(rig: &Rig, name: &str, uid: u32) -> Result<()> {
    let req = named(name, user(uid));
    let handle = req.handle;
    let made = rig.ask(A, req).await?;
    rig.close(A, made.attr.ino, handle).await
}

#[test]
fn a_soft_limit_may_be_exceeded_until_its_grace_time_is_over() {
    run(async {
        let mut rig = Rig::new().await;
        rig.raise_level().await;
        change(&rig, BOB, QuotaChange { inodes_max: Some(4), ..soft(1) }).await.expect("set");
        make(&rig, "first", 1000).await.expect("made");
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, None, "as much as is allowed");
        make(&rig, "second", 1000).await.expect("the grace time begins");
        let begun = show(&rig, BOB).await;
        let end = begun.inodes_grace_end.expect("it runs");
        assert_eq!((begun.limits.inodes_soft, begun.limits.inodes_max), (1, 4));
        assert!((604_700..=604_800).contains(&(end - begun.now_secs)), "{begun:?}");
        rig.restart().await;
        make(&rig, "third", 1000).await.expect("it is not over");
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, Some(end), "nor does it begin anew");

        // An owner that comes back under the limit gets the whole grace time again; here the grace time is 0.
        rig.unlink(Ino::ROOT, "third").await.expect("removed");
        rig.unlink(Ino::ROOT, "second").await.expect("removed");
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, None);
        change(&rig, EVERY_USER, grace(0)).await.expect("set");
        make(&rig, "second", 1000).await.expect("this one goes over the limit");
        rig.restart().await;
        let refused = make(&rig, "third", 1000).await.expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "this is more than is allowed to user 1000\
             \n  why:  the soft limit is 1 files and directories, and its grace time is over\
             \n  next: remove files, or ask the administrator for more: lfs quota\
             \n  code: E3036 (brindle explain E3036)"
        );
        make(&rig, "of root", 0).await.expect("made");
        rig.unlink(Ino::ROOT, "second").await.expect("removed");
        make(&rig, "third", 1000).await.expect("below the limit again");
        rig.verify();
    });
}

#[test]
fn a_default_soft_limit_that_is_set_again_gives_the_whole_grace_time() {
    run(async {
        let mut rig = Rig::new().await;
        rig.raise_level().await;
        change(&rig, EVERY_USER, QuotaChange { inodes_grace_secs: Some(0), ..soft(1) }).await.expect("set");
        make(&rig, "first", 1000).await.expect("made");
        make(&rig, "second", 1000).await.expect("this one goes over the limit");
        assert_eq!(code(make(&rig, "third", 1000).await), Some(Code::OverQuota));
        change(&rig, EVERY_USER, soft(0)).await.expect("set");
        rig.restart().await;
        make(&rig, "third", 1000).await.expect("there is no limit");
        let week = QuotaChange { inodes_grace_secs: Some(604_800), ..soft(1) };
        change(&rig, EVERY_USER, week).await.expect("set");
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, None, "the old one is over");
        make(&rig, "fourth", 1000).await.expect("the grace time begins");
        let begun = show(&rig, BOB).await;
        let end = begun.inodes_grace_end.expect("it runs");
        assert!((604_700..=604_800).contains(&(end - begun.now_secs)), "{begun:?}");
        change(&rig, EVERY_USER, soft(2)).await.expect("set");
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, Some(end), "usage is over this one too");
        change(&rig, EVERY_USER, soft(9)).await.expect("set");
        rig.restart().await;
        assert_eq!(show(&rig, BOB).await.inodes_grace_end, None, "usage is below");
        rig.verify();
    });
}

#[test]
fn bytes_over_a_soft_limit_get_no_room_when_the_grace_time_is_over() {
    run(async {
        let rig = Rig::new().await;
        rig.raise_level().await;
        let (ino, _) = converted(&rig).await;
        rig.ask(A, chown(ino, root(), Some(1000), Some(1000))).await.expect("changed");
        let room = async || {
            let given = rig.ask(A, room_req(ino, 4096, RoomUse::default())).await.expect("answered");
            given.user_bytes
        };
        let below = QuotaChange { bytes_soft: Some(1 << 30), ..QuotaChange::default() };
        change(&rig, BOB, below).await.expect("set");
        assert_eq!(room().await, Some(32 << 20), "there is no hard limit");
        assert_ne!(rig.ask(A, SessionRenewReq {}).await.expect("renewed").limits_serial, 0);
        let no_time = QuotaChange { bytes_grace_secs: Some(0), ..QuotaChange::default() };
        change(&rig, EVERY_USER, no_time).await.expect("set");
        let over = QuotaChange { bytes_soft: Some(1), ..QuotaChange::default() };
        let set = change(&rig, BOB, over).await.expect("set");
        assert!(
            set.bytes > 1 && set.bytes_grace_end.is_some(),
            "what is over a new limit has its grace time: {set:?}"
        );
        assert_eq!(room().await, Some(0));
    });
}

#[test]
fn whoever_has_no_limits_of_his_own_has_the_default_ones() {
    run(async {
        let mut rig = Rig::new().await;
        rig.raise_level().await;
        let one = QuotaChange { inodes_max: Some(1), ..QuotaChange::default() };
        let two = QuotaChange { inodes_max: Some(2), ..QuotaChange::default() };
        let set = change(&rig, EVERY_USER, one).await.expect("set");
        assert!(set.is_default && set.limits.inodes_max == 1);
        change(&rig, BOB, two).await.expect("set");
        rig.restart().await;
        for (name, uid, fits) in [("a", 7, true), ("b", 7, false), ("c", 1000, true), ("d", 1000, true)] {
            let made = rig.ask(A, named(name, user(uid))).await;
            assert_eq!(made.is_ok(), fits, "{name}");
        }
        rig.ask(A, named("of root", root())).await.expect("no limit counts for root");
        let shown = show(&rig, BOB).await;
        assert!(!shown.is_default && shown.limits.inodes_max == 2);
        let back = QuotaChange { to_default: true, ..QuotaChange::default() };
        let shown = change(&rig, BOB, back).await.expect("set");
        assert!(shown.is_default && shown.limits.inodes_max == 1);
        assert_eq!(code(rig.ask(A, named("e", user(1000))).await), Some(Code::OverQuota));
        let none = QuotaChange { inodes_max: Some(0), ..QuotaChange::default() };
        change(&rig, BOB, none).await.expect("set");
        rig.restart().await;
        rig.ask(A, named("e", user(1000))).await.expect("he has none, whatever others have");
        let listed =
            rig.ask(A, QuotaListReq { owner: QuotaOwner::User, behind: Some(0), cred: root() }).await;
        let listed: Vec<(u32, u64, bool)> = listed
            .expect("listed")
            .owners
            .iter()
            .map(|(id, shown)| (*id, shown.inodes, shown.is_default))
            .collect();
        assert_eq!(listed, [(7, 1, true), (1000, 3, false)]);
        let behind = QuotaListReq { owner: QuotaOwner::User, behind: Some(7), cred: root() };
        let behind = rig.ask(A, behind).await.expect("listed");
        assert_eq!((behind.owners.len(), behind.owners[0].0, behind.has_more), (1, 1000, false));
        let by_user = QuotaListReq { owner: QuotaOwner::User, behind: None, cred: user(7) };
        assert_eq!(code(rig.ask(A, by_user).await), Some(Code::NotPermitted));
        rig.verify();
    });
}

#[test]
fn a_dry_run_changes_nothing_and_soft_limits_need_the_newest_level() {
    run(async {
        let rig = Rig::new().await;
        let refused = change(&rig, BOB, soft(5)).await.expect_err("refused");
        assert_eq!(refused.code, Code::NewerFormat);
        let back = QuotaChange { to_default: true, ..QuotaChange::default() };
        change(&rig, BOB, back).await.expect("that needs no row");
        let refused = change(&rig, EVERY_USER, grace(5)).await.expect_err("refused");
        assert_eq!(refused.code, Code::NewerFormat);
        rig.raise_level().await;
        let dry = QuotaChangeReq { subject: BOB, change: soft(5), dry_run: true, cred: root() };
        assert_eq!(rig.ask(A, dry).await.expect("shown").limits.inodes_soft, 5);
        assert_eq!(show(&rig, BOB).await.limits.inodes_soft, 0);
        assert_eq!(code(change(&rig, BOB, grace(5)).await), Some(Code::InvalidArgument), "of all users only");
        let set = change(&rig, EVERY_USER, grace(5)).await.expect("set");
        assert_eq!(set.grace, QuotaGrace { inodes_secs: 5, ..QuotaGrace::default() });
    });
}
