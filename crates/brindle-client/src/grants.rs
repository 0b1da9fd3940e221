//! Grants of the OSTs to this client: how many bytes the client may acknowledge before it has sent them (`brindle-objects/src/grants.rs`
//! has the other side), and how many it has acknowledged.
//!
//! Invariants: for each OST, the bytes taken are at most the newest grant at that moment; they are given back only when the OST has
//! answered, or when the bytes are given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_wire::oss::Grant;
use parking_lot::Mutex;

use crate::quota::Charge;

/// Most bytes that a mount has acknowledged and not yet sent.
pub const MOUNT_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of small files among them: the MDT keeps so much in reserve for many mounts.
pub const SMALL_BYTES_MAX: u64 = 1 << 20;
/// Validity of a grant that is not renewed. An OST leaves an unused grant alone for longer. After a restart
/// it promises, for longer, no client more than it held before (`DECLARE_MS` in
/// `brindle-objects/src/grants.rs`).
const TRUSTED_MS: u64 = 8_000;

/// The grants of all OSTs.
#[derive(Default)]
pub(crate) struct Grants {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_ost: BTreeMap<u16, Granted>,
    /// Acknowledged and not yet sent, in all.
    bytes: u64,
    /// Part of these bytes that goes to the MDT.
    small_bytes: u64,
    /// Time at which the session became another one.
    forgotten: Option<Mono>,
}

#[derive(Default)]
struct Granted {
    newest: Option<Grant>,
    /// Time at which the write was sent whose answer told the grant.
    sent: Mono,
    taken_bytes: u64,
}

/// Room that is taken for bytes; given back when dropped.
pub(crate) struct Covered {
    grants: Arc<Grants>,
    /// Room by OST.
    rooms: Vec<(u16, u64)>,
    bytes: u64,
    small_bytes: u64,
    /// Charges under the limits of the file's owners; more than one where the owners were changed.
    charges: Vec<Charge>,
}

impl Grants {
    /// Takes room for `bytes` bytes of a small file; `None` if too many wait.
    pub fn take_small(self: &Arc<Self>, bytes: u64) -> Option<Covered> {
        let mut table = self.table.lock();
        if table.small_bytes + bytes > SMALL_BYTES_MAX {
            return None;
        }
        table.bytes += bytes;
        table.small_bytes += bytes;
        Some(Covered {
            grants: self.clone(),
            rooms: Vec::new(),
            bytes,
            small_bytes: bytes,
            charges: Vec::new(),
        })
    }

    /// Takes room for `bytes` bytes, so much of each OST; `None` if one of them has not granted it, or if the mount has too many
    /// bytes to send.
    pub fn take(self: &Arc<Self>, rooms: Vec<(u16, u64)>, bytes: u64, now: Mono) -> Option<Covered> {
        let mut table = self.table.lock();
        if table.bytes + bytes > MOUNT_BYTES_MAX {
            return None;
        }
        let fits = |(ost, room): &(u16, u64)| {
            table.by_ost.get(ost).is_some_and(|granted| {
                let bytes = granted.newest.map_or(0, |grant| grant.bytes);
                granted.taken_bytes + room <= bytes && now.ms_since(granted.sent) < TRUSTED_MS
            })
        };
        if !rooms.iter().all(fits) {
            return None;
        }
        for (ost, room) in &rooms {
            table.by_ost.entry(*ost).or_default().taken_bytes += room;
        }
        table.bytes += bytes;
        drop(table);
        Some(Covered { grants: self.clone(), rooms, bytes, small_bytes: 0, charges: Vec::new() })
    }

    /// Takes in the answer of an OST to a write that was sent at `sent`. Without a grant in it, the bytes that a covered write has `spent` are gone.
    pub fn told(&self, ost: u16, grant: Option<Grant>, spent: u64, sent: Mono) {
        let mut table = self.table.lock();
        if table.forgotten.is_some_and(|at| sent <= at) {
            return;
        }
        let granted = table.by_ost.entry(ost).or_default();
        match (grant, &mut granted.newest) {
            (Some(new), Some(old)) if old.life == new.life && old.serial > new.serial => {}
            (Some(new), newest) => {
                *newest = Some(new);
                granted.sent = granted.sent.max(sent);
            }
            (None, Some(old)) => old.bytes = old.bytes.saturating_sub(spent),
            (None, None) => {}
        }
    }

    /// Bytes that an OST has granted, as far as this client knows.
    pub fn holds_bytes(&self, ost: u16) -> u64 {
        self.table.lock().by_ost.get(&ost).and_then(|granted| granted.newest).map_or(0, |grant| grant.bytes)
    }

    /// Gives up what the OSTs have granted, but for those of whose grants something is taken; which they are.
    pub fn take_unused(&self) -> BTreeSet<u16> {
        let mut table = self.table.lock();
        let unused = table.by_ost.iter_mut().filter(|(_, granted)| granted.taken_bytes == 0);
        unused.filter_map(|(ost, granted)| granted.newest.take().map(|_| *ost)).collect()
    }

