//! Garbage on the wire: no panic, bounded memory, the bad peer dropped, good peers unaffected.

use std::sync::Arc;
use std::time::Duration;

use brindle_types::Code;
use brindle_wire::frame::{BODY_MAX, BULK_MAX, Frame, HEADER_LEN, Header, Kind, decode_reply, encode_body};
use brindle_wire::version::{Hello, HelloReply, MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, PeerKind, Versions};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ECHO, FS_ID, Setup, eventually, request, run};
use crate::ServerConfig;

/// Bytes that a bad peer sends. Everything but garbage has a good header checksum.
#[derive(Clone, Debug)]
enum Attack {
    Garbage(Vec<u8>),
    Cut { frame: Vec<u8>, at: prop::sample::Index },
    Flipped { frame: Vec<u8>, bit: prop::sample::Index },
    Lengths { body_len: u32, bulk_len: u32, tail: Vec<u8> },
    RandomBody { kind: u8, op: u16, body: Vec<u8> },
    Replayed { times: usize },
}

fn wire(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.header.encode().to_vec();
    bytes.extend_from_slice(&frame.body);
    frame.bulk.iter().for_each(|b| bytes.extend_from_slice(b));
    bytes
}

fn hello(versions: Versions) -> Frame {
    let hello = Hello {
        versions,
        fs_id: FS_ID,
        kind: PeerKind::Client,
        software: "fuzz".into(),
        host: "mallory".into(),
        features: 0,
    };
    Frame::new(Header { kind: Kind::Hello, ..Header::default() }, encode_body(&hello))
}

fn echo_frame(body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let header = Header { op: ECHO, xid: 5, reply_bulk_max: 1 << 20, ..Header::default() };
    wire(&Frame::new(header, Bytes::copy_from_slice(body)).with_bulk(vec![Bytes::copy_from_slice(bulk)]))
}

fn attacks() -> impl Strategy<Value = Attack> {
    let bytes = |n: usize| prop::collection::vec(any::<u8>(), 0..n);
    let frame = (bytes(300), bytes(9000)).prop_map(|(body, bulk)| echo_frame(&body, &bulk));
    let index = any::<prop::sample::Index>;
    prop_oneof![
        bytes(600).prop_map(Attack::Garbage),
        (frame.clone(), index()).prop_map(|(frame, at)| Attack::Cut { frame, at }),
        (frame, index()).prop_map(|(frame, bit)| Attack::Flipped { frame, bit }),
        (any::<u32>(), any::<u32>(), bytes(200)).prop_map(|(body_len, bulk_len, tail)| Attack::Lengths {
            body_len,
            bulk_len,
            tail
        }),
        (1u8..7, any::<u16>(), bytes(500)).prop_map(|(kind, op, body)| Attack::RandomBody { kind, op, body }),
        (2usize..20).prop_map(|times| Attack::Replayed { times }),
    ]
}

fn attack_bytes(attack: &Attack) -> Vec<u8> {
    match attack {
        Attack::Garbage(bytes) => bytes.clone(),
        Attack::Cut { frame, at } => frame[..at.index(frame.len())].to_vec(),
        Attack::Flipped { frame, bit } => {
            let mut bad = frame.clone();
            let bit = bit.index(bad.len() * 8);
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        }
        Attack::Lengths { body_len, bulk_len, tail } => {
            let header = Header { op: ECHO, body_len: *body_len, bulk_len: *bulk_len, ..Header::default() };
            [&header.encode()[..], tail].concat()
        }
        Attack::RandomBody { kind, op, body } => {
            let kinds =
                [Kind::Request, Kind::Reply, Kind::Notify, Kind::NotifyReply, Kind::Hello, Kind::HelloReply];
            let header =
                Header { kind: kinds[*kind as usize - 1], op: *op % 4 * 100, xid: 3, ..Header::default() };
            wire(&Frame::new(header, Bytes::copy_from_slice(body)))
        }
        Attack::Replayed { times } => echo_frame(b"again", b"and again").repeat(*times),
    }
}

fn seeded_runner(seed: u8, cases: u32) -> TestRunner {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    TestRunner::new_with_rng(Config { cases, failure_persistence: None, ..Config::default() }, rng)
}

