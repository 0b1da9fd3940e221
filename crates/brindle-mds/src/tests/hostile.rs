//! Hosts that are not trusted fully, whose root speaks the protocol by hand.

use brindle_net::Limits;
use brindle_types::layout::COMPONENTS_MAX;
use brindle_types::{Code, Ino, LayoutPolicy, StripePolicy};
use brindle_wire::mds::close::CloseReq;
use brindle_wire::mds::convert::ConvertReq;
use brindle_wire::mds::migrate::MigrateReq;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::quota::{QuotaOwner, QuotaRoomReq, QuotaSetReq, QuotaUseReq, RoomUse};
use brindle_wire::mds::report::{ReportReq, WriteReport};
use brindle_wire::mds::scan::{ScanReq, ScanResp, Wanted};
use brindle_wire::mgs::nodemap::{Nodemap, Squash};

use super::rig::*;

/// Makes B a session of a limited host whose users are believed but for root.
pub fn limit(rig: &Rig) -> std::sync::Arc<Limits> {
    let nodemap = Nodemap { squash: Squash::Root, ..Nodemap::new("lab") };
    let limits = std::sync::Arc::new(Limits::of(&nodemap).expect("limits"));
    rig.mdt.live_mut().sessions.get_mut(&B).expect("a session").limits = Some(limits.clone());
    limits
}

/// A file with an object, open for writing at B under handle 1.
async fn file(rig: &Rig) -> Ino {
    let made = rig.create(A, Ino::ROOT, "f", RW).await.expect("made");
    let ino = made.attr.ino;
    let convert = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
    rig.ask(A, convert).await.expect("converted");
    rig.osts.objects.lock().values_mut().for_each(|data| data.resize(10_000, 1));
    let open = OpenReq { ino, handle: 1, access: RW, cred: root(), kill_suidgid: false };
    rig.ask(B, open).await.expect("opened");
    ino
}

/// A report of the file's present contents.
async fn report(rig: &Rig, ino: Ino, number: u64, change: impl FnOnce(&mut WriteReport)) -> WriteReport {
    let layout = rig.ask(B, brindle_wire::mds::convert::LayoutGetReq { ino }).await.expect("known");
    let mut report = WriteReport {
        body: layout.layout.body,
        number,
        truncate_epoch: layout.truncate_epoch,
        attr_epoch: layout.attr_epoch,
        ..WriteReport::default()
    };
    change(&mut report);
    report
}

async fn tell(rig: &Rig, ino: Ino, report: WriteReport) {
    rig.ask(B, ReportReq { items: vec![(ino, report)], synced: Vec::new() }).await.expect("answered");
}

/// A look at everything, with sums.
pub(super) fn sums_of_all() -> ScanReq {
    ScanReq {
        cred: root(),
        start: Ino::ROOT,
        start_name: Vec::new(),
        predicate: Vec::new(),
        depth_min: 0,
        depth_max: 9,
        wanted: Wanted::Sums { depth_max: 9 },
        cursor: None,
    }
}

async fn sums(rig: &Rig) -> ScanResp {
    rig.ask(A, sums_of_all()).await.expect("answered")
}

async fn used_bytes(rig: &Rig) -> u64 {
    let ask = QuotaUseReq { owner: QuotaOwner::User, id: 0, cred: root() };
    rig.ask(A, ask).await.expect("told").bytes
}

fn room_req(ino: Ino, wanted_bytes: u64, user: RoomUse) -> QuotaRoomReq {
    QuotaRoomReq { uid: 1000, gid: 1000, wanted_bytes, user, group: RoomUse::default(), ino }
}

#[test]
fn a_report_of_more_than_a_file_can_have_ends_nothing() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let all = report(&rig, ino, 1, |report| {
            (report.allocated_bytes, report.end_bytes, report.written) = (Some(u64::MAX), u64::MAX, true);
        });
        tell(&rig, ino, all.await).await;
        assert_eq!(sums(&rig).await.sums.len(), 1);
        rig.ask(
            A,
            QuotaSetReq {
                owner: QuotaOwner::User,
                id: 1000,
                inodes_max: None,
                bytes_max: Some(1 << 20),
                cred: root(),
            },
        )
        .await
        .expect("set");
        rig.ask(A, room_req(ino, 1 << 30, RoomUse::default())).await.expect("answered");
        let attr = rig.mdt.read(|t| crate::store::inode::get(t, ino)).await.expect("there");
        let most = brindle_types::layout::FILE_SIZE_MAX_BYTES;
        assert!(attr.size_bytes <= most && attr.allocated_bytes <= most);
        rig.unlink(Ino::ROOT, "f").await.expect("removed");
        rig.verify();
    });
}

