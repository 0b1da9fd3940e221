//! Medians and quartiles of a few samples.

use brindle_stdx::cast::to_usize;
use brindle_types::units::round_down;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Summary of a row of samples. Quartiles by linear interpolation between the sorted samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Half of the samples are not larger.
    pub median: f64,
    /// A quarter of the samples are not larger.
    pub quartile_1: f64,
    /// Three quarters of the samples are not larger.
    pub quartile_3: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Summary of the samples; `None` for none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let at = |part: f64| quantile(&sorted, part);
        Some(Summary { median: at(0.5), quartile_1: at(0.25), quartile_3: at(0.75), min, max })
    }
}

/// The median; `None` for no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|s| s.median)
}

/// A fraction as people read it: `37 %`, `2.4 %`.
pub fn percent(fraction: f64) -> String {
    if fraction < 0.1 { format!("{:.1} %", fraction * 100.0) } else { format!("{:.0} %", fraction * 100.0) }
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (to_usize(round_down(place)), to_usize(round_down(place.ceil())));
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_samples() {
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("samples");
        assert_eq!((s.min, s.quartile_1, s.median, s.quartile_3, s.max), (1.0, 1.75, 2.5, 3.25, 4.0));
        let one = Summary::of(&[7.0]).expect("a sample");
        assert_eq!((one.quartile_1, one.median, one.quartile_3), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!([0.374, 0.0241, 1.42].map(percent), ["37 %", "2.4 %", "142 %"]);
        assert_eq!(median(&[3.0, 9.0, 1.0]), Some(3.0));
    }
}
