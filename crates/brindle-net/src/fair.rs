//! Fair share between jobs, and limits of jobs, users and hosts, in front of the service of a target (design note 046).
//!
//! A server hands every request to [`Fair::run`], which starts it: at once, after its turn, or when its limit allows. Requests that others may
//! wait for pass at once ([`passage`]). The decisions are those of two state machines: [`queue`] knows turns, [`buckets`] knows limits.
//!
//! A request has a place while a thread works on it, or will as soon as one is free. A request that waits for anything gives its place up,
//! and goes on later without waiting for another place. Therefore a waiting request never blocks the one that it waits for.
//!
//! Invariants: each request is served once; a request waits only while all places are taken or a limit holds it; everything is bounded.

pub mod buckets;
pub mod queue;

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;

use brindle_stdx::cast::len_u32;
use brindle_stdx::{Mono, Seams, Task};
use brindle_types::Role;
use brindle_wire::Op;
use brindle_wire::job::{JobHeld, JobTag, RuleHeld, SharesResp, Tally};
use brindle_wire::mgs::limit::LimitRule;
use brindle_wire::principal::{Principal, PrincipalKind};
use parking_lot::Mutex;

use buckets::{Asker, Buckets};
use queue::{Class, Offered, Queue};

/// Requests that an MDT serves at once: twice the default number of threads of a server, so that a thread that ends one finds the next.
pub const MDT_PLACES: usize = 8;
/// Requests that an OST serves at once: enough to keep a disk busy.
pub const OST_PLACES: usize = 16;
/// Most places that may be asked for.
pub const PLACES_MAX: usize = 4_096;
/// Most jobs and hosts whose waits are counted. The one that has not waited for the longest time gives up its row.
pub const ROWS_MAX: usize = 1_024;
/// Interval at which held requests are looked at.
const HELD_TICK_MS: u64 = 5;

/// The switch of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairShare {
    /// Jobs share by turns, with as many places as suit the role of a target.
    #[default]
    Auto,
    /// Requests are served as they come.
    Off,
    /// Jobs take turns, with this many places.
    Places(usize),
}

impl FairShare {
    /// Requests that are served at once at a target of this role; `None` for all.
    pub fn places(self, role: Role) -> Option<usize> {
        match (self, role) {
            (FairShare::Off, _) | (_, Role::Mgt) => None,
            (FairShare::Auto, Role::Mdt) => Some(MDT_PLACES),
            (FairShare::Auto, Role::Ost) => Some(OST_PLACES),
            (FairShare::Places(places), _) => Some(places),
        }
    }
}

impl FromStr for FairShare {
    type Err = String;

    fn from_str(text: &str) -> Result<FairShare, String> {
        match text {
            "auto" => Ok(FairShare::Auto),
            "off" => Ok(FairShare::Off),
            number => match number.parse() {
                Ok(places) if (1..=PLACES_MAX).contains(&places) => Ok(FairShare::Places(places)),
                _ => Err(format!("it must be auto, off, or 1 to {PLACES_MAX} requests")),
            },
        }
    }
}

impl fmt::Display for FairShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FairShare::Auto => f.write_str("auto"),
            FairShare::Off => f.write_str("off"),
            FairShare::Places(places) => places.fmt(f),
        }
    }
}

/// Sharing at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairConfig {
    /// Role of the target.
    pub role: Role,
    /// Requests that are served at once; `None`: all, in the order in which threads take them.
    pub places: Option<usize>,
}

/// Way of a request to its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Behind other requests, if the target is busy or a limit holds it.
    InTurn,
    /// Past all others: somebody may wait for it, or it is no job's.
    AtOnce,
}

