//! Times of last access: which reads change them, whom that disturbs, and since when they are kept.

use brindle_types::attr::Time;
use brindle_types::{Code, Ino, Pair, SessionId};
use brindle_wire::Op;
use brindle_wire::mds::lookup::LookupReq;
use brindle_wire::mds::note_access::{ACCESSES_MAX, Accessed, NoteAccessReq};
use brindle_wire::mds::setattr::{SetTime, SetattrReq};

use super::leases::handle_of;
use super::rig::*;
use crate::mdt::Call;
use crate::store::meta::{self, AccessTimes};
use crate::store::{Inode, inode, keys};

const TOP: Ino = Ino::ROOT;

async fn file(rig: &Rig) -> Ino {
    let ino = rig.create(A, TOP, "f", RW).await.expect("made").attr.ino;
    rig.close(A, ino, handle_of(rig, ino)).await.expect("closed");
    ino
}

fn row(rig: &Rig, ino: Ino) -> Inode {
    inode::get(rig.mdt.engine(), ino).expect("there")
}

/// A session reports a read at a time, by a client that knew the last change of times.
async fn read(rig: &Rig, session: SessionId, ino: Ino, at: Time) {
    let attr_epoch = row(rig, ino).attr_epoch;
    tell(rig, session, Accessed { ino, at, attr_epoch }).await;
}

async fn tell(rig: &Rig, session: SessionId, read: Accessed) {
    rig.ask(session, NoteAccessReq { files: vec![read] }).await.expect("noted");
}

async fn set(rig: &Rig, ino: Ino, atime: Option<SetTime>, mtime: Option<SetTime>) {
    rig.ask(A, SetattrReq { atime, mtime, ..setattr_req(ino, root()) }).await.expect("set");
}

#[test]
fn a_read_counts_when_the_file_is_newer_and_never_goes_back_or_ahead() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let made = row(&rig, ino);
        let first = rig.mdt.time();
        read(&rig, A, ino, first).await;
        assert_eq!(row(&rig, ino), Inode { atime: first, ..made.clone() }, "nothing else changes");
        read(&rig, B, ino, rig.mdt.time()).await;
        assert_eq!(row(&rig, ino).atime, first, "once a day is enough");
        set(&rig, ino, None, Some(SetTime::Now)).await;
        read(&rig, A, ino, first).await;
        assert_eq!(row(&rig, ino).atime, first, "it was read before");
        let tomorrow = Time { secs: rig.mdt.time().secs + 100_000, nanos: 0 };
        let before = rig.mdt.time();
        read(&rig, B, ino, tomorrow).await;
        let second = row(&rig, ino).atime;
        assert!(second >= before && second <= rig.mdt.time(), "a clock that is ahead");
        rig.verify();
    });
}

#[test]
fn a_time_that_was_set_is_undone_only_by_later_reads() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let (read_at, known) = (rig.mdt.time(), row(&rig, ino).attr_epoch);
        let old = Time { secs: 100, nanos: 5 };
        set(&rig, ino, Some(SetTime::At(old)), None).await;
        tell(&rig, B, Accessed { ino, at: read_at, attr_epoch: known }).await;
        assert_eq!(row(&rig, ino).atime, old, "the read was earlier, and is told later");
        let later = rig.mdt.time();
        tell(&rig, B, Accessed { ino, at: later, attr_epoch: known }).await;
        assert_eq!(row(&rig, ino).atime, later, "the reader had it open all the time");
        // Another change of the inode does not hide an earlier read.
        set(&rig, ino, Some(SetTime::At(old)), None).await;
        let read_at = rig.mdt.time();
        let chmod = SetattrReq { mode: Some(0o600), ..setattr_req(ino, root()) };
        rig.ask(A, chmod).await.expect("changed");
        read(&rig, B, ino, read_at).await;
        assert_eq!(row(&rig, ino).atime, read_at);
    });
}

#[test]
fn nobodys_lease_is_recalled_and_the_reader_is_told() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let look = LookupReq { parent: TOP, name: b"f".to_vec() };
        for session in [A, B] {
            rig.ask(session, look.clone()).await.expect("found");
        }
        rig.clients.take_asked();
        let at = rig.mdt.time();
        let call = rig.call::<NoteAccessReq>(B);
        let files = vec![Accessed { ino, at, attr_epoch: Pair::ZERO }];
        rig.send(&call, &NoteAccessReq { files }).await.expect("noted");
        let told = call.take_cache_updates().inodes;
        let shown = told[0].known.as_ref().map(|known| known.attr.atime);
        assert_eq!((told.len(), told[0].ino, shown), (1, ino, Some(at)));
        let asked = rig.clients.take_asked();
        assert!(!asked.iter().any(|(_, op, _)| *op == Op::LeaseNotice), "{asked:?}");
        assert_eq!(rig.stat(A, ino).await.expect("there").atime, at, "whoever asks is told");
    });
}

