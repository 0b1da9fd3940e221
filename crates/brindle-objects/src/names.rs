//! Names on disk: `objects/<xx>/<object>`, hashed over few enough directories that they exist soon: making one costs as
//! much as ten files in it. Directories of file systems have indexes; a hundred thousand names in one are no burden.

use brindle_stdx::crc;
use brindle_types::ObjectId;

use crate::format::put_object;

/// The directory that an object lies in.
pub fn dir_of(object: &ObjectId) -> u8 {
    let mut bytes = Vec::with_capacity(24);
    put_object(&mut bytes, object);
    crc(&bytes).to_be_bytes()[0]
}

/// Path of the directory below the target's directory.
pub fn dir(root: &str, object: &ObjectId) -> String {
    format!("{root}/objects/{:02x}", dir_of(object))
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
        assert_eq!(path("/t", &o), "/t/objects/fc/0000000000001234.2.3.1");
    }
}
