//! What users and groups use is told to themselves and to root.

use brindle_types::{Code, Ino, Result};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::quota::{QuotaOwner, QuotaUseReq, QuotaUseResp};
use brindle_wire::{Cred, mds::setattr::SetattrReq};

use super::rig::*;

async fn used(rig: &Rig, owner: QuotaOwner, id: u32, cred: Cred) -> Result<QuotaUseResp> {
    rig.ask(A, QuotaUseReq { owner, id, cred }).await
}

#[test]
fn usage_follows_the_owner_and_is_told_to_whom_it_concerns() {
    run(async {
        let mut rig = Rig::new().await;
        let req = CreateReq { cred: user(1000), ..create_req(Ino::ROOT, "f", RW) };
        let ino = rig.ask(A, req).await.expect("made").attr.ino;
        let one = QuotaUseResp { inodes: 1, bytes: 0 };
        assert_eq!(used(&rig, QuotaOwner::User, 1000, user(1000)).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::Group, 1000, user(1000)).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::User, 1000, root()).await, Ok(one));
        let chown = SetattrReq {
            ino,
            cred: root(),
            mode: None,
            uid: Some(1001),
            gid: Some(50),
            size_bytes: None,
            atime: None,
            mtime: None,
            kill_suidgid: false,
            handle: 0,
            report: None,
        };
        rig.ask(A, chown).await.expect("changed");
        rig.restart().await;
        let nothing = QuotaUseResp { inodes: 0, bytes: 0 };
        assert_eq!(used(&rig, QuotaOwner::User, 1000, user(1000)).await, Ok(nothing));
        let member = Cred { groups: vec![7, 50], ..user(1000) };
        assert_eq!(used(&rig, QuotaOwner::Group, 50, member).await, Ok(one));
        assert_eq!(used(&rig, QuotaOwner::User, 4_000_000_000, root()).await, Ok(nothing));
    });
}

#[test]
fn strangers_and_projects_are_refused_with_the_reason() {
    run(async {
        let rig = Rig::new().await;
        let refused = |outcome: Result<QuotaUseResp>| outcome.expect_err("refused");
        assert_eq!(
            refused(used(&rig, QuotaOwner::Group, 50, user(1000)).await).to_string(),
            "cannot tell the usage of group 50\
             \n  why:  user 1000 may ask for himself and his groups\
             \n  next: ask as root\
             \n  code: E3009 (brindle explain E3009)"
        );
        let project = refused(used(&rig, QuotaOwner::Project, 5, root()).await);
        assert_eq!(project.code, Code::NotSupported);
        assert_eq!(code(used(&rig, QuotaOwner::User, 0, user(1000)).await), Some(Code::NotPermitted));
    });
}
