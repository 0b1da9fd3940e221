//! Two runs beside each other: what became faster or slower by more than the noise of both.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::run::{Figure, Run, Unit, X};
use crate::stats::Summary;

/// Conclusion from two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The quartiles do not overlap, and the second is the better.
    Faster,
    /// The quartiles do not overlap, and the second is the worse.
    Slower,
    /// The quartiles overlap.
    WithinNoise,
}

/// A figure that both runs have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Case, as in both runs.
    pub case: String,
    /// Phase, as in both runs.
    pub phase: String,
    /// Unit, as in both runs.
    pub unit: Unit,
    /// Varied quantity, as in both runs.
    pub x: Option<X>,
    /// Of the first run.
    pub first: Summary,
    /// Of the second run.
    pub second: Summary,
    /// Ratio of the second to the first: 1.1 is ten percent faster, whatever the unit.
    pub ratio: f64,
    /// Whether that is more than noise.
    pub verdict: Verdict,
    /// Processor time per operation of the second beside the first: 0.9 is ten percent cheaper. `None` where one has none.
    pub cpu_ratio: Option<f64>,
}

/// Two runs beside each other.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Comparison {
    /// Figures that both have, in the order of the first.
    pub rows: Vec<Row>,
    /// Figures of the first that the second does not have: case and phase.
    pub only_first: Vec<String>,
    /// Figures of the second that the first does not have.
    pub only_second: Vec<String>,
    /// Parameters that differ: with these the figures may not be comparable.
    pub differences: Vec<String>,
}

/// Compares two runs.
pub fn compare(first: &Run, second: &Run) -> Comparison {
    let of_second: BTreeMap<_, &Figure> = second.figures.iter().map(|f| (f.key(), f)).collect();
    let of_first: BTreeMap<_, &Figure> = first.figures.iter().map(|f| (f.key(), f)).collect();
    let alone = |run: &Run, other: &BTreeMap<_, &Figure>| {
        run.figures.iter().filter(|f| !other.contains_key(&f.key())).map(name).collect()
    };
    let both = first.figures.iter().filter_map(|a| Some((a, *of_second.get(&a.key())?)));
    Comparison {
        rows: both.filter(|(a, b)| a.unit == b.unit).map(|(a, b)| row(a, b)).collect(),
        only_first: alone(first, &of_second),
        only_second: alone(second, &of_first),
        differences: differences(first, second),
    }
}

fn name(f: &Figure) -> String {
    match &f.x {
        Some(x) => format!("{}, {} {}: {}", f.case, x.value, x.name, f.phase),
        None => format!("{}: {}", f.case, f.phase),
    }
}

fn row(a: &Figure, b: &Figure) -> Row {
    let ratio = a.unit.fraction(b.summary.median, a.summary.median);
    let apart = a.summary.quartile_3 < b.summary.quartile_1 || b.summary.quartile_3 < a.summary.quartile_1;
    let verdict = match apart {
        false => Verdict::WithinNoise,
        true if ratio > 1.0 => Verdict::Faster,
        true => Verdict::Slower,
    };
    let cpu_of = |f: &Figure| f.cpu_microseconds_per_operation.filter(|cpu| *cpu > 0.0);
    let cpu_ratio = cpu_of(a).zip(cpu_of(b)).map(|(a, b)| b / a);
    Row {
        case: a.case.clone(),
        phase: a.phase.clone(),
        unit: a.unit,
        x: a.x.clone(),
        first: a.summary,
        second: b.summary,
        ratio,
        verdict,
        cpu_ratio,
    }
}

fn differences(first: &Run, second: &Run) -> Vec<String> {
    let mut all = Vec::new();
    let mut differ = |name: &str, a: String, b: String| {
        if a != b {
            all.push(format!("{name}: {a} and {b}"));
        }
    };
    differ("workload", first.workload.clone(), second.workload.clone());
    differ("cores", first.machine.cores.to_string(), second.machine.cores.to_string());
    differ("kernel", first.machine.kernel.clone(), second.machine.kernel.clone());
    let names = first.parameters.keys().chain(second.parameters.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let of = |run: &Run| run.parameters.get(name).map_or("none".to_owned(), ToString::to_string);
        differ(name, of(first), of(second));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::RunClock;
    use crate::run::Sample;

    fn figure(case: &str, unit: Unit, seconds: &[f64]) -> Figure {
        let sample = |s: &f64| Sample {
            seconds: *s,
            bytes: 1 << 20,
            operations: 1,
            cpu_seconds: Some(*s),
            ..Sample::default()
        };
        let samples = seconds.iter().map(|s| sample(s).valued(unit)).collect();
        Figure::new(case, "write", unit, None, samples).expect("samples")
    }

    fn run(figures: Vec<Figure>) -> Run {
        RunClock::start().run("ior", Vec::new(), figures)
    }

    #[test]
    fn noise_is_told_from_change() {
        let first = run(vec![
            figure("faster", Unit::MibPerSecond, &[1.0, 1.1, 1.2]),
            figure("same", Unit::MibPerSecond, &[1.0, 2.0, 3.0]),
            figure("slower", Unit::Seconds, &[1.0, 1.1, 1.2]),
            figure("gone", Unit::Seconds, &[1.0]),
        ]);
        let second = run(vec![
            figure("faster", Unit::MibPerSecond, &[0.5, 0.5, 0.6]),
            figure("same", Unit::MibPerSecond, &[1.5, 1.9, 2.5]),
            figure("slower", Unit::Seconds, &[2.2, 2.2, 2.4]),
            figure("new", Unit::Seconds, &[1.0]),
        ]);
        let found = compare(&first, &second);
        let verdicts: Vec<Verdict> = found.rows.iter().map(|r| r.verdict).collect();
        assert_eq!(verdicts, [Verdict::Faster, Verdict::WithinNoise, Verdict::Slower]);
        assert!((found.rows[0].ratio - 2.2).abs() < 1e-9 && (found.rows[2].ratio - 0.5).abs() < 1e-9);
        assert_eq!(found.rows[2].cpu_ratio, Some(2.0));
        assert_eq!(
            (found.only_first, found.only_second),
            (vec!["gone: write".into()], vec!["new: write".into()])
        );
        assert!(found.differences.is_empty());
    }

    #[test]
    fn parameters_that_differ_are_told() {
        let (first, mut second) = (run(Vec::new()), run(Vec::new()));
        second.parameters.insert("ranks".to_owned(), 4.into());
        assert_eq!(compare(&first, &second).differences, ["ranks: none and 4"]);
    }
}
