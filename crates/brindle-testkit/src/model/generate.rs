//! Random operations that hit each other: few names, few slots, sizes around the limits that matter.

use super::{How, Model, Op, RenameHow};

/// Names that paths are made of.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Deepest path.
const DEPTH_MAX: u64 = 3;
/// Most paths of the tree looked at for one operation.
const PATHS_MAX: usize = 200;
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

    /// Any path: it may exist or not, and lead through anything.
    fn path(&mut self) -> String {
        let depth = 1 + self.below(DEPTH_MAX);
        let names: Vec<&str> = (0..depth).map(|_| self.name()).collect();
        names.join("/")
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len() as u64) as usize]
    }

    /// A path that mostly exists; with `dir`, mostly a directory, else mostly not.
    fn known(&mut self, model: &Model, dir: bool) -> String {
        let paths = model.paths(PATHS_MAX);
        let fitting: Vec<&String> = paths.iter().filter(|(_, d)| *d == dir).map(|(p, _)| p).collect();
        if fitting.is_empty() || self.below(8) == 0 {
            return self.path();
        }
        fitting[self.below(fitting.len() as u64) as usize].clone()
    }

    /// A name in a directory that mostly exists.
    fn fresh(&mut self, model: &Model) -> String {
        let depth_ok = |p: &String| p.matches('/').count() + 1 < DEPTH_MAX as usize;
        let dirs: Vec<String> =
            model.paths(PATHS_MAX).into_iter().filter(|(p, d)| *d && depth_ok(p)).map(|(p, _)| p).collect();
        let name = self.name();
        if dirs.is_empty() || self.below(4) == 0 {
            return name.to_owned();
        }
        format!("{}/{name}", dirs[self.below(dirs.len() as u64) as usize])
    }

    /// A slot that is mostly open the way that is wanted.
    fn open_slot(&mut self, model: &Model, first: usize, wanted: impl Fn(&How) -> bool) -> usize {
        let open = model.open_slots(first, SLOTS, wanted);
        if open.is_empty() || self.below(12) == 0 {
            return first + self.below(SLOTS as u64) as usize;
        }
        open[self.below(open.len() as u64) as usize]
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

    /// The next operation for the client whose slots are `first` to `first + SLOTS - 1`.
    pub fn next_op(&mut self, model: &Model, first: usize) -> Op {
        let (write, read) = (|h: &How| h.write, |h: &How| h.read);
        match self.below(100) {
            0..42 => self.name_op(model),
            42..54 => {
                let slot = first + self.below(SLOTS as u64) as usize;
                let how = self.how();
                let path = if how.create && self.below(2) == 0 {
                    self.fresh(model)
                } else {
                    self.known(model, false)
                };
                Op::Open { slot, path, how }
            }
            54..55 => Op::Tmpfile { slot: first + self.below(SLOTS as u64) as usize, dir: ".".into() },
            55..58 => Op::Close { slot: self.open_slot(model, first, |_| true) },
            58..76 => {
                let (slot, fill) = (self.open_slot(model, first, write), self.below(250) as u8);
                Op::Write { slot, offset: self.offset(), len: self.len(), fill }
            }
            76..89 => {
                let slot = self.open_slot(model, first, read);
                Op::Read { slot, offset: self.offset(), len: self.len() }
            }
            89..91 => Op::Fstat { slot: self.open_slot(model, first, |_| true) },
            91..93 => Op::Ftruncate { slot: self.open_slot(model, first, write), size: self.offset() },
            93..97 => {
                let slot = self.open_slot(model, first, write);
                let (offset, len) = (self.offset(), 1 + self.below(100_000));
                match self.below(3) {
                    0 => Op::Punch { slot, offset, len },
                    1 => Op::Zero { slot, offset, len },
                    _ => Op::Fallocate { slot, offset, len },
                }
            }
            97..98 => Op::Fsync { slot: self.open_slot(model, first, |_| true) },
            _ => {
                let (from, to) = (self.open_slot(model, first, read), self.open_slot(model, first, write));
                let (from_offset, to_offset) = (self.offset(), self.offset());
                Op::Copy { from, to, from_offset, to_offset, len: self.len() }
            }
        }
    }

    /// An operation on names.
    fn name_op(&mut self, model: &Model) -> Op {
        match self.below(42) {
            0..5 => Op::Mkdir { path: self.fresh(model), mode: 0o755 },
            5..7 => Op::Rmdir { path: self.known(model, true) },
            7..10 => Op::Unlink { path: self.known(model, false) },
            10..17 => {
                let how = [RenameHow::Plain, RenameHow::Plain, RenameHow::NoReplace, RenameHow::Exchange];
                let (how, dir) = (how[self.below(4) as usize], self.below(2) == 0);
                let to = if self.below(2) == 0 { self.fresh(model) } else { self.known(model, dir) };
                Op::Rename { from: self.known(model, dir), to, how }
            }
            17..20 => Op::Link { from: self.known(model, false), to: self.fresh(model) },
            20..22 => Op::Symlink { target: self.path(), path: self.fresh(model) },
            22..23 => Op::Readlink { path: self.known(model, false) },
            23..29 => {
                let dir = self.below(2) == 0;
                Op::Stat { path: self.known(model, dir) }
            }
            29..33 => {
                Op::List { path: if self.below(3) == 0 { ".".into() } else { self.known(model, true) } }
            }
            33..35 => Op::Chmod { path: self.known(model, false), mode: 0o600 + self.below(0o100) as u32 },
            35..38 => Op::Truncate { path: self.known(model, false), size: self.offset() },
            _ => self.xattr(model),
        }
    }

    fn xattr(&mut self, model: &Model) -> Op {
        let (path, name) = (self.known(model, false), format!("user.{}", self.below(3)));
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