    /// Forgets all grants: the session is another one. Answers to requests sent until `now` tell grants of
    /// the old session.
    pub fn forget(&self, now: Mono) {
        let mut table = self.table.lock();
        table.forgotten = Some(now);
        table.by_ost.values_mut().for_each(|granted| granted.newest = None);
    }

    /// Bytes that are acknowledged and not yet sent.
    pub fn bytes(&self) -> u64 {
        self.table.lock().bytes
    }
}

impl Covered {
    /// Adds a charge under the limits of the file's owners.
    pub fn charged(mut self, charge: Option<Charge>) -> Covered {
        self.charges.extend(charge);
        self
    }

    /// The bytes have arrived; whether reports tell what they have allocated is asked only if it matters.
    pub fn arrived(mut self, is_reported: impl Fn() -> bool) {
        self.charges.drain(..).for_each(|charge| charge.arrived(is_reported()));
    }

    /// Takes in another one's.
    pub fn join(&mut self, mut other: Covered) {
        for charge in other.charges.drain(..) {
            let left = match self.charges.last_mut() {
                Some(last) => last.join(charge).err(),
                None => Some(charge),
            };
            self.charges.extend(left);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        self.small_bytes += std::mem::take(&mut other.small_bytes);
        for (ost, room) in std::mem::take(&mut other.rooms) {
            match self.rooms.iter_mut().find(|(here, _)| *here == ost) {
                Some((_, sum)) => *sum += room,
                None => self.rooms.push((ost, room)),
            }
        }
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        let mut table = self.grants.table.lock();
        table.bytes -= self.bytes;
        table.small_bytes -= self.small_bytes;
        for (ost, room) in &self.rooms {
            table.by_ost.entry(*ost).or_default().taken_bytes -= room;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(life: u64, serial: u64, bytes: u64) -> Option<Grant> {
        Some(Grant { life, serial, bytes })
    }

    #[test]
    fn no_more_is_taken_than_every_ost_has_granted() {
        let grants = Arc::<Grants>::default();
        let take = |rooms: &[(u16, u64)], now| grants.take(rooms.to_vec(), 10, now);
        assert!(take(&[(0, 1)], Mono(0)).is_none(), "nobody granted anything");
        grants.told(0, grant(1, 1, 100), 0, Mono(0));
        grants.told(1, grant(1, 1, 50), 0, Mono(0));
        let mut first = take(&[(0, 60), (1, 50)], Mono(0)).expect("granted");
        assert!(take(&[(0, 10), (1, 1)], Mono(0)).is_none());
        let second = take(&[(0, 40)], Mono(0)).expect("granted");
        assert_eq!(grants.bytes(), 20);
        first.join(second);
        assert_eq!(grants.bytes(), 20);
        drop(first);
        assert_eq!(grants.bytes(), 0);
        assert!(take(&[(0, 100)], Mono(0)).is_some());
        assert!(take(&[(0, 1)], Mono(0).plus_ms(TRUSTED_MS)).is_none(), "told too long ago");
        assert!(grants.take(vec![(0, 1)], MOUNT_BYTES_MAX + 1, Mono(0)).is_none());
    }

    #[test]
    fn the_newest_grant_counts() {
        let grants = Grants::default();
        grants.told(0, grant(1, 5, 100), 0, Mono(0));
        grants.told(0, grant(1, 4, 10), 0, Mono(0));
        assert_eq!(grants.holds_bytes(0), 100, "an older answer came later");
        grants.told(0, None, 30, Mono(0));
        assert_eq!(grants.holds_bytes(0), 70, "what the OST said to it is not known");
        grants.told(0, grant(2, 1, 20), 0, Mono(0));
        assert_eq!(grants.holds_bytes(0), 20, "the OST was restarted");
        grants.forget(Mono(5));
        assert_eq!(grants.holds_bytes(0), 0);
        grants.told(0, grant(2, 2, 30), 0, Mono(5));
        assert_eq!(grants.holds_bytes(0), 0, "it was told to the session before");
        grants.told(0, grant(2, 3, 30), 0, Mono(6));
        assert_eq!(grants.holds_bytes(0), 30);
    }

    #[test]
    fn what_is_given_back_is_not_taken_any_more() {
        let grants = Arc::<Grants>::default();
        grants.told(0, grant(1, 1, 100), 0, Mono(0));
        grants.told(1, grant(1, 1, 100), 0, Mono(0));
        let taken = grants.take(vec![(1, 10)], 10, Mono(0)).expect("granted");
        assert_eq!(grants.take_unused(), BTreeSet::from([0]));
        assert!(grants.take(vec![(0, 1)], 1, Mono(0)).is_none(), "it belongs to others now");
        drop(taken);
        assert_eq!(grants.take_unused(), BTreeSet::from([1]));
        assert!(grants.take_unused().is_empty());
    }
}
