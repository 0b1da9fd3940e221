//! Long files that several agents archive or restore together: each span counts once, whoever dies, and the end of the action is compared as
//! that of any other.

use brindle_types::hsm::{HSM_RELEASED, Spans, span_bytes};
use brindle_types::{ArchivedCopy, Code, Fault, HsmControl, HsmKind, Ino, Result};
use brindle_wire::mds::close::CloseReq;
use brindle_wire::mds::hsm::*;
use brindle_wire::mds::hsm_span::*;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::tmpfile::TmpfileReq;

use super::hsm::{AGENT, ARCHIVED, CreateAs, OTHER, OWNER, act, done, fill, flags, take};
use super::rig::*;
use crate::hsm;

const MIB: u64 = 1 << 20;
/// Three spans of an archive, five of a restore; the last one is shorter.
const SIZE_BYTES: u64 = 18 * MIB + 17;
const THIRD: [u8; 16] = [3; 16];

/// A closed file that is long enough to be divided.
async fn long(rig: &Rig, name: &str, size_bytes: u64) -> Ino {
    let (ino, handle, _) = CreateAs { uid: OWNER, name }.make(rig).await;
    fill(rig, ino, handle, 7, usize::try_from(size_bytes).expect("small"), true).await;
    ino
}

fn at(work: &HsmWork) -> HsmAttempt {
    HsmAttempt { ino: work.ino, attempt: work.attempt }
}

fn known(work: &HsmWork, spans: &[u32]) -> Spans {
    let count = work.size_bytes.div_ceil(span_bytes(work.kind, work.size_bytes));
    let mut known = Spans::none(u32::try_from(count).expect("few"));
    spans.iter().for_each(|span| known.add(*span));
    known
}

async fn divide(rig: &Rig, work: &HsmWork, place: Option<HsmPlace>, spans: &[u32]) -> Result<HsmDivideResp> {
    let request = HsmDivideReq {
        agent: AGENT,
        attempt: at(work),
        place,
        span_bytes: span_bytes(work.kind, work.size_bytes),
        known: known(work, spans).bits().to_vec(),
        cred: root(),
    };
    rig.ask(B, request).await
}

/// Takes an archive of a long file, and divides it.
async fn divided(rig: &Rig) -> HsmWork {
    let ino = long(rig, "f", SIZE_BYTES).await;
    act(rig, ino, HsmAsk::Archive(0)).await.expect("queued");
    let work = take(rig, AGENT).await.remove(0);
    let answer = divide(rig, &work, Some(HsmPlace::Copy(None)), &[]).await.expect("divided");
    assert_eq!(answer, HsmDivideResp { is_divided: true, finished: Vec::new() });
    work
}

async fn take_span(
    rig: &Rig,
    agent: [u8; 16],
    of: Option<&HsmWork>,
    holds: &[&HsmSpan],
) -> Result<Option<HsmSpan>> {
    let request = HsmSpanTakeReq {
        agent,
        host: format!("oss{}", agent[0]),
        archives: vec![1],
        of: of.map(at),
        holds: holds.iter().map(|span| span.claim).collect(),
        cred: root(),
    };
    rig.ask(B, request).await.map(|answer| answer.span)
}

async fn own(rig: &Rig, work: &HsmWork, holds: &[&HsmSpan]) -> Option<HsmSpan> {
    take_span(rig, AGENT, Some(work), holds).await.expect("answered")
}

async fn help(rig: &Rig, agent: [u8; 16], holds: &[&HsmSpan]) -> HsmSpan {
    take_span(rig, agent, None, holds).await.expect("answered").expect("a span")
}

/// The result of a span, as an archive gives it.
fn made(span: &HsmSpan) -> HsmSpanMade {
    if span.kind == HsmKind::Restore {
        return HsmSpanMade { sums: Vec::new(), part: None };
    }
    let start = u64::from(span.claim.span) * span.span_bytes;
    let len = span.span_bytes.min(span.size_bytes - start);
    let extents = usize::try_from(len.div_ceil(MIB)).expect("few");
    HsmSpanMade { sums: vec![[9; 32]; extents], part: None }
}

async fn span_done(rig: &Rig, agent: [u8; 16], span: &HsmSpan, outcome: Result<HsmSpanMade>) -> Result<()> {
    let request = HsmSpanDoneReq { agent, claim: span.claim, outcome, cred: root() };
    rig.ask(B, request).await.map(drop)
}

async fn succeed(rig: &Rig, agent: [u8; 16], span: &HsmSpan) -> Result<()> {
    span_done(rig, agent, span, Ok(made(span))).await
}

