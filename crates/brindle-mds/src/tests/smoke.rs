//! The thinnest slice: create, look, write, list, remove, over a restart.

use brindle_types::{Code, Ino};
use brindle_wire::mds::inline::{InlineReadReq, InlineWriteReq};
use brindle_wire::mds::readdir::ReaddirReq;

use super::rig::*;

#[test]
fn a_file_lives_over_a_restart() {
    run(async {
        let mut rig = Rig::new().await;
        let dir = rig.mkdir(Ino::ROOT, "run7").await.expect("made").ino;
        let req = create_req(dir, "out.h5", RW);
        let made = rig.ask(A, req.clone()).await.expect("made");
        let ino = made.attr.ino;
        let write = InlineWriteReq {
            ino,
            handle: req.handle,
            layout_epoch: made.grant.layout.epoch,
            offset: 2,
            append: false,
            data: "hello".into(),
            written_at: None,
            kill_suidgid: false,
            cred: root(),
            sync: true,
            promised: false,
        };
        assert_eq!(rig.ask(A, write).await.expect("written").attr.size_bytes, 7);
        rig.close(A, ino, req.handle).await.expect("closed");
        assert_eq!(code(rig.create(A, dir, "out.h5", RW).await), Some(Code::Exists));
        rig.restart().await;
        let attr = rig.lookup(dir, "out.h5").await.expect("there");
        assert_eq!((attr.ino, attr.size_bytes, attr.nlink), (ino, 7, 1));
        let read = rig.ask(A, InlineReadReq { ino }).await.expect("read");
        assert_eq!(read.data.as_deref(), Some(&b"\0\0hello"[..]));
        let list = ReaddirReq { ino: dir, after: 0, entries_max: 10, plus: true };
        let list = rig.ask(A, list).await.expect("listed");
        assert_eq!((list.entries.len(), list.end), (1, true));
        assert_eq!(list.entries[0].attr.as_ref().map(|a| a.ino), Some(ino));
        rig.unlink(dir, "out.h5").await.expect("removed");
        assert_eq!(code(rig.stat(A, ino).await), Some(Code::NotFound));
        assert_eq!(rig.lookup(Ino::ROOT, "run7").await.expect("there").nlink, 2);
    });
}