#[test]
fn only_files_that_are_there_count_and_no_more_than_one_request_holds() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        let (dir_before, at) = (row(&rig, dir), rig.mdt.time());
        let of = |ino| Accessed { ino, at, attr_epoch: Pair::ZERO };
        let too_many = NoteAccessReq { files: vec![of(ino); ACCESSES_MAX + 1] };
        assert_eq!(code(rig.ask(A, too_many).await), Some(Code::InvalidArgument));
        assert!(row(&rig, ino).atime < at, "nothing was changed");
        let wrong = Time { secs: at.secs, nanos: 1_000_000_000 };
        let before = row(&rig, ino);
        let files = vec![of(ino), Accessed { at: wrong, ..of(ino) }];
        assert_eq!(code(rig.ask(A, NoteAccessReq { files }).await), Some(Code::InvalidArgument));
        let set = SetattrReq { mtime: Some(SetTime::At(wrong)), ..setattr_req(ino, root()) };
        assert_eq!(code(rig.ask(A, set).await), Some(Code::InvalidArgument));
        assert_eq!(row(&rig, ino), before);
        let files = vec![of(dir), of(Ino(0x7777)), of(Ino(0)), of(ino)];
        rig.ask(A, NoteAccessReq { files }).await.expect("noted");
        assert_eq!((row(&rig, dir), row(&rig, ino).atime), (dir_before, at));
        let nobody = rig.ask(SessionId(99), NoteAccessReq { files: vec![of(ino)] }).await;
        assert_eq!(code(nobody), Some(Code::StaleSession));
        rig.verify();
    });
}

#[test]
fn a_row_that_cannot_be_read_does_not_hold_up_the_other_files() {
    run(async {
        let rig = Rig::new().await;
        let ino = file(&rig).await;
        let (damaged, newer, at) = (Ino(0x7777), Ino(0x7778), rig.mdt.time());
        let call = Call::internal(Op::NoteAccess);
        let put = rig.mdt.step(&call, |t| {
            t.put(keys::of_ino(keys::INODE, damaged), vec![0]);
            t.put(keys::of_ino(keys::INODE, newer), vec![0xff]);
            Ok(())
        });
        put.await.expect("put");
        let of = |ino| Accessed { ino, at, attr_epoch: Pair::ZERO };
        let files = vec![of(damaged), of(newer), of(ino)];
        rig.ask(A, NoteAccessReq { files }).await.expect("noted");
        assert_eq!(row(&rig, ino).atime, at);
        assert_eq!(
            inode::find(rig.mdt.engine(), damaged).map(|_| ()).map_err(|fault| fault.code),
            Err(Code::KvDamaged)
        );
    });
}

#[test]
fn access_times_are_kept_since_the_last_term_without_them() {
    run(async {
        let mut rig = Rig::new().await;
        let since = rig.mdt.access_times_since();
        assert!(since <= rig.mdt.time());
        rig.restart().await;
        rig.restart().await;
        assert_eq!(rig.mdt.access_times_since(), since, "restarts lose nothing");
        let told = rig.ask(A, NoteAccessReq { files: Vec::new() }).await;
        assert_eq!(told.expect("told").since, since);
        // Leave the row as an earlier release does, which takes terms and does not know the row.
        let term = rig.mdt.engine().term() - 1;
        let call = Call::internal(Op::NoteAccess);
        let put = rig.mdt.step(&call, |t| {
            meta::put_access_times(t, AccessTimes { since, term });
            Ok(())
        });
        put.await.expect("put");
        rig.restart().await;
        assert!(rig.mdt.access_times_since() > since, "reads between the terms were not told");
        // The clock was set back meanwhile.
        let later = Time { secs: rig.mdt.time().secs + 1_000_000, nanos: 0 };
        let term = rig.mdt.engine().term() - 1;
        let put = rig.mdt.step(&call, |t| {
            meta::put_access_times(t, AccessTimes { since: later, term });
            Ok(())
        });
        put.await.expect("put");
        rig.restart().await;
        assert_eq!(rig.mdt.access_times_since(), later, "it never goes back");
    });
}
