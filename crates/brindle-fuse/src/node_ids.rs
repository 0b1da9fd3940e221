//! Node ids of directories. A node id is the inode number, except for a directory that another client has moved.
//!
//! The kernel allows a directory one place. When a lookup finds a directory in a new place and the kernel knows it in an old one, the
//! kernel must move it. Inside of rename(2) the kernel cannot move it: the call fails with ESTALE. A directory that is found in
//! another place than the kernel knows it in therefore gets a new node id there, an alias of the same inode. The kernel's references
//! to the old node id (working directories, open listings) stay usable.
//!
//! Invariant: while the kernel holds a node id of a directory, that node id means one place; every node id means one
//! inode until it is forgotten.

use std::collections::BTreeMap;

use brindle_types::Ino;
use parking_lot::Mutex;

/// Node ids with this bit are aliases.
const ALIAS: u64 = 1 << 63;

/// Node id of the parent, and the name: below an alias of a moved directory its children are found in a new place too.
type Spot = (u64, Vec<u8>);

#[derive(Clone, Debug)]
struct NodeLocation {
    spot: Spot,
    nodeid: u64,
}

#[derive(Default)]
struct Inner {
    /// Place of each directory that the kernel knows, by inode.
    node_ids: BTreeMap<Ino, NodeLocation>,
    /// The directory in each place.
    spots: BTreeMap<Spot, Ino>,
    /// Inode and lookups that the kernel holds, by node id.
    held: BTreeMap<u64, (Ino, u64)>,
    next_alias: u64,
}

impl Inner {
    /// The number under which the kernel knows a directory in this place; `None` if that is to be a new alias.
    fn nodeid(&self, spot: &Spot, ino: Ino) -> Option<u64> {
        match self.node_ids.get(&ino) {
            Some(known) => (known.spot == *spot).then_some(known.nodeid),
            None => (!self.held.contains_key(&ino.0)).then_some(ino.0),
        }
    }

    fn take(&mut self, ino: Ino) -> Option<NodeLocation> {
        let place = self.node_ids.remove(&ino)?;
        if self.spots.get(&place.spot) == Some(&ino) {
            self.spots.remove(&place.spot);
        }
        Some(place)
    }

    fn put(&mut self, ino: Ino, place: NodeLocation) {
        self.take(ino);
        self.spots.insert(place.spot.clone(), ino);
        self.node_ids.insert(ino, place);
    }

    fn put_at(&mut self, ino: Ino, spot: Spot) {
        if let Some(place) = self.take(ino) {
            self.put(ino, NodeLocation { spot, ..place });
        }
    }
}

/// The directories that the kernel of one mount knows.
#[derive(Default)]
pub struct NodeIds {
    inner: Mutex<Inner>,
}

impl NodeIds {
    /// The node id to answer a lookup of a directory with; counts the lookup.
    pub fn found(&self, parent: u64, name: &[u8], ino: Ino) -> u64 {
        self.look(parent, name, ino, true).unwrap_or(ino.0)
    }

    /// Like the above, unless the number is an alias. `None`: nothing was counted.
    pub fn found_unmoved(&self, parent: u64, name: &[u8], ino: Ino) -> Option<u64> {
        self.look(parent, name, ino, false)
    }

    fn look(&self, parent: u64, name: &[u8], ino: Ino, aliases: bool) -> Option<u64> {
        let mut inner = self.inner.lock();
        if ino == Ino::ROOT || name == b"." || name == b".." {
            // The kernel asks by node id (NFS export), not by place.
            let nodeid = inner.node_ids.get(&ino).map_or(ino.0, |p| p.nodeid);
            if let Some((_, held)) = inner.held.get_mut(&nodeid) {
                *held += 1;
            }
            return Some(nodeid);
        }
        let spot = (parent, name.to_vec());
        let known = inner.nodeid(&spot, ino);
        if !aliases && known != Some(ino.0) {
            return None;
        }
        let nodeid = known.unwrap_or_else(|| {
            inner.next_alias += 1;
            ALIAS | inner.next_alias
        });
        inner.put(ino, NodeLocation { spot, nodeid });
        inner.held.entry(nodeid).or_insert((ino, 0)).1 += 1;
        Some(nodeid)
    }

