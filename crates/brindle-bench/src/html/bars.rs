//! A plot of bars: one for each case and phase, with its quartiles and, where it fits, the limit below it.

use std::fmt::Write;

use super::{COLOURS, axis, escape};
use crate::run::{Figure, Unit};

const WIDTH: f64 = 900.0;
const LABELS: f64 = 330.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 26.0;
const BAR: f64 = 15.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 26.0;
/// A limit so many times larger than every bar is left out, because it would leave no bar to see.
const LIMIT_TIMES_MAX: f64 = 4.0;

/// The plot.
pub(super) fn plot(figures: &[&Figure], unit: Unit) -> String {
    let own = figures.iter().map(|f| f.summary.quartile_3).fold(0.0, f64::max);
    let limit = |f: &Figure| f.limits.first().map(|l| l.summary.median);
    let limits = figures.iter().filter_map(|f| limit(f)).filter(|l| *l <= own * LIMIT_TIMES_MAX);
    let ticks = axis::ticks(limits.fold(own, f64::max));
    let most = ticks.last().copied().unwrap_or(1.0);
    let place = |value: f64| LABELS + value / most * (WIDTH - LABELS - RIGHT);
    let height = TOP + ROW * figures.len() as f64 + BOTTOM;
    let better = if unit.more_is_better() { "more is better" } else { "less is better" };
    let mut out = format!("<figure><figcaption>{} ({better})</figcaption>\n", unit.text());
    let _ = writeln!(out, "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for tick in &ticks {
        let x = place(*tick);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - BOTTOM,
            height - 8.0,
            axis::label(*tick)
        );
    }
    for (n, f) in figures.iter().enumerate() {
        let top = TOP + ROW * n as f64;
        out += &bar(f, top, colour_of(figures, f), &place, limit(f).filter(|l| *l <= most));
    }
    out += "</svg>\n";
    let shown = figures.iter().any(|f| limit(f).is_some_and(|l| l <= most));
    if let (true, Some(l)) = (shown, figures.iter().find_map(|f| f.limits.first())) {
        let _ = writeln!(out, "<div class=\"legend\">The mark is the limit: {}.</div>", escape(&l.name));
    }
    out + "</figure>\n"
}

/// Phases of one name have one colour.
fn colour_of(figures: &[&Figure], f: &Figure) -> usize {
    let mut phases: Vec<&str> = Vec::new();
    for other in figures {
        if !phases.contains(&other.phase.as_str()) {
            phases.push(&other.phase);
        }
    }
    phases.iter().position(|p| *p == f.phase).unwrap_or(0) % COLOURS.len()
}

fn bar(f: &Figure, top: f64, colour: usize, place: &dyn Fn(f64) -> f64, limit: Option<f64>) -> String {
    let (middle, y) = (top + ROW / 2.0, top + (ROW - BAR) / 2.0);
    let (median, low, high) =
        (place(f.summary.median), place(f.summary.quartile_1), place(f.summary.quartile_3));
    let mut out = format!(
        "<g><text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}: {}</text>\
         <rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"var(--s{colour})\"/>\
         <line x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\" stroke=\"var(--text)\" \
         stroke-width=\"1.5\"/>",
        LABELS - 10.0,
        middle + 4.0,
        escape(&f.case),
        escape(&f.phase),
        (median - LABELS).max(1.0),
    );
    let mut right = median.max(high);
    if let Some(limit) = limit {
        let x = place(limit);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"var(--text)\" stroke-width=\"2.5\"/>",
            y - 3.0,
            y + BAR + 3.0
        );
        // The number does not lie on the mark.
        if x > right && x < right + 55.0 {
            right = x;
        }
    }
    let _ = writeln!(
        out,
        "<text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        right + 8.0,
        middle + 4.0,
        axis::figure(f.summary.median)
    );
    out
}
