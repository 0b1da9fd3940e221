//! Layout and epochs: fetching them again, moving inline data to objects, choosing OSTs for bytes that are to be written, and moving parts
//! of a file.

use std::ops::Range;

use brindle_stdx::planted;
use brindle_types::{Code, Fault, Layout, Pair};
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq, SpillReq};
use brindle_wire::mds::migrate::{MigrateReq, MigrateResp};

use super::Tries;
use super::scatter::Full;

use crate::Client;
use crate::inodes::{Converting, Inode, LayoutSnapshot};

/// Times that a move is tried again, and the first pause; each is longer by as much.
const MOVE_TRIES_MAX: u64 = 20;
const MOVE_PAUSE_MS: u64 = 50;
/// Most OSTs that may refuse one after the other although the MDT believes that they have space. Then the file system counts as full.
const SPILLS_MAX: u32 = 256;

impl Client {
    /// Present layout, epochs and leases; fetched if a notice or a refusal said that they are old.
    pub(crate) async fn snapshot(&self, inode: &Inode) -> Result<LayoutSnapshot, Fault> {
        loop {
            if let Some(snapshot) = inode.snapshot() {
                return Ok(snapshot);
            }
            let _one_asks = inode.relayout.lock().await;
            if let Some(snapshot) = inode.snapshot() {
                return Ok(snapshot);
            }
            let asked = inode.asked();
            let grant = self.mds.ask(&LayoutGetReq { ino: inode.ino }).await?;
            brindle_layout::check(&grant.layout)?;
            tracing::trace!(ino = inode.ino.0, ?grant, "layout fetched");
            inode.lock().take_grant(asked, &grant, None);
            self.tell_lost(inode);
        }
    }

    /// Moves the bytes of a file from the MDT to objects, and has OSTs chosen for all of `range`. Does nothing if that is done already.
    pub(crate) async fn place(&self, inode: &Inode, range: Range<u64>) -> Result<(), Fault> {
        let converting = inode.converting();
        self.place_while(inode, range, converting.as_ref(), None).await
    }

    /// Like [`Client::place`], for a small file that outgrows the MDT: bytes in the buffer of its sole writer
    /// go directly to the objects, where there is room for them. By way of the MDT they would be written
    /// twice, and would have to be durable at their OST before the MDT gives them up.
    pub(crate) async fn outgrow(&self, inode: &Inode, range: Range<u64>) -> Result<(), Fault> {
        let converting = inode.converting();
        let follows = converting.as_ref().and_then(|_| self.cover_small(inode));
        match self.place_while(inode, range.clone(), converting.as_ref(), follows).await {
            // The file did not go to the OST that has space for its buffered bytes: they take the way through the MDT.
            Err(fault) if follows.is_some() && fault.code == Code::OstFull => {
                self.place_while(inode, range, converting.as_ref(), None).await
            }
            done => done,
        }
    }

    /// `follows`: the body of the small file whose buffered bytes all have space at the OSTs.
    async fn place_while(
        &self,
        inode: &Inode,
        range: Range<u64>,
        converting: Option<&Converting<'_>>,
        follows: Option<Pair>,
    ) -> Result<(), Fault> {
        if converting.is_some() && follows.is_none() {
            // Buffered bytes go to the MDT first.
            self.flush_behind_first(inode).await;
        }
        let _one_asks = inode.relayout.lock().await;
        let done = |layout: &Layout| brindle_layout::is_placed(layout, range.clone());
        if inode.lock().layout.as_deref().is_some_and(done) {
            return Ok(());
        }
        let asked = inode.asked();
        let (offset, len_bytes) = (range.start, range.end - range.start);
        let request = ConvertReq { ino: inode.ino, offset, len_bytes, promised: follows.is_some() };
        let grant = self.mds.ask(&request).await?;
        brindle_layout::check(&grant.layout)?;
        tracing::trace!(ino = inode.ino.0, ?grant, ?follows, "placed");
        let mut state = inode.lock();
        let was_inline = state.layout.as_ref().is_some_and(|layout| layout.inline);
        state.take_grant(asked, &grant, None);
        if was_inline && state.exclusive && !state.crossed(asked) {
            state.made_body = Some(grant.layout.body);
        }
        state.changed_at_mdt(grant.changed);
        state.inline = None;
        if let Some(small) = follows
            && !planted("client_small_bytes_do_not_follow")
        {
            state.behind.follow(small, grant.layout.body);
        }
        drop(state);
        self.tell_lost(inode);
        Ok(())
    }

    /// Has other OSTs chosen in place of a full one, for bytes that are not buffered. Buffered bytes of the file go first: the OSTs of the
    /// present layout have promised their space, and the MDT, which does not know of them, may give their place to others. `OstFull` if no
    /// OST has space.
    pub(crate) async fn spill(&self, inode: &Inode, tries: &mut Tries, full: Full) -> Result<(), Fault> {
        let _unbuffered = inode.unbuffered();
        self.flush_behind_first(inode).await;
        self.spill_here(inode, tries, full).await
    }

    /// Like [`Client::spill`], for bytes in the write buffer.
    pub(crate) async fn spill_buffered(
        &self,
        inode: &Inode,
        tries: &mut Tries,
        full: Full,
    ) -> Result<(), Fault> {
        let _waiting = inode.without_room();
        self.spill_here(inode, tries, full).await
    }

    async fn spill_here(&self, inode: &Inode, tries: &mut Tries, full: Full) -> Result<(), Fault> {
        if tries.spills >= SPILLS_MAX {
            let why = format!("{SPILLS_MAX} times in a row an OST that reports room has refused bytes");
            return Err(Fault::new(Code::OstFull).what("no storage target has room").why(why));
        }
        let _one_asks = inode.relayout.lock().await;
        let Full { ost, offset, len_bytes } = full;
        let elsewhere = |layout: &Layout| layout.at(offset).is_some_and(|c| !c.osts.contains(&ost));
        if inode.snapshot().is_some_and(|snapshot| elsewhere(&snapshot.layout)) {
            return Ok(());
        }
        let asked = inode.asked();
        let request = SpillReq { ino: inode.ino, offset, len_bytes, ost };
        let grant = self.mds.ask(&request).await.inspect_err(|fault| {
            tracing::debug!(code = %fault.code, ino = inode.ino.0, ost, offset, "no other OST instead of a full one: {fault}");
        })?;
        brindle_layout::check(&grant.layout)?;
        tracing::debug!(ino = inode.ino.0, ost, offset, "an OST is full; others take what is written here");
        inode.lock().take_grant(asked, &grant, None);
        tries.spills += 1;
        Ok(())
    }

    /// Moves one piece of a file; see [`MigrateReq`]. A move that is called off, because an OST or a client does not answer soon, is tried
    /// again some times.
    pub async fn migrate(&self, request: MigrateReq) -> Result<MigrateResp, Fault> {
        let mut tries = 0;
        loop {
            match self.mds.ask(&request).await {
                Err(fault) if fault.code == Code::StaleLayout && tries < MOVE_TRIES_MAX => {
                    tries += 1;
                    self.seams.sleep_ms(MOVE_PAUSE_MS * tries).await;
                }
                Err(fault) if fault.code == Code::StaleLayout => {
                    let fault = fault.what("cannot move it now:").subject(request.ino.fid().to_string());
                    let fault = fault.data("nothing was changed that is not complete");
                    return Err(fault.next("try again; look whether all servers answer: brindle status"));
                }
                answer => return answer,
            }
        }
    }
}
