//! POSIX ACLs: the binary form of system.posix_acl_access and _default, and their effect on mode bits. Pure.

use brindle_types::{Code, Fault, Result};
use brindle_wire::Cred;

/// Extended attribute of the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Extended attribute of the default ACL of a directory.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether an extended attribute is an ACL.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Version word of the binary form.
const VERSION: u32 = 2;
/// Bytes before the first entry.
const HEADER_BYTES: usize = 4;
/// Bytes of an entry: tag, permissions, id.
const ENTRY_BYTES: usize = 8;
/// Id of entries that name nobody.
const NO_ID: u32 = u32::MAX;
/// Permission bits of one entry.
const RWX: u16 = 0o7;

/// Tag of an entry; the numbers are those of the binary form, and their order is that of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Tag {
    /// The owner.
    Owner = 0x01,
    /// A named user.
    User = 0x02,
    /// The owning group.
    OwningGroup = 0x04,
    /// A named group.
    Group = 0x08,
    /// Upper bound of all but owner and others.
    Mask = 0x10,
    /// All other users.
    Other = 0x20,
}

impl Tag {
    fn from_number(n: u16) -> Option<Tag> {
        [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Other]
            .into_iter()
            .find(|t| *t as u16 == n)
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// User or group of the entry.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
    /// User or group of named entries.
    pub id: u32,
}

/// A valid ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

fn invalid(why: &'static str) -> Fault {
    Fault::new(Code::InvalidArgument).what("cannot use the ACL").why(why)
}

impl Acl {
    /// Reads the binary form. `None` for an ACL without entries, which means that there is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<Acl>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(invalid("it is too short"));
        };
        if header != VERSION.to_le_bytes() {
            return Err(Fault::new(Code::NotSupported)
                .what("cannot use the ACL")
                .why("its version is not 2"));
        }
        if rest.len() % ENTRY_BYTES != 0 {
            return Err(invalid("it does not end with an entry"));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(rest.len() / ENTRY_BYTES);
        for raw in rest.chunks_exact(ENTRY_BYTES) {
            let number = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
            let tag = Tag::from_number(number(0)).ok_or_else(|| invalid("an entry has an unknown tag"))?;
            let id = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]);
            let named = matches!(tag, Tag::User | Tag::Group);
            entries.push(Entry { tag, perm: number(2), id: if named { id } else { NO_ID } });
        }
        let acl = Acl(entries);
        acl.check()?;
        Ok(Some(acl))
    }

    /// The binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend((entry.tag as u16).to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// The kernel's rules: entries in order of tag, one owner, one owning group, one for others, and a mask where there
    /// are named entries.
    fn check(&self) -> Result<()> {
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        if self.0.iter().any(|e| e.perm & !RWX != 0) {
            return Err(invalid("an entry has unknown permissions"));
        }
        if !self.0.is_sorted_by_key(|e| e.tag) {
            return Err(invalid("its entries are out of order"));
        }
        if [Tag::Owner, Tag::OwningGroup, Tag::Other].iter().any(|tag| count(*tag) != 1) {
            return Err(invalid("it needs one entry for the owner, one for the group, one for others"));
        }
        let named = count(Tag::User) + count(Tag::Group) > 0;
        if count(Tag::Mask) > 1 || (named && count(Tag::Mask) == 0) {
            return Err(invalid("it needs one mask"));
        }
        if self.0.iter().any(|e| matches!(e.tag, Tag::User | Tag::Group) && e.id == NO_ID) {
            return Err(invalid("an entry names nobody"));
        }
        Ok(())
    }

    fn perm(&self, tag: Tag) -> Option<u16> {
        self.0.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    /// The nine mode bits that stand for it; group bits are the mask's.
    pub fn mode_bits(&self) -> u16 {
        let group = self.perm(Tag::Mask).or(self.perm(Tag::OwningGroup)).unwrap_or(0);
        self.perm(Tag::Owner).unwrap_or(0) << 6 | group << 3 | self.perm(Tag::Other).unwrap_or(0)
    }

    /// Whether the ACL is equivalent to mode bits.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Follows a chmod.
    pub fn set_mode_bits(&mut self, mode: u16) {
        let group_tag = if self.perm(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        for entry in &mut self.0 {
            match entry.tag {
                Tag::Owner => entry.perm = mode >> 6 & RWX,
                Tag::Other => entry.perm = mode & RWX,
                tag if tag == group_tag => entry.perm = mode >> 3 & RWX,
                _ => {}
            }
        }
    }

    /// Access ACL of an object made with `mode` in a directory that has this default ACL, and the mode bits
    /// of the object.
    pub fn inherit(&self, mode: u16) -> (Acl, u16) {
        let mut acl = self.clone();
        let group_tag = if self.perm(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        for entry in &mut acl.0 {
            match entry.tag {
                Tag::Owner => entry.perm &= mode >> 6 & RWX,
                Tag::Other => entry.perm &= mode & RWX,
                tag if tag == group_tag => entry.perm &= mode >> 3 & RWX,
                _ => {}
            }
        }
        let bits = acl.mode_bits();
        (acl, bits)
    }

    /// Whether an entry names a user.
    pub fn names_user(&self, uid: u32) -> bool {
        self.0.iter().any(|e| e.tag == Tag::User && e.id == uid)
    }

    /// Permissions of members of each group that `may_be_in` names, on something that belongs to `group`.
    pub fn group_perms(&self, group: u32, may_be_in: impl Fn(u32) -> bool) -> impl Iterator<Item = u16> {
        let mask = self.perm(Tag::Mask).unwrap_or(RWX);
        let of_group = move |e: &&Entry| match e.tag {
            Tag::OwningGroup => may_be_in(group),
            Tag::Group => may_be_in(e.id),
            _ => false,
        };
        self.0.iter().filter(of_group).map(move |e| e.perm & mask)
    }

    /// All permissions that users can have on something of this owner and group, if they are those that `may_be` names, in groups that
    /// `may_be_in` names.
    pub fn perms(
        &self,
        owner: u32,
        group: u32,
        may_be: impl Fn(u32) -> bool,
        may_be_in: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = u16> {
        let mask = self.perm(Tag::Mask).unwrap_or(RWX);
        let of_user = move |e: &Entry| match e.tag {
            Tag::Owner => may_be(owner).then_some(e.perm),
            Tag::User => (e.id != owner && may_be(e.id)).then_some(e.perm & mask),
            Tag::Other => Some(e.perm),
            _ => None,
        };
        self.0.iter().filter_map(of_user).chain(self.group_perms(group, may_be_in))
    }

    /// An ACL whose entries name other users and groups; `None` if one of them has no other number.
    pub fn with_numbers(
        &self,
        user: impl Fn(u32) -> Option<u32>,
        group: impl Fn(u32) -> Option<u32>,
    ) -> Option<Acl> {
        let named = |entry: &Entry| match entry.tag {
            Tag::User => user(entry.id),
            Tag::Group => group(entry.id),
            _ => Some(entry.id),
        };
        let entries = self.0.iter().map(|entry| Some(Entry { id: named(entry)?, ..*entry }));
        entries.collect::<Option<_>>().map(Acl)
    }

    /// Whether the ACL grants all of `wanted` (read 4, write 2, execute 1) on something of this owner and group.
    pub fn allows(&self, owner: u32, group: u32, cred: &Cred, wanted: u16) -> bool {
        let mask = self.perm(Tag::Mask).unwrap_or(RWX);
        let covers = |perm: u16| perm & wanted == wanted;
        if cred.uid == owner {
            return covers(self.perm(Tag::Owner).unwrap_or(0));
        }
        if let Some(named) = self.0.iter().find(|e| e.tag == Tag::User && e.id == cred.uid) {
            return covers(named.perm & mask);
        }
        let member = |gid: u32| cred.gid == gid || cred.groups.contains(&gid);
        let mut matched = false;
        for entry in &self.0 {
            let gid = match entry.tag {
                Tag::OwningGroup => group,
                Tag::Group => entry.id,
                _ => continue,
            };
            if member(gid) {
                matched = true;
                if covers(entry.perm & mask) {
                    return true;
                }
            }
        }
        !matched && covers(self.perm(Tag::Other).unwrap_or(0))
    }

    /// The ACL that mode bits stand for.
    pub fn from_mode(mode: u16) -> Acl {
        let entry = |tag, shift: u16| Entry { tag, perm: mode >> shift & RWX, id: NO_ID };
        Acl(vec![entry(Tag::Owner, 6), entry(Tag::OwningGroup, 3), entry(Tag::Other, 0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(tag: Tag, perm: u16, id: u32) -> Entry {
        Entry { tag, perm, id }
    }

    fn sample() -> Acl {
        Acl(vec![
            entry(Tag::Owner, 7, NO_ID),
            entry(Tag::User, 6, 1000),
            entry(Tag::OwningGroup, 5, NO_ID),
            entry(Tag::Group, 7, 50),
            entry(Tag::Mask, 5, NO_ID),
            entry(Tag::Other, 0, NO_ID),
        ])
    }

    #[test]
    fn mode_bits_and_masks_follow_each_other() {
        let mut acl = sample();
        assert_eq!(acl.mode_bits(), 0o750);
        acl.set_mode_bits(0o624);
        assert_eq!(acl.mode_bits(), 0o624);
        assert_eq!(acl.perm(Tag::OwningGroup), Some(5), "chmod changes the mask, not the group");
        let (inherited, bits) = sample().inherit(0o666);
        assert_eq!(bits, 0o640);
        assert_eq!(inherited.perm(Tag::User), Some(6));
        assert!(Acl::from_mode(0o751).is_minimal());
        assert_eq!(Acl::from_mode(0o751).mode_bits(), 0o751);
    }

    #[test]
    fn permissions_are_bounded_by_the_mask() {
        let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
        let allows = |c: Cred, wanted| sample().allows(1, 2, &c, wanted);
        assert!(allows(cred(1, 9, &[]), 7));
        assert!(allows(cred(1000, 9, &[]), 4) && !allows(cred(1000, 9, &[]), 2));
        assert!(allows(cred(5, 50, &[]), 5) && !allows(cred(5, 50, &[]), 2));
        assert!(allows(cred(5, 9, &[2]), 5));
        assert!(!allows(cred(5, 9, &[]), 4), "others have nothing");
    }

    #[test]
    fn impossible_acls_are_refused() {
        let refused = |entries: &[Entry]| Acl::decode(&Acl(entries.to_vec()).encode()).is_err();
        assert!(!refused(&sample().0));
        assert!(refused(&sample().0[..5]), "nobody else");
        let mut no_mask = sample().0;
        no_mask.remove(4);
        assert!(refused(&no_mask));
        let mut swapped = sample().0;
        swapped.swap(0, 1);
        assert!(refused(&swapped));
        assert_eq!(Acl::decode(&[]), Ok(None));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), Ok(None));
        assert!(Acl::decode(&[1, 0, 0, 0]).is_err());
        assert!(Acl::decode(&[2, 0, 0, 0, 1]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn decoding_never_panics_and_encoding_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut framed = vec![2, 0, 0, 0];
            framed.extend(&bytes);
            if let Ok(Some(acl)) = Acl::decode(&framed) {
                prop_assert_eq!(Acl::decode(&acl.encode()), Ok(Some(acl)));
            }
        }
    }
}
