//! From samples to a verdict. The floor of a row is the lower of two figures: the wanted share of the best peer and
//! that of the yardstick. Repetitions are compared in pairs, so that a disturbance of the machine for a while meets
//! both.

use std::collections::BTreeMap;

use brindle_bench::run::Unit;
use brindle_bench::stats::{Summary, median};

/// Speeds by repetition: more is better.
pub type Speeds = BTreeMap<u32, f64>;

/// The speed of a value: times are turned over.
pub fn speed(unit: Unit, value: f64) -> f64 {
    if unit.more_is_better() { value } else { 1.0 / value }
}

/// Whether a row reaches its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Above it with its lower quartile.
    Pass,
    /// Below it with its upper quartile.
    Fail,
    /// The quartiles lie on both sides.
    Undecided,
    /// A figure was not measured.
    Missing,
}

impl Verdict {
    /// Text in the table.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Undecided => "undecided",
            Verdict::Missing => "not measured",
        }
    }
}

/// Result of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Ours by the best peer.
    pub to_peer: Option<Summary>,
    /// Ours by the yardstick.
    pub to_beside: Option<Summary>,
    /// Ours by the floor: 1 is just enough.
    pub to_floor: Option<Summary>,
    /// The verdict on that.
    pub verdict: Verdict,
}

/// The name of the system with the largest median.
pub fn best<'a>(systems: impl IntoIterator<Item = (&'a str, &'a Speeds)>) -> Option<&'a str> {
    let medians = systems.into_iter().filter_map(|(name, speeds)| Some((name, middle(speeds)?)));
    medians.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

fn middle(speeds: &Speeds) -> Option<f64> {
    median(&speeds.values().copied().collect::<Vec<f64>>())
}

/// Compares `ours` with what is asked for: so many times the speed of a peer, and of a yardstick where the row has one.
/// A side that is asked for and was not measured makes the verdict [`Verdict::Missing`]: the floor might lie elsewhere.
pub fn judge(ours: &Speeds, peer: (&Speeds, f64), beside: Option<(&Speeds, f64)>) -> Judged {
    let to_peer = ratios(ours, |n| peer.0.get(&n).copied());
    let to_beside = beside.and_then(|(speeds, _)| ratios(ours, |n| speeds.get(&n).copied()));
    let to_floor = ratios(ours, |n| {
        let peer_floor = peer.0.get(&n)? * peer.1;
        match beside {
            Some((speeds, times)) => Some(peer_floor.min(speeds.get(&n)? * times)),
            None => Some(peer_floor),
        }
    });
    let verdict = match to_floor {
        None => Verdict::Missing,
        Some(s) if s.quartile_1 >= 1.0 => Verdict::Pass,
        Some(s) if s.quartile_3 < 1.0 => Verdict::Fail,
        Some(_) => Verdict::Undecided,
    };
    Judged { to_peer, to_beside, to_floor, verdict }
}

fn ratios(ours: &Speeds, other: impl Fn(u32) -> Option<f64>) -> Option<Summary> {
    let pairs = ours.iter().filter_map(|(n, speed)| Some((speed, other(*n)?)));
    let ratios: Vec<f64> =
        pairs.filter(|(_, other)| *other > 0.0).map(|(speed, other)| speed / other).collect();
    Summary::of(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(values: &[f64]) -> Speeds {
        (1..).zip(values.iter().copied()).collect()
    }

    #[test]
    fn the_floor_is_the_lower_of_both_columns() {
        let ours = speeds(&[90.0, 90.0, 90.0]);
        let (peer, local) = (speeds(&[50.0, 50.0, 50.0]), speeds(&[100.0, 100.0, 100.0]));
        let judged = judge(&ours, (&peer, 2.0), Some((&local, 0.8)));
        assert_eq!(judged.verdict, Verdict::Pass);
        assert_eq!(judged.to_floor.unwrap().median, 90.0 / 80.0);
        assert_eq!(judged.to_peer.unwrap().median, 1.8);
        assert_eq!(judge(&ours, (&peer, 2.0), None).verdict, Verdict::Fail);
    }

    #[test]
    fn repetitions_are_compared_in_pairs() {
        // A machine that is half as fast in every second repetition does not make the row undecided.
        let ours = speeds(&[300.0, 150.0, 300.0, 150.0, 300.0]);
        let peer = speeds(&[100.0, 50.0, 100.0, 50.0, 100.0]);
        assert_eq!(judge(&ours, (&peer, 2.0), None).verdict, Verdict::Pass);
        assert_eq!(judge(&ours, (&peer, 3.5), None).verdict, Verdict::Fail);
    }

    #[test]
    fn quartiles_on_both_sides_are_undecided() {
        let ours = speeds(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let peer = speeds(&[1.0; 5]);
        assert_eq!(judge(&ours, (&peer, 3.0), None).verdict, Verdict::Undecided);
        assert_eq!(judge(&ours, (&peer, 2.0), None).verdict, Verdict::Pass);
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let (ours, none) = (speeds(&[1.0]), Speeds::new());
        assert_eq!(judge(&ours, (&none, 2.0), None).verdict, Verdict::Missing);
        assert_eq!(judge(&ours, (&ours, 0.5), Some((&none, 0.1))).verdict, Verdict::Missing);
        assert_eq!(judge(&none, (&ours, 2.0), None).verdict, Verdict::Missing);
    }

    #[test]
    fn the_best_peer_is_that_of_the_medians() {
        let (a, b) = (speeds(&[10.0, 10.0, 90.0]), speeds(&[20.0, 20.0, 20.0]));
        assert_eq!(best([("a", &a), ("b", &b)]), Some("b"));
        assert_eq!(best([("a", &Speeds::new())]), None);
        assert_eq!(speed(Unit::Seconds, 4.0), 0.25);
    }
}
