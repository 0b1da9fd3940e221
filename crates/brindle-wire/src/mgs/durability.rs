//! Durability of targets (`durability=`): the moment at which a change is answered. The MGS keeps it, servers follow it.

use std::fmt;
use std::str::FromStr;

use brindle_types::TargetId;
use serde::{Deserialize, Serialize};

use crate::{first_form, message};

/// Name of the counter of a target that tells its mode, by [`Mode::number`].
pub const COUNTER: &str = "durability_mode";

/// The moment at which a change of a target is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// When every member in sync has written it. It is synced within a second (MDT), or a few (OST).
    #[default]
    Relaxed,
    /// When every member in sync has synced it.
    Sync,
    /// As `Relaxed`; nothing is synced for its own sake, not even by fsync.
    Scratch,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 3] = [Mode::Relaxed, Mode::Sync, Mode::Scratch];

    /// Name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Relaxed => "relaxed",
            Mode::Sync => "sync",
            Mode::Scratch => "scratch",
        }
    }

    /// Number in counters.
    pub fn number(self) -> u8 {
        match self {
            Mode::Relaxed => 0,
            Mode::Sync => 1,
            Mode::Scratch => 2,
        }
    }

    /// The mode of a number.
    pub fn from_number(number: u8) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.number() == number)
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
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("'{text}' is not relaxed, sync or scratch"))
    }
}

/// Modes of a file system, as the MGS keeps them; a target that is not named is `relaxed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeList {
    /// Targets with their modes, by target.
    pub targets: Vec<(TargetId, Mode)>,
}

impl ModeList {
    /// The mode of a target.
    pub fn of(&self, target: TargetId) -> Mode {
        self.targets.iter().find(|(id, _)| *id == target).map_or(Mode::default(), |(_, mode)| *mode)
    }
}

/// Mode of a target, as it lies in its directory: a server that starts while the MGS is away goes by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMode {
    /// The mode.
    pub mode: Mode,
}

first_form!(1 => ModeList, KeptMode);

/// Asks for the modes; answered when they are others than those of `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchDurabilityReq {
    /// Version that the caller has; 0 for none.
    pub known_version: u64,
    /// Longest wait for others, in milliseconds.
    pub wait_ms: u32,
}

/// The modes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchDurabilityResp {
    /// Their version.
    pub version: u64,
    /// The modes; `None` where the caller has them.
    pub modes: Option<ModeList>,
}
message!(WatchDurabilityReq => WatchDurabilityResp, WatchDurability);

/// Changes the mode of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDurabilityReq {
    /// The target.
    pub target: TargetId,
    /// New mode.
    pub mode: Mode,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The change as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDurabilityResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// Mode before.
    pub before: Mode,
}
message!(ChangeDurabilityReq => ChangeDurabilityResp, ChangeDurability);
