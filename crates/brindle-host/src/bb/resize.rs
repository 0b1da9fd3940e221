//! Buffers that become larger and smaller while they are used.
//!
//! | step | growing | shrinking |
//! |---|---|---|
//! | 1 | the pool gives the buffer more | its row says what it is shrunk to |
//! | 2 | its row says so | room is taken away from its targets |
//! | 3 | its targets get it | its row says so |
//! | 4 | | the pool gets the rest |
//!
//! Invariant: a buffer never holds more than its row says, nor its row more than the pool says. A crash after any step keeps the
//! invariant. The next start gives the pool the space that no row has, and [`Orchestrator::settle`] has the targets do what the rows
//! say.

use std::path::Path;

use brindle_bb::{Buffer, Goal, pool};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};

use super::actions::too_full;
use super::job_lock::JobLock;
use super::orchestrator::{Orchestrator, held, short};
use super::protocol::Reply;

/// A buffer grows by itself when less than one of so many parts of it is free.
const GROW_WHEN_FREE_PART: u64 = 3;
/// A buffer that grows by itself grows by its size divided by this.
const GROW_BY_PART: u64 = 2;

impl Orchestrator<'_> {
    /// Gives the buffer that an operator or its owner names another size. `only_grow`: one that is larger already stays as it is.
    pub(super) fn resize(&self, only: Option<u32>, name: &str, bytes: u64, only_grow: bool) -> Result<Reply> {
        let name = &self.name_of(name)?;
        let lock = self.lock_of(&self.named(name, only)?.1.token);
        let _step = held(&lock, name)?;
        let (version, buffer) = self.named(name, only)?;
        if buffer.slices.is_empty() {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot resize the buffer of job")
                .subject(buffer.token)
                .why("the job has none of its own; it uses persistent ones")
                .data("nothing was changed"));
        }
        let wanted = self.rounded(&buffer.pool, bytes)?;
        if wanted > buffer.bytes {
            refuse_beyond_limit(&buffer, only, wanted)?;
            self.grow(&lock, version, buffer, wanted)?;
        } else if wanted < buffer.bytes && !only_grow {
            self.shrink(&lock, version, buffer, wanted)?;
        } else {
            let has = format_bytes(buffer.bytes);
            self.pursue(&lock, version, buffer, &Goal::Settle)?;
            return Ok(Reply::Done(format!("{name} has {has} already")));
        }
        let (_, now) = self.named(name, only)?;
        Ok(Reply::Done(format!("{name} has {} now", format_bytes(now.bytes))))
    }

    /// The name of the buffer that a job finds at a path; a name stays as it is.
    fn name_of(&self, name: &str) -> Result<String> {
        if !name.contains('/') {
            return Ok(name.to_owned());
        }
        let outside = || {
            Fault::new(Code::NoSuchBuffer)
                .what("no buffer is mounted at")
                .subject(name.to_owned())
                .next("give the path that the job finds in $DW_JOB_STRIPED, or the name of the buffer")
        };
        let inside = Path::new(name).strip_prefix(&self.config.mount_root).map_err(|_| outside())?;
        let first = inside.components().next().ok_or_else(outside)?.as_os_str();
        let first = first.to_str().ok_or_else(outside)?;
        if let Some((_, persistent)) = first.split_once("_persistent_") {
            return Ok(persistent.to_owned());
        }
        let token = first.strip_suffix("_private").unwrap_or(first);
        // A job may have an older buffer that is kept.
        let (_, buffer) = self.find(token)?.ok_or_else(outside)?;
        Ok(format!("{}.{}", buffer.token, buffer.serial))
    }

    /// The pool first, then the row, then the targets.
    pub(super) fn grow(&self, lock: &JobLock, version: u64, buffer: Buffer, bytes: u64) -> Result<()> {
        let (serial, pool) = (buffer.serial, buffer.pool.clone());
        // A step that this phase forbids must change nothing: it is checked before the pool is changed.
        brindle_bb::life::step(&buffer, &brindle_bb::life::Event::Asked(Goal::Grow(buffer.slices.clone())))?;
        let away = self.actions.unusable(&self.store.pools()?, false);
        let slices = self.store.change_pool(&pool, |pool| pool.grow(serial, bytes, &away))?;
        let outcome = self.pursue(lock, version, buffer, &Goal::Grow(slices));
        if outcome.is_err() {
            // Where the row does not say it, the pool has it again.
            self.follow_row(serial, &pool)?;
        }
        outcome.map(drop)
    }

    /// The row first, then the targets, then the row again, then the pool.
    fn shrink(&self, lock: &JobLock, version: u64, buffer: Buffer, bytes: u64) -> Result<()> {
        let (serial, name) = (buffer.serial, buffer.pool.clone());
        let settled = self.pursue(lock, version, buffer, &Goal::Settle)?.buffer;
        let granule_bytes = self.store.pool(&name)?.granule_bytes;
        let free = self.actions.available(serial, &settled.slices)?;
        let slices = pool::shrunk(&settled.slices, &free, granule_bytes, bytes).map_err(|least| {
            too_full(&settled).why(format!(
                "with what is in use it needs {}, {} are asked for",
                format_bytes(least),
                format_bytes(bytes)
            ))
        })?;
        let version = self.version_of(serial)?;
        let outcome = self.pursue(lock, version, settled, &Goal::Shrink(slices));
        if outcome.is_err() {
            self.settle_one(lock, serial);
        }
        outcome?;
        self.follow_row(serial, &name)
    }

    /// Gives the pool what the row of a buffer does not say. The caller holds the lock of the buffer.
    fn follow_row(&self, serial: u64, pool: &str) -> Result<()> {
        let Some((_, row)) = self.store.buffer(serial)? else { return Ok(()) };
        self.store.change_pool(pool, |pool| {
            if pool.slices_of(serial) != row.slices {
                pool.set_slices(serial, &row.slices);
            }
            Ok(())
        })
    }

    fn version_of(&self, serial: u64) -> Result<u64> {
        let found = self.store.buffer(serial)?;
        found
            .map(|(version, _)| version)
            .ok_or_else(|| Fault::new(Code::NoSuchBuffer).subject(serial.to_string()))
    }

    /// Ends what was begun and cut off, or has failed. Buffers that somebody works on are left alone until the next look.
    pub(super) fn settle(&self) {
        let all = match self.store.buffers() {
            Ok(all) => all,
            Err(fault) => return tracing::warn!(%fault, "cannot look for buffers that are being resized"),
        };
        for (_, buffer) in all.into_iter().filter(|(_, b)| b.unsettled && b.is_made()) {
            let lock = self.lock_of(&buffer.token);
            let Some(_step) = lock.step.try_lock() else { continue };
            self.settle_one(&lock, buffer.serial);
        }
    }

    /// The caller holds the lock.
    fn settle_one(&self, lock: &JobLock, serial: u64) {
        let settled = self.store.buffer(serial).and_then(|found| {
            let found = found.filter(|(_, b)| b.unsettled && b.is_made());
            found.map_or(Ok(()), |(version, b)| self.pursue(lock, version, b, &Goal::Settle).map(drop))
        });
        if let Err(fault) = settled {
            tracing::warn!(%fault, serial, "the size of a buffer is not what it should be yet");
        }
    }

    /// Makes buffers larger that are to grow by themselves and are nearly full.
    pub(super) fn grow_full_ones(&self) {
        let Ok(all) = self.store.buffers() else { return };
        let may_grow = |b: &Buffer| b.may_be_written() && b.grow_max_bytes.is_some_and(|max| b.bytes < max);
        for (_, buffer) in all.into_iter().filter(|(_, b)| may_grow(b)) {
            if !self.is_nearly_full(&buffer) {
                continue;
            }
            let lock = self.lock_of(&buffer.token);
            let Some(_step) = lock.step.try_lock() else { continue };
            if let Err(fault) = self.grow_by_itself(&lock, buffer.serial) {
                self.note_failure(buffer.serial, &fault);
            }
        }
    }

    fn is_nearly_full(&self, buffer: &Buffer) -> bool {
        if !self.actions.is_reached(buffer) {
            return false;
        }
        // A buffer that does not run has nobody who could fill it.
        let Ok(free) = self.actions.available(buffer.serial, &buffer.slices) else { return false };
        // Swap is always in use.
        free.iter().sum::<u64>() < buffer.bytes.saturating_sub(buffer.swap_bytes()) / GROW_WHEN_FREE_PART
    }

    /// As far as it should; where the pool has not so much, as far as that goes. The caller holds the lock.
    fn grow_by_itself(&self, lock: &JobLock, serial: u64) -> Result<()> {
        let found = self.store.buffer(serial)?.filter(|(_, b)| b.may_be_written());
        let Some((version, buffer)) = found else { return Ok(()) };
        let max = buffer.grow_max_bytes.unwrap_or(0);
        let pool = self.store.pool(&buffer.pool)?;
        let more = (buffer.bytes / GROW_BY_PART).max(pool.granule_bytes);
        let away = self.actions.unusable(&self.store.pools()?, false);
        let room = pool.free_granules_without(&away) * pool.granule_bytes;
        let wanted = buffer.bytes.saturating_add(more.min(room.max(pool.granule_bytes))).min(max);
        // A limit that is no whole number of granules is not passed.
        let wanted = wanted / pool.granule_bytes * pool.granule_bytes;
        if wanted <= buffer.bytes {
            return Ok(());
        }
        tracing::info!(job = buffer.token, from_bytes = buffer.bytes, to_bytes = wanted, "grows by itself");
        self.grow(lock, version, buffer, wanted)
    }

    /// For those who look why a buffer is full.
    fn note_failure(&self, serial: u64, fault: &Fault) {
        let why = short(fault);
        let noted = self.store.buffer(serial).and_then(|found| {
            let found = found.filter(|(_, b)| b.resize_failure != why);
            let Some((version, b)) = found else { return Ok(()) };
            tracing::warn!(%fault, job = b.token, "a buffer that is nearly full does not grow");
            self.store.put(version, &Buffer { resize_failure: why, ..b }).map(drop)
        });
        if let Err(fault) = noted {
            tracing::warn!(%fault, serial, "cannot note why a buffer does not grow");
        }
    }
}

/// The line of the job limits whoever owns it; operators are free.
fn refuse_beyond_limit(buffer: &Buffer, only: Option<u32>, bytes: u64) -> Result<()> {
    match buffer.grow_max_bytes.filter(|max| only.is_some() && bytes > *max) {
        None => Ok(()),
        Some(max) => Err(Fault::new(Code::GrowLimit)
            .what("cannot grow the buffer of job")
            .subject(buffer.token.clone())
            .why(format!(
                "its line #DW jobdw has grow=auto:{}, {} are asked for",
                format_bytes(max),
                format_bytes(bytes)
            ))
            .data("nothing was changed")),
    }
}
