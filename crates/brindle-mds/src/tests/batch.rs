//! Tests of a batch's view of its own changes.

use brindle_types::Ino;

use super::rig::*;
use crate::store::inode;

#[test]
fn a_batch_sees_what_it_does_to_inodes_that_it_has_looked_at() {
    run(async {
        let rig = Rig::new().await;
        let ino = rig.ask(A, create_req(Ino::ROOT, "f", RW)).await.expect("made").attr.ino;
        assert!(rig.mdt.engine().hot().get(ino).is_some_and(|f| f.open_for_write));
        let mut changes = rig.mdt.engine().changes();
        let mut file = inode::get(&changes, ino).expect("is there");
        for uid in [7, 8] {
            file.uid = uid;
            inode::put(&mut changes, &file).expect("can be put");
            assert_eq!(inode::get(&changes, ino).map(|f| f.uid), Ok(uid));
        }
        inode::delete(&mut changes, &file).expect("can be deleted");
        assert_eq!(inode::find(&changes, ino), Ok(None));
        inode::put(&mut changes, &file).expect("can be put again");
        assert_eq!(inode::find(&changes, ino), Ok(Some(file.clone())));
        let untouched = inode::get(rig.mdt.engine(), ino).expect("the batch was not used");
        assert_ne!(untouched.uid, file.uid);

        assert_eq!(rig.mdt.engine().hot().get(ino), Some(untouched));

        let new = Ino(ino.0 + 1);
        changes.number_is_new(new);
        assert_eq!(inode::find(&changes, new), Ok(None));
        inode::put(&mut changes, &inode::Inode { ino: new, ..file.clone() }).expect("can be put");
        assert_eq!(inode::get(&changes, new).map(|f| f.uid), Ok(file.uid));
    });
}
