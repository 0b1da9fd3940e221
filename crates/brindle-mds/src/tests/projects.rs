//! Projects: inherited by new entries, counted in the batch that changes them, limited like users and groups.

use brindle_types::{Code, Ino, Result};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::project::{Project, ProjectGetReq, ProjectSetReq};
use brindle_wire::mds::quota::{QuotaFileRoomReq, QuotaOwner, QuotaSetReq, QuotaUseReq, RoomUse};
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::scan::{Range, ScanReq, Term, Test, Wanted};
use brindle_wire::mds::session::{LIMITS_OF_PROJECTS, SessionRenewReq};
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::{Cred, Op};

use super::rig::*;
use super::sharing::converted;
use crate::mdt::Call;
use crate::store::keys;
use crate::store::usage::{Kind, Owners, Usage};

const TREE: Project = Project { id: 7, inherits: true };

async fn set(rig: &Rig, ino: Ino, cred: Cred, id: Option<u32>, inherits: Option<bool>) -> Result<Project> {
    rig.ask(A, ProjectSetReq { ino, id, inherits, cred }).await
}

async fn get(rig: &Rig, ino: Ino) -> Project {
    rig.ask(A, ProjectGetReq { ino }).await.expect("it has one")
}

/// Inodes that are counted for a project.
async fn inodes(rig: &Rig, id: u32) -> u64 {
    let req = QuotaUseReq { owner: QuotaOwner::Project, id, cred: user(5) };
    rig.ask(A, req).await.expect("told").inodes
}

async fn limit(rig: &Rig, id: u32, inodes_max: Option<u64>, bytes_max: Option<u64>) {
    let req = QuotaSetReq { owner: QuotaOwner::Project, id, inodes_max, bytes_max, cred: root() };
    rig.ask(A, req).await.expect("set");
}

fn named(parent: Ino, name: &str, cred: Cred) -> CreateReq {
    CreateReq { cred, ..create_req(parent, name, RW) }
}

fn rename(parent: Ino, name: &str, new_parent: Ino, new_name: &str) -> RenameReq {
    RenameReq {
        parent,
        name: name.into(),
        new_parent,
        new_name: new_name.into(),
        no_replace: false,
        exchange: false,
        whiteout: false,
        cred: root(),
    }
}

/// Makes a directory of project 7, which its new entries inherit.
async fn tree(rig: &Rig) -> Ino {
    rig.raise_level().await;
    let dir = rig.mkdir(Ino::ROOT, "tree").await.expect("made").ino;
    assert_eq!(set(rig, dir, root(), Some(7), Some(true)).await, Ok(TREE));
    dir
}

#[test]
fn what_is_made_in_a_directory_gets_its_project() {
    run(async {
        let mut rig = Rig::new().await;
        let dir = tree(&rig).await;
        let below = rig.mkdir(dir, "below").await.expect("made").ino;
        let file = rig.ask(A, named(below, "f", user(1000))).await.expect("made").attr.ino;
        let symlink = SymlinkReq { parent: below, name: "s".into(), target: b"f".to_vec(), cred: root() };
        let symlink = rig.ask(A, symlink).await.expect("made").attr.ino;
        assert_eq!(get(&rig, below).await, TREE);
        let of_file = Project { id: 7, inherits: false };
        assert_eq!((get(&rig, file).await, get(&rig, symlink).await), (of_file, of_file));
        assert_eq!(inodes(&rig, 7).await, 4);
        rig.restart().await;
        assert_eq!((get(&rig, file).await, inodes(&rig, 7).await), (of_file, 4));

        set(&rig, below, root(), None, Some(false)).await.expect("set");
        let other = rig.ask(A, named(below, "g", root())).await.expect("made").attr.ino;
        assert_eq!(get(&rig, other).await, Project::default(), "without the flag nothing is inherited");
        assert_eq!(get(&rig, below).await.id, 7);
        let without = inodes(&rig, 0).await;
        rig.unlink(below, "f").await.expect("removed");
        rig.close(A, file, 0).await.ok();
        rig.unlink(below, "g").await.expect("removed");
        assert!(without >= 2, "what has no project is counted as the rest: {without}");
        rig.verify();
    });
}

