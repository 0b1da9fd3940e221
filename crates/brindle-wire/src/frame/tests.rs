//! Headers and bodies of frames as bytes, and frames that are refused.

use super::*;

fn sample() -> Header {
    Header {
        version: PROTOCOL_VERSION,
        op: 0x0102,
        kind: Kind::Request,
        flags: FLAG_RESENT,
        priority: Priority::Background,
        fs_id: 0x1112_1314_1516_1718,
        xid: 0x2122_2324_2526_2728,
        session: SessionId(0x3132_3334_3536_3738),
        slot: 0x4142,
        sequence: 0x5152_5354_5556_5758,
        target: Some(TargetId::ost(0x6162)),
        map_version: 0x7172_7374_7576_7778,
        target_epoch: 0x8182_8384,
        session_epoch: Pair { term: 0x9192_9394, counter: 0xa1a2_a3a4_a5a6_a7a8 },
        deadline_ms: 0xb1b2_b3b4,
        job_key: 0xc1c2_c3c4_c5c6_c7c8,
        reply_bulk_max: 0x0001_d3d4,
        body_len: 0x0000_e3e4,
        body_crc: 0xe5e6_e7e8,
        bulk_len: 0x0000_f3f4,
        bulk_crc: 0xf5f6_f7f8,
        cache_updates_len: 0,
        fences_version: 0,
        queued_us: 0,
        network_us: 0,
    }
}

/// Compares with the committed bytes; `BRINDLE_GOLDEN=write` makes a file that does not exist yet.
fn check_golden(name: &str, bytes: &[u8]) {
    let path = format!("{}/golden/v1/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BRINDLE_GOLDEN").is_some() && !std::path::Path::new(&path).exists() {
        std::fs::write(&path, bytes).expect("golden file is writable");
    }
    let golden = std::fs::read(&path).expect("golden file exists");
    assert_eq!(golden, bytes, "{name}: bytes on the wire changed; that needs a new protocol version");
}

#[test]
fn header_bytes_never_change() {
    // The layout of headers is that of version 1.
    check_golden("header", &Header { version: 1, ..sample() }.encode());
    let bytes = sample().encode();
    assert_eq!(&bytes[..4], b"BRDL");
    assert_eq!(Header::decode(&bytes).expect("own bytes decode"), sample());
}

#[test]
fn hello_bytes_never_change() {
    use crate::version::{Hello, HelloReply, PeerKind, Versions};
    let hello = Hello {
        versions: Versions { min: 3, max: 4 },
        fs_id: 5,
        kind: PeerKind::Tool,
        software: "brindle 1.0".into(),
        host: "cn042".into(),
        features: 6,
    };
    check_golden("hello", &encode_body(&hello));
    let reply = HelloReply {
        version: 4,
        fs_id: 5,
        software: "brindle 1.1".into(),
        features: 6,
        requests_max: 7,
        bytes_max: 8,
    };
    let outcome: Result<HelloReply, Fault> = Ok(reply);
    check_golden("hello_reply", &encode_body(&outcome));
}

#[test]
fn every_damaged_bit_of_a_header_is_noticed() {
    let good = sample().encode();
    for bit in 0..HEADER_LEN * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        let code = Header::decode(&bad).expect_err("damage is noticed").code;
        let want = if bit < 32 { Code::BadMagic } else { Code::BadFrame };
        assert_eq!(code, want, "bit {bit}");
    }
}

#[test]
fn impossible_headers_are_refused_and_other_versions_named() {
    let check = |change: fn(&mut Header), want: Code| {
        let mut h = sample();
        change(&mut h);
        assert_eq!(Header::decode(&h.encode()).expect_err("refused").code, want);
    };
    check(|h| h.body_len = BODY_MAX as u32 + 1, Code::BadFrame);
    check(|h| h.bulk_len = BULK_MAX as u32 + 1, Code::BadFrame);
    check(|h| h.reply_bulk_max = u32::MAX, Code::BadFrame);
    check(|h| h.version = PROTOCOL_VERSION + 1, Code::VersionMismatch);
    let hello = Header { kind: Kind::Hello, version: 77, ..sample() };
    assert!(Header::decode(&hello.encode()).is_ok(), "every version reads every hello");
    for (at, value) in [(12, 9u8), (14, 9), (15, 9)] {
        let mut bytes = sample().encode();
        bytes[at] = value;
        bytes[CRC_AT].fill(0);
        let sum = crc(&bytes);
        bytes[CRC_AT].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Header::decode(&bytes).expect_err("refused").code, Code::BadFrame);
    }
}

