//! Garbage in the bodies of messages: every body either does not decode, or is a message that keeps its bytes.
//!
//! The bytes come from a seed ([`brindle_stdx::fuzz`]).

use brindle_stdx::fuzz::{Dice, rounds, seed, try_bytes};
use brindle_types::Fault;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::frame::{HEADER_LEN, Header, decode_body, encode_body};
use brindle_wire::map::Map;
use brindle_wire::version::{Hello, HelloReply};
use brindle_wire::{Message, Op};
use serde::Serialize;
use serde::de::DeserializeOwned;

mod golden;

/// Tries bodies for one type; returns how many decoded.
fn try_bodies<T: Serialize + DeserializeOwned>(what: &str) -> u64 {
    try_bytes(what, Vec::new(), keeps_its_bytes::<T>)
}

/// `None` where no message stands at the front of the body; that message's own bytes where one does.
fn keeps_its_bytes<T: Serialize + DeserializeOwned>(body: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Ok((message, left)) = postcard::take_from_bytes::<T>(body) else {
        let is_refused = decode_body::<T>(body).is_err();
        return is_refused.then_some(None).ok_or_else(|| "it decodes with bytes missing".to_owned());
    };
    if decode_body::<T>(body).is_ok() != left.is_empty() {
        return Err("it decodes with bytes left over".to_owned());
    }
    let bytes = encode_body(&message);
    let again = decode_body::<T>(&bytes).map_err(|fault| format!("its own bytes do not decode: {fault}"))?;
    if encode_body(&again) != bytes {
        return Err("it changes when it is read and written".to_owned());
    }
    Ok(Some(bytes.to_vec()))
}

fn try_message<M: Message>() -> Op {
    let name = M::OP.name();
    let decoded = try_bodies::<M>(name);
    // A reply is a message or a fault.
    let replies = try_bodies::<Result<M::Resp, Fault>>(&format!("{name} (reply)"));
    assert!(decoded > 0 && replies > 0, "{name}: no body decoded, the test tries nothing");
    M::OP
}

/// A test of every message.
trait Visit {
    /// Tries a message.
    fn message<M: Message>(&mut self);
}

macro_rules! all_messages {
    ($($message:path),* $(,)?) => {
        fn all_messages(visit: &mut impl Visit) {
            $(visit.message::<$message>();)*
        }
    };
}

