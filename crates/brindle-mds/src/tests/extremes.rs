//! Extreme numbers in every message of an MDT, from a trusted host and from a limited one: no number crashes the MDT, at once or
//! after it was stored.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use brindle_stdx::fuzz::seed;
use brindle_types::{Ino, Pair, Role};
use brindle_wire::extremes::messages;
use brindle_wire::frame::encode_body;
use brindle_wire::mds::convert::ConvertReq;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::quota::{QuotaOwner, QuotaRoomReq, QuotaSetReq, RoomUse};
use brindle_wire::mds::*;
use brindle_wire::{Message, Op};
use futures_util::FutureExt;

use super::hostile::{limit, sums_of_all};
use super::rig::*;
use crate::dispatch::dispatch;
use crate::{admission, attrs};

/// Time after which a request is given up: it waits for something.
const GIVE_UP: Duration = Duration::from_millis(30);

/// Operations that are answered in front of the dispatch: sessions, status, and members.
const ELSEWHERE: [Op; 20] = [
    Op::SessionOpen,
    Op::SessionClose,
    Op::TargetInfo,
    Op::MdtUsage,
    Op::MdtLogLevel,
    Op::MdtLogLines,
    Op::ListMounts,
    Op::MountLogLines,
    Op::MountLogLevel,
    Op::MdtTrace,
    Op::MdtShares,
    Op::MemberAttach,
    Op::MemberLease,
    Op::MemberAppend,
    Op::MemberSync,
    Op::MemberFill,
    Op::MdtScrub,
    Op::MemberVerify,
    Op::MemberCompare,
    Op::MemberScrub,
];

/// A file of its own for each message, with an object, open for writing at A and B.
struct Target {
    ino: Ino,
    made: u64,
    body: Pair,
    layout_epoch: Pair,
    truncate_epoch: Pair,
    attr_epoch: Pair,
}

impl Target {
    async fn make(rig: &Rig, is_inline: bool) -> Option<Target> {
        let request = create_req(Ino::ROOT, "f", RW);
        let made = request.handle;
        let created = rig.ask(A, request).await.ok()?;
        let ino = created.attr.ino;
        let mut grant = created.grant;
        if !is_inline {
            let convert = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
            grant = rig.ask(A, convert).await.ok()?;
        }
        let open = OpenReq { ino, handle: 1, access: RW, cred: root(), kill_suidgid: false };
        rig.ask(B, open).await.ok()?;
        let (layout, truncate_epoch, attr_epoch) = (grant.layout, grant.truncate_epoch, grant.attr_epoch);
        Some(Target { ino, made, body: layout.body, layout_epoch: layout.epoch, truncate_epoch, attr_epoch })
    }

    /// Numbers by which a message is about this file.
    fn usual(&self, names: &[&'static str]) -> Option<u64> {
        let has = |name| names.contains(&name);
        let of_pair = |pair: Pair| match names {
            [.., "term"] => Some(pair.term.into()),
            [.., "counter"] => Some(pair.counter),
            _ => None,
        };
        match names {
            [.., "Ino"] if has("parent") || has("new_parent") || has("start") || has("dir") => {
                Some(Ino::ROOT.0)
            }
            [.., "Ino"] => Some(self.ino.0),
            [.., "handle"] => Some(1),
            [.., "SessionId"] => Some(B.0),
            [.., "uid" | "gid"] => Some(0),
            _ if has("body") => of_pair(self.body),
            _ if has("layout_epoch") => of_pair(self.layout_epoch),
            _ if has("truncate_epoch") => of_pair(self.truncate_epoch),
            _ if has("attr_epoch") => of_pair(self.attr_epoch),
            _ => None,
        }
    }

    /// Uses of the file by others afterwards.
    async fn use_it(&self, rig: &Rig) {
        drop(rig.ask(A, sums_of_all()).await);
        drop(rig.stat(A, self.ino).await);
        let (user, group) = (RoomUse::default(), RoomUse::default());
        let room = QuotaRoomReq { uid: 1000, gid: 1000, wanted_bytes: 1 << 40, user, group, ino: self.ino };
        drop(rig.ask(A, room).await);
        drop(attrs::allocated_end(&rig.mdt, A, self.ino, attrs::Asking::Osts).await);
        drop(rig.unlink(Ino::ROOT, "f").await);
        drop(rig.close(B, self.ino, 1).await);
        drop(rig.close(A, self.ino, self.made).await);
    }
}

/// Most messages of a kind that are tried, spread over all of them; the seed says where they begin. `make soak` tries all.
const TRIED_MAX: usize = 4;

fn tried_max() -> usize {
    if std::env::var_os("BRINDLE_FUZZ_ROUNDS").is_some() { usize::MAX } else { TRIED_MAX }
}

#[derive(Default)]
struct Feeder {
    is_limited: bool,
    is_inline: bool,
    tried: BTreeSet<Op>,
    /// Messages after which something panicked.
    ended_by: Vec<String>,
}

impl Feeder {
    async fn rig() -> Rig {
        let rig = Rig::new().await;
        let (inodes_max, bytes_max) = (None, Some(1 << 30));
        let limit = QuotaSetReq { owner: QuotaOwner::User, id: 1000, inodes_max, bytes_max, cred: root() };
        rig.ask(A, limit).await.expect("set");
        rig
    }

