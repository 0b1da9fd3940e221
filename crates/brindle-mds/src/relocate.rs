//! Relocation moves the bytes of a part of a file to other objects, as one fenced operation (design note 004).
//!
//! | step | then |
//! |---|---|
//! | 1 the inode is busy, its layout epoch is raised and synced | requests for the layout wait |
//! | 2 every writer settles ([`settle`]), if anything is to be copied or given up | all its writes are on disk |
//! | 3 the old objects refuse older epochs ([`fence`]) | nothing changes them any more |
//! | 4 bytes are copied and synced | the copies survive a power cut |
//! | 5 one batch: the layout; everybody fetches it | the new objects are the file |
//! | 6 objects without any part of the file are queued to be destroyed | |
//!
//! A crash before step 5 leaves the old layout under a higher epoch, and objects set aside that recovery gives up. Every
//! wait is bounded: if an OST or a client does not answer soon, the move is called off ([`not_now`]), and nothing has
//! changed. Contents, size, times and `data_version` stay.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use brindle_layout::{Run, copies, relocated};
use brindle_types::layout::{COMPONENTS_MAX, Component, STRIPE_SIZE_UNIT_BYTES};
use brindle_types::{ChangeKind, Code, Fault, Ino, Layout, ObjectId, Pair, Result, SessionId, Stripe};
use brindle_wire::Op;
use brindle_wire::notify::{LayoutNotice, SettleNotice};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::fence::FenceLayoutReq;
use brindle_wire::oss::stat::{ObjectStat, StatObjectsReq};
use brindle_wire::oss::sync::SyncObjectsReq;
use brindle_wire::oss::write::CopyRangeReq;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;

use crate::ask::{Notice, ask};
use crate::mdt::{Busy, Call, Event, Mdt, Step, Stop, Txn};
use crate::store::{Inode, destroy_queue, inode};
use crate::{attrs, changelog};

/// Longest wait of a move for an OST, before the move is called off.
const OST_WAIT_MS: u64 = 5_000;
/// Longest wait of a move for a copy.
const COPY_WAIT_MS: u64 = 20_000;
/// Copies of one move that are under way at once.
const COPIES_AT_ONCE: usize = 8;
/// Most bytes that one request copies.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// A file that is about to change, and the mark that keeps others away.
pub struct Moving<'a> {
    /// The MDT.
    pub mdt: &'a Mdt,
    /// Call that the move is made for.
    pub call: &'a Call,
    /// The mark.
    pub busy: Busy<'a>,
    /// The inode as step 1 has left it.
    pub file: Inode,
}

/// Contents of the objects of a component.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// End of the bytes in the file, rounded up.
    pub end: u64,
    /// Allocated bytes, without holes.
    pub allocated_bytes: u64,
}

/// Destination of a move.
#[derive(Clone, Debug)]
pub enum Into {
    /// New objects.
    New(Component),
    /// Objects that the bytes in front already lie in.
    Behind(Component),
}

/// The move cannot be made at this moment; nothing has changed.
pub fn not_now(why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::StaleLayout).why(format!("the layout is about to change: {why}"))
}

/// Step 1, in the batch of `t`: requests for the layout wait from now on.
pub fn begin(t: &mut Txn<'_>, busy: &Busy<'_>, file: &mut Inode) -> Step<()> {
    if t.live().recovering {
        // Some writers are not known yet.
        return Err(Stop::RetryAfter(Event::Recovered));
    }
    busy.set(t)?;
    let epoch = t.pair();
    file.file_mut()?.layout.epoch = epoch;
    Ok(inode::put(t, file)?)
}

/// Step 2: every session that can write the file lets its changes end and makes them durable.
async fn settle(mdt: &Mdt, ino: Ino) -> Result<()> {
    if brindle_stdx::planted("mds_move_unguarded") {
        return Ok(());
    }
    let writers = mdt.live().opens.other_writers(ino, SessionId(0));
    let notice = SettleNotice { ino };
    let answers = join_all(writers.iter().map(|session| ask(mdt, *session, &notice))).await;
    // A session that was ended instead of answering is fenced.
    match answers.into_iter().flatten().all(|ack| ack.settled) {
        true => Ok(()),
        false => Err(not_now("a client still writes to an OST that does not answer")),
    }
}

