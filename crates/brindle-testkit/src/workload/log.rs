//! Appends of all clients to one file: each record once, in the order in which they were acknowledged, none over another.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::{Opened, WriteIn};
use brindle_types::{Fault, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;
use crate::history::{Cuts, History};

/// Name of the file.
pub const FILE: &str = "log";
/// Bytes of a record.
const RECORD: usize = 64;
/// Longest pause between two operations.
const PAUSE_MS: u64 = 700;

struct Append {
    value: u64,
    handle: (usize, u64, u64),
    invoke_ns: u64,
    return_ns: Option<u64>,
    acked: bool,
    /// Whether an fsync of the same handle that began later had succeeded.
    synced: bool,
    /// Whether a flush or an fsync of the same handle that began later had succeeded.
    sent: bool,
}

/// All appends; outlives the clients.
#[derive(Clone, Default)]
pub struct Log {
    appends: Arc<Mutex<Vec<Append>>>,
}

fn record(value: u64) -> Vec<u8> {
    format!("record {value:020} {:08x}", brindle_stdx::crc(&value.to_le_bytes()))
        .into_bytes()
        .into_iter()
        .chain(std::iter::repeat(b'.'))
        .take(RECORD)
        .collect()
}

fn value_of(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes.get(7..27)?).ok()?;
    let value = text.parse().ok()?;
    (bytes == record(value)).then_some(value)
}

impl Log {
    /// Appends until it is told to stop.
    pub async fn run(self, life: Life) {
        let ino = life.find(FILE).await;
        let mut open: Option<Opened> = None;
        while !life.stopping() {
            life.pause(PAUSE_MS).await;
            if self.step(&life, &mut open, ino).await.is_err()
                && let Some(opened) = open.take()
            {
                // The handle is given up because it failed.
                let _ = life.client.close(opened.handle).await;
            }
        }
        if let Some(opened) = open {
            // The final reading decides on each append, as above.
            let _ = life.client.close(opened.handle).await;
        }
    }

    async fn step(&self, life: &Life, open: &mut Option<Opened>, ino: Ino) -> Result<(), Fault> {
        let opened = match open {
            Some(opened) => opened.clone(),
            None => {
                let access = Access { read: false, write: true, truncate: false, execute: false };
                let opening = life.client.open(&life.ctx, ino, access, false);
                open.insert(life.note("open log".into(), opening).await?).clone()
            }
        };
        let handle = (life.index, life.number, opened.handle);
        match life.below(10) {
            0..7 => self.append(life, opened.handle, handle).await,
            7..9 => {
                let before_ns = life.history.now_ns();
                let synced = life.note("fsync log".into(), life.client.fsync(opened.handle)).await;
                synced.inspect_err(|_| life.history.unsent(&life.node.name, life.number))?;
                self.left(handle, before_ns, |append| (append.synced, append.sent) = (true, true));
                Ok(())
            }
            _ => {
                *open = None;
                let before_ns = life.history.now_ns();
                let flushed = life.client.flush(opened.handle, None).await;
                match &flushed {
                    Ok(()) => self.left(handle, before_ns, |append| append.sent = true),
                    Err(_) => life.history.unsent(&life.node.name, life.number),
                }
                life.note("close log".into(), life.client.close(opened.handle)).await?;
                flushed
            }
        }
    }

    /// Notes appends through a handle before `before_ns`.
    fn left(&self, handle: (usize, u64, u64), before_ns: u64, note: impl Fn(&mut Append)) {
        let mut appends = self.appends.lock();
        let before =
            |a: &&mut Append| a.handle == handle && a.acked && a.return_ns.is_some_and(|r| r <= before_ns);
        appends.iter_mut().filter(before).for_each(note);
    }

    async fn append(&self, life: &Life, number: u64, handle: (usize, u64, u64)) -> Result<(), Fault> {
        let value = life.history.value();
        let at = {
            let mut appends = self.appends.lock();
            let invoke_ns = life.history.now_ns();
            appends.push(Append {
                value,
                handle,
                invoke_ns,
                return_ns: None,
                acked: false,
                synced: false,
                sent: false,
            });
            appends.len() - 1
        };
        let data = record(value);
        let len_bytes = data.len() as u64;
        let write = WriteIn { data: data.into(), append: true, ..WriteIn::default() };
        let done = life.note(format!("append {value}"), life.client.write(&life.ctx, number, write)).await;
        let append = &mut self.appends.lock()[at];
        append.return_ns = Some(life.history.now_ns());
        append.acked = done.as_ref().is_ok_and(|written| *written == len_bytes);
        done.map(drop)
    }

    /// Reads the file and compares it with the appended records.
    pub async fn check(&self, life: &Life, cuts: &Cuts) -> Result<Vec<String>, Fault> {
        let ino = life.find(FILE).await;
        let access = Access { read: true, ..Access::default() };
        let opened = life.client.open(&life.ctx, ino, access, false).await?;
        let read = life.client.read(opened.handle, 0, 64 << 20, false).await?.into_bytes();
        life.client.close(opened.handle).await?;
        let mut wrong = Vec::new();
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for (n, bytes) in read.chunks(RECORD).enumerate() {
            match value_of(bytes) {
                Some(value) => {
                    if let Some(first) = places.insert(value, n) {
                        wrong.push(format!("I7: record {value} lies at {first} and at {n} of the log"));
                    }
                }
                None if bytes.iter().all(|b| *b == 0) => {}
                None => wrong.push(format!("I2: place {n} of the log holds a mixture: {bytes:02x?}")),
            }
        }
        self.check_places(&places, &life.history, cuts, &mut wrong);
        Ok(wrong)
    }

    fn check_places(
        &self,
        places: &BTreeMap<u64, usize>,
        history: &History,
        cuts: &Cuts,
        wrong: &mut Vec<String>,
    ) {
        let appends = self.appends.lock();
        let end_ns = u64::MAX;
        for append in appends.iter().filter(|a| a.acked) {
            let excused =
                !append.synced && cuts.by_node.keys().any(|n| cuts.between(n, append.invoke_ns, end_ns));
            let (client, life, _) = append.handle;
            let end = append.return_ns.unwrap_or(0);
            let excused = excused || !append.sent && history.buffer_lost(&format!("c{client}"), life, end);
            if !places.contains_key(&append.value) && !excused {
                wrong.push(format!(
                    "I1: record {} of c{}.{} was acknowledged at {} ns{} and is not in the log",
                    append.value,
                    append.handle.0,
                    append.handle.1,
                    append.return_ns.unwrap_or(0),
                    if append.synced { ", synced," } else { "" }
                ));
            }
        }
        if cuts.all() > 0 {
            // Places that a cut took back are given out again.
            return;
        }
        for a in appends.iter().filter(|a| a.acked) {
            let later = appends.iter().filter(|b| b.acked && a.return_ns.is_some_and(|r| r < b.invoke_ns));
            for b in later {
                // Missing values were judged above.
                if let (Some(first), Some(second)) = (places.get(&a.value), places.get(&b.value))
                    && first > second
                {
                    wrong.push(format!("I3: record {} lies behind the later record {}", a.value, b.value));
                }
            }
        }
    }
}
