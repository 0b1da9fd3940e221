//! The scrub of an OST reads all objects slowly and verifies every block. In a replica set it verifies all copies and mends damage from a
//! member that has the block whole (design note 047).
//!
//! | module | holds |
//! |---|---|
//! | here | when a pass begins, how fast it goes, how far it is, its record on the disk |
//! | [`piece`] | some blocks of one object on all members: verified, compared, mended |
//!
//! Only the server of the target scrubs. Invariants: a request of a user never waits for a pause of the scrub; a block is called damaged
//! only after a second look; only a member that has every change is a source for mending.

mod piece;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::{Disk, Mono, crc, watch};
use brindle_targets::replica::{GRANT_LIMIT_MS, NO_BULK, kept};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::mgs::scrub::NoteScrubReq;
use brindle_wire::oss::replica::{ReplicaScrubReq, VERIFY_BLOCKS_MAX};
use brindle_wire::oss::scrub::{NAMED_MAX, ScrubOrder, ScrubPass, ScrubPlace, ScrubRecord, ScrubResp};
use parking_lot::Mutex;

use crate::service::Oss;

/// File of the record, in the directory of the target.
const RECORD_FILE: &str = "scrub";
/// Most bytes a second while nobody else uses the OST, unless told otherwise.
pub const RATE_BYTES: u64 = 64 << 20;
/// Lowest rate that can be asked for.
const RATE_MIN_BYTES: u64 = 1 << 20;
/// While users read or write, the rate is divided by this.
const BUSY_DIVISOR: u64 = 8;
/// The OST counts as used for this long after a transfer.
const BUSY_FOR_MS: u64 = 500;
/// Shortest pause behind each piece: while nobody, and while somebody, uses the OST.
const PAUSE_MS: u64 = 1;
const BUSY_PAUSE_MS: u64 = 10;
/// Days between passes, unless told otherwise, and the most that can be asked for.
pub const EVERY_DAYS: u32 = 14;
const EVERY_DAYS_MAX: u32 = 3650;
const DAY_S: i64 = 24 * 3600;
/// Interval at which the scrub checks whether a pass is due.
const LOOK_EVERY_MS: u64 = 5_000;
/// Pause after an error that ended a pass for now.
const TROUBLE_PAUSE_MS: u64 = 30_000;
/// Interval at which the place that a pass has come to is made durable.
const SAVE_EVERY_MS: u64 = 5_000;
/// Longest wait for the MGS to take in findings.
const MGS_LIMIT_MS: u64 = 2_000;
/// Objects of one page of the list.
const PAGE: usize = 256;
const BLOCK: u64 = 4096;

/// See the module.
pub struct Scrub {
    state: Mutex<State>,
    /// Rises with every order.
    orders: watch::Sender<u64>,
    totals: Totals,
    /// Held while the record is written. The pass and an order of an administrator write the same file, and without the lock the older
    /// record could be the last.
    recording: Mutex<()>,
}

/// Numbers since the start of the process.
#[derive(Default)]
struct Totals {
    read_bytes: AtomicU64,
    found: AtomicU64,
    mended: AtomicU64,
    unmended: AtomicU64,
}

struct State {
    /// The record; `None` until it was read.
    record: Option<ScrubRecord>,
    is_running: bool,
    /// Moment at which this process began to read, and bytes of the pass then.
    since: Option<(Mono, u64)>,
    trouble: String,
    saved: Mono,
    /// Transfers of users so far, and until when the OST counts as used.
    transfers: u64,
    busy_until: Mono,
    /// The pass as the MGS knows it.
    told: Option<ScrubPass>,
}

impl Default for Scrub {
    fn default() -> Scrub {
        let state = State {
            record: None,
            is_running: false,
            since: None,
            trouble: String::new(),
            saved: Mono::default(),
            transfers: 0,
            busy_until: Mono::default(),
            told: None,
        };
        Scrub {
            state: Mutex::new(state),
            orders: watch::Sender::new(0),
            totals: Totals::default(),
            recording: Mutex::default(),
        }
    }
}

/// The record of an OST that was never scrubbed. First passes of many OSTs are spread over the days between passes.
fn first_record(uuid: &[u8; 16], now_s: i64) -> ScrubRecord {
    let spread_s = i64::from(crc(uuid)) % (i64::from(EVERY_DAYS) * DAY_S);
    ScrubRecord {
        is_stopped: false,
        rate_bytes: 0,
        every_days: EVERY_DAYS,
        due_s: now_s.saturating_add(spread_s),
        pass: None,
        after: None,
        at: None,
        total_bytes: 0,
        last: None,
        named: Vec::new(),
    }
}