/// Sends `bytes`, shuts the sending side and reads whatever comes until the server closes.
async fn send_raw(setup: &Setup, greet: bool, bytes: &[u8]) -> Vec<u8> {
    let nid = setup.server.local_nid();
    let mut stream = TcpStream::connect((nid.host.as_str(), nid.port)).await.expect("connects");
    if greet {
        stream.write_all(&wire(&hello(Versions::OURS))).await.expect("sent");
    }
    // The server may close while we write: that is its right.
    drop(stream.write_all(bytes).await);
    drop(stream.shutdown().await);
    let mut answer = Vec::new();
    drop(
        tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut answer)).await.expect("closed"),
    );
    answer
}

#[test]
fn decoding_never_panics_and_never_believes_impossible_lengths() {
    let mut runner = seeded_runner(1, 4000);
    runner
        .run(&prop::collection::vec(any::<u8>(), HEADER_LEN), |mut bytes| {
            let decode = |b: &[u8]| Header::decode(b.try_into().expect("length"));
            prop_assert!(decode(&bytes).is_err());
            // A good magic and checksum let the test reach the fields.
            bytes[..4].copy_from_slice(b"BRDL");
            bytes[4..8].fill(0);
            let sum = brindle_stdx::crc(&bytes);
            bytes[4..8].copy_from_slice(&sum.to_be_bytes());
            if let Ok(header) = decode(&bytes) {
                prop_assert!(header.body_len as usize <= BODY_MAX && header.bulk_len as usize <= BULK_MAX);
            }
            Ok(())
        })
        .expect("holds");
}

#[test]
fn bad_peers_are_dropped_and_good_ones_do_not_notice() {
    run(async || {
        let setup = Arc::new(Setup::start(ServerConfig::default()).await);
        let good = setup.peer();
        good.wait_connected().await.expect("connects");
        let mut runner = seeded_runner(2, 1);
        let strategy = (attacks(), any::<bool>());
        for i in 0..400 {
            let (attack, greet) = strategy.new_tree(&mut runner).expect("generated").current();
            send_raw(&setup, greet, &attack_bytes(&attack)).await;
            let reply = good.call(request(ECHO, i.to_string())).await.expect("not disturbed");
            assert_eq!(reply.body, i.to_string(), "after {attack:?}");
        }
        eventually(|| setup.server.stats().connections == 1).await;
        let stats = setup.server.stats();
        assert_eq!(good.generation(), 1);
        assert!(
            stats.bad.contains_key(&Code::BadMagic) && stats.bad.contains_key(&Code::BadFrame),
            "{stats:?}"
        );
    });
}

/// Splits what a server sent into frames.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut out = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let header = Header::decode(head).expect("servers send good headers");
        let (body, rest) = rest.split_at(header.body_len as usize);
        let (bulk, rest) = rest.split_at(header.bulk_len as usize);
        out.push(Frame { header, body: body.to_vec().into(), bulk: vec![bulk.to_vec().into()] });
        bytes = rest;
    }
    out
}

#[test]
fn a_damaged_body_is_named_before_the_connection_closes() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let mut bytes = echo_frame(b"a body", b"");
        *bytes.last_mut().expect("not empty") ^= 1;
        let answers = frames(&send_raw(&setup, true, &bytes).await);
        assert_eq!(answers.len(), 2);
        decode_reply::<HelloReply>(&answers[0]).expect("welcome");
        assert_eq!(answers[1].header.xid, 5);
        assert_eq!(decode_reply::<()>(&answers[1]).expect_err("damaged").code, Code::BadFrame);
        assert_eq!(setup.server.stats().bad[&Code::BadFrame], 1);
    });
}

#[test]
fn another_version_is_told_both_versions() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let mut theirs = hello(Versions { min: 900, max: 901 });
        theirs.header.version = 901;
        let answers = frames(&send_raw(&setup, false, &wire(&theirs)).await);
        let fault = decode_reply::<HelloReply>(&answers[0]).expect_err("refused");
        assert_eq!(fault.code, Code::VersionMismatch);
        let text = fault.to_string();
        assert!(
            text.contains("protocols 900 to 901")
                && text.contains(&format!("speaks protocols {MIN_PROTOCOL_VERSION} to {PROTOCOL_VERSION}")),
            "{text}"
        );
        let header = Header { version: 901, op: ECHO, xid: 8, ..Header::default() };
        let answers = frames(&send_raw(&setup, true, &wire(&Frame::new(header, Bytes::new()))).await);
        assert_eq!(decode_reply::<()>(&answers[1]).expect_err("refused").code, Code::VersionMismatch);
    });
}
