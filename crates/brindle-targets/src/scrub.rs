//! The scrub of a target: when a pass over everything begins, how fast it goes, how far it is, its record on the disk (design notes 047 and 057).
//!
//! `brindle-oss` and `brindle-mds` decide what is read and what is done about damage. Invariants: a request of a user never waits for a pause
//! of the scrub; an order is durable before it is acknowledged; a place is counted as unmended once.

use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::{Disk, Mono, Seams, crc, watch};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::mgs::scrub::NoteScrubReq;
use brindle_wire::oss::scrub::{NAMED_MAX, ScrubOrder, ScrubPass, ScrubPlace, ScrubRecord, ScrubResp};
use parking_lot::Mutex;

use crate::Directory;
use crate::replica::kept;

/// File of the record, in the directory of the target.
const RECORD_FILE: &str = "scrub";
/// Most bytes a second while nobody else uses the target, unless told otherwise.
pub const RATE_BYTES: u64 = 64 << 20;
/// Lowest rate that can be asked for.
const RATE_MIN_BYTES: u64 = 1 << 20;
/// While users are at work, the rate is divided by this.
const BUSY_DIVISOR: u64 = 8;
/// The target counts as used for this long after a request of a user.
const BUSY_FOR_MS: u64 = 500;
/// Shortest pause behind each piece: while nobody, and while somebody, uses the target.
pub const PAUSE_MS: u64 = 1;
const BUSY_PAUSE_MS: u64 = 10;
/// Days between passes, unless told otherwise, and the most that can be asked for.
pub const EVERY_DAYS: u32 = 14;
const EVERY_DAYS_MAX: u32 = 3650;
const DAY_S: i64 = 24 * 3600;
/// Interval at which the scrub checks whether a pass is due.
pub const LOOK_EVERY_MS: u64 = 5_000;
/// Pause after an error that ended a pass for now.
pub const TROUBLE_PAUSE_MS: u64 = 30_000;
/// Interval at which the place that a pass has come to is made durable.
const SAVE_EVERY_MS: u64 = 5_000;
/// Longest wait for the MGS to take in findings.
const MGS_LIMIT_MS: u64 = 2_000;

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
    /// Requests of users so far, and until when the target counts as used.
    requests: u64,
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
            requests: 0,
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

