//! Names on disk: `objects/<xx>/<yy>/<object>`, hashed so that directories stay small.

use brindle_stdx::crc;
use brindle_types::ObjectId;

use crate::format::put_object;

/// The two levels of directories that an object lies under.
pub fn dirs_of(object: &ObjectId) -> (u8, u8) {
    let mut bytes = Vec::with_capacity(24);
    put_object(&mut bytes, object);
    let [x, y, ..] = crc(&bytes).to_be_bytes();
    (x, y)
}

/// Path of the directory below the target's directory.
pub fn dir(root: &str, object: &ObjectId) -> String {
    let (x, y) = dirs_of(object);
    format!("{root}/objects/{x:02x}/{y:02x}")
}

/// Path of the object's file.
pub fn path(root: &str, object: &ObjectId) -> String {
    format!("{}/{object}", dir(root, object))
}

/// Path of a quarantined object's file.
pub fn quarantine_path(root: &str, object: &ObjectId) -> String {
    format!("{root}/quarantine/{object}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, Pair};

    #[test]
    fn names_never_move() {
        let o = ObjectId { ino: Ino(0x1234), generation: Pair { term: 2, counter: 3 }, stripe: 1 };
        assert_eq!(path("/t", &o), "/t/objects/fc/e6/0000000000001234.2.3.1");
    }
}
