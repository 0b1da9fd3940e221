//! Forms: how stored types grow from release to release.
//!
//! The bytes of a stored value are the version of its form (one byte), then postcard. A type that grows keeps its older form as
//! [`Form::Previous`], so that bytes of any release can be read. A changed value is written in the newest form, but never in a form
//! newer than the *format level* of its file system: until every host can read that form, an old host must be able to take over.

use brindle_types::{Change, Code, Fault};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame::encode_behind;

/// Newest forms that may be written in a file system. An administrator raises the level when every server can
/// read the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FormatLevel(pub u16);

impl FormatLevel {
    /// The level of release 0.1.0.
    pub const FIRST: FormatLevel = FormatLevel(1);
    /// The level from which inodes have projects, and owners soft and default limits.
    pub const PROJECTS: FormatLevel = FormatLevel(2);
    /// The level from which stored answers say the version of the protocol that they are in.
    pub const STORED_VERSIONS: FormatLevel = FormatLevel(3);
    /// The newest level that this release reads and writes.
    pub const NEWEST: FormatLevel = FormatLevel::STORED_VERSIONS;

    /// Version of the protocol that answers are stored in: every host of a file system of this level speaks it.
    pub fn protocol(self) -> u16 {
        if self < FormatLevel::STORED_VERSIONS { 2 } else { 3 }
    }
}

impl Default for FormatLevel {
    fn default() -> FormatLevel {
        FormatLevel::FIRST
    }
}

/// A form of a stored type.
pub trait Form: Serialize + DeserializeOwned {
    /// Version of this form, greater than that of the one before.
    const VERSION: u8;
    /// The level of a file system from which this form is written.
    const LEVEL: FormatLevel;
    /// The form before this one; [`Oldest`] for the first.
    type Previous: Form;

    /// Reads what the form before this one held.
    fn from_previous(previous: Self::Previous) -> Self;

    /// The value in the form before this one; `None` if that form cannot hold it.
    fn to_previous(&self) -> Option<Self::Previous>;
}

/// The form before the first one: there is none.
#[derive(Debug, Serialize, Deserialize)]
pub enum Oldest {}

impl Form for Oldest {
    const VERSION: u8 = 0;
    const LEVEL: FormatLevel = FormatLevel::FIRST;
    type Previous = Oldest;

    fn from_previous(previous: Oldest) -> Oldest {
        previous
    }

    fn to_previous(&self) -> Option<Oldest> {
        None
    }
}

/// Declares types in their first form, with its version.
#[macro_export]
macro_rules! first_form {
    ($version:expr => $($form:ty),+ $(,)?) => {$(
        impl $crate::form::Form for $form {
            const VERSION: u8 = $version;
            const LEVEL: $crate::form::FormatLevel = $crate::form::FormatLevel::FIRST;
            type Previous = $crate::form::Oldest;

            fn from_previous(previous: Self::Previous) -> Self {
                match previous {}
            }

            fn to_previous(&self) -> Option<Self::Previous> {
                None
            }
        }
    )+};
}

// Values of rows that are types of others.
first_form!(3 => Change, u64, Vec<u8>);

/// Reason why bytes are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A later release has written them, in this version.
    Newer {
        /// The version found.
        found: u8,
        /// The newest that is known here.
        known: u8,
    },
    /// The bytes are damaged.
    Damaged(String),
}

impl Unreadable {
    /// The fault of a value of a later release; `damaged` makes that of a damaged one.
    pub fn fault(self, what: &'static str, damaged: impl FnOnce(String) -> Fault) -> Fault {
        match self {
            Unreadable::Newer { found, known } => Fault::new(Code::NewerFormat)
                .what("cannot read")
                .subject(what)
                .why(format!("its version is {found}, this release knows {known}"))
                .data("nothing was changed"),
            Unreadable::Damaged(why) => damaged(why),
        }
    }
}

