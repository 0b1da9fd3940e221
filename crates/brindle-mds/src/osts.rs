//! The OSTs as the MDT sees them: calls, free space, choice for new files.
//!
//! The MDT has a session of its own at the OSTs, whose epoch is its term: an OST that has heard of a later term refuses everything of
//! an earlier one. Mandatory calls are repeated until the OST answers, however long it is away.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_layout::{
    Ask, Candidate, HIGH_WATER_PERCENT_DEFAULT, Planned, Pools, check_policy, empty_pool, normalise, place,
    plan,
};
use brindle_stdx::{BoxFuture, Seams, watch};
use brindle_types::layout::Component;
use brindle_types::{
    Code, Fault, LayoutPolicy, ObjectId, Pair, PoolName, Result, Role, StripePolicy, TargetId,
};
use brindle_wire::frame::{Frame, decode_reply, encode_body};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::stat::{ObjectStat, StatObjectsReq};
use brindle_wire::oss::write::{CopyRangeReq, WriteReq, WriteResp};
use brindle_wire::{Message, Op};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};

/// An OST that refused bytes takes them again when it reports as many free, and these.
const ROOM_AGAIN_BYTES: u64 = 1 << 20;
/// Longest wait for a map that the caller has seen already.
const MAP_WAIT_MAX_MS: u64 = 2_000;

/// The way to OSTs: over the network ([`crate::cluster::OstTargets`]), or a test's.
pub trait OstCalls: Send + Sync + 'static {
    /// Sends a request until it is answered; its reply.
    fn call(&self, ost: u16, op: Op, body: Bytes, bulk: Vec<Bytes>) -> BoxFuture<'static, Result<Frame>>;
    /// Sends a request once; its reply. `Disconnected` when its fate is unknown, `UnknownTarget` when it was not sent.
    fn probe(&self, ost: u16, op: Op, body: Bytes) -> BoxFuture<'static, Result<Frame>>;
    /// Every OST there is, whether it answers or not; waits for the first map.
    fn all(&self) -> BoxFuture<'_, Vec<u16>>;
    /// The MDT has opened under this term.
    fn set_term(&self, term: u32);
    /// Calls that have waited for more than some seconds: (operation, OST, milliseconds).
    fn waits(&self) -> Vec<(String, String, u64)>;
}

/// The OSTs of the file system.
pub struct Osts {
    seams: Seams,
    calls: Arc<dyn OstCalls>,
    high_water_percent: u64,
    room_wait_ms: u64,
    candidates: RwLock<BTreeMap<u16, Candidate>>,
    /// OSTs that refused bytes for want of room, and how many; until they report more room.
    full: Mutex<BTreeMap<u16, u64>>,
    /// Version and pools of the map.
    known: watch::Sender<Known>,
    /// Version of the map all of whose OSTs were asked for their space.
    asked: watch::Sender<u64>,
    /// Places in the round: of the file system (`None`) and of each pool.
    cursors: Mutex<BTreeMap<Option<PoolName>, u64>>,
}

/// Places in the round that a choice took.
pub struct Turn {
    pool: Option<PoolName>,
    osts: u64,
}

/// The part of the map that matters here.
#[derive(Clone, Default)]
struct Known {
    version: u64,
    /// OSTs of the map.
    osts: Arc<[u16]>,
    /// Number of the host that serves each OST: OSTs of different hosts take turns.
    hosts: Arc<BTreeMap<u16, usize>>,
    pools: Arc<Pools>,
    /// OSTs that get no new objects: those that are drained, and those that there are no more.
    draining: Arc<[u16]>,
    /// OSTs that were removed.
    removed: Arc<[u16]>,
}

impl Osts {
    /// No OST is known yet.
    pub fn new(seams: Seams, calls: Arc<dyn OstCalls>) -> Osts {
        Osts {
            seams,
            calls,
            high_water_percent: HIGH_WATER_PERCENT_DEFAULT,
            room_wait_ms: 0,
            candidates: RwLock::default(),
            full: Mutex::default(),
            known: watch::Sender::default(),
            asked: watch::Sender::default(),
            cursors: Mutex::default(),
        }
    }

    /// Sets the high-water mark: fuller OSTs get no new objects while others can take them.
    pub fn with_high_water(mut self, percent: u64) -> Osts {
        self.high_water_percent = percent;
        self
    }