/// Step 3: nothing older changes or reads the objects of these components.
async fn fence(mdt: &Mdt, ino: Ino, components: &[&Component], epoch: Pair) -> Result<()> {
    if brindle_stdx::planted("mds_move_unguarded") {
        return Ok(());
    }
    let asked = by_ost(ino, components).into_iter().map(|(ost, objects)| {
        let question = FenceLayoutReq { objects, layout_epoch: epoch };
        async move { mdt.osts().ask_within(OST_WAIT_MS, ost, &question).await }
    });
    join_all(asked).await.into_iter().collect::<Result<Vec<_>>>().map(drop).map_err(not_now)
}

/// State of the objects of these components now. If an object that must exist is missing, or has lost its end, the
/// result is an error: a layout without the object would hide the loss.
async fn stat(
    mdt: &Mdt,
    ino: Ino,
    layout: &Layout,
    components: &[&Component],
) -> Result<Vec<(Stripe, ObjectStat)>> {
    let asked = by_ost(ino, components).into_iter().map(|(ost, objects)| async move {
        let question = StatObjectsReq { objects: objects.clone() };
        let answer = mdt.osts().ask_within(OST_WAIT_MS, ost, &question).await.map_err(not_now)?;
        Ok(objects.iter().map(ObjectId::named).zip(answer.objects).collect::<Vec<_>>())
    });
    let answers: Vec<Vec<_>> = join_all(asked).await.into_iter().collect::<Result<_>>()?;
    let stats: Vec<(Stripe, ObjectStat)> = answers.into_iter().flatten().collect();
    match stats.iter().find_map(|(stripe, stat)| damage(ino, layout, *stripe, stat)) {
        Some(fault) => Err(fault),
        None => Ok(stats),
    }
}

fn damage(ino: Ino, layout: &Layout, stripe: Stripe, stat: &ObjectStat) -> Option<Fault> {
    let (code, why) = match stat {
        ObjectStat { exists: false, .. } if layout.object_known(stripe) => {
            (Code::ObjectMissing, "it was on its OST's disk, and its file is not there")
        }
        ObjectStat { is_cut_short: true, .. } => {
            (Code::ObjectDamaged, "its file ends before bytes that were synced")
        }
        _ => return None,
    };
    let fault = Fault::new(code).subject(format!("object {}", ObjectId::of(ino, stripe)));
    Some(fault.why(why).data("nothing was moved; the rest of the file is not affected"))
}

pub(crate) fn by_ost(ino: Ino, components: &[&Component]) -> BTreeMap<u16, Vec<ObjectId>> {
    let mut by_ost: BTreeMap<u16, Vec<ObjectId>> = BTreeMap::new();
    for (stripe, ost) in components.iter().flat_map(|c| c.stripes()) {
        let objects = by_ost.entry(ost).or_default();
        let object = ObjectId::of(ino, stripe);
        if !objects.contains(&object) {
            objects.push(object);
        }
    }
    by_ost
}

/// End of the bytes in these objects, rounded up to an offset at which layouts can be cut; 0 if there are
/// none.
fn end_of(layout: &Layout, stats: &[(Stripe, ObjectStat)]) -> u64 {
    let there = stats.iter().filter(|(_, stat)| stat.exists);
    let ends = there.map(|(stripe, stat)| brindle_layout::file_size_from(layout, *stripe, stat.len_bytes));
    round_up(ends.max().unwrap_or(0))
}

/// The next place at or behind `at` where a layout can be cut.
pub fn round_up(at: u64) -> u64 {
    at.checked_next_multiple_of(STRIPE_SIZE_UNIT_BYTES.into()).unwrap_or(u64::MAX)
}

/// The last place at or before `at` where a layout can be cut.
pub fn round_down(at: u64) -> u64 {
    at - at % u64::from(STRIPE_SIZE_UNIT_BYTES)
}

