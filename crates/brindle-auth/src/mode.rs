//! Modes of protection.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Protection of frames behind the handshake, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// No handshake: any program that reaches the port is believed.
    None,
    /// Both sides prove their identities; frames are not protected after that.
    Auth,
    /// Each frame has a keyed checksum.
    Integrity,
    /// All frames are encrypted, inside TLS.
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

/// Most networks that can have a mode of their own.
pub const NETWORKS_MAX: usize = 4;

/// The mode of each network. As text: the mode of all networks, then those that differ: `auth`, `privacy:tcp1=auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes([Mode; NETWORKS_MAX]);

impl Modes {
    /// The mode of a network; of one beyond the last, the strongest.
    pub fn of(&self, network: u8) -> Mode {
        self.0.get(usize::from(network)).copied().unwrap_or(Mode::Privacy)
    }

    /// The weakest of all.
    pub fn weakest(&self) -> Mode {
        self.0.into_iter().min().unwrap_or(Mode::Privacy)
    }

    /// The strongest of all.
    pub fn strongest(&self) -> Mode {
        self.0.into_iter().max().unwrap_or(Mode::Privacy)
    }

    /// Replaces each mode by `other` of it.
    pub fn map(self, other: impl Fn(Mode) -> Mode) -> Modes {
        Modes(self.0.map(other))
    }
}

impl From<Mode> for Modes {
    fn from(mode: Mode) -> Modes {
        Modes([mode; NETWORKS_MAX])
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first network has no number, and stands for those that are not named.
        write!(f, "{}", self.0[0])?;
        let others = self.0.iter().enumerate().skip(1).filter(|(_, mode)| **mode != self.0[0]);
        others.into_iter().try_for_each(|(n, mode)| write!(f, ":tcp{n}={mode}"))
    }
}

impl FromStr for Modes {
    type Err = String;

    fn from_str(text: &str) -> Result<Modes, String> {
        let mut parts = text.split(':');
        let mut modes = Modes::from(parts.next().unwrap_or_default().parse::<Mode>()?);
        let mut named = [false; NETWORKS_MAX];
        for part in parts {
            let wanted = "after the mode of all networks comes NETWORK=MODE: auth:tcp1=privacy";
            let (network, mode) = part.split_once('=').ok_or(wanted)?;
            let number = if network == "tcp" {
                Some(0)
            } else {
                network.strip_prefix("tcp").and_then(|n| n.parse().ok())
            };
            let number = number.filter(|n| *n < NETWORKS_MAX);
            let number = number
                .ok_or_else(|| format!("'{network}' is no network: they are tcp, tcp1, tcp2 and tcp3"))?;
            if std::mem::replace(&mut named[number], true) {
                return Err(format!("'{network}' has two modes"));
            }
            modes.0[number] = mode.parse()?;
        }
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_modes_of_their_own() {
        let modes: Modes = "privacy:tcp1=auth".parse().expect("modes");
        assert_eq!(
            [0, 1, 2, 9].map(|n| modes.of(n)),
            [Mode::Privacy, Mode::Auth, Mode::Privacy, Mode::Privacy]
        );
        assert_eq!((modes.weakest(), modes.strongest()), (Mode::Auth, Mode::Privacy));
        for text in ["auth", "none", "privacy:tcp1=auth", "none:tcp2=integrity:tcp3=privacy"] {
            assert_eq!(text.parse::<Modes>().expect("modes").to_string(), text);
        }
        let first: Modes = "privacy:tcp=auth".parse().expect("modes");
        assert_eq!(first.to_string().parse::<Modes>().expect("modes"), first);
        for wrong in [
            "",
            "secret",
            "auth:",
            "auth:tcp1",
            "auth:tcp4=none",
            "auth:eth0=none",
            "auth:tcp1=x",
            "tcp1=auth",
            "auth:tcp1=none:tcp1=auth",
        ] {
            assert!(wrong.parse::<Modes>().is_err(), "{wrong}");
        }
    }
}
