//! The place of a member in its set: the MGS's orders, which the daemon of the host brings; the member's reports; its record on the disk.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use brindle_stdx::{Disk, Mono, watch};
use brindle_types::{Code, Fault, Result};
use brindle_wire::first_form;
use brindle_wire::mgs::replica::{MemberPhase, ReplicaMember, ReplicaSetState, Resync};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::kept;

/// File of the record, in the directory of the target.
const RECORD_FILE: &str = "replica";

/// Record of a member about its set. A change is on the disk before the member acts by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Highest epoch of the set that this member has gone by.
    pub epoch: u64,
    /// Hosts of the members that were in sync then; empty if the member did not know.
    pub in_sync: Vec<String>,
}
first_form!(1 => ReplicaRecord);

impl ReplicaRecord {
    /// Reads the record of a target's directory; that of epoch 0 where there is none.
    pub fn load(disk: &dyn Disk, dir: &str) -> Result<ReplicaRecord> {
        Ok(kept::load(disk, &format!("{dir}/{RECORD_FILE}"), "the record of the replica set")?
            .unwrap_or_default())
    }

    /// Writes the record; durable on return.
    pub fn save(&self, disk: &dyn Disk, dir: &str) -> Result<()> {
        kept::save(disk, &format!("{dir}/{RECORD_FILE}"), self)
    }
}

/// Report of a member about itself.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Boot term of its store; 0 while it is not open.
    pub boot_term: u32,
    /// Highest epoch on its disk.
    pub recorded_epoch: u64,
    /// Phase of the member.
    pub phase: MemberPhase,
    /// Members that this member fills.
    pub resyncs: Vec<Resync>,
    /// Blocks that were mended from another member.
    pub mended_blocks: u64,
}

/// See the module.
pub struct Seat {
    /// Name of this host.
    pub host: String,
    orders: watch::Sender<ReplicaSetState>,
    told: Mutex<MemberReport>,
    /// Held while the record is written.
    recording: Mutex<()>,
    /// Time at which a primary was heard of last, or this process began: it may have granted a lease then.
    heard: AtomicU64,
    /// Highest term of an MDT that others are known to have had.
    term_floor: AtomicU32,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat of {} in {:?}", self.host, self.set())
    }
}

impl Seat {
    /// The seat of a host in a set. `now`: until then an earlier process may have granted leases.
    pub fn new(host: &str, set: ReplicaSetState, now: Mono) -> Seat {
        let phase = MemberPhase::Starting;
        let told =
            MemberReport { boot_term: 0, recorded_epoch: 0, phase, resyncs: Vec::new(), mended_blocks: 0 };
        Seat {
            host: host.to_owned(),
            orders: watch::Sender::new(set),
            told: Mutex::new(told),
            recording: Mutex::default(),
            heard: AtomicU64::new(now.0),
            term_floor: AtomicU32::new(0),
        }
    }

    /// Highest term that others are known to have had: the next one is above it.
    pub fn term_floor(&self) -> u32 {
        self.term_floor.load(Ordering::Acquire)
    }

    /// Others have had this term.
    pub fn raise_term_floor(&self, term: u32) {
        self.term_floor.fetch_max(term, Ordering::AcqRel);
    }

    /// Time at which a primary was heard of last, or this process began.
    pub fn heard(&self) -> Mono {
        Mono(self.heard.load(Ordering::Acquire))
    }

