//! Counters of the requests to a server: by job, by user and by client.
//!
//! Every request is counted once, when its answer goes out ([`Usage::charge`]); an administrator asks for the counters ([`Usage::answer`]).
//! Invariant: bounded. A table that is full gives up the row that was idle for the longest time; rows that were idle for [`IDLE_MS`] go.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use brindle_stdx::cast::len_u32;
use brindle_stdx::{Clock, Mono, Seams, Timestamp};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, encode_body};
use brindle_wire::job::{JobTag, Tally, UsageBy, UsageReq, UsageResp, UsageRow};
use brindle_wire::mds::inline;
use brindle_wire::principal::{Principal, PrincipalKind};
use parking_lot::Mutex;

/// Most jobs, and most clients, that one server counts.
pub const ROWS_MAX: usize = 1024;
/// Most users that one server counts.
pub const USERS_MAX: usize = 256;
/// After this time without a request a row is forgotten; as Lustre's `job_cleanup_interval`.
pub const IDLE_MS: u64 = 600_000;
/// Longest name of a host.
const HOST_BYTES_MAX: usize = 255;
/// Stands for hosts without a proper name.
const UNNAMED: &str = "(unnamed)";
/// Rows of an answer in bytes: well below the largest body.
const ANSWER_BYTES_MAX: usize = 512 << 10;

/// The counters of a server.
pub struct Usage {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    jobs: Table<String>,
    users: Table<u32>,
    clients: Table<String>,
}

/// Rows by name.
struct Table<K>(BTreeMap<K, Row>);

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table(BTreeMap::new())
    }
}

#[derive(Clone, Default)]
struct Row {
    since: Timestamp,
    last: Timestamp,
    last_mono: Mono,
    read: Tally,
    written: Tally,
    ops: BTreeMap<Op, Tally>,
}

/// The cost of one request.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The operation.
    pub op: Op,
    /// Bytes of files that went out.
    pub read_bytes: u64,
    /// Bytes of files that came in.
    pub written_bytes: u64,
    /// Time that the request took on this server, without waits for programs and archives ([`waits_for_others`]).
    pub micros: u64,
}

/// Bytes of files in a request.
pub fn written_bytes(op: Op, request: &Frame) -> u64 {
    match op {
        Op::Write => u64::from(request.header.bulk_len),
        Op::InlineWrite => inline::written_bytes(&request.body),
        _ => 0,
    }
}

/// Bytes of files in a request, and space for them in its reply, as far as the request tells. Bytes of a small file lie in the
/// body.
pub(crate) fn known_bytes(op: Option<Op>, request: &Frame) -> u64 {
    let in_body = op.filter(|op| *op == Op::InlineWrite).map_or(0, |op| written_bytes(op, request));
    u64::from(request.header.bulk_len) + u64::from(request.header.reply_bulk_max) + in_body
}

/// Whether a request may wait for a program or an archive, for as long as that takes: for a lock, for the restore of a file, for work. Only
/// the time in which the server works on it counts as the server's.
pub(crate) fn waits_for_others(op: Op) -> bool {
    let waits_for_archive = matches!(op, Op::HsmRecall | Op::HsmRead | Op::HsmTake | Op::HsmSpanTake);
    waits_for_archive || matches!(op, Op::SetLock | Op::MdtWaits | Op::WatchLimits)
}

/// `work`, and the microseconds in which a thread worked on it.
pub(crate) async fn timed<T>(seams: &Seams, mut work: Pin<&mut impl Future<Output = T>>) -> (T, u64) {
    let mut worked_ns = 0u64;
    let done = poll_fn(|context| {
        let began = seams.now();
        let polled = work.as_mut().poll(context);
        worked_ns = worked_ns.saturating_add(seams.now().0.saturating_sub(began.0));
        polled
    })
    .await;
    (done, worked_ns / 1_000)
}

/// Bytes of files in a reply.
pub fn read_bytes(op: Op, reply: &Frame) -> u64 {
    match op {
        Op::Read => u64::from(reply.header.bulk_len),
        Op::InlineRead => inline::read_bytes(reply.outcome()),
        _ => 0,
    }
}

impl Usage {
    /// Empty counters.
    pub fn new(clock: Arc<dyn Clock>) -> Usage {
        Usage { clock, tables: Mutex::default() }
    }

    /// Counts a request of `principal`, which was made for `job`.
    pub fn charge(&self, principal: &Principal, job: Option<&JobTag>, cost: Cost) {
        let is_client = principal.kind == PrincipalKind::Client;
        // Servers ask in the name of jobs. Any other caller that names a job wants its own requests counted for it.
        let is_server = matches!(principal.kind, PrincipalKind::Mdt | PrincipalKind::Ost);
        let job = job.filter(|_| is_client || is_server);
        if job.is_none() && !is_client {
            return;
        }
        let at = (self.clock.now(), self.clock.wall());
        let mut tables = self.tables.lock();
        if let Some(job) = job {
            tables.jobs.charge(job.name(), at, cost, ROWS_MAX);
            tables.users.charge(&job.uid(), at, cost, USERS_MAX);
        }
        if is_client {
            tables.clients.charge(shown(&principal.host), at, cost, ROWS_MAX);
        }
    }

