//! The value of a row: a version byte, then postcard.
//!
//! Each type of row has a version of its own. A type that grows keeps its older form as its [`Row::Previous`], so that
//! rows of every release can be read. A row is rewritten in the newest form when it is changed.

use brindle_types::{Change, Code, Fault, Result};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of every row of release 0.1.0. (Older numbers were used before the first release, and are refused.)
pub const FIRST_VERSION: u8 = 3;

/// A value that is stored in a row.
pub trait Row: Serialize + DeserializeOwned {
    /// Version of this form.
    const VERSION: u8;
    /// The form before this one; [`Oldest`] for the form of release 0.1.0.
    type Previous: Row;

    /// Reads what the form before this one held.
    fn from_previous(previous: Self::Previous) -> Self;
}

/// The form before the first one: there is none.
#[derive(Serialize, Deserialize)]
pub enum Oldest {}

impl Row for Oldest {
    const VERSION: u8 = 0;
    type Previous = Oldest;

    fn from_previous(previous: Oldest) -> Oldest {
        previous
    }
}

/// Declares types whose rows have the form of release 0.1.0.
macro_rules! first_form {
    ($($row:ty),+ $(,)?) => {$(
        impl $crate::store::row::Row for $row {
            const VERSION: u8 = $crate::store::row::FIRST_VERSION;
            type Previous = $crate::store::row::Oldest;

            fn from_previous(previous: Self::Previous) -> Self {
                match previous {}
            }
        }
    )+};
}
pub(crate) use first_form;

first_form!(Change, u64, Vec<u8>);

/// The bytes of a row.
pub fn encode<T: Row>(row: &T) -> Bytes {
    brindle_wire::frame::encode_behind([T::VERSION], row)
}

/// Reads a row of any release up to this one; `what` and `key` name it where it is damaged.
pub fn decode<T: Row>(what: &'static str, key: &[u8], bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&version, _)) if version > T::VERSION => Err(Fault::new(Code::NewerFormat)
            .what("cannot read a row of")
            .subject(what)
            .why(format!("its version is {version}, this release knows {}", T::VERSION))),
        Some((&version, rest)) => decode_form(version, rest).map_err(|why| damaged(what, key, why)),
        None => Err(damaged(what, key, "it is empty".into())),
    }
}

/// Reads the form of a version; says why where it does not decode.
fn decode_form<T: Row>(version: u8, bytes: &[u8]) -> std::result::Result<T, String> {
    if version == T::VERSION {
        return match postcard::take_from_bytes(bytes) {
            Ok((row, [])) => Ok(row),
            Ok((_, left)) => Err(format!("{} bytes are left over", left.len())),
            Err(e) => Err(e.to_string()),
        };
    }
    if version > T::Previous::VERSION || T::Previous::VERSION == Oldest::VERSION {
        return Err(format!("no release has written version {version} of it"));
    }
    decode_form(version, bytes).map(T::from_previous)
}

/// A row that does not decode.
pub fn damaged(what: &'static str, key: &[u8], why: String) -> Fault {
    let key: String = key.escape_ascii().to_string();
    Fault::new(Code::KvDamaged).subject(format!("{what} row '{key}'")).why(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct First {
        owner: u32,
    }
    first_form!(First);

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Grown {
        owner: u32,
        project: u32,
    }

    impl Row for Grown {
        const VERSION: u8 = 5;
        type Previous = First;

        fn from_previous(previous: First) -> Grown {
            Grown { owner: previous.owner, project: 7 }
        }
    }

    #[test]
    fn a_row_that_grew_is_read_in_both_forms_and_written_in_the_newest() {
        let old = encode(&First { owner: 300 });
        assert_eq!(decode::<Grown>("owner", b"k", &old), Ok(Grown { owner: 300, project: 7 }));
        let new = encode(&Grown { owner: 300, project: 8 });
        assert_eq!(new[0], 5);
        assert_eq!(decode::<Grown>("owner", b"k", &new), Ok(Grown { owner: 300, project: 8 }));
    }

    #[test]
    fn versions_that_nobody_wrote_are_damage_and_later_ones_are_newer() {
        let refused = |version| decode::<Grown>("owner", b"k", &[version, 1, 1]).expect_err("refused").code;
        assert_eq!(refused(6), Code::NewerFormat);
        for version in [0, 1, 2, 4] {
            assert_eq!(refused(version), Code::KvDamaged, "{version}");
        }
    }
}
