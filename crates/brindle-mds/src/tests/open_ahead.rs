//! open_ahead: what is opened for whom, what a second answer says, how long an answer gets.

use brindle_types::layout::INLINE_MAX_BYTES;
use brindle_types::{Code, Ino, SessionId};
use brindle_wire::frame::{BODY_MAX, encode_body};
use brindle_wire::mds::inline::InlineWriteReq;
use brindle_wire::mds::open::{OpenMode, OpenReq, OpenResp};
use brindle_wire::mds::open_ahead::{OPENS_AHEAD_MAX, OpenAheadReq, OpenAheadResp, OpenedAhead};
use brindle_wire::notify::Recall;

use super::rig::*;
use crate::grant;
use crate::opens::Decision;
use crate::ops::open_ahead::bytes_at_most;
use crate::store::inode;

const TOP: Ino = Ino::ROOT;

/// A small file that is closed.
async fn small(rig: &Rig, name: &str, data: Vec<u8>) -> Ino {
    let req = create_req(TOP, name, RW);
    let (handle, made) = (req.handle, rig.ask(A, req).await.expect("made"));
    let ino = made.attr.ino;
    let write = InlineWriteReq {
        ino,
        handle,
        layout_epoch: made.grant.layout.epoch,
        offset: 0,
        append: false,
        data: data.into(),
        written_at: None,
        kill_suidgid: false,
        cred: root(),
        sync: false,
        promised: false,
    };
    rig.ask(A, write).await.expect("written");
    rig.close(A, ino, handle).await.expect("closed");
    ino
}

fn ahead(inodes: &[Ino]) -> OpenAheadReq {
    OpenAheadReq { opens: inodes.iter().map(|ino| (*ino, 1000 + ino.0)).collect() }
}

fn contents(answer: &OpenAheadResp) -> Vec<Option<Vec<u8>>> {
    let bytes = |opened: &OpenedAhead| opened.grant.inline.as_ref().expect("inline").to_vec();
    answer.opened.iter().map(|opened| opened.as_ref().map(bytes)).collect()
}

fn is_open(rig: &Rig, session: SessionId, ino: Ino) -> bool {
    rig.mdt.live().opens.get(ino, session, 1000 + ino.0).is_some()
}

#[test]
fn what_nobody_writes_is_opened_and_whoever_writes_is_not_bothered() {
    run(async {
        let rig = Rig::new().await;
        let (quiet, written) =
            (small(&rig, "quiet", vec![1; 9]).await, small(&rig, "written", vec![2; 9]).await);
        let dir = rig.mkdir(TOP, "dir").await.expect("made").ino;
        let open = OpenReq { ino: written, handle: 7, access: RW, cred: root(), kill_suidgid: false };
        rig.ask(A, open).await.expect("opened");
        rig.clients.take_asked();
        let gone = Ino(written.0 + 99);
        let answer = rig.ask(B, ahead(&[quiet, written, dir, gone])).await.expect("answered");
        assert_eq!(contents(&answer), [Some(vec![1; 9]), None, None, None]);
        assert_eq!(answer.opened[0].as_ref().map(|opened| opened.grant.mode), Some(OpenMode::Cached));
        assert_eq!(rig.clients.take_asked(), [], "nobody was asked for anything");
        assert!(is_open(&rig, B, quiet) && !is_open(&rig, B, written));
        // The prefetched handle is an ordinary one: a writer recalls the right that came with it.
        let decision = rig.mdt.live().opens.decide(quiet, A, WO, false);
        assert_eq!(decision, Decision::Recall(Recall::ReadCache, vec![B]));

        let many: Vec<Ino> = (0..=OPENS_AHEAD_MAX as u64).map(Ino).collect();
        assert_eq!(code(rig.ask(B, ahead(&many)).await), Some(Code::InvalidArgument));
        rig.verify();
    });
}

#[test]
fn a_second_answer_has_no_contents_and_the_log_has_none() {
    run(async {
        let mut rig = Rig::new().await;
        let ino = small(&rig, "f", vec![5; 4000]).await;
        let req = ahead(&[ino]);
        let sent = |rig: &Rig, n| rig.call_at::<OpenAheadReq>(B, 2, n);
        let first = rig.send(&sent(&rig, 100), &req).await.expect("answered");
        assert_eq!(contents(&first), [Some(vec![5; 4000])]);
        assert_eq!(contents(&rig.send(&sent(&rig, 100), &req).await.expect("again")), [None]);
        assert!(is_open(&rig, B, ino), "which the caller gives back");

        let open = OpenReq { ino, handle: 8, access: RO, cred: root(), kill_suidgid: false };
        let sent = |rig: &Rig| rig.call_at::<OpenReq>(B, 3, 100);
        let first: OpenResp = rig.send(&sent(&rig), &open).await.expect("opened");
        assert_eq!(first.grant.inline.as_deref(), Some(&[5; 4000][..]));
        for _ in 0..2 {
            let again = rig.send(&sent(&rig), &open).await.expect("again");
            let mut expected = first.clone();
            expected.grant.inline = None;
            assert_eq!(again, expected, "all but the contents");
            rig.restart().await;
        }
    });
}

#[test]
fn an_answer_fits_into_a_message_whatever_the_layouts() {
    run(async {
        let rig = Rig::new().await;
        let mut inodes = Vec::new();
        for n in 0..OPENS_AHEAD_MAX {
            inodes.push(small(&rig, &format!("f{n}"), vec![n as u8; INLINE_MAX_BYTES as usize]).await);
        }
        let answer = rig.ask(B, ahead(&inodes)).await.expect("answered");
        assert!(encode_body(&answer).len() < BODY_MAX);
        let opened = answer.opened.iter().flatten().count();
        assert!(opened > OPENS_AHEAD_MAX * 3 / 4, "{opened} of the largest");

        // The estimate for a file exceeds the size that its answer takes, also with the widest layout.
        let mut wide = inode::get(rig.mdt.engine(), inodes[0]).expect("there");
        let layout = &mut wide.file_mut().expect("a file").layout;
        layout.components.resize(8, layout.components[0].clone());
        for component in &mut layout.components {
            (component.osts, component.objects) = (vec![u16::MAX; 2000], vec![u64::MAX; 32]);
            (component.start, component.end, component.origin) = (u64::MAX, u64::MAX, u64::MAX);
        }
        let grant = rig.mdt.read(|t| grant::grant(t, &wide, OpenMode::Cached, true)).await.expect("granted");
        let encoded = encode_body(&OpenedAhead { attr: wide.attr(), grant }).len();
        assert!(encoded <= bytes_at_most(&wide), "{encoded} bytes, {} were counted", bytes_at_most(&wide));
    });
}