    /// The rows of a table, the busiest first, as many as fit.
    pub fn answer(&self, request: &UsageReq) -> UsageResp {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut tables = self.tables.lock();
        let mut rows = match request.by {
            UsageBy::Job => tables.jobs.rows(now),
            UsageBy::User => tables.users.rows(now),
            UsageBy::Client => tables.clients.rows(now),
        };
        match (&request.clear, request.by) {
            (None, _) => {}
            (Some(name), UsageBy::Job) => tables.jobs.clear(name),
            (Some(name), UsageBy::User) => tables.users.clear(name),
            (Some(name), UsageBy::Client) => tables.clients.clear(name),
        }
        drop(tables);
        rows.sort_by_cached_key(|row| std::cmp::Reverse(row.ops.iter().map(|(_, t)| t.sum).sum::<u64>()));
        let (all, mut bytes) = (rows.len(), 0);
        let fits = |row: &UsageRow| {
            bytes += encode_body(row).len();
            bytes <= ANSWER_BYTES_MAX
        };
        let rows: Vec<UsageRow> = rows.into_iter().take_while(fits).collect();
        UsageResp { now_ns: ns(wall), left_out: len_u32(all - rows.len()), rows }
    }
}

impl<K: Ord + Clone + ToString> Table<K> {
    fn charge<Q>(&mut self, name: &Q, (now, wall): (Mono, Timestamp), cost: Cost, rows_max: usize)
    where
        K: Borrow<Q>,
        Q: Ord + ToOwned<Owned = K> + ?Sized,
    {
        if !self.0.contains_key(name) {
            self.make_room(now, rows_max);
            self.0.insert(name.to_owned(), Row { since: wall, ..Row::default() });
        }
        let Some(row) = self.0.get_mut(name) else { return };
        (row.last, row.last_mono) = (wall, now);
        row.ops.entry(cost.op).or_default().add(cost.micros);
        if matches!(cost.op, Op::Read | Op::InlineRead) {
            row.read.add(cost.read_bytes);
        }
        if matches!(cost.op, Op::Write | Op::InlineWrite) {
            row.written.add(cost.written_bytes);
        }
    }

    /// Forgets what is idle, if that makes no room the row that was idle for the longest time.
    fn make_room(&mut self, now: Mono, rows_max: usize) {
        if self.0.len() < rows_max {
            return;
        }
        self.forget_idle(now);
        if self.0.len() >= rows_max
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, row)| row.last_mono).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
    }

    fn forget_idle(&mut self, now: Mono) {
        self.0.retain(|_, row| now.ms_since(row.last_mono) < IDLE_MS);
    }

    fn rows(&mut self, now: Mono) -> Vec<UsageRow> {
        self.forget_idle(now);
        let shown = self.0.iter().map(|(key, row)| UsageRow {
            name: key.to_string(),
            since_ns: ns(row.since),
            last_ns: ns(row.last),
            read: row.read,
            written: row.written,
            ops: row.ops.iter().map(|(op, tally)| (*op as u16, *tally)).collect(),
        });
        shown.collect()
    }

    /// `name`, or all if it is empty.
    fn clear(&mut self, name: &str) {
        self.0.retain(|key, _| !name.is_empty() && key.to_string() != name);
    }
}

/// The name of a host; of one that cannot be a name (a hello without proof says what it likes) a word in its place.
pub(crate) fn shown(host: &str) -> &str {
    let is_name = host.len() <= HOST_BYTES_MAX && host.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name { host } else { UNNAMED }
}

