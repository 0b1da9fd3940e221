//! The network alone, as LNet selftest: Brindle's own connections and frames with their checksums between a client and a
//! server that does nothing; round trips, and bulk in both directions, with some requests in flight at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brindle_net::peer::NoNotifies;
use brindle_net::{
    Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service, TcpTransport, Transport,
};
use brindle_stdx::cast::{len_u32, low_u16};
use brindle_stdx::{BoxFuture, Seams, real};
use brindle_types::{Code, Fault, Nid, Result};
use brindle_wire::frame::{Frame, Header};
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cpu::{self, Watched};
use crate::driver::{Progress, RunClock};
use crate::loopback;
use crate::run::{Figure, Run, Sample, Unit, X};
use crate::stop;

/// A file system id of its own, so that a benchmark and a production server refuse each other.
const FS_ID: u64 = 0x6265_6e63_686e_6574;
/// Operations of the server: an answer without bulk, bulk to it, bulk from it.
const PING: u16 = 1;
const PUT: u16 = 2;
const GET: u16 = 3;
/// Body of every request: about what a read or write has.
const BODY_BYTES: usize = 96;
/// Longest time to reach the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Measuring time of each of the two rates of plain loopback.
const LIMIT_TIME: Duration = Duration::from_millis(400);
/// Interval at which a server checks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Options of `brindle bench net`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests in flight at once, one after the other.
    pub in_flight: Vec<u32>,
    /// Bytes of a bulk.
    pub bulk_bytes: u32,
    /// Length of each phase.
    pub time: Duration,
    /// Connections between the two.
    pub links: usize,
    /// Repetitions of each phase.
    pub repeat: u32,
}

/// A server of the benchmark; ends when dropped.
pub struct Server {
    handle: ServerHandle,
    runtime: Runtime,
}

struct Answers {
    bulk: Bytes,
}

impl Service for Answers {
    fn hello(&self, _conn: &Arc<ServerConn>) -> std::result::Result<u64, Fault> {
        Ok(FS_ID)
    }

    fn request(self: Arc<Self>, _conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let answer = Frame::reply_to(&frame.header, Bytes::new());
            match frame.header.op {
                PING | PUT => answer,
                GET => {
                    let wanted = (frame.header.reply_bulk_max as usize).min(self.bulk.len());
                    answer.with_bulk(vec![self.bulk.slice(..wanted)])
                }
                other => {
                    let fault =
                        Fault::new(Code::UnknownOp).why(format!("operation {other} of the benchmark"));
                    Frame::fault_reply_to(&frame.header, &fault)
                }
            }
        })
    }

    fn closed(&self, _conn_id: u64) {}
}

fn threads(name: &str) -> Result<Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().thread_name(name).enable_all().build();
    built.map_err(|e| Fault::io(Code::BenchmarkFailed, "cannot start", "threads", &e))
}

impl Server {
    /// Listens at `nid`; bulk that is asked for has at most `bulk_bytes_max`.
    pub fn start(nid: &Nid, bulk_bytes_max: usize) -> Result<Server> {
        let runtime = threads("bench-server")?;
        let service = Arc::new(Answers { bulk: Bytes::from(vec![0x5a; bulk_bytes_max]) });
        let seams = real::seams(runtime.handle().clone());
        let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(seams.clone()));
        let serving = RpcServer::serve(transport, &seams, nid, ServerConfig::default(), service);
        let handle = runtime.block_on(serving)?;
        Ok(Server { handle, runtime })
    }

    /// Address of the server.
    pub fn nid(&self) -> Nid {
        self.handle.local_nid().clone()
    }

    /// Answers until Ctrl-C.
    pub fn wait(self) {
        while !stop::asked() {
            std::thread::sleep(LOOK);
        }
        self.end();
    }

    fn end(self) {
        self.handle.stop();
        self.runtime.shutdown_background();
    }
}