/// The table of passages. It names every operation: a new one does not compile until its author has decided whether others
/// may wait for it.
///
/// | passes at once | because |
/// |---|---|
/// | sessions, renewals, reclaims | a session that is not renewed ends |
/// | closes, reports, ends of appends, invalidations | an open, a stat or an append of another client waits for them |
/// | unlocks, which have the number of locks; cancels | others wait for the lock |
/// | rooms and grants | writes of others wait for what is given back |
/// | what agents tell of tiering | opens wait for the file |
/// | all of servers and administrators | see [`Fair::run`] |
pub fn passage(op: Op) -> Passage {
    use Passage::{AtOnce, InTurn};
    match op {
        // Names and attributes.
        Op::Lookup | Op::Getattr | Op::Setattr | Op::Create | Op::Mkdir | Op::Mknod | Op::Symlink => InTurn,
        Op::Link | Op::Unlink | Op::Rmdir | Op::Rename | Op::Tmpfile | Op::Readlink | Op::Readdir => InTurn,
        Op::Getxattr | Op::Listxattr | Op::Setxattr | Op::Removexattr | Op::MdtStatfs => InTurn,
        Op::OpenAhead | Op::Open | Op::Fsync | Op::SyncAll | Op::NoteAccess | Op::GetLock => InTurn,
        Op::SetStripe | Op::GetStripe | Op::PathOf | Op::Scan | Op::Migrate => InTurn,
        Op::ProjectGet | Op::ProjectSet | Op::QuotaShow | Op::QuotaChange | Op::QuotaList => InTurn,
        Op::HsmState | Op::HsmAct | Op::HsmSet | Op::HsmRecall | Op::HsmImport => InTurn,
        Op::HsmOpen | Op::HsmRead | Op::HsmRemove => InTurn,
        Op::PolicyScan | Op::PolicyRemove | Op::HsmBacklog => InTurn,
        // Bytes of small files, and their way to objects.
        Op::InlineRead | Op::InlineWrite | Op::Convert | Op::Spill | Op::LayoutGet => InTurn,
        Op::AppendReserve => InTurn,
        // Bytes.
        Op::Read | Op::Write | Op::Punch | Op::Allocate | Op::SyncObjects | Op::StatObjects => InTurn,
        Op::Seek | Op::OstStatfs | Op::CopyRange => InTurn,
        // Others wait for these.
        Op::SessionOpen | Op::SessionRenew | Op::SessionClose | Op::Reclaim | Op::TargetInfo => AtOnce,
        Op::Close | Op::Report | Op::AppendDone | Op::Invalidate => AtOnce,
        Op::SetLock | Op::CancelLock | Op::ReturnGrant => AtOnce,
        Op::QuotaFileRoom | Op::QuotaSet | Op::QuotaRoom | Op::QuotaUse => AtOnce,
        // Long polls wait themselves, for as long as there is nothing to tell.
        Op::MdtWaits | Op::HsmTake | Op::HsmProgress | Op::HsmDone | Op::HsmExtents => AtOnce,
        Op::HsmDivide | Op::HsmSpanTake | Op::HsmSpanDone | Op::HsmShares => AtOnce,
        // Servers and administrators ask for these.
        Op::OstUse | Op::OwnerQuery | Op::FenceTable | Op::SessionRights | Op::BackupRead => AtOnce,
        Op::ChangelogRegister | Op::ChangelogDeregister | Op::ChangelogClear | Op::ChangelogRead => AtOnce,
        Op::ChangelogInfo | Op::ChangelogMask | Op::HsmInfo | Op::HsmSwitch => AtOnce,
        Op::MdtUsage | Op::MdtLogLevel | Op::MdtShares | Op::OstUsage | Op::OstLogLevel => AtOnce,
        Op::OstShares | Op::MgsLogLevel | Op::ListObjects => AtOnce,
        Op::MdtLogLines | Op::OstLogLines | Op::MgsLogLines | Op::LogLinesNotice => AtOnce,
        Op::ListMounts | Op::MountLogLines | Op::MdtTrace | Op::OstTrace => AtOnce,
        Op::MemberAttach | Op::MemberLease | Op::MemberAppend | Op::MemberSync | Op::MemberFill => AtOnce,
        Op::TruncateObject | Op::DestroyObjects | Op::FenceSession | Op::FenceLayout => AtOnce,
        Op::ReplicaAttach | Op::ReplicaLease | Op::ReplicaChange | Op::ReplicaLook => AtOnce,
        Op::ReplicaList | Op::ReplicaRead => AtOnce,
        // The MGS, and notices.
        Op::Register | Op::GetMap | Op::Heartbeat | Op::Join | Op::RenewCertificate => AtOnce,
        Op::WatchHost | Op::ReportHost | Op::WatchAccess | Op::KeepShared | Op::ChangePool => AtOnce,
        Op::ChangeTarget | Op::RaiseLevel | Op::ListHosts | Op::CreateToken | Op::ChangeHost => AtOnce,
        Op::ListShared | Op::ChangeShared | Op::FetchMgt | Op::NoteTerm | Op::Events => AtOnce,
        Op::TakeOrders | Op::RestartHost | Op::KeepReplicas | Op::ListReplicas => AtOnce,
        Op::ChangeReplicas | Op::ChangeInSync | Op::ShowReplica | Op::ListSpares => AtOnce,
        Op::ChangeSpare | Op::WatchNodemaps | Op::ListNodemaps | Op::ChangeNodemap => AtOnce,
        Op::WatchMappedNodemaps | Op::ListMappedNodemaps | Op::ChangeMappedNodemap => AtOnce,
        Op::WatchLimits | Op::ChangeLimit | Op::WatchDurability | Op::ChangeDurability => AtOnce,
        Op::RecallNotice | Op::InvalidateNotice | Op::LayoutNotice | Op::ReportNotice => AtOnce,
        Op::SessionEndNotice | Op::SettleNotice | Op::LeaseNotice | Op::ClosedNotice => AtOnce,
        Op::NodeRegister | Op::NodeOrder | Op::NodeSlices | Op::NoteOpening => AtOnce,
        Op::MountLogLevel | Op::LogLevelNotice | Op::NodeLogLines | Op::NodeLogLevel => AtOnce,
        Op::NodeStage | Op::NodeOffer => AtOnce,
        Op::ReplicaVerify | Op::ReplicaScrub | Op::Scrub | Op::NoteScrub | Op::MdtScrub => AtOnce,
        Op::MemberVerify | Op::MemberCompare | Op::MemberScrub | Op::ReportSpare => AtOnce,
    }
}

