//! Many writers at once on the real disk: neighbours never clobber each other, and readers see whole writes.

use std::sync::Arc;

use brindle_stdx::{crc, real};

use super::*;

const WRITERS: u64 = 8;
const ROUNDS: u64 = 60;

async fn put(store: &Arc<ObjectStore>, offset: u64, data: Vec<u8>) {
    let mut turn = store.slots().anonymous(None).expect("a turn");
    let crc = crc(&data);
    let op = WriteOp {
        object: O,
        offset,
        data: data.into(),
        crc,
        ticket: Ticket::default(),
        sync: false,
        covered: false,
    };
    store.write(&op, &mut turn).await.expect("written");
}

#[test]
fn neighbouring_bytes_are_exact_and_writes_are_seen_whole() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_string_lossy().into_owned();
    let seams = real::seams(runtime.handle().clone());
    runtime.block_on(async {
        let store = ObjectStore::open(
            seams,
            StoreConfig {
                root: root.clone(),
                fs_id: 1,
                replies: Replies::default(),
                is_member: false,
                read_cache: ReadCache::default(),
            },
        )
        .await
        .expect("open");
        store.start_background();
        let writers = (0..WRITERS).map(|w| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    // Interleaved bytes: 37 each, in the same blocks as everybody else's.
                    put(&store, (round * WRITERS + w) * 37, vec![w as u8 + 1; 37]).await;
                    // All tasks write the same two blocks: a reader must find the bytes of one writer only.
                    put(&store, 1 << 20, vec![w as u8 + 1; 6000]).await;
                    let seen = store.read(O, 1 << 20, 6000, &Ticket::default()).await.expect("read").data;
                    assert!(seen.iter().all(|b| *b == seen[0]), "a mixed read");
                    if round % 10 == w {
                        store.sync(&[O]).await.expect("synced");
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer");
        }
        let all = store.read(O, 0, WRITERS * ROUNDS * 37, &Ticket::default()).await.expect("read").data;
        for (at, byte) in all.iter().enumerate() {
            assert_eq!(u64::from(*byte), at as u64 / 37 % WRITERS + 1, "byte {at}");
        }
        store.close().await.expect("closed");
    });
}
