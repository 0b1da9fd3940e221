//! Keys of rows: a letter, then big-endian fields, then a name where there is one.
//!
//! `I|ino` `D|dir|shard|hash|name` `X|ino|name` `P|ino|parent|name` `N|ino` `O|ino` `Q|ost|object` `C|session`
//! `R|session|slot` `U|kind|id` `B|kind|id` `A|ino|offset` `W|ino` `L|index` `H|s|ino` `H|a|ino` `M|name` (the bars are not in the bytes).

use brindle_stdx::codec::Reader;
use brindle_types::{Ino, ObjectId, Pair, SessionId};

/// Inodes.
pub const INODE: u8 = b'I';
/// Directory entries.
pub const DIRENT: u8 = b'D';
/// Extended attributes.
pub const XATTR: u8 = b'X';
/// Links of inodes with more than one name.
pub const LINK: u8 = b'P';
/// Bytes of small files and targets of symbolic links.
pub const INLINE: u8 = b'N';
/// Inodes without a name that somebody may have open.
pub const ORPHAN: u8 = b'O';
/// Objects to destroy.
pub const DESTROY: u8 = b'Q';
/// Sessions.
pub const SESSION: u8 = b'C';
/// Reply cache.
pub const REPLY: u8 = b'R';
/// Usage of users and groups.
pub const USAGE: u8 = b'U';
/// Limits of users and groups.
pub const LIMIT: u8 = b'B';
/// Reservations of appends.
pub const APPEND: u8 = b'A';
/// Inodes to look at after a restart.
pub const WATCH: u8 = b'W';
/// Records of the changelog.
pub const CHANGE: u8 = b'L';
/// Copies in archives, and actions on them.
pub const HSM: u8 = b'H';
/// Single rows: format, reservations.
pub const META: u8 = b'M';

/// Number of the only shard of a directory.
pub const SHARD: u16 = 0;

/// Builds a key.
struct Key(Vec<u8>);

impl Key {
    fn new(kind: u8) -> Key {
        let mut bytes = Vec::with_capacity(32);
        bytes.push(kind);
        Key(bytes)
    }

    fn u16(mut self, n: u16) -> Key {
        self.0.extend(n.to_be_bytes());
        self
    }

    fn u32(mut self, n: u32) -> Key {
        self.0.extend(n.to_be_bytes());
        self
    }

    fn u64(mut self, n: u64) -> Key {
        self.0.extend(n.to_be_bytes());
        self
    }

    fn name(mut self, name: &[u8]) -> Vec<u8> {
        self.0.extend(name);
        self.0
    }
}

/// The smallest key that is larger than every key beginning with `prefix`; `None` if there is none.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let cut = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut next = prefix[..=cut].to_vec();
    next[cut] += 1;
    Some(next)
}

/// Kind and inode number: `I|`, `N|`, `O|`, and the prefix of `X|`, `P|`, `A|`.
pub fn of_ino(kind: u8, ino: Ino) -> Vec<u8> {
    Key::new(kind).u64(ino.0).0
}

/// The inode number of such a key, and what stands behind it.
pub fn split_ino(key: &[u8]) -> Option<(Ino, &[u8])> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    let ino = Ino(reader.u64()?);
    Some((ino, reader.rest()))
}

/// Prefix of the entries of a directory.
pub fn dir(dir: Ino) -> Vec<u8> {
    Key::new(DIRENT).u64(dir.0).u16(SHARD).0
}

/// Prefix of the entries of a directory that have this hash.
pub fn dir_hash(dir: Ino, hash: u64) -> Vec<u8> {
    Key::new(DIRENT).u64(dir.0).u16(SHARD).u64(hash).0
}

/// An entry of a directory.
pub fn dirent(dir: Ino, hash: u64, name: &[u8]) -> Vec<u8> {
    Key::new(DIRENT).u64(dir.0).u16(SHARD).u64(hash).name(name)
}

/// Directory, hash and name of an entry's key.
pub fn split_dirent(key: &[u8]) -> Option<(Ino, u64, &[u8])> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    let dir = Ino(reader.u64()?);
    reader.u16()?;
    let hash = reader.u64()?;
    Some((dir, hash, reader.rest()))
}

/// An extended attribute.
pub fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    Key::new(XATTR).u64(ino.0).name(name)
}

/// A link.
pub fn link(ino: Ino, parent: Ino, name: &[u8]) -> Vec<u8> {
    Key::new(LINK).u64(ino.0).u64(parent.0).name(name)
}

/// Inode, parent and name of a link's key.
pub fn split_link(key: &[u8]) -> Option<(Ino, Ino, &[u8])> {
    let (ino, rest) = split_ino(key)?;
    let mut reader = Reader::new(rest);
    let parent = Ino(reader.u64()?);
    Some((ino, parent, reader.rest()))
}

/// An object to destroy.
pub fn destroy(ost: u16, object: &ObjectId) -> Vec<u8> {
    let (ino, generation) = (object.ino, object.generation);
    Key::new(DESTROY).u16(ost).u64(ino.0).u32(generation.term).u64(generation.counter).u32(object.stripe).0
}

/// Prefix of the objects to destroy at one OST.
pub fn destroy_at(ost: u16) -> Vec<u8> {
    Key::new(DESTROY).u16(ost).0
}