/// The record of a target that was never scrubbed. First passes of many targets are spread over the days between passes.
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
    /// Reads the record in the directory of the target, unless that was done. A damaged one is begun anew: it holds nothing that the target depends on.
    pub fn open(&self, seams: &Seams, dir: &str, uuid: &[u8; 16]) {
        let mut state = self.state.lock();
        if state.record.is_some() {
            return;
        }
        let loaded = kept::load(&*seams.disk, &record_path(dir), "the record of the scrub");
        let loaded = loaded.unwrap_or_else(|fault| {
            tracing::warn!(code = %fault.code, "{fault}");
            None
        });
        state.record = Some(loaded.unwrap_or_else(|| first_record(uuid, seams.wall().secs)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut State, &mut ScrubRecord) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let mut record = state.record.take()?;
        let done = change(&mut state, &mut record);
        state.record = Some(record);
        Some(done)
    }

    /// Changes the record in memory.
    pub fn change(&self, change: impl FnOnce(&mut ScrubRecord)) {
        self.with(|_, record| change(record));
    }

    /// The record; `None` before it was read.
    pub fn record(&self) -> Option<ScrubRecord> {
        self.state.lock().record.clone()
    }

    /// Takes an order of an administrator in. The caller makes the record durable, and then calls [`Scrub::wake`].
    pub fn order(&self, order: ScrubOrder, now_s: i64) -> Result<()> {
        self.with(|_, record| ordered(record, order, now_s)).transpose().map(drop)
    }

    /// Wakes the task of the scrub: an order has come.
    pub fn wake(&self) {
        self.orders.send_modify(|n| *n += 1);
    }

    /// Changes with every order.
    pub fn orders(&self) -> watch::Receiver<u64> {
        self.orders.subscribe()
    }

    /// How far it is.
    pub fn state(&self, now: Mono) -> Result<ScrubResp> {
        let state = self.with(|state, record| ScrubResp {
            record: record.clone(),
            is_running: state.is_running,
            rate_now_bytes: rate_now(state, record, now),
            rate_limit_bytes: rate_limit(record),
            trouble: state.trouble.clone(),
        });
        state.ok_or_else(|| Fault::new(Code::Bug).why("a scrub without a record"))
    }

    /// Numbers for `brindle status`.
    pub fn counters(&self, now: Mono) -> Vec<(String, u64)> {
        let Ok(ScrubResp { record, is_running, rate_now_bytes, .. }) = self.state(now) else {
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

    /// Whether an administrator has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().record.as_ref().is_none_or(|record| record.is_stopped)
    }

    /// Whether a pass is to begin or to go on.
    pub fn is_due(&self, now_s: i64) -> bool {
        let due =
            |record: &ScrubRecord| !record.is_stopped && (record.pass.is_some() || record.due_s <= now_s);
        self.state.lock().record.as_ref().is_some_and(due)
    }

    /// Tells why the pass does not go on, or looks at less than everything.
    pub fn set_trouble(&self, trouble: String) {
        self.state.lock().trouble = trouble;
    }

    /// Counts damage at a place of an object. Places that could not be mended are named, and counted once.
    pub fn count(&self, place: ScrubPlace, is_mended: bool) {
        let is_known = self.record().is_some_and(|record| record.named.contains(&place));
        if self.count_damage(1, is_mended, is_known) && !is_mended && !is_known {
            self.change(|record| {
                if record.named.len() < NAMED_MAX {
                    record.named.push(place);
                }
            });
        }
    }

    /// Counts damaged places of a pass; `is_known`: they were counted as unmended before. Whether a pass is under way.
    pub fn count_damage(&self, places: u64, is_mended: bool, is_known: bool) -> bool {
        let add = |n: &AtomicU64| n.fetch_add(places, Ordering::Relaxed);
        let counted = self.with(|_, record| {
            let Some(pass) = &mut record.pass else { return false };
            pass.found += places;
            add(&self.totals.found);
            if is_mended {
                pass.mended += places;
                add(&self.totals.mended);
            } else if !is_known {
                pass.unmended += places;
                add(&self.totals.unmended);
            }
            true
        });
        counted.unwrap_or(false)
    }

    /// Bytes were read and verified.
    pub fn has_read(&self, bytes: u64) {
        self.totals.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.change(|record| record.pass.iter_mut().for_each(|pass| pass.bytes += bytes));
    }

    /// Pauses behind a piece that was begun at `began`, as long as the rate says. `requests` of users were answered so far.
    pub async fn pause(&self, seams: &Seams, bytes: u64, began: Mono, requests: u64) {
        let now = seams.now();
        let ms = self.with(|state, record| {
            if state.requests != requests {
                state.requests = requests;
                state.busy_until = now.plus_ms(BUSY_FOR_MS);
            }
            pause_ms(bytes, now.ms_since(began), rate_limit(record), now < state.busy_until)
        });
        seams.sleep_ms(ms.unwrap_or(BUSY_PAUSE_MS)).await;
    }

    /// Makes the present record durable, and returns it.
    pub fn write(&self, disk: &dyn Disk, dir: &str, now: Mono) -> Result<Option<ScrubRecord>> {
        let (_one, path) = (self.recording.lock(), record_path(dir));
        let record = self.with(|state, record| {
            state.saved = now;
            record.clone()
        });
        record.map(|record| kept::save(disk, &path, &record).map(|()| record)).transpose()
    }

    /// Whether the record is to be made durable again.
    pub fn is_save_due(&self, now: Mono) -> bool {
        now.ms_since(self.state.lock().saved) >= SAVE_EVERY_MS
    }

    /// Makes a record of the primary durable in the directory of the target.
    pub fn keep(&self, disk: &dyn Disk, dir: &str, record: &ScrubRecord) -> Result<()> {
        let _one = self.recording.lock();
        kept::save(disk, &record_path(dir), record)
    }

    /// Tells the MGS of damage, and of the end of a pass. Repeats a report that the MGS did not take in.
    pub async fn tell_mgs(&self, seams: &Seams, targets: &Directory, target: TargetId) {
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
        let request = NoteScrubReq { target, pass: pass.clone() };
        match seams.timeout_ms(MGS_LIMIT_MS, targets.mgs().probe(&request)).await {
            Some(Ok(_)) => self.state.lock().told = Some(pass),
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, "the MGS does not hear of the scrub: {fault}")
            }
            None => {}
        }
    }

    /// Whether the next pass begins anew, and does not go on.
    pub fn is_new(&self) -> bool {
        self.record().is_some_and(|record| record.pass.is_none())
    }

    /// Begins a pass over so many bytes, or goes on with the one that the record has.
    pub fn begin(&self, total_bytes: u64, now_s: i64, now: Mono) {
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
    }

    /// The pass has ended for now.
    pub fn paused(&self) {
        self.state.lock().is_running = false;
    }

    /// The pass has seen everything.
    pub fn finish(&self, now_s: i64) -> Option<ScrubPass> {
        let ended = self.with(|_, record| {
            let pass = record.pass.take().map(|pass| ScrubPass { ended_s: now_s, ..pass });
            record.last.clone_from(&pass);
            (record.after, record.at) = (None, None);
            record.due_s = due_after(now_s, record.every_days);
            pass
        });
        ended.flatten()
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

fn record_path(dir: &str) -> String {
    format!("{dir}/{RECORD_FILE}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, ObjectId, Pair};
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
        let place = |block: u64| ScrubPlace { object, offset: Some(block * 4096) };
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
        let path = dir.path().display().to_string();
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
        let kept: Option<ScrubRecord> = kept::load(&disk, &record_path(&path), "the record").expect("read");
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