fn finished(answer: HsmDivideResp) -> Vec<u32> {
    assert!(answer.is_divided);
    answer.finished.iter().map(|finished| finished.span).collect()
}

async fn shares(rig: &Rig) -> Vec<(bool, Vec<([u8; 16], u64)>)> {
    let answer = rig.ask(B, HsmSharesReq { cred: root() }).await.expect("answered");
    let of = |file: HsmDivided| {
        let shares = file.shares.iter().map(|share| (share.agent, share.moved_bytes)).collect();
        (file.is_running, shares)
    };
    answer.divided.into_iter().map(of).collect()
}

fn has_span(rig: &Rig, agent: [u8; 16]) -> bool {
    rig.mdt.live().hsm.has_span(&agent, &[1])
}

#[test]
fn a_long_file_is_archived_by_several_agents_and_each_span_counts_once() {
    run(async {
        let rig = Rig::new().await;
        let work = divided(&rig).await;
        let first = own(&rig, &work, &[]).await.expect("a span");
        let second = help(&rig, OTHER, &[]).await;
        let third = help(&rig, THIRD, &[]).await;
        assert_eq!([&first, &second, &third].map(|span| span.claim.span), [0, 1, 2]);
        assert_eq!((second.data_version, second.size_bytes), (work.data_version, SIZE_BYTES));
        assert_eq!(own(&rig, &work, &[&first]).await, None, "all of them are given out");
        assert!(!has_span(&rig, OTHER));
        let short = HsmSpanMade { sums: vec![[9; 32]; 7], part: None };
        let refused = span_done(&rig, OTHER, &second, Ok(short)).await;
        assert_eq!(code(refused), Some(Code::InvalidArgument), "a checksum is missing");
        succeed(&rig, OTHER, &second).await.expect("taken");
        succeed(&rig, OTHER, &second).await.expect("told twice");
        assert_eq!(code(succeed(&rig, THIRD, &second).await), Some(Code::StaleAttempt), "it is not its own");
        let place = Some(HsmPlace::Copy(None));
        assert_eq!(finished(divide(&rig, &work, place.clone(), &[]).await.expect("told")), [1]);
        assert_eq!(finished(divide(&rig, &work, place.clone(), &[1]).await.expect("told")), [0; 0]);
        succeed(&rig, THIRD, &third).await.expect("taken");
        succeed(&rig, AGENT, &first).await.expect("taken");
        assert_eq!(finished(divide(&rig, &work, place, &[1]).await.expect("told")), [0, 2]);
        let expected = vec![(AGENT, 8 * MIB), (OTHER, 8 * MIB), (THIRD, 2 * MIB + 17)];
        assert_eq!(shares(&rig).await, [(true, expected.clone())]);
        let HsmWork { data_version, attempt, size_bytes, .. } = work;
        let copy = ArchivedCopy { data_version, attempt, size_bytes, checksum: [9; 32] };
        done(&rig, &work, HsmOutcome::Archived(copy)).await.expect("taken");
        assert_eq!(flags(&rig, work.ino).await, ARCHIVED);
        assert_eq!(shares(&rig).await, [(false, expected)], "it can still be looked at");
        rig.verify();
    });
}

#[test]
fn spans_of_an_agent_that_dies_go_to_others_and_its_late_word_is_refused() {
    run(async {
        let rig = Rig::new().await;
        let work = divided(&rig).await;
        let late = help(&rig, OTHER, &[]).await;
        hsm::take_back(&rig.mdt, OTHER, "a test").await.expect("taken back");
        assert_eq!(rig.mdt.live().hsm.actions.len(), 1, "the action goes on");
        let again = own(&rig, &work, &[]).await.expect("a span");
        let behind = own(&rig, &work, &[&again]).await.expect("another");
        assert_eq!(behind.claim.span, 2, "what lies behind the last one comes first");
        let same = own(&rig, &work, &[&again, &behind]).await.expect("the one that was given back");
        assert!(same.claim.span == late.claim.span || again.claim.span == late.claim.span);
        assert_eq!(code(succeed(&rig, OTHER, &late).await), Some(Code::StaleAttempt));
        let failed = Err(Fault::new(Code::ArchiveFailed));
        span_done(&rig, OTHER, &late, failed).await.expect("heard, and of no effect");
        for span in [&again, &behind, &same] {
            succeed(&rig, AGENT, span).await.expect("taken");
        }
        assert!(!has_span(&rig, OTHER), "nothing is doubled");
        rig.verify();
    });
}

