//! Revisions of the orders that a node has seen, on disk.
//!
//! An order that was delayed on its way, or comes from an orchestrator that was replaced, carries a lower revision than a later order for its
//! buffer, and is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use crate::identity::write_whole;

/// Buffers that are remembered; beyond them the one goes whose last order is the oldest.
const BUFFERS_MAX: usize = 4096;
/// Permissions of the file.
const MODE: u32 = 0o600;

/// Highest revision that was seen of each buffer.
pub struct Revisions {
    path: PathBuf,
    seen: BTreeMap<u64, Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    revision: u64,
    /// Rises with each order that is noted.
    order: u64,
}

impl Revisions {
    /// Reads the file, which may not be there yet.
    pub fn open(path: &Path) -> Result<Revisions> {
        let shown = path.display().to_string();
        let seen = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                Fault::new(Code::StoreDamaged)
                    .what("cannot read the revisions of orders in")
                    .subject(shown)
                    .why(e.to_string())
                    .next("restart the node, then remove the file: nothing is mounted then, and no order is under way")
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(Fault::io(Code::NotWritable, "cannot read", shown, &e)),
        };
        Ok(Revisions { path: path.to_owned(), seen })
    }

    /// Notes an order, durably, before it is carried out; refuses an older one than that which was noted last for the buffer.
    pub fn admit(&mut self, serial: u64, revision: u64) -> Result<()> {
        let known = self.seen.get(&serial).map(|seen| seen.revision);
        if known == Some(revision) {
            return Ok(());
        }
        if let Some(known) = known.filter(|known| *known > revision) {
            return Err(Fault::new(Code::StaleOrder)
                .what("will not carry out an order for buffer")
                .subject(serial.to_string())
                .why(format!("it has revision {revision}, and one with revision {known} was carried out"))
                .data("nothing was changed")
                .next(format!(
                    "if the state of the orchestrator was made anew: stop the agent, remove {}, start it again",
                    self.path.display()
                )));
        }
        let mut seen = self.seen.clone();
        let order = seen.values().map(|seen| seen.order).max().unwrap_or(0) + 1;
        seen.insert(serial, Seen { revision, order });
        while seen.len() > BUFFERS_MAX {
            let oldest = seen.iter().min_by_key(|(_, seen)| seen.order).map(|(serial, _)| *serial);
            oldest.map(|oldest| seen.remove(&oldest));
        }
        let text = serde_json::to_string(&seen).expect("plain fields always serialise");
        write_whole(&self.path, &text, MODE).map_err(|e| {
            Fault::io(Code::NotWritable, "cannot write", self.path.display().to_string(), &e)
                .data("nothing was changed")
        })?;
        self.seen = seen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_orders_are_refused_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revisions.json");
        let mut revisions = Revisions::open(&path).unwrap();
        revisions.admit(1, 10).unwrap();
        revisions.admit(2, 5).unwrap();
        revisions.admit(1, 10).unwrap();
        revisions.admit(1, 12).unwrap();
        for mut revisions in [revisions, Revisions::open(&path).unwrap()] {
            assert_eq!(revisions.admit(1, 11).unwrap_err().code, Code::StaleOrder);
            revisions.admit(1, 12).unwrap();
            revisions.admit(2, 5).unwrap();
        }
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Revisions::open(&path).err().map(|fault| fault.code), Some(Code::StoreDamaged));
    }

    #[test]
    fn the_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut revisions = Revisions::open(&dir.path().join("r")).unwrap();
        revisions.seen = (0..BUFFERS_MAX as u64).map(|n| (n, Seen { revision: 1, order: n + 1 })).collect();
        // The first one is used again, so the second is the oldest.
        revisions.admit(0, 2).unwrap();
        revisions.admit(1 << 40, 1).unwrap();
        assert_eq!(revisions.seen.len(), BUFFERS_MAX);
        assert!(revisions.seen.contains_key(&0) && !revisions.seen.contains_key(&1));
    }
}