impl Moving<'_> {
    /// Contents of the objects of a component.
    pub async fn extent_of(&self, component: &Component) -> Result<Extent> {
        self.mdt.synced().await?;
        let stats = stat(self.mdt, self.file.ino, &self.file.file()?.layout, &[component]).await?;
        let allocated_bytes = attrs::sum_bytes(stats.iter().map(|(_, stat)| stat.allocated_bytes));
        Ok(Extent { end: end_of(&self.file.file()?.layout, &stats), allocated_bytes })
    }

    /// Cuts a component behind its last byte: later writes behind the cut go to `osts`. No bytes are copied. `offset`,
    /// the place of the next write, must lie behind the cut; otherwise the move is called off.
    pub async fn cut_off(self, component: &Component, offset: u64, osts: Vec<u16>) -> Result<()> {
        let (mdt, ino) = (self.mdt, self.file.ino);
        let layout = self.file.file()?.layout.clone();
        let seen = end_of(&layout, &stat(mdt, ino, &layout, &[component]).await?);
        if seen <= component.start {
            // The move gives up these objects: no write under way may end up in them.
            settle(mdt, ino).await?;
        }
        fence(mdt, ino, &[component], layout.epoch).await?;
        let stats = stat(mdt, ino, &layout, &[component]).await?;
        let start = end_of(&layout, &stats).max(component.start);
        if offset < start || (start == component.start && seen > start) {
            return Err(not_now("others have written behind this place"));
        }
        let generation = mdt.numbers().pair();
        let to =
            Component { start, origin: start, generation, osts, objects: Vec::new(), ..component.clone() };
        self.finish(to, &stats, &[]).await
    }

    /// Moves a range of the file, and returns how many bytes were copied. Returns `None` if an OST has no space for them.
    /// The layout is then unchanged, and the refusal of the OST (of its part, at most `room_bytes`) is noted.
    pub async fn relocate(self, range: Range<u64>, into: Into, room_bytes: u64) -> Result<Option<u64>> {
        let (mdt, ino) = (self.mdt, self.file.ino);
        mdt.synced().await?;
        let layout = self.file.file()?.layout.clone();
        let to = match &into {
            Into::New(c) | Into::Behind(c) => Component { start: range.start, end: range.end, ..c.clone() },
        };
        if relocated(&layout.components, &to).len() > COMPONENTS_MAX {
            let why = format!("its layout would have more than {COMPONENTS_MAX} components");
            let next = "make it one again: lfs migrate";
            return Err(Fault::new(Code::OstFull).subject(ino.fid().to_string()).why(why).next(next));
        }
        let meets = |c: &&Component| c.is_placed() && c.start < range.end && range.start < c.end;
        let sources: Vec<&Component> = layout.components.iter().filter(meets).collect();
        settle(mdt, ino).await?;
        let fenced: Vec<&Component> = sources.iter().copied().chain([&to]).collect();
        let fenced = if matches!(into, Into::New(_)) { &sources } else { &fenced };
        fence(mdt, ino, fenced, layout.epoch).await?;
        let stats = stat(mdt, ino, &layout, &sources).await?;
        let copy = range.start..range.end.min(end_of(&layout, &stats)).max(range.start);
        let runs = copies(&layout, &to, copy.clone());
        if matches!(into, Into::New(_)) {
            set_aside(mdt, self.call, ino, &to).await?;
        }
        let moved = match copy_all(mdt, &self.file, (ino, &layout), &runs, room_bytes).await {
            Ok(made) => self.finish(to, &stats, &made).await,
            Err(fault) => Err(fault),
        };
        if moved.is_err() {
            give_up_aside(mdt, ino, Some(&self.busy)).await?;
        }
        match moved {
            Err(fault) if fault.code == Code::OstFull => Ok(None),
            moved => moved.map(|()| Some(copy.end - copy.start)),
        }
    }

    /// Steps 5 and 6. `stats`: of the objects that the range lay in. `made`: those that it lies in now, if they exist.
    async fn finish(&self, to: Component, stats: &[(Stripe, ObjectStat)], made: &[Stripe]) -> Result<()> {
        let (mdt, ino) = (self.mdt, self.file.ino);
        mdt.step(self.call, |t| {
            let mut file = inode::get(t, ino)?;
            let layout = file.file()?.layout.clone();
            let ends = stats.iter().filter(|(_, stat)| stat.exists);
            let ends = ends.map(|(s, stat)| brindle_layout::file_size_from(&layout, *s, stat.len_bytes));
            let end = ends.max().filter(|_| file.open_for_write).unwrap_or(0);
            file.size_bytes = file.size_bytes.max(end);
            if file.open_for_write {
                // The objects that told when they were written last go.
                stats.iter().for_each(|(_, stat)| attrs::merge_times(&mut file, stat));
            }
            let epoch = t.pair();
            t.frees_space();
            let body = file.file_mut()?;
            body.layout_gen += 1;
            body.layout.epoch = epoch;
            body.layout.components = relocated(&layout.components, &to);
            made.iter().for_each(|stripe| body.layout.set_object_known(*stripe));
            let now = body.layout.clone();
            body.aside.extend(layout.components.iter().filter(|c| is_gone(c, &now)).cloned());
            body.unsynced.retain(|(stripe, _)| now.ost_of(*stripe).is_some());
            inode::put(t, &file)?;
            // The copies may have allocated less, and one that is being written has others now.
            let (is_written, owners) = (file.open_for_write, file.owners());
            t.after(move |live| match is_written {
                true => live.uncount(ino, owners),
                false => live.recount(ino),
            });
            changelog::about(t, ChangeKind::Layout, ino, None);
            let truncate_epoch = file.truncate_epoch;
            for other in t.live().opens.others(ino, SessionId(0)) {
                t.notify(other, Notice::Layout(LayoutNotice { ino, drop_from: u64::MAX, truncate_epoch }));
            }
            Ok(())
        })
        .await?;
        // All clients know the new layout by now, so none reads zeros where an object was destroyed.
        give_up_aside(mdt, ino, Some(&self.busy)).await
    }
}

