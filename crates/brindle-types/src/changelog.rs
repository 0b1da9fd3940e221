//! The changelog: what an MDT tells its readers of each change of the tree, under Lustre's types and numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Ino;
use crate::attr::Time;

/// Bits of an index below the term: `index = term << INDEX_TERM_SHIFT | number`.
///
/// The term is that of the MDT's opening, which is durable before anything else happens, and the number counts the records
/// of that term from 1 on. So no index is ever given out twice, not even after a power cut, and later records have larger
/// ones. There is room for 2^24 openings and for 2^40 records in each.
pub const INDEX_TERM_SHIFT: u32 = 40;

/// Flag of UNLNK and RMDIR: the last name has gone. Of RENME: the last name of what stood at the new name has gone.
pub const FLAG_LAST: u32 = 0x1;
/// Flags of SATTR, MTIME, ATIME and TRUNC: which attributes were set.
pub const FLAG_ATIME: u32 = 0x1;
/// The time of the last change of contents was set.
pub const FLAG_MTIME: u32 = 0x2;
/// The size was set.
pub const FLAG_SIZE: u32 = 0x8;
/// The permission bits were set.
pub const FLAG_MODE: u32 = 0x10;
/// The owner was set.
pub const FLAG_UID: u32 = 0x20;
/// The group was set.
pub const FLAG_GID: u32 = 0x40;

macro_rules! kinds {
    ($($number:literal $name:ident $label:literal;)*) => {
        /// Type of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum ChangeKind { $(#[doc = $label] $name = $number,)* }

        impl ChangeKind {
            /// Every type, in order of number.
            pub const ALL: &'static [ChangeKind] = &[$(ChangeKind::$name,)*];

            /// The type with this number.
            pub fn from_number(number: u8) -> Option<ChangeKind> {
                match number { $($number => Some(ChangeKind::$name),)* _ => None }
            }

            /// Label of the kind in output.
            pub fn label(self) -> &'static str {
                match self { $(ChangeKind::$name => $label,)* }
            }
        }
    };
}

kinds! {
    0 Mark "MARK";
    1 Create "CREAT";
    2 Mkdir "MKDIR";
    3 Hardlink "HLINK";
    4 Symlink "SLINK";
    5 Mknod "MKNOD";
    6 Unlink "UNLNK";
    7 Rmdir "RMDIR";
    8 Rename "RENME";
    9 RenameTo "RNMTO";
    10 Open "OPEN";
    11 Close "CLOSE";
    12 Layout "LYOUT";
    13 Truncate "TRUNC";
    14 Setattr "SATTR";
    15 Xattr "XATTR";
    16 Hsm "HSM";
    17 Mtime "MTIME";
    18 Ctime "CTIME";
    19 Atime "ATIME";
    20 Migrate "MIGRT";
    21 MirrorWrite "FLRW";
    22 Resync "RESYNC";
    23 Getxattr "GXATR";
    24 OpenRefused "NOPEN";
    99 Gap "GAP";
}

impl Serialize for ChangeKind {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u8(*self as u8)
    }
}

impl<'de> Deserialize<'de> for ChangeKind {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<ChangeKind, D::Error> {
        let number = u8::deserialize(d)?;
        ChangeKind::from_number(number)
            .ok_or_else(|| serde::de::Error::custom(format!("no record has type {number}")))
    }
}

/// A set of types of records. Records of type GAP are in no set: they are always told.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMask(pub u32);

impl ChangeMask {
    /// No type.
    pub const NONE: ChangeMask = ChangeMask(0);
    /// Every type but GAP.
    pub const ALL: ChangeMask = ChangeMask(0x1ff_ffff);
    /// The default: all types but OPEN, ATIME, GXATR and NOPEN.
    pub const DEFAULT: ChangeMask = ChangeMask(ChangeMask::ALL.0 & !(1 << 10 | 1 << 19 | 1 << 23 | 1 << 24));

    /// Whether a type is in the mask.
    pub fn has(self, kind: ChangeKind) -> bool {
        self.0.checked_shr(kind as u32).unwrap_or(0) & 1 == 1
    }

    /// The types of both.
    #[must_use]
    pub fn union(self, other: ChangeMask) -> ChangeMask {
        ChangeMask(self.0 | other.0)
    }

