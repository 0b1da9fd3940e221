//! Backups: what is read is one moment; what is made of it never gives out a number twice, and keeps what came later.

use brindle_types::layout::Component;
use brindle_types::{Code, Ino, ObjectId};
use brindle_wire::mds::backup::BackupReadReq;
use brindle_wire::mds::convert::ConvertReq;
use brindle_wire::mds::owner::{OwnerQueryReq, Verdict};
use bytes::Bytes;

use super::rig::*;
use crate::restore::Restoring;
use crate::store::inode;

const TOP: Ino = Ino::ROOT;

type Rows = Vec<(Bytes, Bytes)>;

/// All rows of one moment, with something done between the pages.
async fn read(rig: &Rig, mut between: impl AsyncFnMut()) -> (u32, Rows) {
    let mut rows = Rows::new();
    let mut request = BackupReadReq { moment: 0, after: Bytes::new() };
    loop {
        let page = rig.ask(A, request).await.expect("a page");
        let Some((last, _)) = page.rows.last() else {
            assert!(page.is_last);
            return (page.term, rows);
        };
        request = BackupReadReq { moment: page.moment, after: last.clone() };
        rows.extend(page.rows);
        between().await;
    }
}

/// Makes a file with an object; the file, the object and its OST.
async fn file(rig: &Rig, name: &str, handle: u64) -> (Ino, ObjectId, u16) {
    let mut request = create_req(TOP, name, RW);
    request.handle = handle;
    let ino = rig.ask(A, request).await.expect("made").attr.ino;
    let convert = ConvertReq { ino, offset: 0, len_bytes: 1, promised: false };
    let layout = rig.ask(A, convert).await.expect("converted").layout;
    let component: &Component = &layout.components[0];
    let (stripe, ost) = component.stripes().next().expect("a stripe");
    (ino, ObjectId::of(ino, stripe), ost)
}

async fn verdict(rig: &Rig, object: ObjectId, ost: u16) -> Verdict {
    rig.ask(A, OwnerQueryReq { objects: vec![object], ost }).await.expect("answered").verdicts[0]
}

#[test]
fn a_backup_is_of_one_moment_and_one_at_a_time() {
    run(async {
        let rig = Rig::new().await;
        // Make more rows than fit in one page.
        for n in 0..3000 {
            rig.create(A, TOP, &format!("f{n}"), RW).await.expect("made");
        }
        let first = rig.ask(A, BackupReadReq { moment: 0, after: Bytes::new() }).await.expect("begun");
        let second = rig.ask(A, BackupReadReq { moment: 0, after: Bytes::new() }).await;
        assert_eq!(code(second), Some(Code::BackupBusy));
        assert!(!first.is_last);
        let unknown = rig.ask(A, BackupReadReq { moment: first.moment ^ 1, after: Bytes::new() }).await;
        assert_eq!(code(unknown), Some(Code::TryAgain));
        // A page can be read from any start, any number of times.
        let after = first.rows.last().expect("rows").0.clone();
        let page = || rig.ask(A, BackupReadReq { moment: first.moment, after: after.clone() });
        assert_eq!(page().await, page().await);
        let end = Bytes::from_static(&[0xff]);
        assert!(
            rig.ask(A, BackupReadReq { moment: first.moment, after: end }).await.expect("the end").is_last
        );
        let (_, before) = read(&rig, async || ()).await;
        let mut n = 0;
        let (_, same) = read(&rig, async || {
            n += 1;
            rig.create(A, TOP, &format!("later{n}"), RW).await.expect("made");
        })
        .await;
        assert!(n > 0 && same == before, "what is made meanwhile is not in it");
    });
}

#[test]
fn a_restored_mdt_gives_out_no_number_twice_and_keeps_what_came_later() {
    run(async {
        let mut rig = Rig::new().await;
        let (kept, kept_object, kept_ost) = file(&rig, "kept", 101).await;
        let (term, rows) = read(&rig, async || ()).await;
        assert_eq!(term, rig.mdt.numbers().term());
        let (late, late_object, late_ost) = file(&rig, "late", 102).await;
        rig.restart().await;
        let (later, later_object, later_ost) = file(&rig, "later", 103).await;
        let lost_term = rig.mdt.numbers().term();
        let since = rig.mdt.access_times_since();

        rig.lose_and_restore(term, lost_term, rows).await;
        rig.verify();
        assert!(rig.mdt.access_times_since() > since, "reads since the backup are lost");
        let found = inode::get(rig.mdt.engine(), kept).expect("there");
        let body = found.file.expect("a file");
        for epoch in [body.layout.epoch, found.truncate_epoch, found.attr_epoch, found.data_version] {
            assert!(epoch.term > lost_term, "what cuts and moves have left at OSTs is below it: {epoch}");
        }
        assert_eq!(rig.lookup(TOP, "kept").await.expect("it was there").ino, kept);
        assert_eq!(code(rig.lookup(TOP, "later").await), Some(Code::NotFound));
        assert!(rig.mdt.live().sessions.is_empty(), "no client of the lost one goes on");
        assert_eq!(verdict(&rig, kept_object, kept_ost).await, Verdict::Owned);
        assert_eq!(verdict(&rig, late_object, late_ost).await, Verdict::Unknown, "it is kept");
        assert_eq!(verdict(&rig, later_object, later_ost).await, Verdict::Unknown, "it is kept");

        rig.join(A).await;
        let (new, new_object, new_ost) = file(&rig, "new", 104).await;
        assert!(new > later.max(late).max(kept), "{new:?}");
        assert!(new_object.generation.term > lost_term);
        assert_eq!(verdict(&rig, new_object, new_ost).await, Verdict::Owned);
        rig.unlink(TOP, "new").await.expect("removed");
        rig.close(A, new, 104).await.expect("closed");
        assert_eq!(verdict(&rig, new_object, new_ost).await, Verdict::Disowned, "of its own it knows all");
        rig.restart().await;
        assert_eq!(verdict(&rig, later_object, later_ost).await, Verdict::Unknown, "nor does it forget");
    });
}

impl Rig {
    /// Loses the disk of the MDT, and makes another from the rows of a backup.
    async fn lose_and_restore(&mut self, term: u32, lost_term: u32, rows: Rows) {
        self.mdt.engine().close().await.expect("closed");
        self.new_disk();
        let mut restoring = Restoring::begin(&self.seams, DIR, identity(), lost_term).expect("an empty disk");
        restoring.put(rows).await.expect("taken in");
        restoring.finish(term).await.expect("whole");
        self.open_again().await;
    }
}

#[test]
fn rows_of_another_mdt_make_none() {
    run(async {
        let mut rig = Rig::new().await;
        let (term, rows) = read(&rig, async || ()).await;
        rig.new_disk();
        let other = crate::config::Identity { uuid: [8; 16], ..identity() };
        let mut restoring = Restoring::begin(&rig.seams, DIR, other, 9).expect("an empty disk");
        restoring.put(rows).await.expect("taken in");
        assert_eq!(code(restoring.finish(term).await), Some(Code::BadBackup));
    });
}