/// Whether no part of the file lies in the objects of a component any more.
fn is_gone(c: &Component, layout: &Layout) -> bool {
    c.is_placed() && layout.component(c.generation).is_none()
}

/// Records the objects that bytes are about to be copied into, so that they do not count as garbage.
async fn set_aside(mdt: &Mdt, call: &Call, ino: Ino, to: &Component) -> Result<()> {
    mdt.step(call, |t| {
        let mut file = inode::get(t, ino)?;
        file.file_mut()?.aside.push(to.clone());
        Ok(inode::put(t, &file)?)
    })
    .await
}

/// Has objects destroyed that were set aside and do not belong to the file, and gives up the mark of the move. Without a mark
/// (after a restart), waits until no move is under way.
pub async fn give_up_aside(mdt: &Mdt, ino: Ino, busy: Option<&Busy<'_>>) -> Result<()> {
    mdt.step(&Call::internal(Op::Migrate), |t| {
        t.frees_space();
        match busy {
            Some(busy) => busy.clear(t),
            None => t.idle(ino)?,
        }
        let Some(mut file) = inode::find(t, ino)? else { return Ok(()) };
        let Some(body) = file.file.as_mut().filter(|body| !body.aside.is_empty()) else { return Ok(()) };
        let body = Arc::make_mut(body);
        let aside = std::mem::take(&mut body.aside);
        let gone = aside.iter().filter(|c| is_gone(c, &body.layout));
        let objects: BTreeSet<(Stripe, u16)> = gone.flat_map(Component::stripes).collect();
        destroy_queue::put_all(t, ino, objects);
        t.mdt().destroy_queue().notify_one();
        Ok(inode::put(t, &file)?)
    })
    .await
}