#[test]
fn frames_know_their_parts() {
    let parts = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg")];
    let frame = Frame::new(Header::default(), Bytes::from_static(b"body")).with_bulk(parts);
    frame.verify().expect("consistent");
    assert_eq!(frame.header.bulk_crc, crc(b"abcdefg"));
    assert_eq!(&frame.bulk_bytes()[..], b"abcdefg");
    let mut torn = frame.clone();
    torn.bulk.pop();
    assert_eq!(torn.verify().expect_err("short").code, Code::BadFrame);
    let wrong = frame.with_bulk_crc(vec![Bytes::from_static(b"x")], 1);
    assert_eq!(wrong.verify().expect_err("damaged").code, Code::BadChecksum);
}

#[test]
fn news_travel_behind_the_outcome() {
    use crate::cache_updates::Leased;
    let body = encode_body(&Ok::<u32, Fault>(7));
    let plain = Frame::new(sample(), body.clone());
    assert_eq!(
        (plain.cache_updates(), plain.clone().with_cache_updates(&CacheUpdates::default())),
        (Ok(CacheUpdates::default()), plain.clone())
    );
    let leased = Leased { dir: brindle_types::Ino(5), at: 6, is_new: true };
    let news = CacheUpdates { leased: vec![leased], ..CacheUpdates::default() };
    let frame = plain.with_cache_updates(&news);
    frame.verify().expect("consistent");
    let header = Header::decode(&frame.header.encode()).expect("own bytes");
    assert_eq!((&header, frame.cache_updates()), (&frame.header, Ok(news)));
    assert_eq!(decode_reply::<u32>(&frame), Ok(7));
    let impossible = Header { cache_updates_len: 8, body_len: 7, ..sample() };
    assert_eq!(Header::decode(&impossible.encode()).expect_err("refused").code, Code::BadFrame);
}

#[test]
fn a_job_goes_behind_the_body_and_leaves_no_trace() {
    let plain = Frame::new(sample(), encode_body(&(7u32, "seven")));
    let job = JobTag::new("4711", 1000);
    let tagged = plain.clone().with_job(&job);
    tagged.verify().expect("consistent");
    assert_eq!(tagged.body.len(), plain.body.len() + 8);
    let header = Header::decode(&tagged.header.encode()).expect("own bytes");
    let mut taken = Frame { header, ..tagged };
    assert_eq!(taken.take_job(), Ok(Some(job)));
    assert_eq!((&taken, taken.verify()), (&plain, Ok(())));
    assert_eq!(taken.take_job(), Ok(None));
    let full = Frame::new(sample(), vec![0; BODY_MAX].into());
    assert_eq!(full.clone().with_job(&job), full, "no room");
    for len in [1, 4, 9] {
        let mut wrong = plain.clone();
        wrong.header.cache_updates_len = len;
        assert_eq!(wrong.take_job().expect_err("refused").code, Code::BadFrame, "{len}");
    }
}

#[test]
fn values_of_any_length_are_encoded_alike() {
    for len in [0, 1, 127, 128, 508, 509, 510, 511, 512, 513, 5000] {
        let value = "x".repeat(len);
        let plain = postcard::to_stdvec(&value).expect("a string");
        assert_eq!(encode_body(&value), plain, "{len} bytes");
        assert_eq!(encode_behind([7, 8], &value), [&[7, 8], &plain[..]].concat(), "{len} bytes");
    }
}

#[test]
fn bodies_refuse_leftovers_and_faults_decode_as_any_outcome() {
    let body = encode_body(&(7u32, "seven"));
    assert_eq!(decode_body::<(u32, String)>(&body).expect("own bytes"), (7, "seven".to_owned()));
    let longer = [&body[..], &[0]].concat();
    assert_eq!(decode_body::<(u32, String)>(&longer).expect_err("left over").code, Code::BadFrame);
    assert_eq!(decode_body::<(u32, String)>(&body[..3]).expect_err("cut").code, Code::BadFrame);
    let fault = Fault::new(Code::NotFound).subject("/a");
    let reply = Frame::fault_reply_to(&sample(), &fault);
    assert_eq!((reply.header.kind, reply.header.xid), (Kind::Reply, sample().xid));
    assert_eq!(decode_reply::<(u64, String)>(&reply), Err(fault));
}