/// Time of the next pass after one that ended.
fn due_after(ended_s: i64, every_days: u32) -> i64 {
    match every_days {
        0 => i64::MAX,
        days => ended_s.saturating_add(i64::from(days) * DAY_S),
    }
}

/// Pause after `bytes` were read in `took_ms`, at most `rate_bytes` a second.
fn pause_ms(bytes: u64, took_ms: u64, rate_bytes: u64, is_busy: bool) -> u64 {
    let (rate, shortest) =
        if is_busy { (rate_bytes / BUSY_DIVISOR, BUSY_PAUSE_MS) } else { (rate_bytes, PAUSE_MS) };
    let due_ms = bytes.saturating_mul(1000) / rate.max(1);
    due_ms.saturating_sub(took_ms).max(shortest)
}

/// Takes an order in.
fn ordered(record: &mut ScrubRecord, order: ScrubOrder, now_s: i64) -> Result<()> {
    let refuse = |why: String| {
        Err(Fault::new(Code::BadArgument)
            .what("cannot scrub with these options")
            .why(why)
            .data("nothing was changed"))
    };
    match order {
        ScrubOrder::Show => {}
        ScrubOrder::Stop => record.is_stopped = true,
        ScrubOrder::Start { rate_bytes, every_days } => {
            if let Some(rate) = rate_bytes.filter(|rate| *rate < RATE_MIN_BYTES) {
                return refuse(format!(
                    "--rate is {} a second, and has to be at least {}",
                    format_bytes(rate),
                    format_bytes(RATE_MIN_BYTES)
                ));
            }
            if let Some(days) = every_days.filter(|days| *days > EVERY_DAYS_MAX) {
                return refuse(format!("--every is {days} days, and can be at most {EVERY_DAYS_MAX}"));
            }
            record.is_stopped = false;
            record.rate_bytes = rate_bytes.unwrap_or(record.rate_bytes);
            record.every_days = every_days.unwrap_or(record.every_days);
            if record.pass.is_none() {
                record.due_s = now_s;
            }
        }
    }
    Ok(())
}

impl Scrub {
    /// Reads the record, unless that was done. A damaged one is begun anew: it holds nothing that objects depend on.
    fn open(&self, oss: &Oss) {
        let mut state = self.state.lock();
        if state.record.is_some() {
            return;
        }
        let loaded = kept::load(&*oss.seams.disk, &record_path(oss), "the record of the scrub");
        let loaded = loaded.unwrap_or_else(|fault| {
            tracing::warn!(code = %fault.code, "{fault}");
            None
        });
        let first = || first_record(&oss.identity.uuid, oss.seams.wall().secs);
        state.record = Some(loaded.unwrap_or_else(first));
    }

    fn with<T>(&self, change: impl FnOnce(&mut State, &mut ScrubRecord) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let mut record = state.record.take()?;
        let done = change(&mut state, &mut record);
        state.record = Some(record);
        Some(done)
    }

    fn record(&self) -> Option<ScrubRecord> {
        self.state.lock().record.clone()
    }

    /// Carries an order of an administrator out, and tells how far the scrub is.
    pub(crate) async fn order(&self, oss: &Oss, order: ScrubOrder) -> Result<ScrubResp> {
        self.open(oss);
        let now_s = oss.seams.wall().secs;
        self.with(|_, record| ordered(record, order, now_s)).transpose()?;
        if order != ScrubOrder::Show {
            self.save(oss).await?;
            self.orders.send_modify(|n| *n += 1);
        }
        self.state(oss).ok_or_else(|| Fault::new(Code::Bug).why("a scrub without a record"))
    }

    fn state(&self, oss: &Oss) -> Option<ScrubResp> {
        self.with(|state, record| ScrubResp {
            record: record.clone(),
            is_running: state.is_running,
            rate_now_bytes: rate_now(state, record, oss.seams.now()),
            rate_limit_bytes: rate_limit(record),
            trouble: state.trouble.clone(),
        })
    }