/// Measures against the server at `to`, or against one in this process on loopback.
///
/// # Errors
/// When the server cannot be reached, and the first request that fails.
pub fn run(
    options: &Options,
    to: Option<Nid>,
    parameters: BTreeMap<String, Value>,
    progress: Progress<'_>,
) -> Result<Run> {
    let clock = RunClock::start();
    let (own, nid) = match to {
        Some(nid) => (None, nid),
        None => {
            let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: 0 };
            let server = Server::start(&any, options.bulk_bytes as usize)?;
            let nid = server.nid();
            (Some(server), nid)
        }
    };
    let runtime = threads("bench-client")?;
    let peer = connect(&runtime, &nid, options.links)?;
    let figures = phases(&runtime, &peer, options, own.is_some(), progress);
    peer.stop();
    runtime.shutdown_background();
    let local = own.is_some();
    if let Some(server) = own {
        server.end();
    }
    let mut run = clock.run("net", notes(local, &nid), figures?);
    run.parameters = parameters;
    Ok(run)
}

fn notes(local: bool, nid: &Nid) -> Vec<String> {
    let mut notes = vec![
        "Every frame carries checksums of header, body and bulk, which are verified, as in the file system."
            .to_owned(),
    ];
    if local {
        notes.push(
            "Client and server are threads of one process and share the processors of this machine."
                .to_owned(),
        );
        notes.push("Limit 'loopback': plain TCP sockets in the same run, 256-byte messages and 1 MiB pieces, with as many connections as requests in flight.".to_owned());
    } else {
        notes.push(format!(
            "The server is {nid}. Processor time is that of this side only. Nothing is measured below."
        ));
    }
    notes
}

fn connect(runtime: &Runtime, nid: &Nid, links: usize) -> Result<Arc<Peer>> {
    let seams: Seams = real::seams(runtime.handle().clone());
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(seams.clone()));
    let config = PeerConfig { links, ..PeerConfig::new(FS_ID, PeerKind::Tool, "benchmark") };
    let _guard = runtime.enter();
    let peer = Peer::new(transport, seams, vec![nid.clone()], config, Arc::new(NoNotifies));
    let connected =
        runtime.block_on(async { tokio::time::timeout(CONNECT_LIMIT, peer.wait_connected()).await });
    match connected {
        Ok(Ok(_)) => Ok(peer),
        Ok(Err(fault)) => Err(fault),
        Err(_) => {
            let why = peer.state().last_error.map(|fault| fault.why.join(": ")).unwrap_or_default();
            peer.stop();
            let late = format!("no answer within {} s", CONNECT_LIMIT.as_secs());
            Err(Fault::new(Code::Disconnected)
                .what("cannot reach the server of the benchmark at")
                .subject(nid.to_string())
                .why(if why.is_empty() { late } else { format!("{late}: {why}") })
                .next("start it there: brindle bench net --serve ADDRESS"))
        }
    }
}

fn phases(
    runtime: &Runtime,
    peer: &Arc<Peer>,
    options: &Options,
    local: bool,
    progress: Progress<'_>,
) -> Result<Vec<Figure>> {
    let bulk = Bytes::from(vec![0xa5; options.bulk_bytes as usize]);
    let mut figures = Vec::new();
    let kinds = [
        (PING, "round trip", Unit::OpsPerSecond),
        (PUT, "bulk write", Unit::MibPerSecond),
        (GET, "bulk read", Unit::MibPerSecond),
    ];
    for in_flight in &options.in_flight {
        progress(&format!("{in_flight} requests in flight"));
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); kinds.len()];
        let (mut trips, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..options.repeat {
            for (index, (op, _, unit)) in kinds.iter().enumerate() {
                let sample = measure(runtime, peer, *op, *in_flight, &bulk, options.time)?;
                samples[index].push(sample.valued(*unit));
            }
            if local {
                let rates = loopback::measure(*in_flight, LIMIT_TIME.min(options.time))?;
                trips.push(rates.round_trips_per_second);
                streams.push(rates.mib_per_second);
            }
        }
        let x = X { name: "requests in flight".to_owned(), value: f64::from(*in_flight) };
        if *in_flight == 1 {
            figures.extend(latency(&samples[0], &trips));
        }
        for ((_, phase, unit), samples) in kinds.iter().zip(samples) {
            let bytes = brindle_types::units::format_bytes(options.bulk_bytes.into());
            let case = if *unit == Unit::OpsPerSecond { "no bulk".to_owned() } else { bytes };
            let Some(mut figure) = Figure::new(&case, phase, *unit, Some(x.clone()), samples) else {
                continue;
            };
            figure.limit("loopback", if *unit == Unit::OpsPerSecond { &trips } else { &streams });
            figures.push(figure);
        }
    }
    Ok(figures)
}

