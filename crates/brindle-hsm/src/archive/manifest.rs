//! The manifest of a copy: names, owner, mode, times, extended attributes, checksum. The manifest lies beside the bytes, so that the file
//! can be made again without the file system. JSON, an object a copy; a reader passes over fields that it does not know.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brindle_types::attr::Time;
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Pair, Result};
use serde::{Deserialize, Serialize};

use super::sums::ExtentSums;

/// Longest manifest that is read: one of the longest files has 3 MiB.
pub const MANIFEST_BYTES_MAX: u64 = 8 << 20;
/// Version of the form that this release writes.
pub const VERSION: u32 = 1;

/// Bytes that are nearly always text, such as names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// Text that is UTF-8.
    Plain(String),
    /// Bytes that are not UTF-8.
    Base64 {
        /// Bytes in base64.
        base64: String,
    },
}

impl Text {
    /// The text of bytes.
    pub fn of(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text::Plain(text.to_owned()),
            Err(_) => Text::Base64 { base64: BASE64_STANDARD.encode(bytes) },
        }
    }

    /// Decodes the bytes; `Err` if they are not base64.
    pub fn bytes(&self) -> std::result::Result<Vec<u8>, String> {
        match self {
            Text::Plain(text) => Ok(text.clone().into_bytes()),
            Text::Base64 { base64 } => from_base64(base64),
        }
    }
}

/// The bytes of base64.
pub fn from_base64(text: &str) -> std::result::Result<Vec<u8>, String> {
    BASE64_STANDARD.decode(text).map_err(|e| format!("'{text}' is not base64: {e}"))
}

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, below 1e9.
    pub nanos: u32,
}

impl From<Time> for Moment {
    fn from(time: Time) -> Moment {
        Moment { secs: time.secs, nanos: time.nanos }
    }
}

impl From<Moment> for Time {
    fn from(moment: Moment) -> Time {
        Time { secs: moment.secs, nanos: moment.nanos }
    }
}

/// Owner, permissions and times of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits with set-id and sticky bits (07777).
    pub mode: u16,
    /// Last access.
    pub atime: Moment,
    /// Last change of contents.
    pub mtime: Moment,
    /// Last change of the inode.
    pub ctime: Moment,
}

impl From<&Attr> for Owned {
    fn from(attr: &Attr) -> Owned {
        Owned {
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.perm,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
        }
    }
}

/// A directory above a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Above {
    /// Path from the root of the file system, without a leading slash.
    pub path: Text,
    /// Owner, permissions, times.
    #[serde(flatten)]
    pub owned: Owned,
    /// Extended attributes, ACLs among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute, ACLs among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Name with its namespace: `user.comment`.
    pub name: Text,
    /// Value in base64.
    pub value_base64: String,
}

/// Striping of a part of the file, for an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striping {
    /// First byte of the part.
    pub start_bytes: u64,
    /// OSTs that were asked for; -1 for all.
    pub stripe_count: i32,
    /// Stripe size in bytes.
    pub stripe_size_bytes: u32,
    /// Pool that the OSTs were to be chosen from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl Xattr {
    /// The attribute of this name and value.
    pub fn of(name: &[u8], value: &[u8]) -> Xattr {
        Xattr { name: Text::of(name), value_base64: BASE64_STANDARD.encode(value) }
    }
}

/// A number that is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Number {
    /// Term of the MDT's log.
    pub term: u32,
    /// Counter within the term.
    pub counter: u64,
}

impl From<Pair> for Number {
    fn from(pair: Pair) -> Number {
        Number { term: pair.term, counter: pair.counter }
    }
}

impl From<Number> for Pair {
    fn from(number: Number) -> Pair {
        Pair { term: number.term, counter: number.counter }
    }
}

/// A copy of a file, described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the file system.
    pub file_system: String,
    /// Id of the file system, in hex.
    pub fs_id: String,
    /// The file there.
    pub fid: String,
    /// Version of the contents.
    pub data_version: Number,
    /// The attempt that has made the copy.
    pub attempt: Number,
    /// Length of the file.
    pub size_bytes: u64,
    /// BLAKE3 of its bytes, in hex.
    pub blake3: String,
    /// Checksums of its extents, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentSums>,
    /// Paths of the file from the root, without a leading slash; one for each hard link.
    pub paths: Vec<Text>,
    /// The directories above them, each before its entries.
    pub directories: Vec<Above>,
    /// Owner, permissions, times.
    #[serde(flatten)]
    pub owned: Owned,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Striping.
    pub striping: Vec<Striping>,
    /// Key of the object with the bytes, in the bucket; in a directory the name of the copy. A file that was imported has its bytes where the file
    /// system had them that it came from.
    pub object: String,
}

/// Bytes in hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum that hex digits tell.
pub fn checksum(hex: &str) -> std::result::Result<[u8; 32], String> {
    let wrong = || format!("'{hex}' is no BLAKE3 sum");
    let mut sum = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (byte, digits) in sum.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(sum)
}

impl Manifest {
    /// Reads the JSON of a manifest; `Err` has the reason.
    pub fn from_json(json: &[u8]) -> std::result::Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(json).map_err(|e| format!("it is no manifest: {e}"))?;
        match manifest.version {
            VERSION => Ok(manifest),
            other => Err(format!("it has form {other}, and this release reads form {VERSION}")),
        }
    }

    /// Enters the facts that are known once all bytes were copied.
    pub fn complete(&mut self, copy: &ArchivedCopy, object: String) {
        self.data_version = copy.data_version.into();
        self.attempt = copy.attempt.into();
        self.size_bytes = copy.size_bytes;
        self.blake3 = hex(&copy.checksum);
        self.object = object;
    }

    /// The JSON of it.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|e| Fault::new(Code::Bug).why(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_text_are_kept() {
        let both = [Text::of("gr\u{fc}n".as_bytes()), Text::of(b"\xff\x00")];
        let json = serde_json::to_string(&both).unwrap();
        assert_eq!(json, "[\"gr\u{fc}n\",{\"base64\":\"/wA=\"}]");
        assert_eq!(serde_json::from_str::<[Text; 2]>(&json).unwrap(), both);
    }

    #[test]
    fn a_manifest_of_a_later_release_can_be_read() {
        let now = Moment { secs: 5, nanos: 6 };
        let owned = Owned { uid: 1, gid: 2, mode: 0o640, atime: now, mtime: now, ctime: now };
        let number = Number { term: 1, counter: 2 };
        let manifest = Manifest {
            version: VERSION,
            file_system: "scratch".to_owned(),
            fs_id: "01".to_owned(),
            fid: "[0x1:0x2:0x0]".to_owned(),
            data_version: number,
            attempt: number,
            size_bytes: 9,
            blake3: hex(&[0xab; 32]),
            extents: Some(ExtentSums { extent_bytes: 1 << 20, blake3_base64: "eA==".to_owned() }),
            paths: vec![Text::of(b"a/b")],
            directories: vec![Above { path: Text::of(b"a"), owned, xattrs: Vec::new() }],
            owned,
            xattrs: vec![Xattr { name: Text::of(b"user.x"), value_base64: "eA==".to_owned() }],
            striping: vec![Striping {
                start_bytes: 0,
                stripe_count: -1,
                stripe_size_bytes: 1 << 20,
                pool: None,
            }],
            object: "k".to_owned(),
        };
        let json = String::from_utf8(manifest.to_json().unwrap()).unwrap();
        let later = json.replacen('{', "{\"moon\": \"full\",", 1);
        assert_eq!(serde_json::from_str::<Manifest>(&later).unwrap(), manifest);
    }
}