#[test]
fn a_span_whose_answer_was_lost_is_given_out_again() {
    run(async {
        let rig = Rig::new().await;
        let work = divided(&rig).await;
        let lost = help(&rig, OTHER, &[]).await;
        let heard = help(&rig, OTHER, &[]).await;
        assert_eq!((lost.claim.span, heard.claim.span), (0, 1), "the next one comes first");
        let again = help(&rig, THIRD, &[]).await;
        assert_eq!(again.claim.span, 2);
        let lost_again = own(&rig, &work, &[]).await.expect("the lost one");
        assert_eq!(lost_again.claim.span, 0);
        assert_eq!(code(succeed(&rig, OTHER, &lost).await), Some(Code::StaleAttempt));
        // An agent that cannot copy spans is given three of them, and then no more.
        let failed = || Err(Fault::new(Code::ArchiveFailed).why("no room"));
        span_done(&rig, THIRD, &again, failed()).await.expect("heard");
        for _ in 0..2 {
            let span = help(&rig, THIRD, &[]).await;
            span_done(&rig, THIRD, &span, failed()).await.expect("heard");
        }
        assert!(!has_span(&rig, THIRD) && has_span(&rig, OTHER));
        rig.verify();
    });
}

#[test]
fn a_cancelled_action_and_a_file_that_is_written_have_no_spans_any_more() {
    run(async {
        let rig = Rig::new().await;
        let work = divided(&rig).await;
        let span = help(&rig, OTHER, &[]).await;
        // A program writes the file: the copy does not count, however complete it is.
        let open = OpenReq { ino: work.ino, handle: 77, access: RW, cred: root(), kill_suidgid: false };
        let opened = rig.ask(A, open).await.expect("opened");
        assert_eq!(opened.attr.data_version, None, "an agent that asks before it writes sees that");
        rig.ask(A, CloseReq::one(work.ino, 77, None)).await.expect("closed");
        succeed(&rig, OTHER, &span).await.expect("taken");
        let HsmWork { data_version, attempt, size_bytes, .. } = work;
        let copy = ArchivedCopy { data_version, attempt, size_bytes, checksum: [9; 32] };
        let refused = done(&rig, &work, HsmOutcome::Archived(copy)).await;
        assert_eq!(code(refused), Some(Code::ChangedMeanwhile));
        assert_eq!(flags(&rig, work.ino).await, 0);
        assert!(!has_span(&rig, OTHER));
        // Cancelled.
        act(&rig, work.ino, HsmAsk::Archive(0)).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        divide(&rig, &work, Some(HsmPlace::Copy(None)), &[]).await.expect("divided");
        let span = help(&rig, OTHER, &[]).await;
        rig.mdt.live_mut().hsm.control = HsmControl::Disabled;
        assert!(!has_span(&rig, OTHER), "no help while actions wait");
        rig.mdt.live_mut().hsm.control = HsmControl::Enabled;
        act(&rig, work.ino, HsmAsk::Cancel).await.expect("cancelled");
        assert!(!has_span(&rig, OTHER));
        assert_eq!(code(succeed(&rig, OTHER, &span).await), Some(Code::StaleAttempt));
        assert_eq!(code(take_span(&rig, AGENT, Some(&work), &[]).await), Some(Code::StaleAttempt));
        let divided = divide(&rig, &work, Some(HsmPlace::Copy(None)), &[0]).await;
        assert_eq!(code(divided), Some(Code::StaleAttempt));
        rig.verify();
    });
}

#[test]
fn after_a_restart_the_mdt_learns_what_was_finished_and_old_claims_do_not_count() {
    run(async {
        let mut rig = Rig::new().await;
        let work = divided(&rig).await;
        let told = own(&rig, &work, &[]).await.expect("a span");
        succeed(&rig, AGENT, &told).await.expect("taken");
        let late = help(&rig, OTHER, &[]).await;
        rig.restart().await;
        assert_eq!(own(&rig, &work, &[]).await, None, "it has not been divided yet");
        assert_eq!(code(succeed(&rig, OTHER, &late).await), Some(Code::StaleAttempt));
        let place = Some(HsmPlace::Copy(None));
        assert_eq!(finished(divide(&rig, &work, place, &[0]).await.expect("told")), [0; 0]);
        let again = help(&rig, OTHER, &[]).await;
        let other = help(&rig, THIRD, &[]).await;
        assert_eq!((again.claim.span, other.claim.span), (1, 2), "the finished one is not given out");
        assert!(!has_span(&rig, OTHER));
        assert_eq!(code(succeed(&rig, OTHER, &late).await), Some(Code::StaleAttempt), "another claim");
        succeed(&rig, OTHER, &again).await.expect("taken");
        rig.verify();
    });
}