    /// Numbers for `brindle status`.
    pub(crate) fn counters(&self, oss: &Oss) -> Vec<(String, u64)> {
        let Some(ScrubResp { record, is_running, rate_now_bytes, .. }) = self.state(oss) else {
            return Vec::new();
        };
        let seen = record.pass.as_ref().or(record.last.as_ref()).cloned().unwrap_or_default();
        let last = record.last.unwrap_or_default();
        let done_bytes = record.pass.as_ref().map_or(0, |pass| pass.bytes);
        let numbers = [
            ("scrub_running", u64::from(is_running)),
            ("scrub_stopped", u64::from(record.is_stopped)),
            ("scrub_under_way", u64::from(record.pass.is_some())),
            ("scrub_done_bytes", done_bytes),
            ("scrub_total_bytes", record.total_bytes),
            ("scrub_bytes_per_second", rate_now_bytes),
            ("scrub_found", seen.found),
            ("scrub_mended", seen.mended),
            ("scrub_unmended", seen.unmended),
            ("scrub_last_end_seconds", last.ended_s.unsigned_abs()),
            ("scrub_last_bytes", last.bytes),
        ];
        numbers.map(|(name, n)| (name.to_owned(), n)).to_vec()
    }

    /// Numbers since the start of the process: name, explanation, value.
    pub fn totals(&self) -> Vec<(&'static str, &'static str, u64)> {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let Totals { read_bytes, found, mended, unmended } = &self.totals;
        vec![
            ("scrub_read_bytes", "Bytes that the scrub has read and verified", get(read_bytes)),
            ("scrub_damage_found", "Damaged blocks that the scrub has found, on any copy", get(found)),
            (
                "scrub_damage_mended",
                "Damaged blocks that the scrub has mended from another copy",
                get(mended),
            ),
            ("scrub_damage_unmended", "Damaged blocks that no copy has whole", get(unmended)),
        ]
    }

    /// Part of the pass under way that is done, and the end of the last pass in seconds since 1970; 0 where there is none.
    pub fn gauges(&self) -> (f64, f64) {
        let Some(record) = self.record() else { return (0.0, 0.0) };
        let done = record.pass.as_ref().map_or(0.0, |pass| {
            if record.total_bytes == 0 {
                0.0
            } else {
                (pass.bytes as f64 / record.total_bytes as f64).min(1.0)
            }
        });
        (done, record.last.map_or(0.0, |last| last.ended_s as f64))
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().record.as_ref().is_none_or(|record| record.is_stopped)
    }

    fn is_due(&self, now_s: i64) -> bool {
        let due =
            |record: &ScrubRecord| !record.is_stopped && (record.pass.is_some() || record.due_s <= now_s);
        self.state.lock().record.as_ref().is_some_and(due)
    }

    fn set_trouble(&self, trouble: String) {
        self.state.lock().trouble = trouble;
    }

    /// Counts damage at a place. Places that could not be mended are named, and counted once.
    fn count(&self, place: ScrubPlace, is_mended: bool) {
        let add = |n: &AtomicU64| n.fetch_add(1, Ordering::Relaxed);
        self.with(|_, record| {
            let is_known = record.named.contains(&place);
            let Some(pass) = &mut record.pass else { return };
            pass.found += 1;
            add(&self.totals.found);
            if is_mended {
                pass.mended += 1;
                add(&self.totals.mended);
            } else if !is_known {
                pass.unmended += 1;
                add(&self.totals.unmended);
                if record.named.len() < NAMED_MAX {
                    record.named.push(place);
                }
            }
        });
    }

    /// The pass has come to a block of an object.
    fn came_to(&self, object: ObjectId, block: u64, read_bytes: u64) {
        self.totals.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.with(|_, record| {
            record.at = Some(ScrubPlace { object, offset: Some(block * BLOCK) });
            record.pass.iter_mut().for_each(|pass| pass.bytes += read_bytes);
        });
    }

    fn done_with(&self, object: ObjectId) {
        self.with(|_, record| {
            record.after = Some(object);
            record.at = None;
            record.pass.iter_mut().for_each(|pass| pass.objects += 1);
        });
    }

    /// Pause behind a piece.
    fn pause_ms(&self, oss: &Oss, bytes: u64, began: Mono) -> u64 {
        let now = oss.seams.now();
        let transfers = oss.store.transfers();
        self.with(|state, record| {
            if state.transfers != transfers {
                state.transfers = transfers;
                state.busy_until = now.plus_ms(BUSY_FOR_MS);
            }
            pause_ms(bytes, now.ms_since(began), rate_limit(record), now < state.busy_until)
        })
        .unwrap_or(BUSY_PAUSE_MS)
    }

