//! The scrub of an MDT reads the files of its store slowly from the device and verifies them, and compares the rows of all members of the replica
//! set (design note 057).
//!
//! | module | holds |
//! |---|---|
//! | [`brindle_targets::scrub`] | when a pass begins, how fast it goes, how far it is, its record on the disk |
//! | here | the places of a pass, orders, what is told |
//! | [`rows`] | rows of all members at one record of the log, compared by digests |
//! | [`files`] | segments of the log and the checkpoint of each member, verified and mended |
//!
//! Only the server of the target scrubs. Invariants: a request of a user never waits for the scrub; damage counts only after a second look;
//! a member that differs with right checksums is told of, and nothing is copied.

mod files;
mod rows;

use std::sync::{Arc, OnceLock, Weak};

use brindle_targets::Directory;
use brindle_targets::replica::{GRANT_LIMIT_MS, NO_BULK, kept};
use brindle_targets::scrub::{LOOK_EVERY_MS, Scrub, TROUBLE_PAUSE_MS};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::MemberScrubReq;
use brindle_wire::mds::scrub::{MdtDamage, MdtScrubPlaces, MdtScrubResp};
use brindle_wire::oss::scrub::{NAMED_MAX, ScrubOrder, ScrubPass};
use parking_lot::Mutex;

use crate::mdt::Mdt;
use crate::replica::leading::Leader;

/// File of the places, in the directory of the target.
const PLACES_FILE: &str = "scrub-places";
/// Longest reason that is kept with a damaged place, in characters.
const WHY_CHARS_MAX: usize = 300;

/// See the module.
#[derive(Default)]
pub struct MdtScrub {
    /// Progress and settings.
    pub pace: Scrub,
    /// `None` until they were read.
    places: Mutex<Option<MdtScrubPlaces>>,
    leader: OnceLock<Weak<Leader>>,
}

/// Things beside the MDT that a pass needs.
pub(crate) struct Around {
    /// The way to the MGS.
    pub targets: Arc<Directory>,
    /// Number of requests of users so far.
    pub requests: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// One pass, as far as it goes without a stop.
pub(crate) struct Pass<'a> {
    mdt: &'a Arc<Mdt>,
    around: &'a Around,
}

/// Whether a pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    GoesOn,
    /// An administrator has stopped it, or another member is to go on.
    Pauses,
}

/// Path of the places in the directory of a target.
pub(crate) fn places_path(dir: &str) -> String {
    format!("{}/{PLACES_FILE}", dir.trim_end_matches('/'))
}

impl MdtScrub {
    /// The MDT is the primary of a replica set.
    pub(crate) fn leads(&self, leader: &Arc<Leader>) {
        // A primary starts to serve once in its life.
        drop(self.leader.set(Arc::downgrade(leader)));
    }

    fn leader(&self) -> Option<Arc<Leader>> {
        self.leader.get().and_then(Weak::upgrade)
    }

    /// Reads the records, unless that was done. A damaged one is begun anew: it holds nothing that the target depends on.
    fn open(&self, mdt: &Mdt) {
        self.pace.open(mdt.seams(), &mdt.config().dir, &mdt.identity().uuid);
        let mut places = self.places.lock();
        if places.is_none() {
            let path = places_path(&mdt.config().dir);
            let loaded = kept::load(&*mdt.seams().disk, &path, "the record of the scrub");
            *places = Some(loaded.ok().flatten().unwrap_or_default());
        }
    }

    fn places(&self) -> MdtScrubPlaces {
        self.places.lock().clone().unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut MdtScrubPlaces)) {
        change(self.places.lock().get_or_insert_default());
    }

    /// Counts places that were not mended, and names the first.
    fn unmended(&self, places: u64, mut damage: MdtDamage) {
        damage.why = damage.why.chars().take(WHY_CHARS_MAX).collect();
        let is_known = self.places().named.contains(&damage);
        tracing::error!(
            host = damage.host,
            file = damage.file,
            offset = damage.offset,
            why = damage.why,
            "damage that is not mended"
        );
        self.pace.count_damage(places, false, is_known);
        self.change(|all| {
            if !is_known && all.named.len() < NAMED_MAX {
                all.named.push(damage);
            }
        });
    }

    /// Fault for `brindle status`, while places are damaged.
    pub(crate) fn problem(&self, name: &str) -> Option<Fault> {
        let named = self.places().named;
        let first = named.first()?;
        let code = if first.differs { Code::CopiesDiffer } else { Code::KvDamaged };
        let fault = Fault::new(code)
            .what("the scrub has found damage that is not mended in")
            .subject(name.to_owned())
            .why(format!("{} damaged; the first: {}", count(named.len()), text(first)));
        Some(match code {
            Code::CopiesDiffer => fault.data("programs get the rows of the copy that serves; nothing was copied"),
            _ => fault
                .data("rows that are still in memory are served; a row that cannot be read is an error, never wrong data")
                .next("make a backup now: brindle mdt backup; then replace the disk and restore: brindle mdt restore"),
        })
    }
}

fn count(places: usize) -> String {
    if places == 1 { "1 place is".to_owned() } else { format!("{places} places are") }
}

