//! The bytes of notices, and the outcome of notices that cannot be written.

use super::*;

fn bytes(notice: &Notice) -> (u32, Vec<u8>) {
    encode(notice, |code, parts| (code, parts.concat()))
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

#[test]
fn notices_have_the_kernels_bytes() {
    let inval = |offset, len| bytes(&Notice::InvalInode { ino: 7, offset, len });
    assert_eq!(inval(4096, 10), (2, words(&[7, 4096, 10])));
    assert_eq!(inval(0, u64::MAX), (2, words(&[7, 0, 0])), "to the end");
    assert_eq!(inval(4096, i64::MAX as u64), (2, words(&[7, 4096, 0])), "the sum must not overflow");
    assert_eq!(inval(u64::MAX, 1), (2, words(&[7, i64::MAX as u64, 0])));
    assert_eq!(bytes(&Notice::InvalAttr { ino: 7 }), (2, words(&[7, u64::MAX, 0])));

    let entry = Notice::InvalEntry { parent: 1, name: "ab".into(), expire_only: true };
    assert_eq!(bytes(&entry), (3, [words(&[1, 2 | 1 << 32]), b"ab\0".to_vec()].concat()));
    let delete = Notice::Delete { parent: 1, child: 9, name: "ab".into() };
    assert_eq!(bytes(&delete), (6, [words(&[1, 9, 2]), b"ab\0".to_vec()].concat()));
    let store = Notice::Store { ino: 7, offset: 8192, data: "xyz".into() };
    assert_eq!(bytes(&store), (4, [words(&[7, 8192, 3]), b"xyz".to_vec()].concat()));
    assert_eq!(bytes(&Notice::IncEpoch), (8, vec![]));
    assert_eq!(bytes(&Notice::Resend), (7, vec![]));
    assert_eq!(bytes(&Notice::Prune { inodes: vec![3, 4] }), (9, words(&[2, 0, 3, 4])));
    let many = Notice::Prune { inodes: vec![1; PRUNE_MAX + 5] };
    assert_eq!(bytes(&many).1.len(), 16 + PRUNE_MAX * 8);
}

/// A notifier on a descriptor of /dev/fuse that belongs to no connection, so that every write fails.
fn unconnected() -> Notifier {
    let device = crate::session::channel::open_device().expect("/dev/fuse");
    Notifier::new(Arc::new(Channel::new(device)), Arc::new(Readers::new(1)))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
}

#[test]
fn more_notices_than_places_are_all_answered() {
    let notifier = unconnected();
    let answers: Vec<_> =
        (0..QUEUE_MAX as u64 + 50).map(|ino| notifier.post(Notice::InvalAttr { ino })).collect();
    for answer in answers {
        assert_eq!(block_on(answer), Outcome::Ended);
    }
}

#[test]
fn after_the_end_notices_are_answered_at_once() {
    let notifier = unconnected();
    notifier.end();
    assert_eq!(block_on(notifier.post(Notice::IncEpoch)), Outcome::Ended);
    assert!(Outcome::Ended.is_gone() && Outcome::NotCached.is_gone() && !Outcome::Refused(22).is_gone());
}
