//! Places of ticks, and numbers as labels.

use brindle_stdx::cast::bounded_u32;
use brindle_types::units::round_down;

/// Steps between ticks: from 0 to at least `most`, about five of them, each 1, 2 or 5 times a power of ten.
pub(super) fn ticks(most: f64) -> Vec<f64> {
    if !most.is_finite() || most <= 0.0 {
        return vec![0.0, 1.0];
    }
    let raw = most / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|f| f * power).find(|s| *s >= raw).unwrap_or(raw);
    let count = bounded_u32(round_down((most / step).ceil()));
    (0..=count.max(1)).map(|n| f64::from(n) * step).collect()
}

/// Three digits that matter, without an exponent.
pub(super) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let Some((whole, rest)) = text.split_once('.') else { return grouped(&text) };
    format!("{}.{rest}", grouped(whole))
}

/// The label of a tick: no more digits than it has.
pub(super) fn label(value: f64) -> String {
    let text = figure(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (n, c) in digits.chars().enumerate() {
        if n > 0 && c.is_ascii_digit() && (digits.len() - n).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(870.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        assert!(ticks(123_456.7).last().is_some_and(|t| *t >= 123_456.7));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [1_234_567.0, 123.4, 12.34, 0.5, 0.0].map(figure),
            ["1,234,567", "123", "12.3", "0.50", "0"]
        );
        assert_eq!([1000.0, 0.5, 2.0].map(label), ["1,000", "0.5", "2"]);
    }
}
