//! Kills at any disk operation and power cuts that tear: nothing synced is lost, nothing is called damaged, nothing
//! is read that nobody wrote.

use super::*;
use crate::format::REGION;

/// Ranges that a seed writes: windows around the start and around a region's end.
const WINDOWS: [(u64, u64); 2] = [(0, 48 << 10), (REGION - (16 << 10), REGION + (24 << 10))];

#[derive(Clone, Debug, PartialEq)]
struct Image {
    len: u64,
    windows: [Vec<u8>; 2],
}

impl Image {
    fn empty() -> Image {
        Image { len: 0, windows: WINDOWS.map(|(a, b)| vec![0; (b - a) as usize]) }
    }

    fn fill(&mut self, from: u64, to: u64, byte_at: impl Fn(u64) -> u8) {
        for ((start, end), window) in WINDOWS.iter().zip(&mut self.windows) {
            for at in from.max(*start)..to.min(*end) {
                window[(at - start) as usize] = byte_at(at);
            }
        }
    }

    fn read(b: &Bench) -> Result<Image, Fault> {
        let mut image = Image { len: b.len(), ..Image::empty() };
        for ((start, end), window) in WINDOWS.iter().zip(&mut image.windows) {
            let data = b.read(*start, end - start)?;
            window[..data.len()].copy_from_slice(&data);
        }
        Ok(image)
    }

    /// Whether every byte and the length come from some of `versions`.
    fn made_of(&self, versions: &[Image]) -> Result<(), String> {
        let lens: Vec<u64> = versions.iter().map(|v| v.len).collect();
        if !(lens.iter().min() <= Some(&self.len) && Some(&self.len) <= lens.iter().max()) {
            return Err(format!("length {} is none of {lens:?}", self.len));
        }
        for (w, (start, _)) in WINDOWS.iter().enumerate() {
            for (i, byte) in self.windows[w].iter().enumerate() {
                let at = start + i as u64;
                // If a length was lost, the bytes behind it are lost, too.
                let beyond = at >= self.len && *byte == 0;
                let beside = *byte == 0 && lens.iter().any(|l| *l <= at);
                if !beyond && !beside && !versions.iter().any(|v| v.windows[w][i] == *byte) {
                    return Err(format!("byte {at} is {byte}, which nobody wrote there"));
                }
            }
        }
        Ok(())
    }
}

struct Run {
    b: Bench,
    seed: u64,
    random: u64,
    /// The last image that a sync acknowledged, and all since.
    versions: Vec<Image>,
    resummed: u64,
}

impl Run {
    fn draw(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % n
    }

    fn place(&mut self) -> (u64, u64) {
        let (start, end) = WINDOWS[self.draw(2) as usize];
        let from = start + self.draw(end - start);
        let from = if self.draw(3) == 0 { from / 4096 * 4096 } else { from }.max(start);
        let len = match self.draw(3) {
            0 => 1 + self.draw(300),
            1 => 4096 * (1 + self.draw(3)),
            _ => 1 + self.draw(12_000),
        };
        (from, (from + len).min(end))
    }

    /// Runs one operation; `false` when the process died in it.
    fn step(&mut self) -> bool {
        let mut next = self.versions.last().expect("never empty").clone();
        let stamp = self.draw(255) as u8 + 1;
        let byte = move |at: u64| stamp.wrapping_add((at / 64) as u8) | 1;
        let (from, to) = self.place();
        let choice = self.draw(12);
        let outcome = match choice {
            0..=5 => {
                let data: Vec<u8> = (from..to).map(byte).collect();
                next.fill(from, to, byte);
                next.len = next.len.max(to);
                self.b.write(from, &data).map(drop)
            }
            6 => {
                next.fill(from, u64::MAX, |_| 0);
                next.len = from;
                self.b.truncate(from).map(drop)
            }
            7 => {
                next.fill(from, to.min(next.len), |_| 0);
                self.b.punch(from, to - from, false).map(drop)
            }
            8 | 9 => self.b.sync().map(drop),
            10 => {
                self.b.pass_ms(600);
                Ok(())
            }
            _ => {
                self.b.pass_ms(4000);
                Ok(())
            }
        };
        // A hole behind the end is none, and syncs nothing.
        let durable = matches!(choice, 6 | 8 | 9) || choice == 7 && from < next.len;
        match outcome {
            Ok(()) if durable => self.versions = vec![next],
            Ok(()) => self.versions.push(next),
            Err(_) => {
                self.versions.push(next);
                return false;
            }
        }
        true
    }

    /// After a crash: what is there must be explainable, and becomes what is known.
    fn check(&mut self, what: &str) {
        let image = Image::read(&self.b).unwrap_or_else(|f| panic!("seed {}: after {what}: {f}", self.seed));
        if let Err(why) = image.made_of(&self.versions) {
            panic!("seed {}: after {what}: {why}", self.seed);
        }
        assert_eq!(self.b.stat("damaged_blocks"), 0, "seed {}: after {what}", self.seed);
        self.resummed += self.b.stat("resummed_blocks");
        // An epoch that reached the disk although its cut was not acknowledged.
        let epoch = block_on(self.b.store.stat(O)).expect("stat").truncate_epoch;
        self.b.ticket.truncate_epoch = self.b.ticket.truncate_epoch.max(epoch);
        self.versions = vec![image];
    }
}

fn run(seed: u64) -> u64 {
    let b = Bench::new(seed);
    let mut run = Run { b, seed, random: seed ^ 0x5eed, versions: vec![Image::empty()], resummed: 0 };
    for _ in 0..4 {
        let ops_to_live = run.draw(120);
        run.b.disk.die_after(ops_to_live);
        let mut alive = true;
        for _ in 0..25 {
            alive = run.step();
            if !alive {
                break;
            }
        }
        // Without a death every operation counts as done; with one, only the last may be there in part.
        if run.draw(2) == 0 {
            let last = run.versions.len() - 1;
            run.versions = run.versions.split_off(last.saturating_sub(usize::from(!alive)));
            run.b.restart();
            run.check("a kill");
        } else {
            run.b.power_cut();
            run.check("a power cut");
        }
        run.b.sync().expect("a sync after recovery");
        run.b.power_cut();
        let known = run.versions[0].clone();
        let read = Image::read(&run.b).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
        assert!(read == known, "seed {seed}: synced bytes were lost");
    }
    run.resummed
}

#[test]
fn crashes_lose_nothing_synced_and_call_nothing_damaged() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let count: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(250);
    let seeds = first.map_or(0..count, |s: u64| s..s + 1);
    let resummed: u64 = seeds.map(run).sum();
    assert!(first.is_some() || resummed > 0, "the disk tore nothing, so nothing was tested");
}
