//! Garbage in the bodies of messages: every body either does not decode, or is a message that keeps its bytes.
//!
//! The bytes come from a seed (`BRINDLE_SEED=n` replays one). `BRINDLE_FUZZ_ROUNDS=n` tries n bodies for each message;
//! `make soak` tries many more than `make test`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brindle_types::Fault;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::{HEADER_LEN, Header, decode_body, encode_body};
use brindle_wire::version::{Hello, HelloReply};
use brindle_wire::{Message, Op};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bodies tried for each message where nobody asks for another number.
const ROUNDS_DEFAULT: u64 = 2_000;
/// Bodies that decoded and are changed to make others.
const CORPUS_MAX: usize = 64;
/// Longest body made from nothing.
const NEW_BYTES_MAX: u64 = 120;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Mostly small numbers, which are lengths and variants, and the edges of variable-length integers.
    fn byte(&mut self) -> u8 {
        match self.below(10) {
            0 => self.next() as u8,
            1 => [0x7f, 0x80, 0xff, 0xfe][self.below(4) as usize],
            2 => self.below(6) as u8,
            _ => self.below(2) as u8,
        }
    }

    fn body(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.below(3) == 0 {
            let len = self.below(NEW_BYTES_MAX);
            return (0..len).map(|_| self.byte()).collect();
        }
        let mut body = corpus[self.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(body.len() as u64 + 1) as usize;
            match self.below(4) {
                0 => body.truncate(at),
                1 => body.insert(at, self.byte()),
                2 if at < body.len() => drop(body.remove(at)),
                _ if at < body.len() => body[at] = self.byte(),
                _ => body.push(self.byte()),
            }
        }
        body
    }
}

/// Tries bodies for one type; returns how many decoded.
fn try_bodies<T: Serialize + DeserializeOwned>(what: &str, seed: u64, rounds: u64) -> u64 {
    let mut dice = Dice(seed ^ what.bytes().fold(7, |sum, b| sum * 31 % 0x7fff_ffff + u64::from(b)));
    let (mut corpus, mut decoded) = (Vec::new(), 0);
    for round in 0..rounds {
        let body = dice.body(&corpus);
        let tried = catch_unwind(AssertUnwindSafe(|| keeps_its_bytes::<T>(&body)));
        match tried {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(bytes))) => {
                decoded += 1;
                let at = dice.below(CORPUS_MAX as u64) as usize;
                if corpus.len() < CORPUS_MAX {
                    corpus.push(bytes);
                } else {
                    corpus[at] = bytes;
                }
            }
            Ok(Err(why)) => panic!("{what}, seed {seed}, round {round}: {why}: {body:02x?}"),
            Err(_) => panic!("{what}, seed {seed}, round {round} panicked: {body:02x?}"),
        }
    }
    decoded
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

fn try_message<M: Message>(seed: u64, rounds: u64) -> Op {
    let name = M::OP.name();
    let decoded = try_bodies::<M>(name, seed, rounds);
    // A reply is a message or a fault.
    let replies = try_bodies::<Result<M::Resp, Fault>>(&format!("{name} (reply)"), seed, rounds);
    assert!(decoded > 0 && replies > 0, "{name}: no body decoded, the test tries nothing");
    M::OP
}

macro_rules! try_all {
    ($($message:path),* $(,)?) => {
        fn try_all(seed: u64, rounds: u64) -> Vec<Op> {
            vec![$(try_message::<$message>(seed, rounds),)*]
        }
    };
}

try_all![
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
    brindle_wire::mds::ost_use::OstUseReq,
    brindle_wire::mds::owner::OwnerQueryReq,
    brindle_wire::mds::waits::MdtWaitsReq,
    brindle_wire::mds::fences::FenceTableReq,
    brindle_wire::mds::quota::QuotaSetReq,
    brindle_wire::mds::quota::QuotaRoomReq,
    brindle_wire::mds::quota::QuotaUseReq,
    brindle_wire::mds::changelog::ChangelogRegisterReq,
    brindle_wire::mds::changelog::ChangelogDeregisterReq,
    brindle_wire::mds::changelog::ChangelogClearReq,
    brindle_wire::mds::changelog::ChangelogReadReq,
    brindle_wire::mds::changelog::ChangelogInfoReq,
    brindle_wire::mds::changelog::ChangelogMaskReq,
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
    brindle_wire::mgs::RegisterReq,
    brindle_wire::mgs::GetMapReq,
    brindle_wire::mgs::HeartbeatReq,
    brindle_wire::mgs::ChangePoolReq,
    brindle_wire::mgs::ChangeTargetReq,
    brindle_wire::mgs::RaiseLevelReq,
    brindle_wire::notify::RecallNotice,
    brindle_wire::notify::InvalidateNotice,
    brindle_wire::notify::LayoutNotice,
    brindle_wire::notify::ReportNotice,
    brindle_wire::notify::SessionEndNotice,
    brindle_wire::notify::SettleNotice,
    brindle_wire::notify::LeaseNotice,
    brindle_wire::notify::ClosedNotice,
];

#[test]
fn bodies_decode_or_do_not() {
    let (seed, rounds) = (from_env("BRINDLE_SEED", 1), from_env("BRINDLE_FUZZ_ROUNDS", ROUNDS_DEFAULT));
    let mut tried = try_all(seed, rounds);
    tried.sort();
    assert_eq!(tried, Op::ALL, "every operation is tried");
    assert!(try_bodies::<Hello>("hello", seed, rounds) > 0);
    assert!(try_bodies::<HelloReply>("hello reply", seed, rounds) > 0);
    try_bodies::<CacheUpdates>("cache updates", seed, rounds);
}

#[test]
fn headers_decode_or_do_not() {
    let (seed, rounds) = (from_env("BRINDLE_SEED", 1), from_env("BRINDLE_FUZZ_ROUNDS", ROUNDS_DEFAULT) * 10);
    let mut dice = Dice(seed);
    let good = Header::default().encode();
    let mut decoded = 0;
    for round in 0..rounds {
        let mut bytes: [u8; HEADER_LEN] = good;
        for _ in 0..dice.below(4) {
            bytes[dice.below(HEADER_LEN as u64) as usize] = dice.byte();
        }
        if let Ok(header) = Header::decode(&bytes) {
            decoded += 1;
            assert_eq!(header.encode(), bytes, "seed {seed}, round {round}");
        }
    }
    assert!(decoded > 0 && decoded < rounds);
}