#[test]
fn usage_moves_with_the_project_and_only_the_owner_and_root_may_move_it() {
    run(async {
        let rig = Rig::new().await;
        let dir = tree(&rig).await;
        let file = rig.ask(A, named(dir, "f", user(1000))).await.expect("made").attr.ino;
        let stranger = set(&rig, file, user(1001), Some(8), None).await.expect_err("refused");
        assert_eq!(
            stranger.to_string(),
            format!(
                "cannot set the project of {}\
                 \n  why:  user 1001 is neither its owner nor root\
                 \n  data: nothing was changed\
                 \n  code: E3009 (brindle explain E3009)",
                file.fid()
            )
        );
        set(&rig, file, user(1000), Some(8), None).await.expect("the owner may");
        assert_eq!((inodes(&rig, 7).await, inodes(&rig, 8).await), (1, 1));
        set(&rig, file, root(), Some(0), None).await.expect("set");
        assert_eq!((inodes(&rig, 7).await, inodes(&rig, 8).await), (1, 0));
        assert_eq!(code(set(&rig, file, root(), None, Some(true)).await), Some(Code::InvalidArgument));
        assert_eq!(code(set(&rig, file, root(), Some(u32::MAX), None).await), Some(Code::InvalidArgument));
        rig.verify();
    });
}

#[test]
fn no_name_leads_from_a_tree_to_an_inode_of_another_project() {
    run(async {
        let rig = Rig::new().await;
        let dir = tree(&rig).await;
        let file = rig.create(A, Ino::ROOT, "f", RW).await.expect("made").attr.ino;
        rig.create(A, dir, "inside", RW).await.expect("made");
        let link = |ino, parent: Ino| LinkReq { ino, parent, name: b"l".to_vec(), cred: root() };
        let refused = rig.ask(A, link(file, dir)).await.expect_err("refused");
        assert_eq!(
            refused.to_string(),
            format!(
                "crosses file systems {}\
                 \n  why:  it is in project 0, and the directory is for project 7\
                 \n  data: nothing was changed\
                 \n  code: E3018 (brindle explain E3018)",
                file.fid()
            )
        );
        let moved = rig.ask(A, rename(Ino::ROOT, "f", dir, "g")).await;
        assert_eq!(code(moved), Some(Code::CrossDevice));
        let over = rig.ask(A, rename(Ino::ROOT, "f", dir, "inside")).await;
        assert_eq!(code(over), Some(Code::CrossDevice), "what stands there stays");
        let exchange = RenameReq { exchange: true, ..rename(dir, "inside", Ino::ROOT, "f") };
        assert_eq!(code(rig.ask(A, exchange).await), Some(Code::CrossDevice), "that goes both ways");
        assert!(rig.lookup(dir, "inside").await.is_ok());

        // Out of a tree, and within it, names move as ever.
        let below = rig.mkdir(dir, "below").await.expect("made").ino;
        rig.ask(A, rename(dir, "inside", below, "deeper")).await.expect("the same project");
        rig.ask(A, rename(below, "deeper", Ino::ROOT, "outside"))
            .await
            .expect("no project is inherited there");
        let outside = rig.lookup(Ino::ROOT, "outside").await.expect("there").ino;
        assert_eq!(get(&rig, outside).await.id, 7, "it keeps its project");
        set(&rig, file, root(), Some(7), None).await.expect("set");
        rig.ask(A, rename(Ino::ROOT, "f", dir, "g")).await.expect("of the project it may come in");
        rig.verify();
    });
}

#[test]
fn a_project_has_no_more_inodes_than_it_may() {
    run(async {
        let mut rig = Rig::new().await;
        let dir = tree(&rig).await;
        limit(&rig, 7, Some(2), None).await;
        rig.restart().await;
        rig.ask(A, named(dir, "first", user(1000))).await.expect("made");
        let refused = rig.ask(A, named(dir, "second", user(1000))).await.expect_err("refused");
        assert!(refused.to_string().starts_with("this is more than is allowed to project 7\n"), "{refused}");
        let outside = rig.ask(A, named(Ino::ROOT, "third", user(1000))).await.expect("made").attr.ino;
        let given = set(&rig, outside, user(1000), Some(7), None).await;
        assert_eq!(code(given), Some(Code::OverQuota), "nor is one given to it");
        assert_eq!(get(&rig, outside).await, Project::default());
        rig.ask(A, named(dir, "of root", root())).await.expect("no limit counts for root");
    });
}

