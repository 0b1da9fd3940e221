//! F16: garbage at every server's port while programs work. No process dies, programs see no effect, memory
//! stays bounded, and senders of garbage are disconnected.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, Process};
use brindle_types::TargetId;
use brindle_wire::frame::{BODY_MAX, BULK_MAX, Frame, Header, Kind, encode_body};
use brindle_wire::version::{Hello, PeerKind, Versions};

use crate::crew;
use crate::dice::{Dice, rounds, seed};
use crate::kill::RESUME_LIMIT;
use crate::load::{Ground, Load, verify};

/// Connections that say nothing, at each server.
const IDLE: usize = 1000;
/// Garbage connections at each server in one round.
const CONNECTIONS: u64 = 120;
/// Longest time until a server hangs up on garbage; an idle machine should need less than a second.
const HANG_UP_LIMIT: Duration = Duration::from_secs(5);
/// Most additional memory that a server may use afterwards.
const GROWTH_MAX_BYTES: u64 = 256 << 20;

#[test]
fn f16_garbage_on_every_port_harms_nobody() {
    let seed = seed("f16");
    let mut dice = Dice::new(seed);
    raise_open_files();
    let cluster = Cluster::up("f16", &Options { osts: 2, ..Options::default() });
    let ground = Ground::new(cluster.outside());
    let load = Load::start(&ground, crew::everybody(&cluster, &ground, &mut dice));
    let before: Vec<Process> = cluster.processes();
    let memory: Vec<u64> = before.iter().map(Process::rss_bytes).collect();
    let servers: Vec<&Process> = before.iter().filter(|p| p.kind != "client").collect();

    let idle: Vec<Vec<TcpStream>> = servers.iter().map(|server| idle(server)).collect();
    load.progresses_within(RESUME_LIMIT);
    for server in &servers {
        for _ in 0..CONNECTIONS * rounds() {
            attack(server, &mut dice);
        }
        load.progresses_within(RESUME_LIMIT);
    }
    let after: Vec<Process> = cluster.processes();
    for ((old, new), memory) in before.iter().zip(&after).zip(memory) {
        assert!(new.running() && new.pid == old.pid, "{} died", new.name);
        let now = new.rss_bytes();
        assert!(now < memory + GROWTH_MAX_BYTES, "{} grew from {memory} to {now} bytes", new.name);
    }
    drop(idle);
    let mut workers = load.stop();
    verify(&mut workers, cluster.mounts());
    drop(workers);
    cluster.assert_sound();
}

/// A thousand sockets to each server, and both ends of none else here.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

fn connect(server: &Process) -> TcpStream {
    let stream = TcpStream::connect(server.socket()).unwrap_or_else(|e| panic!("{}: {e}", server.name));
    stream.set_read_timeout(Some(HANG_UP_LIMIT)).unwrap();
    stream.set_write_timeout(Some(HANG_UP_LIMIT)).unwrap();
    stream
}

fn idle(server: &Process) -> Vec<TcpStream> {
    (0..IDLE).map(|_| connect(server)).collect()
}

/// Makes a connection that misbehaves in one of many ways.
fn attack(server: &Process, dice: &mut Dice) {
    let way = dice.below(8);
    let mut stream = connect(server);
    let (bytes, must_hang_up) = garbage(way, server, dice);
    // The server may hang up in the middle, which is what it should do.
    let sent = stream.write_all(&bytes);
    if !must_hang_up {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let since = Instant::now();
    let gone = sent.is_err() || hangs_up(&mut stream);
    assert!(gone, "{} keeps a connection after garbage of kind {way} for {:?}", server.name, since.elapsed());
}

/// Reads until the end; false when it does not come in time.
fn hangs_up(stream: &mut TcpStream) -> bool {
    let since = Instant::now();
    let mut sink = vec![0; 64 << 10];
    while since.elapsed() < HANG_UP_LIMIT {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => {
                return !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
    false
}

/// Bytes to send, and whether they alone must make the server hang up (otherwise this side ends the connection).
fn garbage(way: u64, server: &Process, dice: &mut Dice) -> (Vec<u8>, bool) {
    match way {
        0 => (noise(dice, 128, 40_000), true),
        1 => {
            let whole = hello(dice);
            let len = dice.below(whole.len() as u64) as usize;
            (whole[..len].to_vec(), false)
        }
        2 => (huge(dice), true),
        3 => {
            let header = Header { version: 2 + dice.below(60_000) as u16, ..request(server, dice) };
            (Frame::new(header, noise(dice, 0, 200).into()).header.encode().to_vec(), false)
        }
        4 => {
            let mut bytes = hello(dice);
            let bit = dice.below(bytes.len() as u64 * 8);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            (bytes, false)
        }
        5 => {
            // A good hello, then requests whose checksums are right and whose bodies are noise.
            let mut bytes = hello(dice);
            for _ in 0..1 + dice.below(20) {
                bytes.extend(frame(&Frame::new(request(server, dice), noise(dice, 0, 300).into())));
            }
            (bytes, false)
        }
        6 => {
            let mut bytes = hello(dice);
            bytes.extend(noise(dice, 128, 5000));
            (bytes, true)
        }
        _ => {
            // A good request with bulk that never comes whole.
            let mut bytes = hello(dice);
            let header = Header { bulk_len: 1 << 20, ..request(server, dice) };
            bytes.extend(header.encode());
            bytes.extend(noise(dice, 0, 9000));
            (bytes, false)
        }
    }
}

fn noise(dice: &mut Dice, from: u64, to: u64) -> Vec<u8> {
    let len = from + dice.below(to - from);
    brindle_tests::bytes(dice.next(), len as usize)
}

fn frame(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.header.encode().to_vec();
    bytes.extend(&frame.body);
    frame.bulk.iter().for_each(|part| bytes.extend(part));
    bytes
}

fn hello(dice: &mut Dice) -> Vec<u8> {
    let hello = Hello {
        versions: Versions::OURS,
        fs_id: 0,
        kind: if dice.once_in(2) { PeerKind::Client } else { PeerKind::Tool },
        software: "garbage 1".to_owned(),
        host: "nowhere".to_owned(),
        features: dice.next(),
    };
    let header = Header { kind: Kind::Hello, ..Header::default() };
    frame(&Frame::new(header, encode_body(&hello)))
}

/// A header that is right in itself, of a request that may or may not exist.
fn request(server: &Process, dice: &mut Dice) -> Header {
    let index = server.name.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap_or(0);
    let target = match server.kind.as_str() {
        "mgs" => TargetId::MGT,
        "mdt" => TargetId::mdt(index),
        _ => TargetId::ost(index),
    };
    Header {
        op: dice.below(400) as u16,
        xid: dice.next(),
        fs_id: if dice.once_in(2) { 0 } else { dice.next() },
        session: brindle_types::SessionId(dice.below(8)),
        slot: dice.below(300) as u16,
        sequence: dice.below(1000),
        target: Some(target),
        reply_bulk_max: dice.below(BULK_MAX as u64) as u32,
        ..Header::default()
    }
}

/// Lengths far beyond what is allowed, under a right checksum.
fn huge(dice: &mut Dice) -> Vec<u8> {
    let over =
        |dice: &mut Dice, max: usize| max as u64 + 1 + dice.below(u64::from(u32::MAX) - max as u64 - 1);
    let mut header = Header { kind: Kind::Hello, ..Header::default() };
    match dice.below(3) {
        0 => header.body_len = over(dice, BODY_MAX) as u32,
        1 => header.bulk_len = over(dice, BULK_MAX) as u32,
        _ => header.body_len = u32::MAX,
    }
    header.encode().to_vec()
}