    /// Pauses behind a piece, as long as the rate says.
    async fn pause(&self, oss: &Oss, bytes: u64, began: Mono) {
        oss.seams.sleep_ms(self.pause_ms(oss, bytes, began)).await;
    }

    /// Makes the present record durable, and returns it.
    fn write(&self, disk: &dyn Disk, path: &str, now: Mono) -> Result<Option<ScrubRecord>> {
        let _one = self.recording.lock();
        let record = self.with(|state, record| {
            state.saved = now;
            record.clone()
        });
        record.map(|record| kept::save(disk, path, &record).map(|()| record)).transpose()
    }

    /// Makes the record durable here, and gives it to the members in sync.
    async fn save(&self, oss: &Oss) -> Result<()> {
        let path = record_path(oss);
        let Some(record) = self.write(&*oss.seams.disk, &path, oss.seams.now())? else { return Ok(()) };
        let Some(replica) = &oss.replica else { return Ok(()) };
        for link in piece::members(replica) {
            let request = ReplicaScrubReq { attachment: link.attachment, record: record.clone() };
            if let Err(fault) = link.call(&request, NO_BULK, 0, GRANT_LIMIT_MS).await {
                tracing::debug!(code = %fault.code, member = %link.host, "the record of the scrub: {fault}");
            }
        }
        Ok(())
    }

    async fn save_now_and_then(&self, oss: &Oss) -> Result<()> {
        let saved = self.state.lock().saved;
        if oss.seams.now().ms_since(saved) < SAVE_EVERY_MS {
            return Ok(());
        }
        self.save(oss).await?;
        self.tell_mgs(oss).await;
        Ok(())
    }

    /// Tells the MGS of damage, and of the end of a pass. Repeats a report that the MGS did not take in.
    async fn tell_mgs(&self, oss: &Oss) {
        let news = self.with(|state, record| {
            let pass = record.pass.clone().or(record.last.clone())?;
            let known = state.told.as_ref().filter(|told| told.began_s == pass.began_s);
            let is_news = match known {
                Some(told) => {
                    told.found + told.unmended < pass.found + pass.unmended || told.ended_s != pass.ended_s
                }
                None => pass.found > 0 || pass.ended_s > 0 && state.since.is_some(),
            };
            is_news.then_some(pass)
        });
        let Some(pass) = news.flatten() else { return };
        let request = NoteScrubReq { target: oss.identity.target, pass: pass.clone() };
        match oss.seams.timeout_ms(MGS_LIMIT_MS, oss.targets.mgs().probe(&request)).await {
            Some(Ok(_)) => self.state.lock().told = Some(pass),
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, "the MGS does not hear of the scrub: {fault}")
            }
            None => {}
        }
    }

    /// Begins a pass, or goes on with the one that the record has.
    async fn begin(&self, oss: &Oss) -> Result<()> {
        let is_new = self.record().is_some_and(|record| record.pass.is_none());
        let total_bytes = if is_new { all_bytes(oss).await? } else { 0 };
        let now_s = oss.seams.wall().secs;
        let now = oss.seams.now();
        self.with(|state, record| {
            if record.pass.is_none() {
                record.pass = Some(ScrubPass { began_s: now_s, ..ScrubPass::default() });
                record.total_bytes = total_bytes;
                (record.after, record.at) = (None, None);
                record.named.clear();
            }
            state.is_running = true;
            state.trouble.clear();
            state.since = Some((now, record.pass.as_ref().map_or(0, |pass| pass.bytes)));
        });
        self.save(oss).await
    }

    async fn finish(&self, oss: &Oss) -> Result<()> {
        let now_s = oss.seams.wall().secs;
        let ended = self.with(|_, record| {
            let pass = record.pass.take().map(|pass| ScrubPass { ended_s: now_s, ..pass });
            record.last.clone_from(&pass);
            (record.after, record.at) = (None, None);
            record.due_s = due_after(now_s, record.every_days);
            pass
        });
        if let Some(ScrubPass { objects, bytes, found, mended, unmended, .. }) = ended.flatten() {
            tracing::info!(objects, bytes, found, mended, unmended, "the scrub has looked at all objects");
        }
        self.save(oss).await?;
        self.tell_mgs(oss).await;
        Ok(())
    }
}

