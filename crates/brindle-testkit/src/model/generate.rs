//! Random operations that hit each other: few names, few slots, sizes around the limits that matter.

use super::{How, Op, RenameHow};

/// Names that paths are made of.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Deepest path.
const DEPTH_MAX: u64 = 3;
/// Open files of one client.
pub const SLOTS: usize = 6;
/// Offsets and sizes around which bugs live: blocks, the inline limit, stripes, regions.
const EDGES: [u64; 8] = [0, 1, 4096, 8192, 65_536, 131_072, 262_144, 1_048_576];

/// Draws operations from a seed; the same seed gives the same operations.
pub struct Generator {
    state: u64,
    /// Largest offset that is drawn.
    size_max: u64,
}

impl Generator {
    /// Starts from `seed`; no file grows much beyond `size_max` bytes.
    pub fn new(seed: u64, size_max: u64) -> Generator {
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, size_max }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.below(DEPTH_MAX);
        let names: Vec<&str> = (0..depth).map(|_| NAMES[self.below(NAMES.len() as u64) as usize]).collect();
        names.join("/")
    }

    fn offset(&mut self) -> u64 {
        let edge = EDGES[self.below(EDGES.len() as u64) as usize].min(self.size_max);
        match self.below(4) {
            0 => edge,
            1 => edge.saturating_sub(1 + self.below(64)),
            2 => edge + self.below(5000),
            _ => self.below(self.size_max),
        }
    }

    fn len(&mut self) -> usize {
        match self.below(4) {
            0 => 1 + self.below(10) as usize,
            1 => 4096,
            2 => 1 + self.below(20_000) as usize,
            _ => 1 + self.below(self.size_max.min(200_000)) as usize,
        }
    }

    fn how(&mut self) -> How {
        let write = self.below(3) > 0;
        How {
            read: !write || self.below(2) == 0,
            write,
            append: write && self.below(5) == 0,
            truncate: write && self.below(8) == 0,
            create: write && self.below(3) > 0,
            exclusive: self.below(6) == 0,
        }
    }

    /// The next operation, for slots `first_slot` to `first_slot + SLOTS - 1`.
    pub fn next_op(&mut self, first_slot: usize) -> Op {
        let slot = first_slot + self.below(SLOTS as u64) as usize;
        match self.below(100) {
            0..5 => Op::Mkdir { path: self.path(), mode: 0o755 },
            5..7 => Op::Rmdir { path: self.path() },
            7..11 => Op::Unlink { path: self.path() },
            11..18 => {
                let how = [RenameHow::Plain, RenameHow::Plain, RenameHow::NoReplace, RenameHow::Exchange];
                let how = how[self.below(4) as usize];
                Op::Rename { from: self.path(), to: self.path(), how }
            }
            18..21 => Op::Link { from: self.path(), to: self.path() },
            21..23 => Op::Symlink { target: self.path(), path: self.path() },
            23..24 => Op::Readlink { path: self.path() },
            24..30 => Op::Stat { path: self.path() },
            30..34 => Op::List { path: if self.below(3) == 0 { ".".into() } else { self.path() } },
            34..36 => Op::Chmod { path: self.path(), mode: 0o600 + self.below(0o100) as u32 },
            36..39 => Op::Truncate { path: self.path(), size: self.offset() },
            39..43 => self.xattr(),
            43..57 => Op::Open { slot, path: self.path(), how: self.how() },
            57..58 => Op::Tmpfile { slot, dir: ".".into() },
            58..63 => Op::Close { slot },
            63..78 => {
                let (offset, len, fill) = (self.offset(), self.len(), self.below(250) as u8);
                Op::Write { slot, offset, len, fill }
            }
            78..89 => Op::Read { slot, offset: self.offset(), len: self.len() },
            89..92 => Op::Fstat { slot },
            92..94 => Op::Ftruncate { slot, size: self.offset() },
            94..95 => Op::Punch { slot, offset: self.offset(), len: 1 + self.below(100_000) },
            95..96 => Op::Zero { slot, offset: self.offset(), len: 1 + self.below(100_000) },
            96..97 => Op::Fallocate { slot, offset: self.offset(), len: 1 + self.below(100_000) },
            97..98 => Op::Fsync { slot },
            _ => {
                let to = first_slot + self.below(SLOTS as u64) as usize;
                let (from_offset, to_offset) = (self.offset(), self.offset());
                Op::Copy { from: slot, to, from_offset, to_offset, len: self.len() }
            }
        }
    }

    fn xattr(&mut self) -> Op {
        let (path, name) = (self.path(), format!("user.{}", self.below(3)));
        match self.below(3) {
            0 => {
                let value = super::pattern(self.below(250) as u8, self.below(300) as usize);
                Op::SetXattr { path, name, value }
            }
            1 => Op::GetXattr { path, name },
            _ => Op::RemoveXattr { path, name },
        }
    }
}