all_messages![
    brindle_wire::mds::session::SessionOpenReq,
    brindle_wire::mds::session::SessionRenewReq,
    brindle_wire::mds::session::SessionCloseReq,
    brindle_wire::mds::session::ReclaimReq,
    brindle_wire::mds::session::TargetInfoReq,
    brindle_wire::mds::lookup::LookupReq,
    brindle_wire::mds::getattr::GetattrReq,
    brindle_wire::mds::setattr::SetattrReq,
    brindle_wire::mds::create::CreateReq,
    brindle_wire::mds::mkdir::MkdirReq,
    brindle_wire::mds::mknod::MknodReq,
    brindle_wire::mds::symlink::SymlinkReq,
    brindle_wire::mds::link::LinkReq,
    brindle_wire::mds::unlink::UnlinkReq,
    brindle_wire::mds::unlink::RmdirReq,
    brindle_wire::mds::rename::RenameReq,
    brindle_wire::mds::tmpfile::TmpfileReq,
    brindle_wire::mds::readlink::ReadlinkReq,
    brindle_wire::mds::readdir::ReaddirReq,
    brindle_wire::mds::xattr::GetxattrReq,
    brindle_wire::mds::xattr::ListxattrReq,
    brindle_wire::mds::xattr::SetxattrReq,
    brindle_wire::mds::xattr::RemovexattrReq,
    brindle_wire::mds::statfs::MdtStatfsReq,
    brindle_wire::mds::open_ahead::OpenAheadReq,
    brindle_wire::mds::open::OpenReq,
    brindle_wire::mds::close::CloseReq,
    brindle_wire::mds::report::ReportReq,
    brindle_wire::mds::fsync::FsyncReq,
    brindle_wire::mds::sync_all::SyncAllReq,
    brindle_wire::mds::inline::InlineReadReq,
    brindle_wire::mds::inline::InlineWriteReq,
    brindle_wire::mds::convert::ConvertReq,
    brindle_wire::mds::convert::LayoutGetReq,
    brindle_wire::mds::append::AppendReserveReq,
    brindle_wire::mds::append::AppendDoneReq,
    brindle_wire::mds::invalidate::InvalidateReq,
    brindle_wire::mds::convert::SpillReq,
    brindle_wire::mds::lock::GetLockReq,
    brindle_wire::mds::lock::SetLockReq,
    brindle_wire::mds::lock::CancelLockReq,
    brindle_wire::mds::stripe::SetStripeReq,
    brindle_wire::mds::stripe::GetStripeReq,
    brindle_wire::mds::path::PathOfReq,
    brindle_wire::mds::scan::ScanReq,
    brindle_wire::mds::migrate::MigrateReq,
    brindle_wire::mds::backup::BackupReadReq,
    brindle_wire::mds::replica::MemberAttachReq,
    brindle_wire::mds::replica::MemberLeaseReq,
    brindle_wire::mds::replica::MemberAppendReq,
    brindle_wire::mds::replica::MemberSyncReq,
    brindle_wire::mds::replica::MemberFillReq,
    brindle_wire::mds::replica::MemberVerifyReq,
    brindle_wire::mds::replica::MemberCompareReq,
    brindle_wire::mds::replica::MemberScrubReq,
    brindle_wire::mds::scrub::MdtScrubReq,
    brindle_wire::mds::ost_use::OstUseReq,
    brindle_wire::job::MdtUsageReq,
    brindle_wire::job::OstUsageReq,
    brindle_wire::log_level::MdtLogLevelReq,
    brindle_wire::log_level::OstLogLevelReq,
    brindle_wire::log_level::MgsLogLevelReq,
    brindle_wire::log_level::MountLogLevelReq,
    brindle_wire::log_level::LogLevelNotice,
    brindle_wire::log_level::NodeLogLevelReq,
    brindle_wire::log_lines::MdtLogLinesReq,
    brindle_wire::log_lines::OstLogLinesReq,
    brindle_wire::log_lines::MgsLogLinesReq,
    brindle_wire::log_lines::ListMountsReq,
    brindle_wire::log_lines::MountLogLinesReq,
    brindle_wire::log_lines::LogLinesNotice,
    brindle_wire::log_lines::NodeLogLinesReq,
    brindle_wire::trace::MdtTraceReq,
    brindle_wire::trace::OstTraceReq,
    brindle_wire::mds::owner::OwnerQueryReq,
    brindle_wire::mds::waits::MdtWaitsReq,
    brindle_wire::mds::fences::FenceTableReq,
    brindle_wire::mds::project::ProjectGetReq,
    brindle_wire::mds::project::ProjectSetReq,
    brindle_wire::mds::quota::QuotaFileRoomReq,
    brindle_wire::mds::quota::QuotaShowReq,
    brindle_wire::mds::quota::QuotaChangeReq,
    brindle_wire::mds::quota::QuotaListReq,
    brindle_wire::mds::quota::QuotaSetReq,
    brindle_wire::mds::quota::QuotaRoomReq,
    brindle_wire::mds::quota::QuotaUseReq,
    brindle_wire::mds::changelog::ChangelogRegisterReq,
    brindle_wire::mds::changelog::ChangelogDeregisterReq,
    brindle_wire::mds::changelog::ChangelogClearReq,
    brindle_wire::mds::changelog::ChangelogReadReq,
    brindle_wire::mds::changelog::ChangelogInfoReq,
    brindle_wire::mds::changelog::ChangelogMaskReq,
    brindle_wire::mds::hsm::HsmStateReq,
    brindle_wire::mds::hsm::HsmActReq,
    brindle_wire::mds::hsm::HsmRemoveReq,
    brindle_wire::mds::hsm::HsmSetReq,
    brindle_wire::mds::hsm::HsmRecallReq,
    brindle_wire::mds::hsm::HsmTakeReq,
    brindle_wire::mds::hsm::HsmProgressReq,
    brindle_wire::mds::hsm::HsmDoneReq,
    brindle_wire::mds::hsm::HsmImportReq,
    brindle_wire::mds::hsm::HsmOpenReq,
    brindle_wire::mds::hsm::HsmReadReq,
    brindle_wire::mds::hsm::HsmExtentsReq,
    brindle_wire::mds::hsm_span::HsmDivideReq,
    brindle_wire::mds::hsm_span::HsmSpanTakeReq,
    brindle_wire::mds::hsm_span::HsmSpanDoneReq,
    brindle_wire::mds::hsm_span::HsmSharesReq,
    brindle_wire::mds::note_access::NoteAccessReq,
    brindle_wire::mds::hsm::HsmInfoReq,
    brindle_wire::mds::hsm::HsmSwitchReq,
    brindle_wire::mds::policy::PolicyScanReq,
    brindle_wire::mds::policy::PolicyRemoveReq,
    brindle_wire::mds::policy::HsmBacklogReq,
    brindle_wire::oss::read::ReadReq,
    brindle_wire::oss::write::WriteReq,
    brindle_wire::oss::punch::PunchReq,
    brindle_wire::oss::punch::AllocateReq,
    brindle_wire::oss::truncate::TruncateObjectReq,
    brindle_wire::oss::sync::SyncObjectsReq,
    brindle_wire::oss::stat::StatObjectsReq,
    brindle_wire::oss::destroy::DestroyObjectsReq,
    brindle_wire::oss::seek::SeekReq,
    brindle_wire::oss::fence::FenceSessionReq,
    brindle_wire::oss::fence::FenceLayoutReq,
    brindle_wire::oss::statfs::OstStatfsReq,
    brindle_wire::oss::write::CopyRangeReq,
    brindle_wire::oss::list::ListObjectsReq,
    brindle_wire::oss::grant::ReturnGrantReq,
    brindle_wire::oss::replica::ReplicaAttachReq,
    brindle_wire::oss::replica::ReplicaLeaseReq,
    brindle_wire::oss::replica::ReplicaChangeReq,
    brindle_wire::oss::replica::ReplicaLookReq,
    brindle_wire::oss::replica::ReplicaListReq,
    brindle_wire::oss::replica::ReplicaReadReq,
    brindle_wire::oss::replica::ReplicaVerifyReq,
    brindle_wire::oss::replica::ReplicaScrubReq,
    brindle_wire::oss::scrub::ScrubReq,
    brindle_wire::mgs::RegisterReq,
    brindle_wire::mgs::GetMapReq,
    brindle_wire::mgs::HeartbeatReq,
    brindle_wire::mgs::ChangePoolReq,
    brindle_wire::mgs::ChangeTargetReq,
    brindle_wire::mgs::EventsReq,
    brindle_wire::mgs::NoteTermReq,
    brindle_wire::mgs::scrub::NoteScrubReq,
    brindle_wire::mgs::RaiseLevelReq,
    brindle_wire::mgs::spare::ReportSpareReq,
    brindle_wire::mgs::hosts::JoinReq,
    brindle_wire::mgs::hosts::RenewCertificateReq,
    brindle_wire::mgs::hosts::WatchHostReq,
    brindle_wire::mgs::hosts::FetchMgtReq,
    brindle_wire::mgs::hosts::ReportHostReq,
    brindle_wire::mgs::hosts::WatchAccessReq,
    brindle_wire::mgs::hosts::ListHostsReq,
    brindle_wire::mgs::hosts::CreateTokenReq,
    brindle_wire::mgs::hosts::ChangeHostReq,
    brindle_wire::mgs::nodemap::WatchNodemapsReq,
    brindle_wire::mgs::nodemap::ListNodemapsReq,
    brindle_wire::mgs::nodemap::ChangeNodemapReq,
    brindle_wire::mgs::id_map::WatchMappedNodemapsReq,
    brindle_wire::mgs::id_map::ListMappedNodemapsReq,
    brindle_wire::mgs::id_map::ChangeMappedNodemapReq,
    brindle_wire::mgs::limit::WatchLimitsReq,
    brindle_wire::mgs::limit::ChangeLimitReq,
    brindle_wire::mgs::durability::WatchDurabilityReq,
    brindle_wire::mgs::durability::ChangeDurabilityReq,
    brindle_wire::job::MdtSharesReq,
    brindle_wire::job::OstSharesReq,
    brindle_wire::mds::rights::SessionRightsReq,
    brindle_wire::mgs::hosts::TakeOrdersReq,
    brindle_wire::mgs::hosts::RestartHostReq,
    brindle_wire::mgs::shared::KeepSharedReq,
    brindle_wire::mgs::shared::ListSharedReq,
    brindle_wire::mgs::shared::ChangeSharedReq,
    brindle_wire::mgs::spare::ListSparesReq,
    brindle_wire::mgs::spare::ChangeSpareReq,
    brindle_wire::mgs::replica::KeepReplicasReq,
    brindle_wire::mgs::replica::ListReplicasReq,
    brindle_wire::mgs::replica::ChangeReplicasReq,
    brindle_wire::mgs::replica::ChangeInSyncReq,
    brindle_wire::mgs::replica::ShowReplicaReq,
    brindle_wire::mgs::replica::NoteOpeningReq,
    brindle_wire::notify::RecallNotice,
    brindle_wire::notify::InvalidateNotice,
    brindle_wire::notify::LayoutNotice,
    brindle_wire::notify::ReportNotice,
    brindle_wire::notify::SessionEndNotice,
    brindle_wire::notify::SettleNotice,
    brindle_wire::notify::LeaseNotice,
    brindle_wire::notify::ClosedNotice,
    brindle_wire::bb::NodeRegisterReq,
    brindle_wire::bb::NodeOrderReq,
    brindle_wire::bb::NodeSlicesReq,
    brindle_wire::bb::NodeStageReq,
    brindle_wire::bb::NodeOfferReq,
];