fn rate_limit(record: &ScrubRecord) -> u64 {
    if record.rate_bytes == 0 { RATE_BYTES } else { record.rate_bytes }
}

fn rate_now(state: &State, record: &ScrubRecord, now: Mono) -> u64 {
    let (Some((since, bytes)), Some(pass), true) = (state.since, &record.pass, state.is_running) else {
        return 0;
    };
    pass.bytes.saturating_sub(bytes).saturating_mul(1000).checked_div(now.ms_since(since)).unwrap_or(0)
}

fn record_path(oss: &Oss) -> String {
    format!("{}/{RECORD_FILE}", oss.dir)
}

/// Makes a record of the primary durable in the directory of the target.
pub(crate) fn keep(oss: &Oss, record: &ScrubRecord) -> Result<()> {
    let _one = oss.scrub.recording.lock();
    kept::save(&*oss.seams.disk, &record_path(oss), record)
}

async fn all_bytes(oss: &Oss) -> Result<u64> {
    let (mut after, mut bytes) = (None, 0u64);
    loop {
        let (listed, end) = oss.store.list(after, PAGE).await?;
        let existing = listed.iter().filter(|l| l.exists);
        bytes = existing.fold(bytes, |sum, l| sum.saturating_add(l.allocated_bytes));
        after = listed.last().map(|l| l.object).or(after);
        if end {
            return Ok(bytes);
        }
        oss.seams.sleep_ms(PAUSE_MS).await;
    }
}

/// Scrubs again and again, for as long as the OST is served here.
pub(crate) async fn run(oss: Arc<Oss>) {
    oss.fences_known.wait().await;
    let scrub = &oss.scrub;
    scrub.open(&oss);
    let mut orders = scrub.orders.subscribe();
    loop {
        orders.borrow_and_update();
        if scrub.is_due(oss.seams.wall().secs) {
            let passed = pass(&oss).await;
            scrub.state.lock().is_running = false;
            if let Err(fault) = passed {
                tracing::warn!(code = %fault.code, "the scrub cannot go on: {fault}");
                scrub.set_trouble(fault.to_string());
                oss.seams.timeout_ms(TROUBLE_PAUSE_MS, orders.changed()).await;
                continue;
            }
        }
        scrub.tell_mgs(&oss).await;
        oss.seams.timeout_ms(LOOK_EVERY_MS, orders.changed()).await;
    }
}

/// Goes on with a pass until it has seen all objects, or is stopped.
async fn pass(oss: &Arc<Oss>) -> Result<()> {
    let scrub = &oss.scrub;
    scrub.begin(oss).await?;
    let mut after = scrub.record().and_then(|record| record.after);
    loop {
        let (listed, end) = oss.store.list(after, PAGE).await?;
        for listed in &listed {
            if listed.exists && !walk(oss, listed.object).await? {
                return scrub.save(oss).await;
            }
            scrub.done_with(listed.object);
            scrub.save_now_and_then(oss).await?;
        }
        after = listed.last().map(|l| l.object).or(after);
        if end {
            return scrub.finish(oss).await;
        }
    }
}

