//! An entry of the file system, and the surroundings that conditions ask about.

use brindle_types::attr::Time;
use brindle_types::{FileType, HsmKind, Ino};

/// An entry of the file system, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the root of the file system, with a slash in front; `/` is the root.
    pub path: String,
    /// Whether `path` has all bytes of the real one: those that are no UTF-8 are replaced.
    pub is_exact: bool,
    /// Inode.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Last access as the MDT has it: as stat shows it.
    pub atime: Time,
    /// Since when nobody has read it: the newest of the last access, the creation and the moment from which on the file system keeps access times.
    /// `None` where it keeps none.
    pub unread_since: Option<Time>,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Flags of tiering, bits of [`brindle_types::hsm`].
    pub flags: u32,
    /// Archive; 0 for none.
    pub archive: u32,
    /// The action that is queued or under way.
    pub under_way: Option<HsmKind>,
    /// Pools of its layout.
    pub pools: Vec<String>,
    /// OSTs, one entry a stripe.
    pub osts: Vec<u16>,
    /// Of a directory: whether it is empty.
    pub is_empty_dir: bool,
    /// Extended attributes that the text asks about.
    pub xattrs: Vec<(String, Xattr)>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xattr {
    /// The entry has no such attribute.
    None,
    /// Value of the attribute.
    Value(String),
    /// The attribute exists, but its value is not known: it is too long or no UTF-8.
    Unknown,
}

impl Entry {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Depth of the entry: 0 for the root, 1 for the root's entries.
    pub fn depth(&self) -> u64 {
        match self.path.as_str() {
            "/" => 0,
            path => path.matches('/').count() as u64,
        }
    }

    /// An empty file of root, for tests and as a start.
    pub fn new(path: &str) -> Entry {
        Entry {
            path: path.to_owned(),
            is_exact: true,
            ino: Ino(0),
            kind: FileType::Regular,
            size_bytes: 0,
            allocated_bytes: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            atime: Time::default(),
            unread_since: None,
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
            flags: 0,
            archive: 0,
            under_way: None,
            pools: Vec::new(),
            osts: Vec::new(),
            is_empty_dir: false,
            xattrs: Vec::new(),
        }
    }
}

/// Names of users and groups on the host of the engine.
pub trait Names: Send + Sync {
    /// The name of a user.
    fn user(&self, uid: u32) -> Option<String>;
    /// The name of a group.
    fn group(&self, gid: u32) -> Option<String>;
    /// The number of a user.
    fn uid(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn gid(&self, name: &str) -> Option<u32>;
}

/// No names: numbers stand for themselves.
pub struct NoNames;

impl Names for NoNames {
    fn user(&self, _uid: u32) -> Option<String> {
        None
    }

    fn group(&self, _gid: u32) -> Option<String> {
        None
    }

    fn uid(&self, name: &str) -> Option<u32> {
        name.parse().ok()
    }

    fn gid(&self, name: &str) -> Option<u32> {
        name.parse().ok()
    }
}