#[test]
fn bodies_decode_or_do_not() {
    struct Tried(Vec<Op>);
    impl Visit for Tried {
        fn message<M: Message>(&mut self) {
            self.0.push(try_message::<M>());
        }
    }
    let mut tried = Tried(Vec::new());
    all_messages(&mut tried);
    tried.0.sort();
    assert_eq!(tried.0, Op::ALL, "every operation is tried");
    assert!(try_bodies::<Hello>("hello") > 0);
    assert!(try_bodies::<HelloReply>("hello reply") > 0);
    try_bodies::<CacheUpdates>("cache updates");
}

/// The map as the MGS stores it, in every form that it has had.
#[test]
fn stored_maps_decode_or_do_not() {
    let map = Map::new("scratch".parse().expect("a name"), 1);
    let good = form::encode(FormatLevel::NEWEST, &map).expect("it can be written").to_vec();
    let taken = try_bytes("stored map", vec![good], |bytes| {
        let Ok(map) = form::decode::<Map>(bytes) else { return Ok(None) };
        let own = form::encode(FormatLevel::NEWEST, &map).map_err(|fault| fault.to_string())?;
        let again = form::decode::<Map>(&own).map_err(|why| format!("{why:?}"))?;
        if again != map {
            return Err("it changes when it is written and read".to_owned());
        }
        Ok(Some(own.to_vec()))
    });
    assert!(taken > 0);
}

#[test]
fn headers_decode_or_do_not() {
    let mut dice = Dice::new("header");
    let good = Header::default().encode();
    let (mut decoded, rounds) = (0, rounds() * 10);
    for round in 0..rounds {
        let mut bytes: [u8; HEADER_LEN] = good;
        if dice.below(4) > 0 {
            dice.overwrite(&mut bytes);
        }
        if let Ok(header) = Header::decode(&bytes) {
            decoded += 1;
            assert_eq!(header.encode(), bytes, "seed {}, round {round}", seed());
        }
    }
    assert!(decoded > 0 && decoded < rounds);
}