    async fn feed<M: Message>(&mut self) {
        let mut rig = Feeder::rig().await;
        let mut number = 0;
        loop {
            let target = match Target::make(&rig, self.is_inline).await {
                Some(target) => target,
                None => {
                    // A message before has ended a session, say.
                    rig = Feeder::rig().await;
                    Target::make(&rig, self.is_inline).await.expect("a file")
                }
            };
            let mut all = messages::<M>(&|names: &[&'static str]| target.usual(names));
            assert!(!all.is_empty(), "{}: no message was made", M::OP.name());
            let step = all.len().div_ceil(tried_max());
            if number == 0 {
                number = seed() as usize % step;
            }
            if number >= all.len() {
                break;
            }
            let body = encode_body(&all.swap_remove(number));
            let work = async {
                drop(tokio::time::timeout(GIVE_UP, self.send::<M>(&rig, &body)).await);
                drop(tokio::time::timeout(GIVE_UP * 10, target.use_it(&rig)).await);
            };
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                self.ended_by.push(format!("{} {number}: {body:02x?}", M::OP.name()));
                rig = Feeder::rig().await;
            }
            number += step;
        }
        self.tried.insert(M::OP);
    }

    async fn send<M: Message>(&self, rig: &Rig, body: &bytes::Bytes) {
        let call = rig.call::<M>(B);
        let body = if self.is_limited { admission::admit(&call, limit(rig), body) } else { body.clone() };
        dispatch(&rig.mdt, &call, &body).await;
    }
}

macro_rules! feed_all {
    ($feeder:ident: $($message:ty),* $(,)?) => {
        $($feeder.feed::<$message>().await;)*
    };
}

async fn feed_all(feeder: &mut Feeder) {
    feed_all!(feeder:
        session::SessionRenewReq, session::ReclaimReq, lookup::LookupReq, getattr::GetattrReq, setattr::SetattrReq,
        create::CreateReq, mkdir::MkdirReq, mknod::MknodReq, symlink::SymlinkReq, link::LinkReq, unlink::UnlinkReq,
        unlink::RmdirReq, rename::RenameReq, tmpfile::TmpfileReq, readlink::ReadlinkReq, readdir::ReaddirReq,
        xattr::GetxattrReq, xattr::ListxattrReq, xattr::SetxattrReq, xattr::RemovexattrReq, statfs::MdtStatfsReq,
        open_ahead::OpenAheadReq, open::OpenReq, close::CloseReq, report::ReportReq, fsync::FsyncReq,
        sync_all::SyncAllReq, inline::InlineReadReq, inline::InlineWriteReq, convert::ConvertReq,
        convert::LayoutGetReq, convert::SpillReq, append::AppendReserveReq, append::AppendDoneReq,
        invalidate::InvalidateReq, lock::GetLockReq, lock::SetLockReq, lock::CancelLockReq, stripe::SetStripeReq,
        stripe::GetStripeReq, path::PathOfReq, scan::ScanReq, migrate::MigrateReq, backup::BackupReadReq,
        ost_use::OstUseReq, owner::OwnerQueryReq, waits::MdtWaitsReq, fences::FenceTableReq,
    );
    feed_all!(feeder:
        rights::SessionRightsReq, project::ProjectGetReq, project::ProjectSetReq, quota::QuotaFileRoomReq,
        quota::QuotaShowReq, quota::QuotaChangeReq, quota::QuotaListReq, quota::QuotaSetReq, quota::QuotaRoomReq,
        quota::QuotaUseReq, changelog::ChangelogRegisterReq, changelog::ChangelogDeregisterReq,
        changelog::ChangelogClearReq, changelog::ChangelogReadReq, changelog::ChangelogInfoReq,
        changelog::ChangelogMaskReq, hsm::HsmStateReq, hsm::HsmActReq, hsm::HsmRemoveReq, hsm::HsmSetReq, hsm::HsmRecallReq,
        hsm::HsmTakeReq, hsm::HsmProgressReq, hsm::HsmDoneReq, hsm::HsmImportReq, hsm::HsmInfoReq,
        hsm::HsmOpenReq, hsm::HsmReadReq, hsm::HsmExtentsReq, hsm_span::HsmDivideReq,
        hsm_span::HsmSpanTakeReq, hsm_span::HsmSpanDoneReq, hsm_span::HsmSharesReq,
        hsm::HsmSwitchReq, note_access::NoteAccessReq, policy::PolicyScanReq, policy::PolicyRemoveReq,
        policy::HsmBacklogReq,
    );
}

fn no_number_ends_it(is_limited: bool, is_inline: bool) {
    run(async {
        let mut feeder = Feeder { is_limited, is_inline, ..Feeder::default() };
        feed_all(&mut feeder).await;
        assert!(feeder.ended_by.is_empty(), "{:#?}", feeder.ended_by);
        let served = |op: &Op| op.is_served_by(Role::Mdt) && !ELSEWHERE.contains(op);
        let all: BTreeSet<Op> = Op::ALL.iter().copied().filter(served).collect();
        assert_eq!(feeder.tried, all, "every operation is tried");
    });
}

#[test]
fn no_number_of_a_trusted_host_ends_an_mdt() {
    no_number_ends_it(false, false);
}

#[test]
fn no_number_of_a_limited_host_ends_an_mdt() {
    no_number_ends_it(true, false);
}

#[test]
fn no_number_about_a_small_file_ends_an_mdt() {
    no_number_ends_it(true, true);
}