    /// A primary is heard of.
    pub fn hears(&self, now: Mono) {
        self.heard.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Takes in a set from the MGS, unless a newer one is known.
    pub fn offer(&self, set: ReplicaSetState) {
        self.orders.send_if_modified(|now| {
            let is_news = set.epoch >= now.epoch && *now != set;
            if is_news {
                *now = set;
            }
            is_news
        });
    }

    /// The set as it is known here.
    pub fn set(&self) -> ReplicaSetState {
        self.orders.borrow().clone()
    }

    /// Tells of each change of the set.
    pub fn subscribe(&self) -> watch::Receiver<ReplicaSetState> {
        self.orders.subscribe()
    }

    /// Whether this host's member is the primary.
    pub fn is_primary(&self) -> bool {
        self.orders.borrow().primary == self.host
    }

    /// Member of this host.
    pub fn own(&self) -> Option<ReplicaMember> {
        self.orders.borrow().member(&self.host).cloned()
    }

    /// Present report of the member.
    pub fn told(&self) -> MemberReport {
        self.told.lock().clone()
    }

    /// Changes the member's report.
    pub fn tell(&self, change: impl FnOnce(&mut MemberReport)) {
        change(&mut self.told.lock());
    }

    /// Checks the member's disk against the state that the cluster knows. Returns the record on the disk.
    pub fn check_record(&self, disk: &dyn Disk, dir: &str) -> Result<ReplicaRecord> {
        let record = ReplicaRecord::load(disk, dir)?;
        // The MGS hears what the disk has, whatever becomes of it, and not what another disk had.
        self.tell(|told| told.recorded_epoch = record.epoch);
        let set = self.set();
        let refuse = |code: Code, why: String| {
            Err(Fault::new(code)
                .subject(format!("{} on {}: {dir}", set.target, self.host))
                .why(why)
                .data("nothing was changed"))
        };
        let known = set.member(&self.host).map_or(0, |m| m.recorded_epoch);
        if record.epoch != 0 && record.uuid != set.uuid {
            return refuse(Code::ForeignTarget, "its record is of another target".to_owned());
        }
        if record.epoch < known {
            let why =
                format!("the disk has epoch {}, and this member had recorded epoch {known}", record.epoch);
            return refuse(Code::OlderReplica, why);
        }
        if record.epoch > set.epoch {
            let why =
                format!("the disk has epoch {}, and the cluster knows epoch {}", record.epoch, set.epoch);
            return refuse(Code::OlderSet, why);
        }
        Ok(record)
    }

    /// Records the epoch that the member goes by from now on, if it is higher than what is on the disk.
    pub fn record(&self, disk: &dyn Disk, dir: &str, epoch: u64) -> Result<()> {
        let _one = self.recording.lock();
        if self.told.lock().recorded_epoch >= epoch {
            return Ok(());
        }
        let set = self.set();
        // Record members in sync only if the known set is of this epoch.
        let known = Some(&set).filter(|set| set.epoch == epoch);
        let in_sync = known.into_iter().flat_map(ReplicaSetState::in_sync).map(|m| m.host.clone()).collect();
        self.keep(disk, dir, ReplicaRecord { uuid: set.uuid, epoch, in_sync })
    }

    /// Records the set that the member goes by from now on, before anything is acknowledged in it.
    pub fn record_set(&self, disk: &dyn Disk, dir: &str, set: &ReplicaSetState) -> Result<()> {
        let _one = self.recording.lock();
        if self.told.lock().recorded_epoch >= set.epoch {
            return Ok(());
        }
        let in_sync = set.in_sync().map(|m| m.host.clone()).collect();
        self.keep(disk, dir, ReplicaRecord { uuid: set.uuid, epoch: set.epoch, in_sync })
    }

    fn keep(&self, disk: &dyn Disk, dir: &str, record: ReplicaRecord) -> Result<()> {
        record.save(disk, dir)?;
        self.tell(|told| told.recorded_epoch = told.recorded_epoch.max(record.epoch));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brindle_stdx::real_disk::RealDisk;
    use brindle_types::TargetId;
    use brindle_wire::form::{self, FormatLevel};
    use brindle_wire::mgs::replica::MemberRole;

    use super::*;

    fn set(epoch: u64, recorded_epoch: u64) -> ReplicaSetState {
        let member = |host: &str| ReplicaMember {
            host: host.to_owned(),
            dir: "/data/ost0".to_owned(),
            is_formatted: true,
            role: MemberRole::InSync,
            boot_term: 1,
            recorded_epoch,
            nids: Vec::new(),
        };
        let (target, uuid, primary) = (TargetId::ost(3), [7; 16], "a".to_owned());
        ReplicaSetState {
            target,
            uuid,
            epoch,
            term: 1,
            port: 9,
            primary,
            members: vec![member("a"), member("b")],
        }
    }

    #[test]
    fn the_wrong_disk_is_refused_by_name_and_not_touched() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = RealDisk::new(runtime.handle().clone());
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().display().to_string();
        let code = |seat: &Seat| seat.check_record(&disk, &dir).err().map(|fault| fault.code);
        assert_eq!(
            code(&Seat::new("b", set(1, 0), Mono::default())),
            None,
            "a new member has recorded nothing"
        );
        assert_eq!(
            code(&Seat::new("b", set(6, 5), Mono::default())),
            Some(Code::OlderReplica),
            "a blank disk"
        );
        Seat::new("b", set(6, 5), Mono::default()).record(&disk, &dir, 6).expect("recorded");
        let record = ReplicaRecord::load(&disk, &dir).expect("read");
        assert_eq!((record.epoch, record.in_sync), (6, vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(code(&Seat::new("b", set(6, 6), Mono::default())), None);
        assert_eq!(
            code(&Seat::new("b", set(9, 7), Mono::default())),
            Some(Code::OlderReplica),
            "an older copy of the disk"
        );
        assert_eq!(
            code(&Seat::new("b", set(5, 5), Mono::default())),
            Some(Code::OlderSet),
            "an older copy of the configuration"
        );
        let other = ReplicaSetState { uuid: [8; 16], ..set(6, 6) };
        assert_eq!(code(&Seat::new("b", other, Mono::default())), Some(Code::ForeignTarget));
        let path = format!("{dir}/{RECORD_FILE}");
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[6] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        assert_eq!(code(&Seat::new("b", set(6, 6), Mono::default())), Some(Code::BadSuperblock));
    }

    #[test]
    fn bytes_on_disk_never_change() {
        let record = ReplicaRecord { uuid: [7; 16], epoch: 6, in_sync: vec!["a".to_owned()] };
        let body = form::encode(FormatLevel::FIRST, &record).expect("encoded");
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010707070707070707070707070707070706010161");
    }

    #[test]
    fn an_older_set_is_not_taken() {
        let seat = Seat::new("b", set(4, 0), Mono::default());
        seat.offer(set(3, 0));
        assert_eq!(seat.set().epoch, 4);
        seat.offer(set(5, 0));
        assert_eq!(seat.set().epoch, 5);
    }
}