    /// Sets the time for which writes wait until an administrator adds space.
    pub fn with_room_wait(mut self, wait_ms: u64) -> Osts {
        self.room_wait_ms = wait_ms;
        self
    }

    /// Longest time that writes wait for added space, where all OSTs are full.
    pub fn room_wait_ms(&self) -> u64 {
        self.room_wait_ms
    }

    /// The high-water mark.
    pub fn high_water_percent(&self) -> u64 {
        self.high_water_percent
    }

    /// The MDT opened under this term.
    pub fn set_term(&self, term: u32) {
        self.calls.set_term(term);
    }

    /// Calls to OSTs that wait: (operation, OST, milliseconds).
    pub fn waits(&self) -> Vec<(String, String, u64)> {
        self.calls.waits()
    }

    /// Space and state of the OSTs now, for status.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.candidates.read().values().copied().collect()
    }

    /// Indices of the OSTs, in order.
    pub fn indices(&self) -> Vec<u16> {
        self.candidates.read().keys().copied().collect()
    }

    /// Every OST there is, whether it was heard of since the start or not.
    pub async fn all(&self) -> Vec<u16> {
        self.calls.all().await
    }

    /// Records the free space of an OST.
    pub fn set_candidate(&self, candidate: Candidate) {
        // Without inodes there is no room for new objects, however many bytes are free.
        let has_inodes = candidate.total_inodes == 0 || candidate.free_inodes > 0;
        let room = if has_inodes { candidate.free_bytes.saturating_sub(ROOM_AGAIN_BYTES) } else { 0 };
        self.full.lock().retain(|ost, refused| *ost != candidate.index || *refused > room);
        self.candidates.write().insert(candidate.index, candidate);
    }

    /// Space and state of an OST; one that was not heard of counts as down.
    fn candidate(&self, index: u16) -> Candidate {
        let silent = Candidate { index, ..Candidate::default() };
        self.candidates.read().get(&index).copied().unwrap_or(silent)
    }

    /// An OST does not answer.
    pub fn set_down(&self, index: u16) {
        if let Some(candidate) = self.candidates.write().get_mut(&index) {
            candidate.up = false;
        }
    }

    /// Whether an OST that was heard of does not answer now.
    pub fn is_silent(&self, ost: u16) -> bool {
        self.candidates.read().get(&ost).is_some_and(|candidate| !candidate.up)
    }

    /// Whether an OST that was chosen is silent, and another can be chosen: nobody has asked for this one.
    pub fn has_another(&self, asked: &StripePolicy, ost: u16) -> bool {
        let is_wished = asked.start_ost.is_some() || !asked.osts.is_empty();
        self.is_silent(ost) && !is_wished && self.look(asked).is_ok_and(|osts| !osts.contains(&ost))
    }

    /// Takes in the pools of a map.
    pub fn set_map(&self, map: &Map) {
        let pools: Pools = map.pools.iter().map(|p| (p.name.clone(), p.osts.clone())).collect();
        self.cursors.lock().retain(|pool, _| pool.as_ref().is_none_or(|name| pools.contains_key(name)));
        let removed: Vec<u16> =
            map.removed.iter().filter(|t| map.is_removed(t.id)).map(|t| t.id.index).collect();
        let draining = [&map.draining[..], &removed].concat().into();
        let osts = map.targets.iter().filter(|t| t.id.role == Role::Ost).map(|t| t.id.index).collect();
        let mut names: Vec<&str> = map.targets.iter().map(TargetEntry::host).collect();
        names.sort_unstable();
        names.dedup();
        let host_of = |target: &TargetEntry| names.binary_search(&target.host()).unwrap_or_default();
        let of_osts = map.targets.iter().filter(|t| t.id.role == Role::Ost);
        let hosts = Arc::new(of_osts.map(|t| (t.id.index, host_of(t))).collect());
        let known = Known {
            version: map.version,
            osts,
            hosts,
            pools: Arc::new(pools),
            draining,
            removed: removed.clone().into(),
        };
        self.known.send_replace(known);
        self.candidates.write().retain(|ost, _| !removed.contains(ost));
        self.full.lock().retain(|ost, _| !removed.contains(ost));
    }

    /// Whether this OST existed and was removed.
    pub fn is_removed(&self, ost: u16) -> bool {
        self.known.borrow().removed.contains(&ost)
    }

    /// Version of the map that is known, 0 before the first, and its OSTs.
    pub fn of_map(&self) -> (u64, Arc<[u16]>) {
        let known = self.known.borrow();
        (known.version, known.osts.clone())
    }

    /// Completes when a newer map is known.
    pub async fn until_newer_than(&self, version: u64) {
        // `self` holds the sender, so waiting cannot fail.
        let _ = self.known.subscribe().wait_for(|known| known.version > version).await;
    }

    /// Version of the map that is known; 0 before the first.
    pub fn map_version(&self) -> u64 {
        self.known.borrow().version
    }

    /// All OSTs of the map of this version were asked for their space.
    pub fn set_asked(&self, version: u64) {
        self.asked.send_replace(version);
    }

    /// Waits for a map that the caller has seen already, and for what its OSTs say, for two seconds at most.
    pub async fn until_map(&self, version: u64) {
        let mut news = self.asked.subscribe();
        let there = news.wait_for(|asked| *asked >= version);
        // If the time is over, the caller uses the known map.
        let _ = self.seams.timeout_ms(MAP_WAIT_MAX_MS, there).await;
    }

    fn pools(&self) -> Arc<Pools> {
        self.known.borrow().pools.clone()
    }

    /// Refuses a layout that cannot be had, with the nearest value that can.
    pub fn check_policy(&self, policy: &LayoutPolicy) -> Result<()> {
        check_policy(policy, &self.indices(), &self.pools())?;
        let draining = self.known.borrow().draining.clone();
        let mut named = plan(policy)?.into_iter().flat_map(|part| {
            let start = part.asked.start_ost.and_then(|ost| u16::try_from(ost).ok());
            start.into_iter().chain(part.asked.osts)
        });
        match named.find(|ost| draining.contains(ost)) {
            Some(ost) => Err(Fault::new(Code::BadStripe)
                .what("cannot stripe over")
                .subject(TargetId::ost(ost).to_string())
                .why("it is drained, and gets nothing new")
                .next("choose another, or take it back: brindle target undrain")),
            None => Ok(()),
        }
    }

    /// The components of a new file, without OSTs.
    pub fn lay_out(&self, policy: &LayoutPolicy, generation: Pair) -> Result<Vec<Component>> {
        let component = |part: Planned| Component {
            start: part.start,
            end: part.end,
            origin: part.start,
            generation,
            stripe_size_bytes: part.stripe_size_bytes,
            asked: part.asked,
            osts: Vec::new(),
            objects: Vec::new(),
        };
        Ok(plan(policy)?.into_iter().map(component).collect())
    }

    /// OSTs for a component; none while no OST is known. A request that cannot be met any more is met as nearly as
    /// possible: a destroyed pool counts as no pool. A pool without OSTs is refused. The turn is for [`Osts::give_back`].
    pub fn place(&self, asked: &StripePolicy) -> Result<(Vec<u16>, Turn)> {
        let (asked, all) = self.ground(asked)?;
        let osts = self.place_among(all, &asked)?;
        let turn = Turn { pool: asked.pool().cloned(), osts: osts.len() as u64 };
        Ok((osts, turn))
    }

    /// What was chosen is not used, and nobody has chosen since: the next choice is the same.
    pub fn give_back(&self, turn: &Turn) {
        if let Some(cursor) = self.cursors.lock().get_mut(&turn.pool) {
            *cursor = cursor.saturating_sub(turn.osts);
        }
    }

    /// What [`Osts::place`] would choose.
    fn look(&self, asked: &StripePolicy) -> Result<Vec<u16>> {
        let (asked, all) = self.ground(asked)?;
        let mut cursor = self.cursors.lock().get(&asked.pool().cloned()).copied().unwrap_or_default();
        self.choose(all, &asked, &mut cursor)
    }

    /// OSTs for at least `len_bytes` that must go elsewhere: none of `avoid`, none that is down or full. Empty if no such OST
    /// exists.
    pub fn place_elsewhere(&self, asked: &StripePolicy, avoid: &[u16], len_bytes: u64) -> Result<Vec<u16>> {
        let (asked, all) = self.ground(asked)?;
        self.place_among(self.elsewhere(all, avoid, len_bytes), &asked)
    }

    /// Whether there is an OST that [`Osts::place_elsewhere`] can choose.
    pub fn has_room_elsewhere(&self, asked: &StripePolicy, avoid: &[u16], len_bytes: u64) -> bool {
        self.ground(asked).is_ok_and(|(_, all)| !self.elsewhere(all, avoid, len_bytes).is_empty())
    }

    /// OSTs to choose from, and the policy for the choice. If the asked pool exists, only its OSTs are
    /// candidates.
    fn ground(&self, asked: &StripePolicy) -> Result<(StripePolicy, Vec<Candidate>)> {
        let draining = self.known.borrow().draining.clone();
        let mut all = self.candidates();
        all.retain(|c| !draining.contains(&c.index));
        let pools = self.pools();
        let mut asked = asked.clone();
        let members = asked.pool().and_then(|name| pools.get(name).map(|members| (name, members)));
        match members {
            _ if all.is_empty() => Ok((asked, all)),
            Some((name, members)) if members.is_empty() => Err(empty_pool(name)),
            Some((name, members)) => {
                let mut stay = members.iter().filter(|index| !draining.contains(index)).peekable();
                if stay.peek().is_none() {
                    return Err(empty_pool(name).why("all its OSTs are drained"));
                }
                Ok((asked, stay.map(|index| self.candidate(*index)).collect()))
            }
            None => {
                if asked.pool().is_some() {
                    asked.pool = None;
                }
                Ok((asked, all))
            }
        }
    }

    fn elsewhere(&self, mut all: Vec<Candidate>, avoid: &[u16], len_bytes: u64) -> Vec<Candidate> {
        all.retain(|c| c.up && !avoid.contains(&c.index) && !self.is_full(c.index, len_bytes));
        all
    }

    /// Whether an OST that was chosen earlier must get no new data by now: it is drained, or has no space for this many bytes.
    pub fn is_avoided(&self, ost: u16, len_bytes: u64) -> bool {
        self.known.borrow().draining.contains(&ost) || self.is_full(ost, len_bytes)
    }

    /// Whether any of these OSTs has last reported less space than `bytes`. Such an OST is noted as if it had
    /// refused this many bytes.
    pub fn any_is_smaller(&self, osts: &[u16], bytes: u64) -> bool {
        let mut any = false;
        for ost in osts {
            if self.candidate(*ost).free_bytes < bytes {
                self.note_full(*ost, bytes);
                any = true;
            }
        }
        any
    }

    /// Whether an OST that has refused this many bytes has reported space since, and answers.
    pub fn has_room_again(&self, ost: u16, len_bytes: u64) -> bool {
        self.candidate(ost).up && !self.is_avoided(ost, len_bytes)
    }

    /// Whether an OST has refused this many bytes or fewer, and has not reported space since.
    pub fn is_full(&self, ost: u16, len_bytes: u64) -> bool {
        self.full.lock().get(&ost).is_some_and(|refused| *refused <= len_bytes)
    }

    /// Notes that an OST has refused bytes for want of space, even if its free space was never reported since the
    /// start.
    pub fn note_full(&self, ost: u16, len_bytes: u64) {
        if self.is_removed(ost) {
            return;
        }
        if let Some(candidate) = self.candidates.write().get_mut(&ost) {
            candidate.free_bytes = candidate.free_bytes.min(len_bytes);
        }
        let mut full = self.full.lock();
        let refused = full.entry(ost).or_insert(len_bytes);
        *refused = len_bytes.min(*refused);
    }

    fn place_among(&self, all: Vec<Candidate>, asked: &StripePolicy) -> Result<Vec<u16>> {
        let mut cursors = self.cursors.lock();
        self.choose(all, asked, cursors.entry(asked.pool().cloned()).or_default())
    }

    fn choose(&self, mut all: Vec<Candidate>, asked: &StripePolicy, cursor: &mut u64) -> Result<Vec<u16>> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let indices: Vec<u16> = all.iter().map(|c| c.index).collect();
        if !asked.osts.is_empty() && normalise(asked, &indices).is_ok() {
            return Ok(asked.osts.clone());
        }
        let anywhere = StripePolicy { start_ost: None, osts: Vec::new(), ..asked.clone() };
        let nearest = StripePolicy { count: Some(-1), ..anywhere.clone() };
        let striping = normalise(asked, &indices).or_else(|_| normalise(&anywhere, &indices));
        let striping = striping.or_else(|_| normalise(&nearest, &indices))?;
        self.rank(&mut all);
        let random = self.seams.rng.next_u64();
        let ask = Ask {
            count: striping.count,
            start_ost: striping.start_ost,
            cursor: *cursor,
            random,
            high_water_percent: self.high_water_percent,
        };
        let osts = place(&all, &ask)?;
        *cursor += osts.len() as u64;
        Ok(osts)
    }

    /// Numbers the OSTs of each host.
    fn rank(&self, all: &mut [Candidate]) {
        let hosts = self.known.borrow().hosts.clone();
        let mut of_host = BTreeMap::new();
        for candidate in all {
            let next = of_host.entry(hosts.get(&candidate.index).copied()).or_default();
            candidate.rank = *next;
            *next += 1;
        }
    }

    /// Asks an OST once.
    pub async fn ask<M: Message>(&self, ost: u16, question: &M) -> Result<M::Resp> {
        decode_reply(&self.calls.probe(ost, M::OP, encode_body(question)).await?)
    }

    /// Asks an OST until it answers.
    pub async fn insist<M: Message>(&self, ost: u16, question: &M) -> Result<M::Resp> {
        decode_reply(&self.until_answered(ost, question, Vec::new()).await?)
    }

    /// The answer of an OST, whenever it comes; `TargetRemoved` when there is no such OST any more.
    async fn until_answered<M: Message>(&self, ost: u16, question: &M, bulk: Vec<Bytes>) -> Result<Frame> {
        let mut known = self.known.subscribe();
        let calling = self.calls.call(ost, M::OP, encode_body(question), bulk);
        tokio::select! {
            biased;
            answer = calling => answer,
            _ = known.wait_for(|known| known.removed.contains(&ost)) => {
                Err(Fault::new(Code::TargetRemoved).subject(TargetId::ost(ost).to_string()))
            }
        }
    }

    /// Asks an OST until it answers, or the time is over.
    pub async fn ask_within<M: Message>(&self, ms: u64, ost: u16, question: &M) -> Result<M::Resp> {
        let answer = self.seams.timeout_ms(ms, self.insist(ost, question)).await;
        answer.unwrap_or_else(|| Err(no_answer(ost)))
    }

    /// Writes bytes of a file that nobody else can write now, durably.
    pub async fn write(&self, ost: u16, request: &WriteReq, data: Bytes) -> Result<ChangeResp> {
        let answer: WriteResp = decode_reply(&self.until_answered(ost, request, vec![data]).await?)?;
        Ok(answer.change)
    }

    /// Has an OST copy bytes, and asks again until the time is over. A request whose fate is unknown then has no effect once
    /// its objects are fenced.
    pub async fn copy_range(&self, ms: u64, ost: u16, request: &CopyRangeReq) -> Result<ChangeResp> {
        self.ask_within(ms, ost, request).await
    }

    /// Asks the OSTs of objects about them; what each came to, in the order of `objects`.
    pub async fn stat(&self, objects: &[(u16, ObjectId)]) -> Vec<Result<ObjectStat>> {
        self.stat_each(objects, None).await
    }

    /// Like [`Osts::stat`], with `TargetDown` for OSTs that do not answer within `ms`.
    pub async fn stat_within(&self, ms: u64, objects: &[(u16, ObjectId)]) -> Vec<Result<ObjectStat>> {
        self.stat_each(objects, Some(ms)).await
    }

    async fn stat_each(&self, objects: &[(u16, ObjectId)], ms: Option<u64>) -> Vec<Result<ObjectStat>> {
        let mut by_ost: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, (ost, _)) in objects.iter().enumerate() {
            by_ost.entry(*ost).or_default().push(index);
        }
        let asked = by_ost.iter().map(|(ost, indices)| async move {
            let objects = indices.iter().map(|i| objects[*i].1).collect();
            let question = StatObjectsReq { objects };
            let answer = match ms {
                Some(ms) => self.ask_within(ms, *ost, &question).await,
                None => self.insist(*ost, &question).await,
            };
            (indices, answer)
        });
        let mut stats = vec![Ok(ObjectStat::default()); objects.len()];
        for (indices, answer) in join_all(asked).await {
            for (n, index) in indices.iter().enumerate() {
                let stat = answer.as_ref().map(|answer| answer.objects.get(n).cloned().unwrap_or_default());
                stats[*index] = stat.map_err(Fault::clone);
            }
        }
        stats
    }
}

fn no_answer(ost: u16) -> Fault {
    Fault::new(Code::TargetDown).subject(TargetId::ost(ost).to_string())
}