#[test]
fn room_for_bytes_is_that_of_the_project_too_and_a_wrong_guess_costs_nothing() {
    run(async {
        let rig = Rig::new().await;
        rig.raise_level().await;
        let (ino, _) = converted(&rig).await;
        set(&rig, ino, root(), Some(7), None).await.expect("set");
        let serial = async || rig.ask(A, SessionRenewReq {}).await.expect("renewed").limits_serial;
        assert_eq!(serial().await, 0);
        limit(&rig, 7, None, Some(16 << 20)).await;
        let first = serial().await;
        assert_ne!(first & LIMITS_OF_PROJECTS, 0);
        let room = async |project, in_project| {
            let req = QuotaFileRoomReq {
                ino,
                uid: 0,
                gid: 0,
                project,
                wanted_bytes: 4096,
                user: RoomUse::default(),
                group: RoomUse::default(),
                in_project,
            };
            rig.ask(A, req).await.expect("answered")
        };
        for guess in [None, Some(8)] {
            let held = RoomUse { held_bytes: 16 << 20, uncounted_bytes: 1 << 20 };
            let told = room(guess, held).await;
            assert_eq!((told.project, told.room), (7, None));
        }
        let given = room(Some(7), RoomUse::default()).await.room.expect("it is project 7");
        assert_eq!((given.user_bytes, given.group_bytes), (None, None));
        let bytes = given.project_bytes.expect("limited");
        assert!((1 << 20..=2 << 20).contains(&bytes), "an eighth of what is left: {bytes}");
        let held = RoomUse { held_bytes: 16 << 20, uncounted_bytes: 0 };
        assert_eq!(room(Some(7), held).await.room.and_then(|room| room.project_bytes), Some(0));

        // A file that is written has another project: its writers ask again.
        set(&rig, ino, root(), Some(0), None).await.expect("set");
        assert_ne!(serial().await, first);
        let told = room(Some(0), RoomUse::default()).await;
        assert_eq!((told.project, told.room.and_then(|room| room.project_bytes)), (0, None));
    });
}

#[test]
fn what_only_the_osts_know_of_a_file_counts_for_its_new_project() {
    run(async {
        let rig = Rig::new().await;
        let dir = tree(&rig).await;
        let inside = rig.create(A, dir, "f", RW).await.expect("made").attr.ino;
        let (shared, _) = converted(&rig).await;
        limit(&rig, 7, None, Some(1 << 20)).await;
        let room = async |wanted_bytes| {
            let (user, group, in_project) = Default::default();
            let (ino, project) = (inside, Some(7));
            let req =
                QuotaFileRoomReq { ino, uid: 0, gid: 0, project, wanted_bytes, user, group, in_project };
            let answer = rig.ask(A, req).await.expect("answered");
            answer.room.and_then(|room| room.project_bytes).expect("limited")
        };
        assert_ne!(room(4096).await, 0, "all is counted");
        // A writer whose reports do not tell allocated bytes has written the file.
        rig.osts.objects.lock().values_mut().for_each(|data| data.resize(900 << 10, 1));
        rig.mdt.live_mut().uncount(shared, Owners { uid: 0, gid: 0, project: 0 });
        set(&rig, shared, root(), Some(7), None).await.expect("set");
        assert_eq!(room(512 << 10).await, 0, "the OSTs were asked");
        assert_ne!(room(64 << 10).await, 0);
    });
}

#[test]
fn a_file_system_of_the_first_level_says_what_to_do() {
    run(async {
        let rig = Rig::new().await;
        let refused = set(&rig, Ino::ROOT, root(), Some(7), None).await.expect_err("refused");
        assert_eq!(refused.code, Code::NewerFormat);
        assert!(refused.to_string().contains("brindle fs upgrade"), "{refused}");
        rig.create(A, Ino::ROOT, "f", RW).await.expect("made as ever");
        rig.verify();
    });
}

#[test]
fn fsck_finds_a_project_that_is_counted_wrongly() {
    run(async {
        let rig = Rig::new().await;
        tree(&rig).await;
        let call = Call::internal(Op::SyncAll);
        let wrong = rig.mdt.step(&call, |t| {
            t.put_row(keys::usage(Kind::Project as u8, 7), &Usage { inodes: 5, bytes: 0 });
            Ok(())
        });
        wrong.await.expect("made");
        let found = crate::check::verify(rig.mdt.engine()).expect("rows can be read");
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected =
            "Project 7: counted Usage { inodes: 5, bytes: 0 }, really Usage { inodes: 1, bytes: 4096 }";
        assert_eq!(found, [expected]);
    });
}

#[test]
fn a_scan_finds_what_is_in_a_project() {
    run(async {
        let rig = Rig::new().await;
        let dir = tree(&rig).await;
        rig.create(A, dir, "f", RW).await.expect("made");
        rig.create(A, Ino::ROOT, "g", RW).await.expect("made");
        let req = ScanReq {
            cred: root(),
            start: Ino::ROOT,
            start_name: b"/".to_vec(),
            predicate: vec![Term::Test(Test::Project(Range { min: 7, max: 7 }))],
            depth_min: 0,
            depth_max: 10,
            wanted: Wanted::Paths,
            cursor: None,
        };
        let found = rig.ask(A, req).await.expect("found").found;
        let paths: Vec<Vec<u8>> = found.into_iter().map(|found| found.path).collect();
        assert_eq!(paths, [b"tree".to_vec(), b"tree/f".to_vec()]);
    });
}
