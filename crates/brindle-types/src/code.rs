//! The registry of fault codes: number, name, errno, title, advice, explanation.
//!
//! Ranges: 1xxx configuration and command line, 2xxx client I/O, 3xxx MDS, 4xxx OSS, 5xxx MGS and map, 6xxx HSM and
//! policy, 7xxx burst buffer, 8xxx network and protocol, 9xxx bugs. A number is never reused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::errno::*;

macro_rules! codes {
    ($($number:literal $name:ident $errno:ident $title:literal $advice:literal $explanation:literal;)*) => {
        /// A stable fault code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[allow(missing_docs)]
        pub enum Code { $(#[doc = $title] $name = $number,)* }

        impl Code {
            /// Every code, in order of number.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code with this number.
            pub fn from_number(number: u16) -> Option<Code> {
                match number { $($number => Some(Code::$name),)* _ => None }
            }

            /// Error number that system calls return.
            pub fn errno(self) -> i32 {
                match self { $(Code::$name => $errno,)* }
            }

            /// Title: the event, in general.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// Advice, in general; may be empty.
            pub fn advice(self) -> &'static str {
                match self { $(Code::$name => $advice,)* }
            }

            /// A paragraph for `brindle explain` and the reference page.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$name => $explanation,)* }
            }
        }
    };
}

include!("registry.rs");

impl Code {
    /// The number behind the `E`.
    pub fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.number())
    }
}

impl FromStr for Code {
    type Err = String;

    fn from_str(s: &str) -> Result<Code, String> {
        let digits = s.trim_start_matches(['E', 'e']);
        let known = digits.parse().ok().and_then(Code::from_number);
        known.ok_or_else(|| format!("'{s}' is not a known code such as E3001"))
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u16(self.number())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Code, D::Error> {
        // A newer peer may send a code that this version does not know; it stays readable as E9002.
        Ok(Code::from_number(u16::deserialize(d)?).unwrap_or(Code::UnknownCode))
    }
}