/// The round trip as a time.
fn latency(samples: &[Sample], trips: &[f64]) -> Option<Figure> {
    let samples = samples.iter().map(|s| s.clone().valued(Unit::Microseconds)).collect();
    let mut figure = Figure::new("no bulk", "latency", Unit::Microseconds, None, samples)?;
    figure.limit("loopback", &trips.iter().map(|t| 1e6 / t).collect::<Vec<_>>());
    Some(figure)
}

fn request(op: u16, bulk: &Bytes) -> Frame {
    let reply_bulk_max = if op == GET { len_u32(bulk.len()) } else { 0 };
    let frame = Frame::new(
        Header { op, fs_id: FS_ID, reply_bulk_max, ..Header::default() },
        Bytes::from_static(&[7; BODY_BYTES]),
    );
    if op == PUT { frame.with_bulk(vec![bulk.clone()]) } else { frame }
}

fn measure(
    runtime: &Runtime,
    peer: &Arc<Peer>,
    op: u16,
    in_flight: u32,
    bulk: &Bytes,
    time: Duration,
) -> Result<Sample> {
    stop::check()?;
    let watched = Watched::default();
    let before = watched.read();
    let (cpu_before, since) = (cpu::of_process(), Instant::now());
    let count = runtime.block_on(async {
        let work = (0..in_flight).map(|number| {
            let (peer, bulk) = (peer.clone(), bulk.clone());
            tokio::spawn(async move { ask(&peer, op, number, &bulk, since + time).await })
        });
        let mut count = 0;
        for done in work.collect::<Vec<_>>() {
            count += done.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))??;
        }
        Ok::<u64, Fault>(count)
    })?;
    let cpu_seconds = cpu::of_process() - cpu_before;
    Ok(Sample {
        value: 0.0,
        seconds: since.elapsed().as_secs_f64(),
        operations: count,
        bytes: if op == PING { 0 } else { count * bulk.len() as u64 },
        cpu_seconds: Some(cpu_seconds),
        benchmark_cpu_seconds: cpu_seconds,
        machine_cpu_seconds: watched.read().since(&before).machine_seconds,
    })
}

/// Sends requests one after the other until the time is over; a slot chooses the connection.
async fn ask(peer: &Peer, op: u16, number: u32, bulk: &Bytes, end: Instant) -> Result<u64> {
    let mut count = 0;
    while Instant::now() < end {
        stop::check()?;
        let mut frame = request(op, bulk);
        frame.header.slot = low_u16(number.into());
        let answer = peer.call(frame).await?;
        let got = answer.bulk.iter().map(Bytes::len).sum::<usize>();
        let expected = if op == GET { bulk.len() } else { 0 };
        if got != expected {
            let why = format!("a bulk of {got} bytes came, {expected} were asked for");
            let next = "give the server a --bulk-size that is not smaller";
            return Err(Fault::new(Code::WrongContents).subject(String::new()).why(why).next(next));
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let time = Duration::from_millis(30);
        Options { in_flight: vec![1, 4], bulk_bytes: 64 << 10, time, links: 2, repeat: 1 }
    }

    #[test]
    fn round_trips_and_bulk_are_measured_on_loopback() {
        let run = run(&options(), None, BTreeMap::new(), &mut |_| {}).expect("runs");
        let phases: Vec<&str> = run.figures.iter().map(|f| f.phase.as_str()).collect();
        let each = ["round trip", "bulk write", "bulk read"];
        assert_eq!(phases, [&["latency"][..], &each, &each].concat());
        assert!(run.figures.iter().all(|f| f.summary.median > 0.0 && f.limits[0].fraction > 0.0));
    }

    #[test]
    fn another_process_can_be_the_server() {
        let server = Server::start(&"127.0.0.1:0".parse().expect("address"), 64 << 10).expect("listens");
        let run = run(&options(), Some(server.nid()), BTreeMap::new(), &mut |_| {}).expect("runs");
        assert!(run.figures.iter().all(|f| f.limits.is_empty()));
        server.end();
    }
}