/// A request that has come.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Operation of the request; `None` if this release does not know it.
    pub op: Option<Op>,
    /// Who asks.
    pub principal: &'a Principal,
    /// Name of the asking host, as its class has it.
    pub host: &'a Arc<str>,
    /// Address of the asking host.
    pub address: &'a str,
    /// The job of the request.
    pub job: Option<&'a JobTag>,
    /// Bytes of files in it, and room for them in its reply.
    pub bytes: u64,
}

impl Request<'_> {
    fn asker(&self) -> Asker<'_> {
        Asker {
            job: self.job.map(JobTag::name),
            uid: self.job.map(JobTag::uid),
            host: self.host,
            address: self.address,
            bytes: self.bytes,
        }
    }
}

/// Waits of a job or host.
#[derive(Clone, Default)]
struct Row {
    queued: Tally,
    overtaken: Tally,
    held: Tally,
    rule: String,
    last: Mono,
}

/// A request that a limit holds.
struct Held {
    class: Class,
    bytes: u64,
    /// Number of the rule that holds the request.
    rule: usize,
    work: Task,
}

struct State {
    queue: Option<Queue<Task>>,
    buckets: Buckets,
    held: BTreeMap<(Mono, u64), Held>,
    next_held: u64,
    is_ticking: bool,
    rows: BTreeMap<Class, Row>,
    totals: Totals,
}

/// Counters of requests that were held back since the server started; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that waited for their turn.
    pub queued: u64,
    /// For how long, in microseconds.
    pub queued_micros: u64,
    /// Requests that a limit held.
    pub held: u64,
    /// For how long, in microseconds.
    pub held_micros: u64,
}

/// Starts the requests to a target.
pub struct Fair {
    seams: Seams,
    role: Role,
    has_places: bool,
    state: Mutex<State>,
}

impl Fair {
    /// A scheduler without requests or limits.
    pub fn new(seams: &Seams, config: FairConfig) -> Arc<Fair> {
        let state = State {
            queue: config.places.map(Queue::new),
            buckets: Buckets::default(),
            held: BTreeMap::new(),
            next_held: 0,
            is_ticking: false,
            rows: BTreeMap::new(),
            totals: Totals::default(),
        };
        Arc::new(Fair {
            seams: seams.clone(),
            role: config.role,
            has_places: config.places.is_some(),
            state: Mutex::new(state),
        })
    }

