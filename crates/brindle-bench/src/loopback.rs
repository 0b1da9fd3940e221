//! The limit of a network connection on one machine: round trips and streams between plain TCP sockets on loopback, without
//! any file system.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_types::{Code, Fault, Result};

/// Bytes of a question and of its answer: a header and a small body.
const MESSAGE_BYTES: usize = 256;
/// Bytes of a piece of a stream.
const PIECE_BYTES: usize = 1 << 20;

/// Rates of loopback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Questions that were answered in a second, one after the other on each connection.
    pub round_trips_per_second: f64,
    /// MiB in a second, in one direction.
    pub mib_per_second: f64,
}

/// Measures with `connections` at once, each of the two rates for `time`.
pub fn measure(connections: u32, time: Duration) -> Result<Rates> {
    let trips = side_by_side(connections, time, ask, answer)?;
    let pieces = side_by_side(connections, time, push, swallow)?;
    Ok(Rates {
        round_trips_per_second: trips,
        mib_per_second: pieces * PIECE_BYTES as f64 / f64::from(1 << 20),
    })
}

/// Counts a second what `near` does against `far` on each connection until the time is over.
fn side_by_side(
    connections: u32,
    time: Duration,
    near: fn(TcpStream, &AtomicBool) -> std::io::Result<u64>,
    far: fn(TcpStream) -> std::io::Result<()>,
) -> Result<f64> {
    let fault = |e: std::io::Error| Fault::io(Code::BenchmarkFailed, "cannot measure", "loopback TCP", &e);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(fault)?;
    let address = listener.local_addr().map_err(fault)?;
    let over = Arc::new(AtomicBool::new(false));
    let (mut asking, mut answering) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        let a = TcpStream::connect(address).map_err(fault)?;
        let (b, _) = listener.accept().map_err(fault)?;
        for end in [&a, &b] {
            end.set_nodelay(true).map_err(fault)?;
        }
        let over = over.clone();
        answering.push(std::thread::spawn(move || far(b)));
        asking.push(std::thread::spawn(move || near(a, &over)));
    }
    let since = Instant::now();
    while since.elapsed() < time && !crate::stop::asked() {
        std::thread::sleep(Duration::from_millis(10).min(time));
    }
    over.store(true, Ordering::SeqCst);
    let mut count = 0;
    for thread in asking {
        let panicked = |_| Fault::new(Code::Bug).why("a thread of the loopback measurement panicked");
        count += thread.join().map_err(panicked)?.map_err(fault)?;
    }
    let seconds = since.elapsed().as_secs_f64();
    for thread in answering {
        // The other end is closed, so the thread ends; its result does not matter.
        let _ = thread.join();
    }
    crate::stop::check()?;
    Ok(count as f64 / seconds)
}

fn ask(mut stream: TcpStream, over: &AtomicBool) -> std::io::Result<u64> {
    let mut message = [0; MESSAGE_BYTES];
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        count += 1;
    }
    Ok(count)
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    loop {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
}

fn push(mut stream: TcpStream, over: &AtomicBool) -> std::io::Result<u64> {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        stream.write_all(&piece)?;
        count += 1;
    }
    Ok(count)
}

fn swallow(mut stream: TcpStream) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers() {
        let rates = measure(2, Duration::from_millis(30)).expect("measures");
        assert!(rates.round_trips_per_second > 100.0 && rates.mib_per_second > 1.0, "{rates:?}");
    }
}