    /// Set that `text` makes of this one: `+XATTR -CLOSE` add to it and take from it. Names without a sign
    /// (and `ALL`) are a new set. Blanks or commas separate words.
    pub fn changed(self, text: &str) -> Result<ChangeMask, String> {
        let words = || text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty());
        let plain = words().filter(|word| !word.starts_with(['+', '-'])).count();
        if words().next().is_none() {
            return Err("it names no type".to_owned());
        }
        if plain > 0 && plain < words().count() {
            return Err("names with + or - and names without do not go together".to_owned());
        }
        let mut mask = if plain > 0 { ChangeMask::NONE } else { self };
        for word in words() {
            let bits = ChangeMask::of(word.trim_start_matches(['+', '-']))?.0;
            mask.0 = if word.starts_with('-') { mask.0 & !bits } else { mask.0 | bits };
        }
        Ok(mask)
    }

    fn of(name: &str) -> Result<ChangeMask, String> {
        if name.eq_ignore_ascii_case("all") {
            return Ok(ChangeMask::ALL);
        }
        let kinds = ChangeKind::ALL.iter().filter(|kind| ChangeMask::ALL.has(**kind));
        let found = kinds.clone().find(|kind| kind.label().eq_ignore_ascii_case(name));
        found.map(|kind| ChangeMask(1 << *kind as u32)).ok_or_else(|| {
            let known: Vec<&str> = kinds.map(|kind| kind.label()).collect();
            format!("there is no type '{name}'; there are {}, and ALL", known.join(" "))
        })
    }
}

impl fmt::Display for ChangeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<&str> =
            ChangeKind::ALL.iter().filter(|kind| self.has(**kind)).map(|kind| kind.label()).collect();
        f.write_str(&labels.join(" "))
    }
}

impl fmt::Debug for ChangeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeMask({self})")
    }
}

impl FromStr for ChangeMask {
    type Err = String;

    fn from_str(text: &str) -> Result<ChangeMask, String> {
        ChangeMask::DEFAULT.changed(text)
    }
}

/// Name before a rename.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSource {
    /// The renamed file.
    pub ino: Ino,
    /// Directory of the old name.
    pub parent: Ino,
    /// The old name.
    pub name: Vec<u8>,
}

/// A change. The record says everything by itself: nothing has to be looked up that may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Type of the change.
    pub kind: ChangeKind,
    /// Further flags of the change, by type.
    pub flags: u32,
    /// Time of the change.
    pub time: Time,
    /// Changed inode; of RENME: the inode that had the new name, if any did.
    pub target: Option<Ino>,
    /// Directory of `name`.
    pub parent: Option<Ino>,
    /// The name, where one was made, moved or removed.
    pub name: Vec<u8>,
    /// Old name; of RENME only.
    pub source: Option<ChangeSource>,
    /// User and group of the program that made the change, where they are known.
    pub user: Option<(u32, u32)>,
    /// Address of the client; empty for what the MDT did by itself.
    pub nid: String,
    /// Name of the attribute; of XATTR only.
    pub xattr: Vec<u8>,
}

impl Change {
    /// A change without particulars.
    pub fn new(kind: ChangeKind, time: Time) -> Change {
        Change {
            kind,
            flags: 0,
            time,
            target: None,
            parent: None,
            name: Vec::new(),
            source: None,
            user: None,
            nid: String::new(),
            xattr: Vec::new(),
        }
    }
}

/// Name of a reader: `cl3`, or `cl3-robinhood`.
pub fn reader_name(id: u32, name: &str) -> String {
    if name.is_empty() { format!("cl{id}") } else { format!("cl{id}-{name}") }
}

/// The number in the name of a reader.
pub fn reader_id(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("cl").map(|rest| rest.split_once('-').map_or(rest, |(number, _)| number));
    let id = number.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).and_then(|n| n.parse().ok());
    id.ok_or_else(|| format!("'{text}' is no reader of a changelog, such as cl1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_lustre_writes_them() {
        let mask = |text: &str| text.parse::<ChangeMask>();
        assert_eq!(mask("CREAT,MKDIR").unwrap().to_string(), "CREAT MKDIR");
        assert_eq!(mask("-CLOSE +atime").unwrap().0, ChangeMask::DEFAULT.0 & !(1 << 11) | 1 << 19);
        assert_eq!(mask("all"), Ok(ChangeMask::ALL));
        assert_eq!(ChangeMask::DEFAULT.to_string().parse(), Ok(ChangeMask::DEFAULT));
        assert!(mask("").is_err() && mask("GAP").is_err() && mask("+CREAT MKDIR").is_err());
        assert_eq!(
            mask("CRAET").unwrap_err(),
            "there is no type 'CRAET'; there are MARK CREAT MKDIR HLINK SLINK MKNOD UNLNK RMDIR RENME RNMTO \
             OPEN CLOSE LYOUT TRUNC SATTR XATTR HSM MTIME CTIME ATIME MIGRT FLRW RESYNC GXATR NOPEN, and ALL"
        );
        for kind in ChangeKind::ALL {
            assert_eq!(ChangeKind::from_number(*kind as u8), Some(*kind));
            assert_eq!(ChangeMask::ALL.has(*kind), *kind != ChangeKind::Gap);
        }
    }

    #[test]
    fn readers_have_a_number_and_perhaps_a_name() {
        assert_eq!((reader_name(3, ""), reader_name(3, "rbh")), ("cl3".to_owned(), "cl3-rbh".to_owned()));
        assert_eq!((reader_id("cl3"), reader_id("cl12-rbh-2")), (Ok(3), Ok(12)));
        for wrong in ["", "cl", "3", "cl-1", "clx", "cl+1", "cl99999999999"] {
            assert!(reader_id(wrong).is_err(), "{wrong}");
        }
    }
}
