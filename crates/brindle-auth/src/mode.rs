//! Modes of protection.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Protection of frames behind the handshake, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// No handshake: whoever reaches the port is believed.
    None,
    /// Both sides prove their identities; frames are not protected after that.
    Auth,
    /// Each frame has a keyed checksum.
    Integrity,
    /// All of it is encrypted, inside TLS.
    Privacy,
}

impl Mode {
    /// Modes with a handshake, the weakest first.
    pub const PROVEN: [Mode; 3] = [Mode::Auth, Mode::Integrity, Mode::Privacy];

    /// Name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Auth => "auth",
            Mode::Integrity => "integrity",
            Mode::Privacy => "privacy",
        }
    }

    /// Name in the handshake (ALPN).
    pub(crate) fn protocol(self) -> Vec<u8> {
        format!("brindle-{}/1", self.name()).into_bytes()
    }

    /// The mode of a name in the handshake.
    pub fn of_protocol(protocol: &[u8]) -> Option<Mode> {
        Mode::PROVEN.into_iter().find(|mode| mode.protocol() == protocol)
    }

    /// Names in the handshake of this mode and all stronger ones, the weakest first.
    pub(crate) fn protocols_from(self) -> Vec<Vec<u8>> {
        Mode::PROVEN.into_iter().filter(|mode| *mode >= self).map(Mode::protocol).collect()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let all = [Mode::None, Mode::Auth, Mode::Integrity, Mode::Privacy];
        let found = all.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| "the modes are none, auth, integrity and privacy".to_owned())
    }
}
