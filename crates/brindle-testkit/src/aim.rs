//! [`Aim`]: kinds of trouble that are too rare in the ordinary mixture of work and faults, brought close together.
//!
//! An aim only changes how often things happen, never what is right: the checkers are the same. Fresh seeds draw from all
//! aims, so that they watch the code as it is; `make sim-teeth` chooses the one under which a planted bug bites.

/// Aim of the faults and the work of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No aim: a mix of everything.
    General,
    /// Changes of names that a power cut of the MDT may take back: many files of a short life, and the MDT goes dark
    /// while they are made and removed.
    Names,
    /// Pages that readers keep beside writers: one file, opened and closed all the time, and clients that are slow to hear
    /// what servers tell them.
    Pages,
    /// Requests that come late: connections that break at one end, clients that die while their requests are held up,
    /// writers of the same places, cuts of the file.
    Late,
    /// Bits that flip on the OSTs' disks.
    Rot,
    /// OSTs that are full for a while, though never all of them, while files are cut and grow and are moved.
    Room,
    /// A file whose bytes go from OST to OST all the time, while several write the same places and what they ask of OSTs comes
    /// late.
    Moves,
    /// An MDT that restarts all the time, just behind OSTs, while files are made, and read by others before their bytes have been
    /// sent.
    Restarts,
    /// OSTs that the work itself fills: all of them, so that what was acknowledged finds its room where it was promised or
    /// nowhere. Only files of a short life are written: everybody else is wrong to be told that there is no room.
    Full,
}

impl Aim {
    /// Every aim.
    pub const ALL: [Aim; 9] = [
        Aim::General,
        Aim::Names,
        Aim::Pages,
        Aim::Late,
        Aim::Rot,
        Aim::Room,
        Aim::Moves,
        Aim::Restarts,
        Aim::Full,
    ];

    /// Name of the aim on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Aim::General => "general",
            Aim::Names => "names",
            Aim::Pages => "pages",
            Aim::Late => "late",
            Aim::Rot => "rot",
            Aim::Room => "room",
            Aim::Moves => "moves",
            Aim::Restarts => "restarts",
            Aim::Full => "full",
        }
    }
}