    /// The kernel has moved a directory itself.
    pub fn moved(&self, from: (u64, &[u8]), to: (u64, &[u8]), exchange: bool) {
        let mut inner = self.inner.lock();
        let (from, to) = ((from.0, from.1.to_vec()), (to.0, to.1.to_vec()));
        let other = inner.spots.remove(&to);
        if let Some(ino) = inner.spots.remove(&from) {
            inner.put_at(ino, to);
        }
        if let Some(ino) = other.filter(|_| exchange) {
            inner.put_at(ino, from);
        }
    }

    /// The inode that a node id of the kernel means.
    pub fn ino(&self, nodeid: u64) -> Ino {
        if nodeid & ALIAS == 0 {
            return Ino(nodeid);
        }
        self.inner.lock().held.get(&nodeid).map_or(Ino(nodeid), |(ino, _)| *ino)
    }

    /// Whether `nodeid` is what the kernel was last told for a directory, and no alias: then what it keeps of names in it is seen by
    /// every path to it.
    pub fn is_where_it_was(&self, ino: Ino, nodeid: u64) -> bool {
        nodeid == ino.0 && self.inner.lock().node_ids.get(&ino).is_none_or(|place| place.nodeid == nodeid)
    }

    /// The kernel gives up `lookups` references to a node id. If it has no other, `gone` is called with the inode, before a lookup can
    /// find it again: one may have been answered that the kernel asked for after it gave these up. References to what is no
    /// directory are not counted, nor those to a directory that was never looked up in its place: then it is always called.
    pub fn forget(&self, nodeid: u64, lookups: u64, gone: impl FnOnce(Ino)) {
        let mut inner = self.inner.lock();
        let Some((ino, held)) = inner.held.get_mut(&nodeid) else { return gone(Ino(nodeid)) };
        *held = held.saturating_sub(lookups);
        let (ino, is_gone) = (*ino, *held == 0);
        if is_gone {
            inner.held.remove(&nodeid);
            if inner.node_ids.get(&ino).is_some_and(|p| p.nodeid == nodeid) {
                inner.take(ino);
            }
            gone(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(50);

    #[test]
    fn a_directory_found_elsewhere_gets_another_node_id_until_the_old_one_is_forgotten() {
        let p = NodeIds::default();
        assert_eq!(p.found(1, b"a", D), 50);
        assert_eq!(p.found(1, b"a", D), 50);
        assert!(p.is_where_it_was(D, 50));
        assert_eq!(p.found_unmoved(7, b"b", D), None);
        let alias = p.found(7, b"b", D);
        assert_eq!(p.found_unmoved(7, b"b", D), None, "that would be the alias");
        assert_ne!(alias, 50);
        assert_eq!((p.ino(alias), p.ino(50)), (D, D));
        assert!(!p.is_where_it_was(D, 50) && !p.is_where_it_was(D, alias));
        assert_eq!(p.found(7, b"b", D), alias);
        p.forget(50, 2, |_| {});
        assert_eq!(p.found(7, b"b", D), alias, "the new place stays");
        p.forget(alias, 3, |_| {});
        assert_eq!(p.found(9, b"c", D), 50, "nothing is known of it any more");
    }

    #[test]
    fn a_directory_is_gone_with_the_last_reference_and_what_is_not_counted_with_any() {
        let p = NodeIds::default();
        let forget = |nodeid, lookups| {
            let mut found = None;
            p.forget(nodeid, lookups, |ino| found = Some(ino));
            found
        };
        p.found(1, b"a", D);
        p.found(1, b"a", D);
        p.found(50, b".", D);
        assert_eq!((forget(50, 1), forget(50, 1)), (None, None));
        assert_eq!(forget(50, 1), Some(D));
        assert_eq!(forget(70, 1), Some(Ino(70)));
    }

    #[test]
    fn the_kernel_s_own_renames_move_the_place() {
        let p = NodeIds::default();
        let e = Ino(60);
        p.found(1, b"a", D);
        p.found(1, b"b", e);
        p.moved((1, b"a"), (1, b"b"), true);
        assert_eq!((p.found(1, b"b", D), p.found(1, b"a", e)), (50, 60));
        p.moved((1, b"b"), (7, b"x"), false);
        assert_eq!(p.found(7, b"x", D), 50);
    }
}