#[test]
fn a_row_that_says_too_much_ends_nothing() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let call = crate::mdt::Call::internal(brindle_wire::Op::Report);
        let poisoned = rig.mdt.step(&call, |t| {
            let mut file = crate::store::inode::get(t, ino)?;
            (file.allocated_bytes, file.size_bytes) = (u64::MAX, u64::MAX);
            crate::store::inode::put(t, &file)?;
            Ok(())
        });
        poisoned.await.expect("stored");
        sums(&rig).await;
        crate::attrs::allocated_end(&rig.mdt, A, ino, crate::attrs::Asking::Osts).await.expect("known");
        rig.unlink(Ino::ROOT, "f").await.expect("removed");
    });
}

#[test]
fn a_limited_host_does_not_say_what_its_files_have_allocated() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        limit(&rig);
        let before = used_bytes(&rig).await;
        for (number, bytes) in (1..).zip([0, u64::MAX, u64::MAX - (1 << 50) + 1]) {
            let told = report(&rig, ino, number, |report| report.allocated_bytes = Some(bytes)).await;
            tell(&rig, ino, told).await;
            assert_eq!(used_bytes(&rig).await, before, "{bytes} bytes are told");
            assert!(rig.mdt.live().is_uncounted(ino), "the OSTs are asked");
        }
        let mtime = rig.stat(A, ino).await.expect("stat").mtime;
        let last = report(&rig, ino, 9, |report| report.allocated_bytes = Some(0)).await;
        tell(&rig, ino, last).await;
        assert_eq!(rig.stat(A, ino).await.expect("stat").mtime, mtime, "nothing was written");
        rig.ask(B, CloseReq::one(ino, 1, None)).await.expect("closed");
        assert!(rig.mdt.live().is_uncounted(ino));
        rig.verify();
    });
}

#[test]
fn a_handle_is_not_opened_twice_for_different_access() {
    run(async {
        let rig = Rig::new().await;
        let ino = rig.create(A, Ino::ROOT, "f", RW).await.expect("made").attr.ino;
        let open = |access| OpenReq { ino, handle: 7, access, cred: root(), kill_suidgid: false };
        rig.ask(B, open(RW)).await.expect("opened");
        assert_eq!(code(rig.ask(B, open(RO)).await), Some(Code::BadHandle));
        rig.ask(B, open(RW)).await.expect("the same once more");
        rig.close(B, ino, 7).await.expect("closed");
        rig.ask(B, open(RO)).await.expect("the number is free");
        rig.verify();
    });
}

#[test]
fn a_layout_does_not_grow_piece_by_piece_without_end() {
    run(async {
        let rig = Rig::new().await;
        let ino = rig.create(A, Ino::ROOT, "f", RW).await.expect("made").attr.ino;
        let ask = async |n: u64| {
            let stripe = StripePolicy { count: Some(1 + (n % 2) as i32), ..StripePolicy::default() };
            let (policy, copy_max_bytes) = (Some(LayoutPolicy::from(stripe)), 64 << 10);
            let offset = (64 << 20) - n * (64 << 10);
            rig.ask(A, MigrateReq { ino, offset, policy, avoid: Vec::new(), copy_max_bytes, cred: root() })
                .await
        };
        for n in 0..2 * COMPONENTS_MAX as u64 {
            // Some requests are refused, which also bounds the number of components.
            drop(ask(n).await);
            let grant = rig.ask(A, brindle_wire::mds::convert::LayoutGetReq { ino }).await.expect("known");
            let components = grant.layout.components.len();
            assert!(components <= COMPONENTS_MAX, "{components} components after {n} moves");
        }
        rig.verify();
    });
}