/// OST and object of a destroy's key.
pub fn split_destroy(key: &[u8]) -> Option<(u16, ObjectId)> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    let ost = reader.u16()?;
    let ino = Ino(reader.u64()?);
    let generation = Pair { term: reader.u32()?, counter: reader.u64()? };
    let stripe = reader.u32()?;
    reader.is_empty().then_some((ost, ObjectId { ino, generation, stripe }))
}

/// A session.
pub fn session(session: SessionId) -> Vec<u8> {
    Key::new(SESSION).u64(session.0).0
}

/// A reply.
pub fn reply(session: SessionId, slot: u16) -> Vec<u8> {
    Key::new(REPLY).u64(session.0).u16(slot).0
}

/// Prefix of the replies of a session.
pub fn replies(session: SessionId) -> Vec<u8> {
    Key::new(REPLY).u64(session.0).0
}

/// Usage of a user (0), group (1) or project (2).
pub fn usage(kind: u8, id: u32) -> Vec<u8> {
    of_owner(USAGE, kind, id)
}

/// Limits of a user (0), group (1) or project (2).
pub fn limit(kind: u8, id: u32) -> Vec<u8> {
    of_owner(LIMIT, kind, id)
}

fn of_owner(letter: u8, kind: u8, id: u32) -> Vec<u8> {
    let mut key = Key::new(letter);
    key.0.push(kind);
    key.u32(id).0
}

/// Kind and id of a key of usage or limits.
pub fn split_owner(key: &[u8]) -> Option<(u8, u32)> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    let kind = reader.u8()?;
    let id = reader.u32()?;
    reader.is_empty().then_some((kind, id))
}

/// A reservation of an append.
pub fn append(ino: Ino, offset: u64) -> Vec<u8> {
    Key::new(APPEND).u64(ino.0).u64(offset).0
}

/// Inode and offset of a reservation's key.
pub fn split_append(key: &[u8]) -> Option<(Ino, u64)> {
    let (ino, rest) = split_ino(key)?;
    Some((ino, u64::from_be_bytes(rest.try_into().ok()?)))
}

/// A record of the changelog.
pub fn change(index: u64) -> Vec<u8> {
    Key::new(CHANGE).u64(index).0
}

/// The index of such a key.
pub fn split_change(key: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    let index = reader.u64()?;
    reader.is_empty().then_some(index)
}

/// Prefix of the states of files that tiering knows of.
pub fn hsm_states() -> Vec<u8> {
    vec![HSM, b's']
}

/// Prefix of its actions.
pub fn hsm_actions() -> Vec<u8> {
    vec![HSM, b'a']
}

/// The state of a file.
pub fn hsm_state(ino: Ino) -> Vec<u8> {
    of_file(hsm_states(), ino)
}

/// The action on a file.
pub fn hsm_action(ino: Ino) -> Vec<u8> {
    of_file(hsm_actions(), ino)
}

fn of_file(prefix: Vec<u8>, ino: Ino) -> Vec<u8> {
    Key(prefix).u64(ino.0).0
}

/// The file of a key of tiering.
pub fn split_hsm(key: &[u8]) -> Option<Ino> {
    let mut reader = Reader::new(key);
    reader.u8()?;
    reader.u8()?;
    let ino = Ino(reader.u64()?);
    reader.is_empty().then_some(ino)
}

/// A row that is one of a kind.
pub fn meta(name: &str) -> Vec<u8> {
    Key::new(META).name(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn successors_are_the_smallest_larger_keys() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn keys_round_trip_and_sort_by_their_fields(
            a: (u64, u64, u32), b: (u64, u64, u32), n in proptest::collection::vec(any::<u8>(), 0..20),
            m in proptest::collection::vec(any::<u8>(), 0..20), osts: (u16, u16),
        ) {
            let key = xattr(Ino(a.0), &n);
            prop_assert_eq!(split_ino(&key), Some((Ino(a.0), &n[..])));
            let key = dirent(Ino(a.0), a.1, &n);
            prop_assert_eq!(split_dirent(&key), Some((Ino(a.0), a.1, &n[..])));
            let key = link(Ino(a.0), Ino(a.1), &n);
            prop_assert_eq!(split_link(&key), Some((Ino(a.0), Ino(a.1), &n[..])));
            prop_assert_eq!(split_append(&append(Ino(a.0), a.1)), Some((Ino(a.0), a.1)));
            prop_assert_eq!(split_owner(&usage(1, a.2)), Some((1, a.2)));
            prop_assert_eq!(split_hsm(&hsm_state(Ino(a.0))), Some(Ino(a.0)));
            prop_assert_eq!(split_hsm(&hsm_action(Ino(a.0))), Some(Ino(a.0)));
            let object = |f: (u64, u64, u32)| ObjectId {
                ino: Ino(f.0), generation: Pair { term: f.2, counter: f.1 }, stripe: f.2,
            };
            prop_assert_eq!(split_destroy(&destroy(osts.0, &object(a))), Some((osts.0, object(a))));
            let (x, y) = (dirent(Ino(a.0), a.1, &n), dirent(Ino(b.0), b.1, &m));
            prop_assert_eq!(x.cmp(&y), (a.0, a.1, &n).cmp(&(b.0, b.1, &m)));
            let (x, y) = (destroy(osts.0, &object(a)), destroy(osts.1, &object(b)));
            prop_assert_eq!(x.cmp(&y), (osts.0, object(a)).cmp(&(osts.1, object(b))));
        }
    }
}