    /// Starts a request: now, or later.
    pub fn run(self: &Arc<Self>, request: &Request<'_>, work: impl Future<Output = ()> + Send + 'static) {
        let in_turn = request.op.is_some_and(|op| passage(op) == Passage::InTurn)
            && request.principal.kind == PrincipalKind::Client;
        if !in_turn {
            self.seams.spawn("server.request", work);
            return;
        }
        let class = match request.job {
            Some(job) => Class::Job(*job),
            None => Class::Host(request.host.clone()),
        };
        let work: Task = match self.has_places {
            true => Box::pin(self.placed(work)),
            false => Box::pin(work),
        };
        let mut state = self.state.lock();
        let now = if state.has_to_look() { self.seams.now() } else { Mono(0) };
        if !state.buckets.is_empty() {
            let asker = request.asker();
            if let Some(ready) = state.buckets.take(now, &asker) {
                let held = Held { class, bytes: request.bytes, rule: ready.rule, work };
                state.hold(now, ready, held);
                let begins = !std::mem::replace(&mut state.is_ticking, true);
                drop(state);
                if begins {
                    let ticking = self.clone();
                    self.seams.spawn("server.limits", async move { ticking.tick().await });
                }
                return;
            }
        }
        let served = state.offer(now, &class, request.bytes, work);
        drop(state);
        self.start(served);
    }

    /// Bytes of files in the reply to a request, where the request did not tell how many they would be: they are paid for afterwards.
    pub fn pay(&self, request: &Request<'_>) {
        let mut state = self.state.lock();
        let is_limited = request.op.is_some_and(|op| passage(op) == Passage::InTurn)
            && request.principal.kind == PrincipalKind::Client;
        if is_limited && !state.buckets.is_empty() {
            let now = self.seams.now();
            state.buckets.pay(now, &request.asker());
        }
    }

    /// Replaces the limits. A request that waited for a rule which is gone starts; one whose rule has other rates now
    /// waits on, under the rule's new number.
    pub fn set_limits(&self, rules: &[LimitRule]) {
        let (now, wall_s) = (self.seams.now(), self.seams.wall().secs);
        let mut state = self.state.lock();
        let staying = state.buckets.replace(rules, self.role, now, wall_s);
        let mut served = Vec::new();
        for (ready, held) in std::mem::take(&mut state.held) {
            match staying.get(&held.rule) {
                Some(rule) => drop(state.held.insert(ready, Held { rule: *rule, ..held })),
                None => served.extend(state.offer(now, &held.class, held.bytes, held.work)),
            }
        }
        drop(state);
        self.start(served);
    }

    /// Counters over all jobs.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// Requests that were held back, by rule and by job.
    pub fn answer(&self) -> SharesResp {
        let state = self.state.lock();
        let queue = state.queue.as_ref();
        let of_queue = |get: fn(&Queue<Task>) -> usize| len_u32(queue.map_or(0, get));
        let rules = state.buckets.counted().map(|(name, counted)| RuleHeld {
            name: name.to_owned(),
            requests: counted.requests,
            held: counted.held,
            held_micros: counted.held_micros,
            overdue: counted.overdue,
        });
        let mut jobs: Vec<JobHeld> = state.rows.iter().map(|(class, row)| row.shown(class)).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.queued.sum.saturating_add(job.held.sum)));
        SharesResp {
            places: of_queue(Queue::places),
            in_service: of_queue(Queue::in_service),
            queued: of_queue(Queue::len),
            held: len_u32(state.held.len()),
            rules: rules.collect(),
            jobs,
        }
    }

    /// `work`, which has a place whenever it is polled, and none while it waits for something.
    fn placed(
        self: &Arc<Self>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut place = QueuePosition { fair: self.clone(), has: Has::FromTheQueue };
        async move {
            let mut work = pin!(work);
            poll_fn(move |context| {
                place.take();
                let polled = work.as_mut().poll(context);
                place.give_up();
                polled
            })
            .await;
        }
    }

    /// Starts requests that got places.
    fn start(&self, works: impl IntoIterator<Item = Task>) {
        works.into_iter().for_each(|work| self.seams.tasks.spawn("server.request", work));
    }

    /// Serves waiting requests while places are free.
    fn dispatch(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.queue.as_mut().and_then(Queue::serve_next) else { return };
            state.waited(self.seams.now(), next.class, next.since, next.overtaken_by);
            drop(state);
            self.start([next.work]);
        }
    }

    /// Lets held requests go when they are ready, until none is held.
    async fn tick(&self) {
        loop {
            self.seams.sleep_ms(HELD_TICK_MS).await;
            let now = self.seams.now();
            let mut served = Vec::new();
            let is_last = {
                let mut state = self.state.lock();
                while let Some(entry) = state.held.first_entry() {
                    if entry.key().0 > now {
                        break;
                    }
                    let held = entry.remove();
                    served.extend(state.offer(now, &held.class, held.bytes, held.work));
                }
                state.is_ticking = !state.held.is_empty();
                !state.is_ticking
            };
            self.start(served);
            if is_last {
                return;
            }
        }
    }
}

