//! Tests of translation, with trial versions of one request and one answer.

use serde::Deserialize;

use super::*;
use crate::frame::Header;
use crate::mds::session::{TargetInfoResp, TargetInfoRespV2};
use crate::mds::unlink::UnlinkReq;

/// An unlink as a later version might have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Later {
    request: UnlinkReq,
    reason: String,
}

impl Message for Later {
    const OP: Op = Op::Unlink;
    type Resp = LaterAnswer;
}

impl Changed for Later {
    const SINCE: u16 = 8;
    type Previous = UnlinkReq;

    fn from_previous(request: UnlinkReq) -> Later {
        Later { request, reason: String::new() }
    }

    fn to_previous(&self) -> Option<UnlinkReq> {
        self.reason.is_empty().then(|| self.request.clone())
    }
}

/// Answer to [`Later`], which has changed twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LaterAnswer(u32, u32, u32);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MiddleAnswer(u32, u32);

impl Changed for LaterAnswer {
    const SINCE: u16 = 9;
    type Previous = MiddleAnswer;

    fn from_previous(MiddleAnswer(a, b): MiddleAnswer) -> LaterAnswer {
        LaterAnswer(a, b, 0)
    }

    fn to_previous(&self) -> Option<MiddleAnswer> {
        Some(MiddleAnswer(self.0, self.1))
    }
}

impl Changed for MiddleAnswer {
    const SINCE: u16 = 8;
    type Previous = u32;

    fn from_previous(a: u32) -> MiddleAnswer {
        MiddleAnswer(a, 0)
    }

    fn to_previous(&self) -> Option<u32> {
        Some(self.0)
    }
}

/// The message whose answer is the one in the middle.
#[derive(Serialize, Deserialize)]
struct Middle;

impl Message for Middle {
    const OP: Op = Op::Unlink;
    type Resp = MiddleAnswer;
}

const TRIAL: &[Change] =
    &[Change::of_request::<Later>(), Change::of_reply::<Middle>(), Change::of_reply::<Later>()];

fn trial() -> Protocols {
    Protocols { versions: Versions { min: 7, max: 9 }, changes: TRIAL }
}

fn unlink() -> UnlinkReq {
    extremes::shapes::<UnlinkReq>(&|_| None).remove(0)
}

const UNLINK: Option<Op> = Some(Op::Unlink);

#[test]
fn a_request_goes_down_and_comes_up_or_is_refused_by_name() {
    let plain = Later { request: unlink(), reason: String::new() };
    let body = encode_body(&plain);
    assert_eq!(trial().down(UNLINK, Part::Request, 8, body.clone()), Ok(body.clone()));
    let old = trial().down(UNLINK, Part::Request, 7, body.clone()).expect("can be said");
    assert_eq!(old, encode_body(&unlink()));
    assert_eq!(trial().up(UNLINK, Part::Request, 7, old.clone()), Ok(body));
    // Other operations pass as they are.
    assert_eq!(trial().down(Some(Op::Rmdir), Part::Request, 7, old.clone()), Ok(old));
    let meant = encode_body(&Later { reason: "tidy".into(), ..plain });
    let refusal = trial().down(UNLINK, Part::Request, 7, meant).expect_err("protocol 7 has no reasons");
    let text = refusal.to_string();
    assert_eq!(refusal.code, Code::VersionMismatch);
    assert!(
        text.contains("unlink") && text.contains("protocol 7") && text.contains("nothing was changed"),
        "{text}"
    );
    let garbage = trial().up(UNLINK, Part::Request, 7, Bytes::from_static(&[0xff; 4]));
    assert_eq!(garbage.expect_err("no request").code, Code::BadFrame);
}