/// The bytes of a value in a file system of this level. `NewerFormat` if it says something that no form up to that level can say.
pub fn encode<T: Form>(level: FormatLevel, value: &T) -> Result<Bytes, Fault> {
    if T::LEVEL <= level {
        return Ok(encode_behind([T::VERSION], value));
    }
    let previous = value.to_previous().ok_or_else(|| {
        Fault::new(Code::NewerFormat)
            .what("cannot be written yet: a")
            .subject(std::any::type_name::<T>())
            .why(format!("it needs format level {}, the file system has {}", T::LEVEL.0, level.0))
            .data("nothing was changed")
            .next("upgrade all servers, then: brindle fs upgrade")
    })?;
    encode(level, &previous)
}

/// Reads a value that any release up to this one has written.
pub fn decode<T: Form>(bytes: &[u8]) -> Result<T, Unreadable> {
    match bytes.split_first() {
        Some((&found, _)) if found > T::VERSION => Err(Unreadable::Newer { found, known: T::VERSION }),
        Some((&version, rest)) => decode_version(version, rest).map_err(Unreadable::Damaged),
        None => Err(Unreadable::Damaged("it is empty".into())),
    }
}

/// Reads the form of a version; says why where it does not decode.
pub fn decode_version<T: Form>(version: u8, bytes: &[u8]) -> Result<T, String> {
    if version == T::VERSION {
        return match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, left)) => Err(format!("{} bytes are left over", left.len())),
            Err(e) => Err(e.to_string()),
        };
    }
    if version > T::Previous::VERSION || T::Previous::VERSION == Oldest::VERSION {
        return Err(format!("no release has written version {version} of it"));
    }
    decode_version(version, bytes).map(T::from_previous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct First {
        owner: u32,
    }
    first_form!(3 => First);

    /// A field more, written from level 2 on.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Grown {
        owner: u32,
        project: u32,
    }

    impl Form for Grown {
        const VERSION: u8 = 5;
        const LEVEL: FormatLevel = FormatLevel(2);
        type Previous = First;

        fn from_previous(previous: First) -> Grown {
            Grown { owner: previous.owner, project: 0 }
        }

        fn to_previous(&self) -> Option<First> {
            (self.project == 0).then_some(First { owner: self.owner })
        }
    }

    const OLD: FormatLevel = FormatLevel::FIRST;
    const NEW: FormatLevel = FormatLevel(2);

    #[test]
    fn a_value_that_grew_is_read_in_both_forms_and_written_in_the_newest_that_all_can_read() {
        let old = encode(OLD, &First { owner: 300 }).expect("fits");
        assert_eq!(decode::<Grown>(&old), Ok(Grown { owner: 300, project: 0 }));
        let plain = Grown { owner: 300, project: 0 };
        assert_eq!(encode(OLD, &plain), Ok(old), "an old server can take over");
        let new = encode(NEW, &plain).expect("fits");
        assert_eq!((new[0], decode::<Grown>(&new)), (5, Ok(plain)));
        assert_eq!(decode::<First>(&new), Err(Unreadable::Newer { found: 5, known: 3 }));
    }

    #[test]
    fn what_an_old_server_could_not_read_is_refused_and_says_what_to_do() {
        let grown = Grown { owner: 300, project: 8 };
        let fault = encode(OLD, &grown).expect_err("refused");
        assert_eq!(fault.code, Code::NewerFormat);
        assert!(fault.to_string().contains("format level 2, the file system has 1"), "{fault}");
        assert_eq!(decode::<Grown>(&encode(NEW, &grown).expect("fits")), Ok(grown));
    }

    #[test]
    fn versions_that_nobody_wrote_are_damage_and_later_ones_are_newer() {
        assert_eq!(decode::<Grown>(&[6, 1, 1]), Err(Unreadable::Newer { found: 6, known: 5 }));
        for version in [0, 1, 2, 4] {
            assert!(matches!(decode::<Grown>(&[version, 1, 1]), Err(Unreadable::Damaged(_))), "{version}");
        }
        assert!(matches!(decode::<Grown>(&[]), Err(Unreadable::Damaged(_))));
    }
}