/// A damaged place for people.
fn text(damage: &MdtDamage) -> String {
    let MdtDamage { host, file, offset, why, .. } = damage;
    let place = if file.is_empty() { String::new() } else { format!("{file} at offset {offset}: ") };
    let on = if host.is_empty() { String::new() } else { format!(" (on {host})") };
    format!("{place}{why}{on}")
}

/// Carries an order of an administrator out, and tells how far the scrub is.
pub(crate) async fn order(mdt: &Mdt, order: ScrubOrder) -> Result<MdtScrubResp> {
    let scrub = mdt.scrub();
    scrub.open(mdt);
    scrub.pace.order(order, mdt.seams().wall().secs)?;
    if order != ScrubOrder::Show {
        save(mdt).await?;
        scrub.pace.wake();
    }
    Ok(MdtScrubResp { scrub: scrub.pace.state(mdt.seams().now())?, named: scrub.places().named })
}

/// Makes the records durable here, and gives them to the members in sync.
async fn save(mdt: &Mdt) -> Result<()> {
    let (scrub, seams, dir) = (mdt.scrub(), mdt.seams(), &mdt.config().dir);
    let Some(record) = scrub.pace.write(&*seams.disk, dir, seams.now())? else { return Ok(()) };
    let places = scrub.places();
    kept::save(&*seams.disk, &places_path(dir), &places)?;
    for link in scrub.leader().iter().flat_map(|leader| leader.members()) {
        let request =
            MemberScrubReq { attachment: link.attachment, record: record.clone(), places: places.clone() };
        if let Err(fault) = link.call(&request, NO_BULK, 0, GRANT_LIMIT_MS).await {
            tracing::debug!(code = %fault.code, member = %link.host, "the record of the scrub: {fault}");
        }
    }
    Ok(())
}

/// Scrubs again and again, for as long as the MDT is served here.
pub(crate) async fn run(mdt: Arc<Mdt>, around: Around) {
    let (scrub, seams) = (mdt.scrub(), mdt.seams());
    scrub.open(&mdt);
    let mut orders = scrub.pace.orders();
    let pass = Pass { mdt: &mdt, around: &around };
    loop {
        orders.borrow_and_update();
        if scrub.pace.is_due(seams.wall().secs) {
            let passed = pass.go_on().await;
            scrub.pace.paused();
            if let Err(fault) = passed {
                tracing::warn!(code = %fault.code, "the scrub cannot go on: {fault}");
                scrub.pace.set_trouble(fault.to_string());
                seams.timeout_ms(TROUBLE_PAUSE_MS, orders.changed()).await;
                continue;
            }
        }
        pass.tell_mgs().await;
        seams.timeout_ms(LOOK_EVERY_MS, orders.changed()).await;
    }
}

impl Pass<'_> {
    fn scrub(&self) -> &MdtScrub {
        self.mdt.scrub()
    }

    async fn tell_mgs(&self) {
        let target = self.mdt.identity().target();
        self.scrub().pace.tell_mgs(self.mdt.seams(), &self.around.targets, target).await;
    }

    /// Begins a pass or goes on with one, until it has seen everything or pauses.
    async fn go_on(&self) -> Result<()> {
        let (scrub, seams) = (self.scrub(), self.mdt.seams());
        let is_new = scrub.pace.is_new();
        if is_new {
            scrub.change(|places| *places = MdtScrubPlaces::default());
        }
        // The rows are read once more for being compared.
        let total_bytes = self.mdt.engine().files_bytes() + self.mdt.engine().checkpoint_bytes();
        scrub.pace.begin(total_bytes, seams.wall().secs, seams.now());
        save(self.mdt).await?;
        if self.compare_rows().await? == Flow::Pauses || self.verify_files().await? == Flow::Pauses {
            save(self.mdt).await?;
            self.tell_mgs().await;
            return Ok(());
        }
        if let Some(pass) = scrub.pace.finish(seams.wall().secs) {
            let ScrubPass { objects, bytes, found, mended, unmended, .. } = pass;
            tracing::info!(
                rows = objects,
                bytes,
                found,
                mended,
                unmended,
                "the scrub has looked at everything"
            );
        }
        save(self.mdt).await?;
        self.tell_mgs().await;
        Ok(())
    }

    /// Pauses behind a piece.
    async fn pause(&self, bytes: u64, began: brindle_stdx::Mono) -> Result<Flow> {
        let scrub = self.scrub();
        scrub.pace.has_read(bytes);
        scrub.pace.pause(self.mdt.seams(), bytes, began, (self.around.requests)()).await;
        if scrub.pace.is_save_due(self.mdt.seams().now()) {
            save(self.mdt).await?;
            self.tell_mgs().await;
        }
        let is_deposed = scrub.leader().is_some_and(|leader| leader.is_deposed());
        Ok(if scrub.pace.is_stopped() || is_deposed { Flow::Pauses } else { Flow::GoesOn })
    }

    /// Name of this copy's host; empty where there are no others.
    fn own_host(&self) -> String {
        self.scrub().leader().map_or_else(String::new, |leader| leader.host().to_owned())
    }
}

fn panicked() -> Fault {
    Fault::new(Code::Bug).why("a job of the scrub panicked")
}

#[cfg(test)]
mod tests;