/// Looks at all of an object; whether it was not stopped before.
async fn walk(oss: &Arc<Oss>, object: ObjectId) -> Result<bool> {
    let scrub = &oss.scrub;
    let at = scrub.record().and_then(|record| record.at).filter(|at| at.object == object);
    let mut block = at.and_then(|at| at.offset).map_or(0, |offset| offset / BLOCK);
    let verdict = piece::Verdict::default();
    loop {
        if scrub.is_stopped() {
            return Ok(false);
        }
        let began = oss.seams.now();
        let looked = piece::look(oss, object, block, &verdict).await?;
        scrub.came_to(object, looked.next.unwrap_or(block), looked.read_bytes);
        scrub.pause(oss, looked.read_bytes, began).await;
        match looked.next {
            // (The next place must lie behind this one, whatever a member answers.)
            Some(next) => block = next.max(block + VERIFY_BLOCKS_MAX),
            None => return Ok(true),
        }
        scrub.save_now_and_then(oss).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, Pair};
    use brindle_wire::form::{self, FormatLevel};

    #[test]
    fn the_pause_keeps_the_rate_and_grows_while_users_are_at_work() {
        assert_eq!(pause_ms(1 << 20, 4, 64 << 20, false), 11, "1 MiB at 64 MiB/s takes 15 ms");
        assert_eq!(pause_ms(1 << 20, 4, 64 << 20, true), 121, "an eighth of the rate");
        assert_eq!(pause_ms(1 << 20, 500, 64 << 20, false), PAUSE_MS, "a slow disk");
        assert_eq!(pause_ms(0, 0, 64 << 20, true), BUSY_PAUSE_MS, "many small objects");
    }

    #[test]
    fn a_pass_is_due_at_its_time_by_order_or_never() {
        let mut record = first_record(&[7; 16], 1000);
        assert!((1000..1000 + i64::from(EVERY_DAYS) * DAY_S).contains(&record.due_s));
        let (rate_bytes, every_days) = (Some(8 << 20), Some(0));
        ordered(&mut record, ScrubOrder::Start { rate_bytes, every_days }, 2000).expect("it can begin");
        assert_eq!((record.due_s, record.rate_bytes, record.every_days), (2000, 8 << 20, 0));
        assert_eq!(due_after(3000, record.every_days), i64::MAX);
        assert_eq!(due_after(3000, 2), 3000 + 2 * DAY_S);
        ordered(&mut record, ScrubOrder::Stop, 2000).expect("it can stop");
        assert!(record.is_stopped);
        let slow = ScrubOrder::Start { rate_bytes: Some(1000), every_days: None };
        assert!(ordered(&mut record, slow, 2000).is_err() && record.is_stopped);
        ordered(&mut record, ScrubOrder::Start { rate_bytes: None, every_days: None }, 2000)
            .expect("it goes on");
        assert_eq!((record.is_stopped, record.rate_bytes), (false, 8 << 20));
    }

    #[test]
    fn a_place_that_cannot_be_mended_is_counted_once() {
        let scrub = Scrub::default();
        let record = ScrubRecord { pass: Some(ScrubPass::default()), ..first_record(&[7; 16], 1000) };
        scrub.state.lock().record = Some(record);
        let object = ObjectId { ino: Ino(7), generation: Pair { term: 1, counter: 5 }, stripe: 0 };
        let place = |block: u64| ScrubPlace { object, offset: Some(block * BLOCK) };
        scrub.count(place(1), false);
        scrub.count(place(1), false);
        scrub.count(place(2), true);
        let pass = scrub.record().and_then(|record| record.pass).expect("a pass");
        assert_eq!((pass.found, pass.mended, pass.unmended), (3, 1, 1));
        (0..NAMED_MAX as u64 + 5).for_each(|block| scrub.count(place(block), false));
        assert_eq!(scrub.record().expect("a record").named.len(), NAMED_MAX);
    }

    /// The pass and orders of administrators write the record beside each other: each write ends well, and the last one has everything.
    #[test]
    fn two_writers_of_the_record_do_not_meet() {
        const WRITES: u64 = 100;
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = brindle_stdx::real_disk::RealDisk::new(runtime.handle().clone());
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(RECORD_FILE).display().to_string();
        let scrub = Scrub::default();
        scrub.state.lock().record = Some(first_record(&[7; 16], 1000));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..WRITES {
                        scrub.with(|_, record| record.total_bytes += 1);
                        scrub.write(&disk, &path, Mono::default()).expect("written").expect("a record");
                    }
                });
            }
        });
        let kept: Option<ScrubRecord> = kept::load(&disk, &path, "the record").expect("read");
        assert_eq!(kept.map(|record| record.total_bytes), Some(2 * WRITES));
    }

    #[test]
    fn bytes_on_disk_never_change() {
        let object = ObjectId { ino: Ino(7), generation: Pair { term: 1, counter: 5 }, stripe: 2 };
        let pass =
            ScrubPass { began_s: 10, ended_s: 0, objects: 3, bytes: 300, found: 2, mended: 1, unmended: 1 };
        let record = ScrubRecord {
            is_stopped: true,
            rate_bytes: 9,
            every_days: 14,
            due_s: 20,
            pass: Some(pass.clone()),
            after: Some(object),
            at: Some(ScrubPlace { object, offset: Some(4096) }),
            total_bytes: 500,
            last: None,
            named: vec![ScrubPlace { object, offset: None }],
        };
        let body = form::encode(FormatLevel::FIRST, &record).expect("encoded");
        assert_eq!(form::decode::<ScrubRecord>(&body).ok(), Some(record));
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0101090e2801140003ac0202010101070105020107010502018020f40300010701050200");
    }
}