#[test]
fn restores_come_first_then_the_file_with_the_fewest_agents_and_short_files_stay_whole() {
    run(async {
        let rig = Rig::new().await;
        let short = long(&rig, "short", DIVIDE_ABOVE_BYTES).await;
        act(&rig, short, HsmAsk::Archive(0)).await.expect("queued");
        let whole = take(&rig, AGENT).await.remove(0);
        let answer = divide(&rig, &whole, None, &[]).await.expect("answered");
        assert!(!answer.is_divided, "one agent is enough");
        let first = divided(&rig).await;
        let second = long(&rig, "g", SIZE_BYTES).await;
        act(&rig, second, HsmAsk::Archive(0)).await.expect("queued");
        let second = take(&rig, AGENT).await.remove(0);
        assert!(divide(&rig, &second, None, &[]).await.expect("answered").is_divided);
        assert!(!rig.mdt.live().hsm.shown_divided().iter().any(|file| file.ino == second.ino), "only asked");
        divide(&rig, &second, Some(HsmPlace::Copy(Some("u".into()))), &[]).await.expect("divided");
        let one = help(&rig, OTHER, &[]).await;
        let two = help(&rig, THIRD, &[]).await;
        assert_eq!((one.claim.attempt, two.claim.attempt), (at(&first), at(&second)));
        assert_eq!(two.place, HsmPlace::Copy(Some("u".into())));
        let wrong = divide(&rig, &second, Some(HsmPlace::File(first.ino)), &[]).await;
        assert_eq!(code(wrong), Some(Code::InvalidArgument));
        rig.verify();
    });
}

#[test]
fn a_span_that_readers_wait_for_comes_first_and_is_readable_when_a_helper_has_it() {
    run(async {
        let rig = Rig::new().await;
        let archived = divided(&rig).await;
        let HsmWork { ino, data_version, attempt, size_bytes, .. } = archived;
        let copy = ArchivedCopy { data_version, attempt, size_bytes, checksum: [9; 32] };
        done(&rig, &archived, HsmOutcome::Archived(copy)).await.expect("taken");
        act(&rig, ino, HsmAsk::Release).await.expect("released");
        act(&rig, ino, HsmAsk::Restore).await.expect("queued");
        let work = take(&rig, AGENT).await.remove(0);
        let tmpfile =
            TmpfileReq { parent: Ino::ROOT, mode: 0o600, umask: 0, access: WO, handle: 9, cred: root() };
        let from = rig.ask(A, tmpfile).await.expect("made").attr.ino;
        fill(&rig, from, 9, 7, usize::try_from(SIZE_BYTES).expect("small"), false).await;
        divide(&rig, &work, Some(HsmPlace::File(from)), &[]).await.expect("divided");
        let tell = async |here: &[u64]| {
            let mut extents = brindle_types::hsm::Extents::none(SIZE_BYTES);
            here.iter().for_each(|extent| extents.add(*extent));
            let here = extents.bits().to_vec();
            let request = HsmExtentsReq { agent: AGENT, attempt: at(&work), from, here, cred: root() };
            rig.ask(B, request).await.expect("heard").wanted
        };
        assert_eq!(tell(&[]).await, [0; 0]);
        let read = async |offset: u64| {
            let cred = user(OWNER);
            let request = HsmReadReq { ino, offset, len_bytes: 10, waits: false, waits_for: None, cred };
            rig.ask(A, request).await.expect("answered")
        };
        assert!(matches!(read(17 * MIB).await, HsmReadResp::Waiting(_)));
        let wanted = help(&rig, OTHER, &[]).await;
        assert_eq!(wanted.claim.span, 4, "a reader waits for it");
        assert_eq!((wanted.place.clone(), wanted.copy), (HsmPlace::File(from), Some(copy)));
        succeed(&rig, OTHER, &wanted).await.expect("taken");
        assert!(matches!(read(17 * MIB).await, HsmReadResp::Part(_)), "before its agent has told of it");
        assert_eq!(tell(&[]).await, [0; 0], "an older report takes nothing away");
        assert!(matches!(read(17 * MIB).await, HsmReadResp::Part(_)));
        assert!(matches!(read(5).await, HsmReadResp::Waiting(_)), "the rest is still coming");
        assert_eq!(flags(&rig, ino).await, ARCHIVED | HSM_RELEASED);
        done(&rig, &work, HsmOutcome::Restored(from)).await.expect("taken");
        rig.close(A, from, 9).await.expect("closed");
        assert_eq!(flags(&rig, ino).await, ARCHIVED);
        rig.verify();
    });
}