/// Nanoseconds since 1970.
fn ns(at: Timestamp) -> i64 {
    at.secs.saturating_mul(1_000_000_000).saturating_add(at.nanos.into())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use brindle_stdx::BoxFuture;

    use super::*;

    /// A clock that stands still until it is set.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Mono {
            Mono(self.0.load(Ordering::Relaxed) * 1_000_000)
        }

        fn wall(&self) -> Timestamp {
            Timestamp::new(self.0.load(Ordering::Relaxed) as i64 / 1_000, 0)
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn mount(host: &str) -> Principal {
        Principal { kind: PrincipalKind::Client, host: host.into(), target: None }
    }

    fn cost(op: Op, bytes: u64, micros: u64) -> Cost {
        let (read_bytes, written_bytes) = if op == Op::Read { (bytes, 0) } else { (0, bytes) };
        Cost { op, read_bytes, written_bytes, micros }
    }

    fn ask(usage: &Usage, by: UsageBy, clear: Option<&str>) -> UsageResp {
        usage.answer(&UsageReq { by, clear: clear.map(str::to_owned) })
    }

    #[test]
    fn a_request_is_counted_for_its_job_its_user_and_its_client() {
        let usage = Usage::new(Arc::<Hand>::default());
        let (a, b) = (JobTag::new("a", 7), JobTag::new("b", 7));
        usage.charge(&mount("n1"), Some(&a), cost(Op::Write, 100, 5));
        usage.charge(&mount("n2"), Some(&a), cost(Op::Read, 30, 5));
        usage.charge(&mount("n2"), Some(&b), cost(Op::SyncObjects, 0, 90));
        usage.charge(&mount("n2"), None, cost(Op::SyncObjects, 0, 1));
        usage.charge(&mount(&"x".repeat(256)), None, cost(Op::SyncObjects, 0, 0));
        usage.charge(&mount("a\x1b[31m"), None, cost(Op::SyncObjects, 0, 0));
        let mdt = Principal { kind: PrincipalKind::Mdt, host: "m".into(), target: None };
        usage.charge(&mdt, None, cost(Op::DestroyObjects, 0, 1));
        usage.charge(&mdt, Some(&b), cost(Op::DestroyObjects, 0, 1));
        let jobs = ask(&usage, UsageBy::Job, None).rows;
        let names: Vec<&str> = jobs.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["b", "a"], "the busiest first");
        assert_eq!((jobs[1].read.sum, jobs[1].written.sum, jobs[1].written.count), (30, 100, 1));
        assert_eq!(jobs[0].ops.len(), 2);
        let users = ask(&usage, UsageBy::User, None).rows;
        assert_eq!((users.len(), users[0].name.as_str(), users[0].written.sum), (1, "7", 100));
        let clients = ask(&usage, UsageBy::Client, None).rows;
        let counted: Vec<(&str, u64)> =
            clients.iter().map(|r| (r.name.as_str(), r.ops.iter().map(|(_, t)| t.count).sum())).collect();
        assert_eq!(counted, [("n2", 3), ("n1", 1), (UNNAMED, 2)]);
    }

    #[test]
    fn bytes_of_small_files_count_before_they_are_written() {
        let request = inline::InlineWriteReq {
            ino: brindle_types::Ino(5),
            handle: 6,
            layout_epoch: brindle_types::Pair { term: 1, counter: 2 },
            offset: 7,
            append: false,
            data: vec![7; 3_000].into(),
            written_at: None,
            kill_suidgid: false,
            cred: brindle_wire::Cred::default(),
            sync: false,
            promised: false,
        };
        let frame = Frame::new(Default::default(), encode_body(&request));
        assert_eq!(known_bytes(Some(Op::InlineWrite), &frame), 3_000);
        assert_eq!(known_bytes(Some(Op::Create), &frame), 0, "no bytes of a file");
        assert_eq!(known_bytes(None, &frame), 0);
    }

    #[test]
    fn a_wait_is_not_the_servers_time() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let began = seams.now();
            let waiting = async {
                seams.sleep_ms(300).await;
                7
            };
            let (answer, micros) = timed(&seams, pin!(waiting)).await;
            assert!(seams.now().ms_since(began) >= 300);
            assert!(answer == 7 && micros < 100_000, "{micros}");
        });
        assert!(waits_for_others(Op::SetLock) && !waits_for_others(Op::Write));
    }

    #[test]
    fn full_tables_give_up_the_idlest_and_idle_rows_go() {
        let hand = Arc::<Hand>::default();
        let usage = Usage::new(hand.clone());
        for n in 0..ROWS_MAX as u64 + 5 {
            hand.0.store(n, Ordering::Relaxed);
            let job = JobTag::new(&format!("job{n}"), n as u32);
            usage.charge(&mount(&format!("n{n}")), Some(&job), cost(Op::Write, 1, 1));
        }
        let has = |by, name: &str| ask(&usage, by, None).rows.iter().any(|row| row.name == name);
        assert_eq!(ask(&usage, UsageBy::Job, None).rows.len(), ROWS_MAX);
        assert_eq!(ask(&usage, UsageBy::User, None).rows.len(), USERS_MAX);
        assert_eq!(ask(&usage, UsageBy::Client, None).rows.len(), ROWS_MAX);
        assert!(!has(UsageBy::Job, "job4") && has(UsageBy::Job, "job5") && !has(UsageBy::Client, "n4"));
        hand.0.store(IDLE_MS + 500, Ordering::Relaxed);
        assert_eq!(ask(&usage, UsageBy::Job, None).rows.len(), ROWS_MAX + 4 - 500);
        hand.0.store(2 * IDLE_MS, Ordering::Relaxed);
        assert_eq!(ask(&usage, UsageBy::Job, None).rows.len(), 0);
    }

    #[test]
    fn rows_are_forgotten_when_they_are_told_to_be() {
        let usage = Usage::new(Arc::<Hand>::default());
        for name in ["a", "b", "c"] {
            usage.charge(&mount("n"), Some(&JobTag::new(name, 1)), cost(Op::Write, 1, 1));
        }
        assert_eq!(ask(&usage, UsageBy::Job, Some("b")).rows.len(), 3, "the last look");
        let left: Vec<String> =
            ask(&usage, UsageBy::Job, Some("")).rows.into_iter().map(|r| r.name).collect();
        assert_eq!(left, ["a", "c"]);
        assert_eq!(ask(&usage, UsageBy::Job, None).rows, []);
        assert_eq!(ask(&usage, UsageBy::User, None).rows.len(), 1, "only that table");
    }
}