/// Step 4: copies everything and makes it durable. The objects that exist now: where there were only holes none is made.
/// `room_bytes`: what all needs, if that is known. The bytes may come from another file.
pub async fn copy_all(
    mdt: &Mdt,
    file: &Inode,
    (source_ino, source_layout): (Ino, &Layout),
    runs: &[Run],
    room_bytes: u64,
) -> Result<Vec<Stripe>> {
    let layout = &file.file()?.layout;
    // A copy is no change: it is made under no epoch of times, so that its own counts for nothing.
    let ticket = Ticket {
        layout_epoch: layout.epoch,
        truncate_epoch: file.truncate_epoch,
        attr_epoch: Pair::ZERO,
        must_exist: false,
    };
    // An OST without room is told the whole share that goes to it. If it refuses a part, the parts before it
    // will be destroyed again.
    let mut shares = BTreeMap::<u16, u64>::new();
    runs.iter().for_each(|run| *shares.entry(run.target.ost).or_default() += run.target.len_bytes);
    // Holes of the range need no space, so cap each share by the bytes to allocate.
    shares.values_mut().for_each(|share| *share = room_bytes.min(*share));
    let shares = &shares;
    let requests = runs.iter().flat_map(split).map(|Run { source, target }| {
        let request = CopyRangeReq {
            source: ObjectId::of(source_ino, source.stripe),
            source_ost: source.ost,
            source_offset: source.object_offset,
            source_must_exist: source_layout.object_known(source.stripe),
            object: ObjectId::of(file.ino, target.stripe),
            offset: target.object_offset,
            len_bytes: target.len_bytes,
            ticket: Ticket { must_exist: layout.object_known(target.stripe), ..ticket },
        };
        async move {
            let answer = mdt.osts().copy_range(COPY_WAIT_MS, target.ost, &request).await;
            let answer = answer.inspect_err(|fault| {
                if fault.code == Code::OstFull {
                    mdt.osts().note_full(target.ost, shares[&target.ost]);
                }
            })?;
            Ok((target.ost, target.stripe, answer.boot_term))
        }
    });
    let answers: Vec<Result<(u16, Stripe, u32)>> =
        stream::iter(requests).buffer_unordered(COPIES_AT_ONCE).collect().await;
    let mut written: BTreeMap<u16, (BTreeSet<Stripe>, BTreeSet<u32>)> = BTreeMap::new();
    for answer in answers {
        let (ost, stripe, term) = answer.map_err(called_off)?;
        let (stripes, terms) = written.entry(ost).or_default();
        stripes.insert(stripe);
        terms.insert(term);
    }
    let synced = written.into_iter().map(|(ost, (stripes, terms))| async move {
        let objects: Vec<ObjectId> = stripes.iter().map(|stripe| ObjectId::of(file.ino, *stripe)).collect();
        let (exists, term) = if brindle_stdx::planted("mds_move_without_sync") {
            let stats = mdt.osts().ask_within(OST_WAIT_MS, ost, &StatObjectsReq { objects }).await;
            (stats.map_err(not_now)?.objects.iter().map(|o| o.exists).collect(), terms.first().copied())
        } else {
            let answer = mdt.osts().ask_within(OST_WAIT_MS, ost, &SyncObjectsReq { objects }).await;
            answer.map(|answer| (answer.exists, Some(answer.boot_term))).map_err(not_now)?
        };
        if terms.iter().any(|written| Some(*written) != term) {
            return Err(not_now(format!("OST {ost:04x} lost power while bytes were copied to it")));
        }
        let made = stripes.into_iter().zip(exists).filter(|(_, exists)| *exists);
        Ok(made.map(|(stripe, _)| stripe).collect::<Vec<_>>())
    });
    let made: Vec<Vec<Stripe>> = join_all(synced).await.into_iter().collect::<Result<_>>()?;
    Ok(made.concat())
}

/// A copy that failed: because of damage, or for a moment; for want of room others are chosen next time, if there are any.
fn called_off(fault: Fault) -> Fault {
    match fault.code {
        Code::ObjectDamaged | Code::ObjectMissing | Code::OstFull => fault,
        _ => not_now(fault),
    }
}

fn split(run: &Run) -> impl Iterator<Item = Run> + use<> {
    let run = *run;
    (0..run.source.len_bytes.div_ceil(COPY_BYTES_MAX)).map(move |n| {
        let first = n * COPY_BYTES_MAX;
        let len_bytes = COPY_BYTES_MAX.min(run.source.len_bytes - first);
        let part = |e: brindle_layout::StripeExtent| brindle_layout::StripeExtent {
            object_offset: e.object_offset + first,
            file_offset: e.file_offset + first,
            len_bytes,
            ..e
        };
        Run { source: part(run.source), target: part(run.target) }
    })
}