#[test]
fn an_answer_goes_through_every_version_between_and_faults_go_unchanged() {
    let answer = |answer: LaterAnswer| encode_body(&Ok::<_, Fault>(answer));
    let newest = answer(LaterAnswer(1, 2, 3));
    let at = |spoken| trial().down(UNLINK, Part::Reply, spoken, newest.clone()).expect("can be said");
    assert_eq!(at(9), newest);
    assert_eq!(at(8), encode_body(&Ok::<_, Fault>(MiddleAnswer(1, 2))));
    assert_eq!(at(7), encode_body(&Ok::<_, Fault>(1u32)));
    assert_eq!(trial().up(UNLINK, Part::Reply, 8, at(8)), Ok(answer(LaterAnswer(1, 2, 0))));
    assert_eq!(trial().up(UNLINK, Part::Reply, 7, at(7)), Ok(answer(LaterAnswer(1, 0, 0))));
    let refused = encode_body(&Err::<u32, Fault>(Fault::new(Code::NotFound)));
    for spoken in 7..=9 {
        assert_eq!(trial().down(UNLINK, Part::Reply, spoken, refused.clone()), Ok(refused.clone()));
        assert_eq!(trial().up(UNLINK, Part::Reply, spoken, refused.clone()), Ok(refused.clone()));
    }
}

#[test]
fn frames_keep_what_stands_behind_their_outcome() {
    use crate::cache_updates::{CacheUpdates, Leased};
    let leased = Leased { dir: brindle_types::Ino(5), at: 6, is_new: true };
    let updates = CacheUpdates { leased: vec![leased], ..CacheUpdates::default() };
    let header = Header { op: Op::Unlink as u16, ..Header::default() };
    let newest = Frame::new(header, encode_body(&Ok::<_, Fault>(LaterAnswer(1, 0, 0))))
        .with_cache_updates(&updates)
        .with_bulk(vec![Bytes::from_static(b"bulk")]);
    let spoken = trial().frame_down(7, Part::Reply, newest.clone()).expect("can be said");
    spoken.verify().expect("lengths and sums are right");
    assert_eq!(crate::frame::decode_reply::<u32>(&spoken), Ok(1));
    assert_eq!(spoken.cache_updates(), Ok(updates));
    assert_eq!(trial().frame_up(7, Part::Reply, spoken), Ok(newest.clone()));
    assert_eq!(trial().frame_down(9, Part::Reply, newest.clone()), Ok(newest));
}

#[test]
fn every_message_of_an_earlier_version_keeps_its_meaning_both_ways() {
    for change in CHANGES {
        assert!(change.since > Versions::OURS.min, "a change that nobody needs any more");
        assert!(change.since <= PROTOCOL_VERSION);
        for old in (change.samples)() {
            let new = (change.up)(&old).expect("decodes").expect("newer forms can say everything");
            assert_eq!((change.down)(&new), Ok(Some(old)), "{:?}", change.op);
        }
    }
    assert!(CHANGES.is_sorted_by_key(|change| change.since));
}

#[test]
fn stored_answers_say_their_version_once_every_host_can_read_it() {
    let info = extremes::shapes::<TargetInfoResp>(&|_| None).remove(1);
    assert!(!info.releases.is_empty());
    let body = encode_body(&Ok::<_, Fault>(info.clone()));
    let old = store(FormatLevel::PROJECTS, Op::TargetInfo, &body).expect("can be said");
    let known: Result<TargetInfoRespV2, Fault> = decode_body(&old).expect("bytes of protocol 2");
    let cut = TargetInfoResp { releases: Vec::new(), ..info };
    assert_eq!(known, Ok(cut.to_previous().expect("fits")));
    assert_eq!(unstore(Op::TargetInfo, &old), Ok(encode_body(&Ok::<_, Fault>(cut))));
    let new = store(FormatLevel::NEWEST, Op::TargetInfo, &body).expect("can be said");
    assert_eq!((new[0], unstore(Op::TargetInfo, &new)), (3, Ok(body)));
    let later: Bytes = [&[9], &new[1..]].concat().into();
    assert_eq!(unstore(Op::TargetInfo, &later).expect_err("of a later release").code, Code::NewerFormat);
    let refusal = encode_body(&Err::<(), Fault>(Fault::new(Code::NotFound)));
    assert_eq!(store(FormatLevel::FIRST, Op::Unlink, &refusal), Ok(refusal.clone()));
    assert_eq!(unstore(Op::Unlink, &refusal), Ok(refusal));
}