impl State {
    /// Whether the time counts: something is limited, or may have to wait.
    fn has_to_look(&self) -> bool {
        let must_wait = |q: &Queue<Task>| q.in_service() >= q.places() || !q.is_empty();
        !self.buckets.is_empty() || self.queue.as_ref().is_some_and(must_wait)
    }

    /// A request that no limit holds; it is given back if it is to be served now.
    fn offer(&mut self, now: Mono, class: &Class, bytes: u64, work: Task) -> Option<Task> {
        let Some(queue) = &mut self.queue else { return Some(work) };
        match queue.offer(now, class, bytes, work) {
            Offered::Serve(work) => Some(work),
            Offered::Queued => None,
        }
    }

    fn hold(&mut self, now: Mono, ready: buckets::Ready, held: Held) {
        let micros = (ready.at.0 - now.0) / 1_000;
        let rule = self.buckets.name(ready.rule).to_owned();
        let row = self.row(&held.class, now);
        row.held.add(micros);
        row.rule = rule;
        self.totals.held += 1;
        self.totals.held_micros += micros;
        let number = self.next_held;
        self.next_held += 1;
        self.held.insert((ready.at, number), held);
    }

    fn waited(&mut self, now: Mono, class: Class, since: Mono, overtaken_by: u64) {
        let micros = now.0.saturating_sub(since.0) / 1_000;
        let row = self.row(&class, now);
        row.queued.add(micros);
        row.overtaken.add(overtaken_by);
        self.totals.queued += 1;
        self.totals.queued_micros += micros;
    }

    fn row(&mut self, class: &Class, now: Mono) -> &mut Row {
        if self.rows.len() >= ROWS_MAX
            && !self.rows.contains_key(class)
            && let Some(oldest) =
                self.rows.iter().min_by_key(|(_, row)| row.last).map(|(class, _)| class.clone())
        {
            self.rows.remove(&oldest);
        }
        let row = self.rows.entry(class.clone()).or_default();
        row.last = now;
        row
    }
}

impl Row {
    fn shown(&self, class: &Class) -> JobHeld {
        let name = match class {
            Class::Job(job) => job.name().to_owned(),
            Class::Host(host) => host.to_string(),
        };
        let Row { queued, overtaken, held, rule, .. } = self.clone();
        JobHeld { name, queued, overtaken, held, rule }
    }
}

/// Whether a request has a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    /// The queue has given the request a place, or will before it runs.
    FromTheQueue,
    /// A thread works on the request.
    Running,
    /// The request has paused, or is done.
    Nothing,
}

/// The place of a request.
struct QueuePosition {
    fair: Arc<Fair>,
    has: Has,
}

impl QueuePosition {
    fn take(&mut self) {
        if self.has == Has::Nothing
            && let Some(queue) = &mut self.fair.state.lock().queue
        {
            queue.resume();
        }
        self.has = Has::Running;
    }

    fn give_up(&mut self) {
        self.has = Has::Nothing;
        let must_dispatch = {
            let mut state = self.fair.state.lock();
            let Some(queue) = &mut state.queue else { return };
            queue.leave();
            !queue.is_empty()
        };
        if must_dispatch {
            self.fair.dispatch();
        }
    }
}

impl Drop for QueuePosition {
    /// A request that panicked leaves its place to others.
    fn drop(&mut self) {
        if self.has != Has::Running {
            return;
        }
        if let Some(queue) = &mut self.fair.state.lock().queue {
            queue.leave();
        }
        // In a task: where a whole runtime ends, each request would end the next one within itself.
        let fair = self.fair.clone();
        self.fair.seams.spawn("server.fair", async move { fair.dispatch() });
    }
}

#[cfg(test)]
mod tests;
